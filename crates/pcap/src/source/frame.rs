//! What a source gives.

/// A frame in memory of its source, until the source's next frame is asked for or it is released.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Its first byte.
    pub data: *const u8,
    /// Bytes that are present.
    pub present: usize,
    /// Bytes of the frame.
    pub len: usize,
    /// Nanoseconds since 1970.
    pub time: u64,
    /// Which way it goes.
    pub way: Way,
}

/// A frame's direction, as libpcap has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    In,
    Out,
}
