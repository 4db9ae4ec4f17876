//! Frames to a driver: the receive ring (SDM 3.2).
//!
//! Packet split descriptors are filled without splitting headers off, which the format allows.
//!
//! - `queue`: the ring, and frames that fit one buffer each; `pieces`: all other frames.
//! - `received`: the results of a delivery.
//! - `fcs`, `sums`: the frame check sequence and the checksums.

mod fcs;
mod pieces;
mod queue;
mod received;
mod sums;

pub use queue::{Destination, Receive};
pub use received::Received;
