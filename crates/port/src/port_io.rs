//! The parts of one port, as the switch and the engine take them.

use ringway_runtime::Signal;
use ringway_switch::{Bell, Input, Output};

/// The parts of one port, as the switch and the engine take them.
pub struct PortIo {
    /// Takes frames from the client.
    pub input: Box<dyn Input>,
    /// Delivers frames to the client.
    pub output: Box<dyn Output>,
    /// Notifies the client of frames and of buffers that it can use again.
    pub bell: Box<dyn Bell>,
    /// Tells the engine how the client's notifications arrive.
    pub signal: Signal,
}
