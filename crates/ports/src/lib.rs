//! Port kinds. Each is a folder with one public type that makes a port's three sides: its input, its output and its bell.

mod copy;
pub mod e1000;
mod front_end;
mod gather;
// Guests choose the numbers here: release builds of this crate have no overflow checks, and no arithmetic here may wrap.
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

/// A port, in the parts that the switch and the engine take.
pub struct Sides {
    /// Frames from the client.
    pub input: Box<dyn Input>,
    /// Frames to the client.
    pub output: Box<dyn Output>,
    /// Wakes the client.
    pub bell: Box<dyn Bell>,
    /// How the client makes itself heard.
    pub signal: Signal,
}
