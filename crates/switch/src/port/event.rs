//! What a port's client may wait for.

/// What there is now that a client may be waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Frames to receive.
    Frames,
    /// Room to send.
    Room,
}
