//! The headline: rate of one sender to one receiver, short and long frames, against the bare ring and the peers.

use std::io;

use ringway_traffic::Fill;

use crate::network::Load;
use crate::report::{Axis, Figure, Heading, RATE};
use crate::series::RINGWAY;
use crate::session::{Session, one_to_one};

/// Measures the figure.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let mut lineup = session.lineup();
    for frame_len in [60, 1514] {
        let load = one_to_one(frame_len);
        lineup.anchor(frame_len, frame_len);
        lineup.ringway(RINGWAY, frame_len, &session.settings(), &load);
        let written = Load { fill: Fill::Each, ..load.clone() };
        lineup.ringway("ringway, every frame written", frame_len, &session.settings(), &written);
        lineup.peers(frame_len, &load);
    }
    let heading = Heading {
        name: "headline".into(),
        title: "One sender to one receiver".into(),
        source: "VALE, section 5.1",
        x: Axis { label: "frame size", unit: "bytes", logarithmic: false },
        y: RATE,
    };
    Ok(vec![session.measure("headline", heading, lineup)?])
}
