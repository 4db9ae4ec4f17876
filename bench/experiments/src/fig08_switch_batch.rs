//! VALE, figure 8: rate against the switch's batch size; sender and receiver use large batches.

use std::io;

use crate::daemon::{LONG, Settings};
use crate::network::Load;
use crate::report::{Axis, Figure, Heading, RATE};
use crate::series::RINGWAY;
use crate::session::{Session, one_to_one};

const BATCHES: [usize; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
/// What VALE calls large.
const LARGE: usize = 1024;

/// Measures the figure.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let mut lineup = session.lineup();
    for batch in session.places(&BATCHES) {
        lineup.anchor(batch, 60);
        let settings = Settings { batch, shape: LONG, ..session.settings() };
        let load = Load { tx_batch: LARGE, rx_batch: LARGE, ..one_to_one(60) };
        lineup.ringway(RINGWAY, batch, &settings, &load);
    }
    let heading = Heading {
        name: "fig08".into(),
        title: "Rate against batch size of the switch, frames of 60 bytes".into(),
        source: "VALE, figure 8",
        x: Axis { label: "batch of the switch", unit: "frames", logarithmic: true },
        y: RATE,
    };
    Ok(vec![session.measure("switch-batch", heading, lineup)?])
}
