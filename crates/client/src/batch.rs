//! Batches of buffers: the free slots of a transmit ring, the filled ones of a receive ring.

use std::iter::{Chain, FusedIterator};
use std::ptr::NonNull;
use std::slice::Iter;
use std::sync::atomic::{AtomicU64, Ordering};

use ringway_abi::Slot;
use ringway_memory::{prefetch_read, prefetch_write};

use crate::memory::Memory;

/// Slots of a ring, in the ring's order: those up to its end, and those from its start.
type Slots<'a> = Chain<Iter<'a, [AtomicU64; 2]>, Iter<'a, [AtomicU64; 2]>>;

fn slots(memory: &Memory, head: u32, count: u32) -> Slots<'_> {
    let first = count.min(memory.slots - head);
    memory.words(head, head + first).iter().chain(memory.words(0, count - first))
}

/// The contents of a reserved buffer: a frame, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Number of bytes.
    pub len: usize,
    /// The frame continues in the next buffer.
    pub more: bool,
}

impl Piece {
    /// A frame of `len` bytes.
    #[inline]
    #[must_use]
    pub const fn whole(len: usize) -> Self {
        Self { len, more: false }
    }
}

/// The buffers of free slots, each of the size that the port's shape has: see [`crate::TxRing::reserve`].
#[derive(Debug)]
pub struct Reserved<'a> {
    memory: &'a Memory,
    slots: Slots<'a>,
    left: usize,
}

impl<'a> Reserved<'a> {
    /// # Safety
    /// The client owns `count` slots from `head`, and nothing else in this client refers to their buffers for `'a`.
    #[inline]
    pub(crate) unsafe fn new(memory: &'a Memory, head: u32, count: u32) -> Self {
        Self { memory, slots: slots(memory, head, count), left: count as usize }
    }
}

impl<'a> Reserved<'a> {
    #[inline]
    fn buffer(memory: &Memory, word: &AtomicU64) -> &'a mut [u8] {
        let slot = Slot::from_word(word.load(Ordering::Relaxed));
        let (start, len) = memory.start(slot.buffer, memory.buffer_size as usize);
        prefetch_write(start.as_ptr());
        // SAFETY: mapped as long as the ring, which `'a` borrows. Each slot of the client has a buffer of its own, the
        // switch does not touch it, and `new`'s caller has no other reference to it.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) }
    }
}

impl<'a> Iterator for Reserved<'a> {
    type Item = &'a mut [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a mut [u8]> {
        let [word, _] = self.slots.next()?;
        self.left -= 1;
        Some(Self::buffer(self.memory, word))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }

    // `for_each` has one loop for each part of the ring.
    #[inline]
    fn fold<B, F: FnMut(B, &'a mut [u8]) -> B>(self, first: B, mut f: F) -> B {
        self.slots.fold(first, |so_far, [word, _]| f(so_far, Self::buffer(self.memory, word)))
    }
}

impl ExactSizeIterator for Reserved<'_> {}
impl FusedIterator for Reserved<'_> {}

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
    slots: Slots<'a>,
    left: usize,
}

impl<'a> Peeked<'a> {
    #[inline]
    pub(crate) fn new(memory: &'a Memory, head: u32, count: u32) -> Self {
        Self { memory, slots: slots(memory, head, count), left: count as usize }
    }

    #[inline]
    fn received(memory: &'a Memory, word: &AtomicU64) -> Received<'a> {
        let slot = Slot::from_word(word.load(Ordering::Relaxed));
        let bytes = memory.buffer(slot.buffer, slot.len.into());
        prefetch_read(bytes.as_ptr());
        Received { bytes, more: slot.more() }
    }
}

impl<'a> Iterator for Peeked<'a> {
    type Item = Received<'a>;

    #[inline]
    fn next(&mut self) -> Option<Received<'a>> {
        let [word, _] = self.slots.next()?;
        self.left -= 1;
        Some(Self::received(self.memory, word))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }

    // `for_each` has one loop for each part of the ring.
    #[inline]
    fn fold<B, F: FnMut(B, Received<'a>) -> B>(self, first: B, mut f: F) -> B {
        let memory = self.memory;
        self.slots.fold(first, |so_far, [word, _]| f(so_far, Self::received(memory, word)))
    }
}

impl ExactSizeIterator for Peeked<'_> {}
impl FusedIterator for Peeked<'_> {}

/// Consecutive slots of a ring as they are in memory, for bindings to other languages: see [`crate::TxRing::reserve_run`] and
/// [`crate::RxRing::peek_run`]. Each slot has two words, the first as [`ringway_abi::Slot`] describes it. The user of
/// the pointers keeps the port, stays inside the run, and does not use the run after it has handed the slots over.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The words of the first slot.
    pub slots: NonNull<[AtomicU64; 2]>,
    /// Number of slots.
    pub count: u32,
    /// Buffer 0. The others follow.
    pub buffers: NonNull<u8>,
    /// Number of bytes of a buffer.
    pub buffer_size: u32,
    /// Bytes from one buffer to the next.
    pub stride: u32,
}

impl Run {
    /// Of `count` slots from `head`, those up to the end of the ring.
    #[inline]
    pub(crate) fn new(memory: &Memory, head: u32, count: u32) -> Self {
        let slots = memory.words(head, memory.slots.min(head + count));
        let buffers = memory.start(0, 0).0;
        let (count, buffer_size, stride) = (slots.len() as u32, memory.buffer_size, memory.unit);
        Self { slots: NonNull::from(slots).cast(), count, buffers, buffer_size, stride }
    }

    /// Of `count` slots from `head`, those up to the end of the ring, and those from its start.
    #[inline]
    pub(crate) fn both(memory: &Memory, head: u32, count: u32) -> [Self; 2] {
        let first = Self::new(memory, head, count);
        [first, Self::new(memory, 0, count - first.count)]
    }
}
