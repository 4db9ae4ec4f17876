//! Batches of buffers: the filled slots of a receive ring.

use crate::rx::Memory;
use ringway_abi::Slot;
use ringway_memory::prefetch_read;
use std::sync::atomic::Ordering;

/// The contents of a received slot: a frame, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// The frame continues in the next slot.
    pub more: bool,
}

/// The contents of received slots: see [`crate::RxRing::peek`].
#[derive(Clone, Debug)]
pub struct Peeked<'a> {
    memory: &'a Memory,
    next: u32,
    left: u32,
}

impl<'a> Peeked<'a> {
    #[inline]
    pub(crate) fn new(memory: &'a Memory, head: u32, count: u32) -> Self {
        Self { memory, next: head, left: count }
    }
}

impl<'a> Iterator for Peeked<'a> {
    type Item = Received<'a>;

    #[inline]
    fn next(&mut self) -> Option<Received<'a>> {
        self.left = self.left.checked_sub(1)?;
        let slot = Slot::from_word(self.memory.word(self.next).load(Ordering::Relaxed));
        self.next = self.memory.after(self.next);
        let bytes = self.memory.buffer(slot.buffer, slot.len.into());
        prefetch_read(bytes.as_ptr());
        Some(Received { bytes, more: slot.more() })
    }
}
