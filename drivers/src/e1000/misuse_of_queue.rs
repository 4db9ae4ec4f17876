//! Violations of the specification by the device.

/// A violation of the specification by the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// The transmit head in shared memory is beyond the tail.
    #[error("it says it is at transmit descriptor {0}, which it does not have")]
    Head(u32),
    /// A received frame is longer than its buffer, or shorter than a frame check sequence.
    #[error("it wrote {0} bytes into a buffer of {1}")]
    Length(usize, usize),
    /// A received frame spans more descriptors than the ring has.
    #[error("it wrote a frame over {0} buffers without an end")]
    Endless(u32),
}
