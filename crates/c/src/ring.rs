//! What both kinds of rings have.

use std::ffi::c_void;

/// A slot of a ring: a frame, or a part of one.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Slot {
    /// The bytes, in shared memory.
    pub data: *mut u8,
    /// Number of bytes. ringway_reserve() stores the size of the buffer here.
    pub length: u32,
    /// RINGWAY_MORE, or 0.
    pub flags: u32,
}

/// A flag of a slot: the frame continues in the next slot.
pub const RINGWAY_MORE: u32 = 1;

/// A frame in the caller's memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Frame {
    /// The bytes.
    pub data: *const c_void,
    /// Number of bytes.
    pub length: usize,
}
