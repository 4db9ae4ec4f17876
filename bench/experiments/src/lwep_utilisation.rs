//! VPE, figure 8: the CPU time of LWEP's messages where everybody sleeps and where everybody spins, beside the kernel's sockets.

use std::io;

use crate::daemon::Settings;
use crate::lwep::{SIZE, SOCKETS, ringway, sleeping_sockets};
use crate::messages::{Measure, Way};
use crate::report::{Axis, Figure, Heading, TIME};
use crate::series::RINGWAY;
use crate::session::Session;

const SIZES: [usize; 2] = [8, 1400];

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let spinning = session.settings();
    let sleeping = Settings { idle: "sleep", ..session.settings() };
    let figures = [
        ("-trips", "CPU time of a round trip, one message at a time", Measure::CpuOfRoundTrip),
        ("", "CPU time of a message, as many as can be", Measure::CpuOfMessage),
    ];
    let mut done = Vec::new();
    for (name, title, measure) in figures {
        let mut lineup = session.lineup();
        for size in SIZES {
            ringway(&mut lineup, RINGWAY, &sleeping, Way { sleeps: true, ..Way::COPIED }, (size, measure));
            ringway(&mut lineup, "ringway, spinning", &spinning, Way::COPIED, (size, measure));
            sleeping_sockets(&mut lineup, &SOCKETS, (size, measure));
        }
        let (name, source) = (format!("lwep-utilisation{name}"), "VPE, figure 8");
        let y = Axis { label: "CPU time", ..TIME };
        let heading = Heading { name, title: title.into(), source, x: SIZE, y };
        done.push(session.measure("lwep-utilisation", heading, lineup)?);
    }
    Ok(done)
}
