//! VALE, figure 11: time per frame against frame size, one sender to one receiver, large batches.

use std::io;

use crate::report::{Axis, Figure, Heading, RATE};
use crate::series::RINGWAY;
use crate::session::{Session, one_to_one};

const SIZES: [usize; 8] = [60, 124, 252, 508, 764, 1020, 1276, 1514];

/// Measures the figure.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let mut lineup = session.lineup();
    for frame_len in session.places(&SIZES) {
        let load = one_to_one(frame_len);
        lineup.anchor(frame_len, frame_len);
        lineup.ringway(RINGWAY, frame_len, &session.settings(), &load);
        lineup.peers(frame_len, &load);
    }
    let heading = Heading {
        name: "fig11".into(),
        title: "Time per frame against frame size".into(),
        source: "VALE, figure 11",
        x: Axis { label: "frame size", unit: "bytes", logarithmic: false },
        y: RATE,
    };
    let rates = session.measure("frame-size", heading, lineup)?;
    Ok(vec![rates.per_frame("fig11", "Time per frame against frame size", "VALE, figure 11")])
}
