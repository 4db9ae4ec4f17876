//! VPE, figure 12: LWEP with the poller and the ends bound to cores, and not.

use std::io;

use crate::daemon::{Daemon, Settings};
use crate::lwep::{MESSAGES, SIZE};
use crate::messages::{Lwep, Measure, Messages, Way};
use crate::report::{Axis, Figure, Heading, TIME};
use crate::series::RINGWAY;
use crate::session::Session;

const SIZES: [usize; 2] = [8, 1400];

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let cores = session.cores;
    let bound = session.settings();
    let not_bound = Settings { core: None, ..bound.clone() };
    let apart = Settings { idle: "sleep", ..bound.clone() };
    let together = Settings { core: Some(cores.generator), ..apart.clone() };
    let sleeping = Way { sleeps: true, ..Way::PLAIN };
    let ways = [
        (RINGWAY, &bound, Way::PLAIN, true),
        ("ringway, not bound", &not_bound, Way::PLAIN, false),
        ("ringway, sleeping on two cores", &apart, sleeping, true),
        ("ringway, sleeping on one core", &together, sleeping, true),
    ];
    let trip = Axis { label: "round trip", ..TIME };
    let figures = [
        ("-latency", "Round trip with and without binding", Measure::RoundTrip, trip),
        ("", "Messages with and without binding", Measure::Rate, MESSAGES),
    ];
    let mut done = Vec::new();
    for (name, title, measure, y) in figures {
        let mut lineup = session.lineup();
        for size in SIZES {
            for (series, settings, way, is_bound) in ways {
                lineup.add_with(series, size as f64, || {
                    let messenger = Lwep::start(Daemon::start(cores, settings)?, way)?;
                    Ok(Messages { messenger, size, measure, cores, is_bound })
                });
            }
        }
        let (name, source) = (format!("lwep-binding{name}"), "VPE, figure 12");
        let heading = Heading { name, title: title.into(), source, x: SIZE, y };
        done.push(session.measure("lwep-binding", heading, lineup)?);
    }
    Ok(done)
}
