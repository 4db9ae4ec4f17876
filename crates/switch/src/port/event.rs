//! The events that a port's client can wait for.

/// An event that a port's client can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallReason {
    /// Frames to receive.
    Frames,
    /// Room to send.
    Room,
}
