//! The layout of a buffer: unused bytes, the header (virtio 1.3, 5.1.6.1), the frame.

/// Bytes of the header before every frame.
pub const HEADER: usize = 12;
/// Offset of the header in its buffer, so that the frame begins with a cache line, and a short frame takes no other
/// line.
pub const HEADER_AT: usize = 52;
/// Offset of the frame in its buffer.
pub const FRAME_AT: usize = HEADER_AT + HEADER;
