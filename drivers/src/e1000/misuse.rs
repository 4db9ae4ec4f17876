//! What a device must not do.

/// A violation of the specification by the device. The texts go on where they name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// The transmit head in the status block is beyond the tail.
    #[error("says that it is at transmit descriptor {0}, which it does not have")]
    Head(u32),
    /// A received frame is longer than its buffer, or shorter than a frame check sequence.
    #[error("says that it wrote {0} bytes into a buffer of {1}")]
    Length(usize, usize),
    /// A received frame spans more descriptors than the ring has.
    #[error("wrote a frame over {0} buffers without an end")]
    Endless(u32),
}
