//! One ring of a client's memory, as the switch uses it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ringway_abi::layout::{FIRST_BUFFER, netmap_ring};
use ringway_abi::slot::SLOT_BYTES;
use ringway_abi::{Layout, Slot, doorbell};
use ringway_memory::{Mapping, Pieces, View, prefetch_read};

/// A ring's immutable description: checked once, used until the port ends. What the client writes into the ring's own
/// header is never read.
#[derive(Debug)]
pub(super) struct Ring {
    mapping: Arc<Mapping>,
    slots_at: usize,
    pub(super) slots: u32,
    doorbell_at: usize,
    buffers_at: usize,
    buffer_count: u32,
    pub(super) buffer_size: u32,
    /// Every frame begins with a header.
    pub(super) offload: bool,
}

/// The ring's memory for the length of a batch.
pub(super) struct RingMemory<'m> {
    /// Two words per slot; the first holds index, length and flags.
    slots: &'m [[AtomicU64; 2]],
    /// The buffers that frames may be in, from number 2 on.
    buffers: Pieces<'m>,
    pub(super) doorbell: &'m [AtomicU32],
}

/// The doorbell of a ring pair; `None` never happens for a layout's own pairs.
#[inline]
pub(super) fn doorbell_words<'m>(mapping: &'m Mapping, layout: &Layout, pair: u16) -> Option<&'m [AtomicU32]> {
    mapping.view(layout.doorbell(pair), doorbell::PAIR_BYTES)?.words32()
}

impl Ring {
    pub(super) fn transmit(mapping: &Arc<Mapping>, layout: &Layout, ring: u16) -> io::Result<Ring> {
        Self::new(mapping, layout, ring, layout.tx_ring(ring), layout.shape.tx_slots)
    }

    pub(super) fn receive(mapping: &Arc<Mapping>, layout: &Layout, ring: u16) -> io::Result<Ring> {
        Self::new(mapping, layout, ring, layout.rx_ring(ring), layout.shape.rx_slots)
    }

    fn new(mapping: &Arc<Mapping>, layout: &Layout, pair: u16, at: usize, slots: u32) -> io::Result<Ring> {
        let ring = Ring {
            mapping: Arc::clone(mapping),
            slots_at: at + netmap_ring::SLOTS,
            slots,
            doorbell_at: layout.doorbell(pair),
            buffers_at: layout.buffers,
            buffer_count: layout.buffer_count,
            buffer_size: layout.shape.buffer_size,
            offload: layout.shape.offload,
        };
        if ring.memory().is_none() {
            return Err(io::Error::other("the layout reaches beyond its memory"));
        }
        Ok(ring)
    }

    /// `Some`, as was seen when the ring was made: the mapping cannot shrink.
    #[inline]
    pub(super) fn memory(&self) -> Option<RingMemory<'_>> {
        let size = self.buffer_size as usize;
        let (first, count) = (FIRST_BUFFER as usize, self.buffer_count as usize);
        let buffers = self.mapping.view(self.buffers_at + first * size, (count - first) * size)?;
        Some(RingMemory {
            slots: self.mapping.view(self.slots_at, self.slots as usize * SLOT_BYTES)?.words64()?.as_chunks().0,
            buffers: buffers.pieces(size)?,
            doorbell: self.doorbell()?,
        })
    }

    #[inline]
    pub(super) fn doorbell(&self) -> Option<&[AtomicU32]> {
        self.mapping.view(self.doorbell_at, doorbell::PAIR_BYTES)?.words32()
    }

    pub(super) fn is_lost(&self) -> bool {
        self.mapping.is_lost()
    }

    /// Slots from `from` up to `to`, around the ring.
    #[inline]
    pub(super) fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { to + self.slots - from }
    }

    /// The slot `steps` (at most one lap) after `at`.
    #[inline]
    pub(super) fn after(&self, at: u32, steps: u32) -> u32 {
        let sum = at + steps;
        if sum >= self.slots { sum - self.slots } else { sum }
    }
}

impl<'m> RingMemory<'m> {
    /// The word of slot `at`, to be read or written once.
    #[inline]
    pub(super) fn word(&self, at: u32) -> &'m AtomicU64 {
        &self.slots[at as usize][0]
    }

    /// The slots from `from` up to `to`; the first word of each is read or written once.
    #[inline]
    pub(super) fn slots(&self, from: u32, to: u32) -> &'m [[AtomicU64; 2]] {
        &self.slots[from as usize..to as usize]
    }

    /// The slot's buffer; `None` when it names one that is not there.
    #[inline]
    pub(super) fn buffer(&self, slot: Slot) -> Option<View<'m>> {
        // Number 0 and 1 become the largest there are.
        self.buffers.get(slot.buffer.wrapping_sub(FIRST_BUFFER) as usize)
    }

    /// Starts to bring the buffer of a slot near, for reading. Its number need not be one that is there.
    #[inline]
    pub(super) fn prefetch(&self, word: &AtomicU64) {
        prefetch_read(self.address(word));
    }

    #[inline]
    fn address(&self, word: &AtomicU64) -> *mut u8 {
        let slot = Slot::from_word(word.load(Ordering::Relaxed));
        self.buffers.address(slot.buffer.wrapping_sub(FIRST_BUFFER) as usize)
    }
}
