//! VALE, figures 6 and 7: rate, and time per frame, against the number of destinations.
//!
//! One destination is an address the switch has learned; several are reached by broadcast. The rate is that of frames taken in and
//! delivered to all destinations.

use std::io;

use crate::network::{Destination, Load};
use crate::report::{Axis, Figure, Heading, RATE};
use crate::series::RINGWAY;
use crate::session::{Session, one_to_one};

const DESTINATIONS: [usize; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 16, 32];

/// Measures both figures, for short and long frames.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for frame_len in [60, 1514] {
        let mut lineup = session.lineup();
        for receivers in session.places(&DESTINATIONS) {
            let to = if receivers == 1 { Destination::Learned } else { Destination::Broadcast };
            let load = Load { receivers, to, ..one_to_one(frame_len) };
            lineup.anchor(receivers, frame_len);
            lineup.ringway(RINGWAY, receivers, &session.settings(), &load);
            lineup.peers(receivers, &load);
        }
        let heading = Heading {
            name: format!("fig06-{frame_len}"),
            title: format!("Forwarding rate against number of destinations, frames of {frame_len} bytes"),
            source: "VALE, figure 6",
            x: Axis { label: "destinations", unit: "ports", logarithmic: true },
            y: RATE,
        };
        let rates = session.measure("destinations", heading, lineup)?;
        let title = format!("Time per frame against number of destinations, frames of {frame_len} bytes");
        let times = rates.per_frame(&format!("fig07-{frame_len}"), &title, "VALE, figure 7");
        figures.extend([rates, times]);
    }
    Ok(figures)
}
