//! Port kinds. Each is a folder with one public type that makes a port's three sides: its input, its output and its bell.

mod copy;
pub mod e1000;
mod front_end;
mod gather;
// Guests choose these numbers. Release builds of this crate have no overflow checks, so no arithmetic in this module
// may wrap.
#[deny(clippy::arithmetic_side_effects)]
pub mod guest;
pub mod process;
mod steer;
pub mod stream;
pub mod tap;
pub mod vfio_user;
pub mod vhost_user;
pub mod virtqueue;

pub use front_end::refuse_files;
use ringway_engine::Signal;
use ringway_switch::{Bell, Input, Output};

/// The parts of one port, as the switch and the engine take them.
pub struct Sides {
    /// Takes frames from the client.
    pub input: Box<dyn Input>,
    /// Delivers frames to the client.
    pub output: Box<dyn Output>,
    /// Notifies the client of frames and of buffers that it can use again.
    pub bell: Box<dyn Bell>,
    /// Tells the engine how the client's notifications arrive.
    pub signal: Signal,
}
