//! The cost of a source guard that refuses none of LWEP's messages.

use std::io;

use crate::daemon::Settings;
use crate::lwep::{MESSAGES, SIZE, ringway};
use crate::messages::{Measure, Way, address};
use crate::report::{Axis, Figure, Heading, TIME};
use crate::series::RINGWAY;
use crate::session::Session;

const SIZES: [usize; 2] = [8, 1400];

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let unguarded = session.settings();
    let port = |number| {
        let (mac, ip) = address(number);
        format!("mac = [\"{mac}\"]\nip = [\"{ip}\"]\nguard = \"all\"\n")
    };
    let guarded = Settings { keys: vec![port(0), port(1)], ..session.settings() };
    let trip = Axis { label: "round trip", ..TIME };
    let segmented = Way { segmented: true, ..Way::PLAIN };
    let figures = [
        ("", "Messages past a source guard", Way::PLAIN, Measure::Rate, MESSAGES),
        ("-segmented", "Messages of the segmentation layout past a source guard", segmented, Measure::Rate, MESSAGES),
        ("-latency", "Round trip past a source guard", Way::PLAIN, Measure::RoundTrip, trip),
    ];
    let mut done = Vec::new();
    for (name, title, way, measure, y) in figures {
        let mut lineup = session.lineup();
        for size in SIZES {
            ringway(&mut lineup, RINGWAY, &guarded, way, (size, measure));
            ringway(&mut lineup, "no guard", &unguarded, way, (size, measure));
        }
        let (name, source) = (format!("lwep-guard{name}"), "fairness paper, section 4");
        let heading = Heading { name, title: title.into(), source, x: SIZE, y };
        done.push(session.measure("lwep-guard", heading, lineup)?);
    }
    Ok(done)
}
