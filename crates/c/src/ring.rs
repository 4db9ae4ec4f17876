//! What both kinds of rings have.

use std::ffi::c_void;
use std::slice;

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

/// The bit of a slot's word for a frame that continues in the next slot.
pub(crate) const MORE_BIT: u32 = 48 + ringway_abi::slot::NS_MOREFRAG.trailing_zeros();

/// A frame in the caller's memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Frame {
    /// The bytes.
    pub data: *const c_void,
    /// Number of bytes.
    pub length: usize,
}

/// Consecutive slots of a ring as they are in shared memory. Use it by the ringway_run_*() functions of this header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Run {
    /// Two words for each slot: the first has the number of the buffer in bits 0 to 31, the length in bits 32 to 47, flags in bits 48
    /// to 63 (32: the frame continues in the next slot).
    pub slots: *mut [u64; 2],
    /// Buffer 0.
    pub buffers: *mut u8,
    /// Number of slots.
    pub count: u32,
    /// Number of bytes of a buffer.
    pub buffer_size: u32,
    /// Bytes from one number of a buffer to the next.
    pub stride: u32,
}

impl Run {
    /// Returns the words of the slots.
    ///
    /// # Safety
    /// The run is that of the last look at a ring, whose slots are the client's alone for `'a`.
    #[inline]
    pub(crate) unsafe fn words<'a>(&self) -> &'a mut [[u64; 2]] {
        // SAFETY: the ring's `count` slots from `slots`.
        unsafe { slice::from_raw_parts_mut(self.slots, self.count as usize) }
    }

    /// Returns the buffer that a slot's word names. The library trusts the switch, which has written the number.
    #[inline]
    pub(crate) fn data(&self, word: u64) -> *mut u8 {
        self.buffers.wrapping_add(word as u32 as usize * self.stride as usize)
    }

    /// Stores what `slot` makes of each slot's word and buffer. Returns the place after the last one.
    ///
    /// # Safety
    /// As for `words`; `to` has room for the run.
    #[inline(always)]
    pub(crate) unsafe fn store(&self, mut to: *mut Slot, slot: impl Fn(u64, *mut u8) -> Slot) -> *mut Slot {
        // SAFETY: see above.
        unsafe {
            for [word, _] in self.words() {
                to.write(slot(*word, self.data(*word)));
                to = to.add(1);
            }
        }
        to
    }
}

impl From<ringway_client::Run> for Run {
    #[inline]
    fn from(run: ringway_client::Run) -> Self {
        let (slots, buffers) = (run.slots.as_ptr().cast(), run.buffers.as_ptr());
        Self { slots, buffers, count: run.count, buffer_size: run.buffer_size, stride: run.stride }
    }
}
