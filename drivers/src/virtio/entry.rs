//! What a ring tells its driver.

/// Bytes of the header before every frame (virtio 1.3, 5.1.6.1).
pub const HEADER: usize = 12;

/// How a ring is made.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Descriptors, a power of two.
    pub size: u16,
    /// The device writes to the buffers.
    pub writable: bool,
    /// Each side tells the position at which it wants the next notification.
    pub event_idx: bool,
}

/// A used buffer, as the device reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Id of the buffer.
    pub id: u32,
    /// Bytes that the device wrote, including the header.
    pub len: u32,
}

/// A violation of the specification by the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// The index of the used ring is ahead of that of the available ring.
    #[error("the device used {claimed} buffers and had {outstanding}")]
    Count {
        /// Buffers that it claims to have used.
        claimed: u32,
        /// Buffers that it had.
        outstanding: u32,
    },
    /// It used a buffer that it does not have.
    #[error("the device gave back buffer {0}, which it does not have")]
    Id(u32),
    /// It reports an impossible length.
    #[error("the device wrote {0} bytes into a buffer of {1}, which has a header of 12 bytes")]
    Length(u32, usize),
}
