//! One netmap slot: 16 bytes. The first eight are one atomic word.
//!
//! ```text
//! offset 0: buf_idx u32    4: len u16    6: flags u16    8: ptr u64 (unused here)
//! ```
//! (`sys/net/netmap.h`, `struct netmap_slot`.) Index, length and flags are read and written as one 64-bit word, so that
//! neither side can see half of a change.

/// Bytes of one slot.
pub const SLOT_BYTES: usize = 16;
/// The client has put another buffer into this slot. The flag is accepted and ignored: the switch reads the index from
/// the slot every time.
pub const NS_BUF_CHANGED: u16 = 0x0001;
/// The switch learns no address from the frame.
pub const NS_NO_LEARN: u16 = 0x0008;
/// The frame is in the program's own memory, where the slot's second word points. The client copies it into the slot's buffer.
pub const NS_INDIRECT: u16 = 0x0010;
/// The frame continues in the next slot.
pub const NS_MOREFRAG: u16 = 0x0020;
const NOT_PLAIN: u16 = NS_MOREFRAG | NS_NO_LEARN;

/// A decoded slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Index of the buffer: at least 2, and less than the number of buffers.
    pub buffer: u32,
    /// Bytes of the frame in this buffer.
    pub len: u16,
    /// `NS_*` flags.
    pub flags: u16,
}

impl Slot {
    /// Decodes the word of a slot, in the machine's byte order.
    #[inline]
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self { buffer: word as u32, len: (word >> 32) as u16, flags: (word >> 48) as u16 }
    }

    /// Returns the length in a slot's word. If the frame is not plain ([`Slot::is_plain`]), the result is greater than
    /// any length.
    #[inline]
    #[must_use]
    pub const fn plain_len(word: u64) -> u64 {
        (word >> 32) & ((NOT_PLAIN as u64) << 16 | 0xffff)
    }

    /// Encodes the word of a slot.
    #[inline]
    #[must_use]
    pub const fn to_word(self) -> u64 {
        self.buffer as u64 | (self.len as u64) << 32 | (self.flags as u64) << 48
    }

    /// Returns true if the frame ends in this slot and its source address may be learned, as those of most frames.
    #[inline]
    #[must_use]
    pub const fn is_plain(self) -> bool {
        self.flags & NOT_PLAIN == 0
    }

    /// Returns true if the frame continues in the next slot.
    #[inline]
    #[must_use]
    pub const fn more(self) -> bool {
        self.flags & NS_MOREFRAG != 0
    }
}
