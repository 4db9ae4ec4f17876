//! Frames from a driver: a transmit queue (virtio 1.3, 5.1.6.2).
//!
//! - `queue`: the queue, and the frames that it takes.
//! - `discard`: frames that are dropped unread.

mod discard;
mod queue;

pub use queue::Transmit;
