//! What a program sets before it activates a handle.

use libc::c_int;

use crate::abi::MAXIMUM_SNAPLEN;

/// Settings of a handle.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Most bytes of a frame.
    pub snaplen: c_int,
    /// Longest wait of a read in milliseconds; 0 or less: no limit.
    pub timeout: c_int,
    /// Bytes of the buffer; 0: the default.
    pub buffer_size: c_int,
    /// Monitor mode, which no port has.
    pub rfmon: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { snaplen: MAXIMUM_SNAPLEN, timeout: 0, buffer_size: 0, rfmon: false }
    }
}
