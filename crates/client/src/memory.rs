//! The memory of one ring, as both directions use it.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ringway_abi::doorbell;
use ringway_abi::layout::netmap_ring;
use ringway_abi::slot::SLOT_BYTES;
use ringway_abi::{Layout, Slot};
use ringway_memory::{Kept, Mapping, prefetch_read, prefetch_write};

/// A ring's memory as the client sees it. The client trusts the switch, which is the only other writer and does not
/// touch what the client owns: the slots from `head` up to `tail` and their buffers.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Two words for each slot. The first word holds buffer index, length and flags.
    words: Kept<[[AtomicU64; 2]]>,
    pub(crate) doorbell: Kept<[AtomicU32; doorbell::PAIR_WORDS]>,
    /// netmap's own ring header.
    header: Kept<[AtomicU32; HEADER_WORDS]>,
    /// Buffer 0. Each of the `buffer_count` buffers begins `unit` bytes after the one before.
    buffers: NonNull<u8>,
    /// Keeps the memory of the buffers.
    _mapping: Arc<Mapping>,
    pub(crate) slots: u32,
    pub(crate) buffer_count: u32,
    pub(crate) buffer_size: u32,
    pub(crate) unit: u32,
}

/// The memory of a port: that of its rings, and that of its buffers, which can be the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortMemory<'a> {
    pub(crate) rings: &'a Arc<Mapping>,
    pub(crate) buffers: &'a Arc<Mapping>,
    pub(crate) layout: &'a Layout,
}

/// Words before the slots.
const HEADER_WORDS: usize = netmap_ring::SLOTS / 4;

// SAFETY: the pointer refers to the mapping that is kept next to it, which is Send.
unsafe impl Send for Memory {}
// SAFETY: through a shared reference only atomics and the client's own receive buffers are read.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn new(port: PortMemory<'_>, at: usize, pair: u16, slots: u32) -> io::Result<Memory> {
        let PortMemory { rings: mapping, buffers: buffer_mapping, layout } = port;
        let (buffer_count, buffer_size, unit) = (layout.buffer_count, layout.shape.buffer_size, layout.unit);
        let (places, bell) = (slots as usize * SLOT_BYTES, layout.doorbell(pair));
        let words = Kept::new(mapping, |m| Some(m.view(at + netmap_ring::SLOTS, places)?.words64()?.as_chunks().0));
        let doorbell = Kept::new(mapping, |m| m.view(bell, doorbell::PAIR_BYTES)?.words32()?.first_chunk());
        let header = Kept::new(mapping, |m| m.view(at, netmap_ring::SLOTS)?.words32()?.first_chunk());
        let end = layout.buffer(buffer_count - 1) + buffer_size as usize;
        let buffers = buffer_mapping.view(layout.buffers, end - layout.buffers);
        let (Some(words), Some(doorbell), Some(header), Some(buffers)) = (words, doorbell, header, buffers) else {
            return Err(io::Error::other("the layout reaches beyond the shared memory"));
        };
        let buffers = NonNull::new(buffers.as_ptr()).ok_or_else(|| io::Error::other("memory at address 0"))?;
        let _mapping = Arc::clone(buffer_mapping);
        Ok(Memory { words, doorbell, header, buffers, _mapping, slots, buffer_count, buffer_size, unit })
    }

    #[inline]
    pub(crate) fn word(&self, slot: u32) -> &AtomicU64 {
        &self.words[slot as usize][0]
    }

    /// Returns the words of the slots from `from` up to `to`.
    #[inline]
    pub(crate) fn words(&self, from: u32, to: u32) -> &[[AtomicU64; 2]] {
        &self.words[from as usize..to as usize]
    }

    /// Updates netmap's own ring header, for tools that read it.
    #[inline]
    pub(crate) fn tell(&self, head: u32, tail: u32) {
        self.header[netmap_ring::HEAD / 4].store(head, Ordering::Relaxed);
        self.header[netmap_ring::CUR / 4].store(head, Ordering::Relaxed);
        self.header[netmap_ring::TAIL / 4].store(tail, Ordering::Relaxed);
    }

    /// Returns the start of a buffer. For an invalid index or length, the result has no bytes.
    #[inline]
    pub(crate) fn start(&self, index: u32, len: usize) -> (NonNull<u8>, usize) {
        if index >= self.buffer_count || len > self.buffer_size as usize {
            return (self.buffers, 0);
        }
        // SAFETY: inside the buffers, whose size `new` has checked.
        (unsafe { self.buffers.add(index as usize * self.unit as usize) }, len)
    }

    /// Returns true if an address is that of this offset in the memory of the buffers.
    pub(crate) fn is_at(&self, address: NonNull<u8>, offset: usize) -> bool {
        self.buffers.as_ptr().wrapping_add(offset) == address.as_ptr()
    }

    #[inline]
    pub(crate) fn buffer(&self, index: u32, len: usize) -> &[u8] {
        let (start, len) = self.start(index, len);
        // SAFETY: mapped as long as self lives. The client owns the buffer, so the switch does not write to it.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), len) }
    }

    #[inline]
    pub(crate) fn buffer_mut(&mut self, index: u32, len: usize) -> &mut [u8] {
        let (start, len) = self.start(index, len);
        // SAFETY: see `buffer`. `&mut self` prevents a second reference in this client.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) }
    }

    /// Prefetches the buffer that a slot names, for reading.
    #[inline]
    pub(crate) fn prefetch(&self, word: &AtomicU64) {
        prefetch_read(self.start(Slot::from_word(word.load(Ordering::Relaxed)).buffer, 0).0.as_ptr());
    }

    /// Prefetches the buffer of the slot `steps` after `slot`, for writing.
    #[inline]
    pub(crate) fn prefetch_mut(&self, slot: u32, steps: u32) {
        let ahead = Slot::from_word(self.word(self.add(slot, steps)).load(Ordering::Relaxed));
        prefetch_write(self.start(ahead.buffer, 0).0.as_ptr());
    }

    #[inline]
    pub(crate) fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { to + self.slots - from }
    }

    #[inline]
    pub(crate) fn after(&self, slot: u32) -> u32 {
        if slot + 1 == self.slots { 0 } else { slot + 1 }
    }

    /// Returns the slot `steps` (less than the size of the ring) after `slot`.
    #[inline]
    pub(crate) fn add(&self, slot: u32, steps: u32) -> u32 {
        let sum = slot + steps;
        if sum >= self.slots { sum - self.slots } else { sum }
    }
}
