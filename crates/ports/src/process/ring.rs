//! One ring of a client's memory, as the switch uses it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ringway_abi::layout::{FIRST_BUFFER, netmap_ring};
use ringway_abi::slot::SLOT_BYTES;
use ringway_abi::{Layout, Slot, doorbell};
use ringway_memory::{Alike, Kept, KeptPieces, Mapping, Pieces, View, prefetch_read};
use ringway_switch::Discarded;

/// Addresses and type, in bytes.
const ETHERNET_HEADER: u64 = 14;
/// Frames that are compared with what they should begin with before it is asked whether they do.
const ROW: usize = 64;

/// A ring's immutable description: checked once, used until the port ends. What the client writes into the ring's own
/// header is never read.
#[derive(Debug)]
pub(super) struct Ring {
    words: Kept<[[AtomicU64; 2]]>,
    buffers: KeptPieces,
    pub(super) doorbell: Doorbell,
    pub(super) slots: u32,
    pub(super) buffer_size: u32,
    /// Every frame begins with a header.
    pub(super) offload: bool,
}

/// The words of a ring pair's doorbell.
pub(super) type Doorbell = Kept<[AtomicU32; doorbell::PAIR_WORDS]>;

/// The ring's memory for the length of a batch.
pub(super) struct RingMemory<'m> {
    /// Two words per slot; the first holds index, length and flags.
    slots: &'m [[AtomicU64; 2]],
    /// The buffers that frames may be in, from number 2 on.
    buffers: Pieces<'m>,
}

/// The doorbell of a ring pair.
///
/// # Errors
/// The layout is not of this mapping.
pub(super) fn doorbell_of(mapping: &Arc<Mapping>, layout: &Layout, pair: u16) -> io::Result<Doorbell> {
    let at = layout.doorbell(pair);
    Kept::new(mapping, |mapping| mapping.view(at, doorbell::PAIR_BYTES)?.words32()?.first_chunk()).ok_or_else(beyond)
}

fn beyond() -> io::Error {
    io::Error::other("the layout reaches beyond its memory")
}

impl Ring {
    pub(super) fn transmit(mapping: &Arc<Mapping>, layout: &Layout, ring: u16) -> io::Result<Ring> {
        Self::new(mapping, layout, ring, layout.tx_ring(ring), layout.shape.tx_slots)
    }

    pub(super) fn receive(mapping: &Arc<Mapping>, layout: &Layout, ring: u16) -> io::Result<Ring> {
        Self::new(mapping, layout, ring, layout.rx_ring(ring), layout.shape.rx_slots)
    }

    fn new(mapping: &Arc<Mapping>, layout: &Layout, pair: u16, at: usize, slots: u32) -> io::Result<Ring> {
        let (first, count, size) = (FIRST_BUFFER as usize, layout.buffer_count as usize, layout.shape.buffer_size);
        let whole = (layout.buffers + first * size as usize, (count - first) * size as usize);
        let at = at + netmap_ring::SLOTS;
        let words =
            Kept::new(mapping, |mapping| Some(mapping.view(at, slots as usize * SLOT_BYTES)?.words64()?.as_chunks().0));
        Ok(Ring {
            words: words.ok_or_else(beyond)?,
            buffers: KeptPieces::new(mapping, whole.0, whole.1, size as usize).ok_or_else(beyond)?,
            doorbell: doorbell_of(mapping, layout, pair)?,
            slots,
            buffer_size: size,
            offload: layout.shape.offload,
        })
    }

    #[inline(always)]
    pub(super) fn memory(&self) -> RingMemory<'_> {
        RingMemory { slots: &self.words, buffers: self.buffers.get() }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.words.mapping().is_lost()
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

    /// How many of these slots, from the first on, have a frame of their own that begins with `addresses` and has an Ethernet
    /// type behind them; and the bytes of these frames.
    #[inline(never)]
    pub(super) fn count_alike(&self, mut slots: &[[AtomicU64; 2]], addresses: &[u8; 12]) -> Discarded {
        let mut all = Discarded::default();
        let mut alike = Alike::new(addresses);
        let mut together = ROW;
        while !slots.is_empty() {
            let (row, others) = slots.split_at(slots.len().min(together));
            let some = self.count_whole(row, &mut alike);
            if alike.are_all() {
                all.frames += some.frames;
                all.bytes += some.bytes;
                slots = if some.frames == row.len() as u64 { others } else { &[] };
            } else if together > 1 {
                // One by one, up to the other; they are read anew.
                together = 1;
            } else {
                break;
            }
        }
        all
    }

    /// The first of these slots that have a frame of their own, as long as one may be, in a buffer that is there: compared,
    /// but not looked at.
    #[inline(always)]
    fn count_whole(&self, slots: &[[AtomicU64; 2]], alike: &mut Alike) -> Discarded {
        let longest = self.buffers.size() as u64;
        let mut whole = Discarded::default();
        for [word, _] in slots {
            let word = word.load(Ordering::Relaxed);
            let len = Slot::whole_len(word);
            // One that is too short becomes one that is too long.
            if len.wrapping_sub(ETHERNET_HEADER) > longest - ETHERNET_HEADER
                || !self.buffer(Slot::from_word(word)).is_some_and(|buffer| alike.add(buffer))
            {
                break;
            }
            whole.frames += 1;
            whole.bytes += len;
        }
        whole
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
