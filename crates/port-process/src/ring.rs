//! One ring of a client's memory, as the switch uses it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ringway_abi::layout::{FIRST_BUFFER, netmap_ring};
use ringway_abi::offload::PREFIX_BYTES;
use ringway_abi::slot::SLOT_BYTES;
use ringway_abi::{Layout, Slot, doorbell};
use ringway_memory::{
    Adjacent, Every, Kept, Mapping, Pieces, PinnedPieces, PrefixComparer, Stride, View, prefetch_read,
};
use ringway_switch::{Discarded, PortFault};

use super::external::ExternalMemory;

/// Bytes of an Ethernet header.
const ETHERNET_HEADER: u64 = 14;
/// Number of frames whose addresses are compared together.
const ROW: usize = 64;

/// Immutable description of a ring, checked when the port is made. The ring's own header, which the client can write,
/// is never read.
#[derive(Debug)]
pub(super) struct Ring<B: Backing = Own> {
    words: Kept<[[AtomicU64; 2]]>,
    buffers: PinnedPieces<B::Stride>,
    backing: B,
    pub(super) doorbell: Doorbell,
    pub(super) slots: u32,
    pub(super) buffer_size: u32,
    /// True if every frame begins with a header.
    pub(super) offload: bool,
    /// Bytes of that header.
    pub(super) prefix: usize,
}

/// The words of a ring pair's doorbell.
pub(super) type Doorbell = Kept<[AtomicU32; doorbell::PAIR_WORDS]>;

/// Where the buffers of a port lie.
pub(super) trait Backing: Clone + Send + 'static {
    /// The distance between buffers.
    type Stride: Stride;

    fn stride(&self, layout: &Layout) -> Self::Stride;

    /// Returns the mapping of the buffers. `own`: the mapping of the rings.
    fn mapping<'a>(&'a self, own: &'a Arc<Mapping>) -> &'a Arc<Mapping>;

    /// Returns true if the memory of the buffers is lost, and that of the rings is not.
    fn is_lost(&self) -> bool;

    /// Returns the fault of a port whose memory is lost.
    fn fault(&self) -> PortFault;
}

/// The buffers lie in the mapping of the rings.
#[derive(Clone, Debug)]
pub(super) struct Own;

impl Backing for Own {
    type Stride = Adjacent;

    fn stride(&self, _layout: &Layout) -> Adjacent {
        Adjacent
    }

    fn mapping<'a>(&'a self, own: &'a Arc<Mapping>) -> &'a Arc<Mapping> {
        own
    }

    fn is_lost(&self) -> bool {
        false
    }

    fn fault(&self) -> PortFault {
        PortFault::MemoryLost
    }
}

impl Backing for Arc<ExternalMemory> {
    type Stride = Every;

    fn stride(&self, layout: &Layout) -> Every {
        Every(layout.unit as usize)
    }

    fn mapping<'a>(&'a self, _own: &'a Arc<Mapping>) -> &'a Arc<Mapping> {
        self.as_ref().mapping()
    }

    fn is_lost(&self) -> bool {
        self.as_ref().mapping().is_lost()
    }

    fn fault(&self) -> PortFault {
        self.as_ref().fault()
    }
}

/// The memory of a port.
#[derive(Debug)]
pub(super) struct PortMemory<B> {
    /// The mapping of the rings.
    pub(super) own: Arc<Mapping>,
    pub(super) backing: B,
}

/// Views of the ring's memory, for the length of one batch.
pub(super) struct RingMemory<'m, S = Adjacent> {
    /// Two words for each slot. The first word holds buffer index, length and flags.
    slots: &'m [[AtomicU64; 2]],
    /// The buffers that frames may be in: those from index 2 on.
    buffers: Pieces<'m, S>,
}

/// Returns the doorbell of a ring pair.
///
/// # Errors
/// The layout does not fit this mapping.
pub(super) fn doorbell_of(mapping: &Arc<Mapping>, layout: &Layout, pair: u16) -> io::Result<Doorbell> {
    let at = layout.doorbell(pair);
    Kept::new(mapping, |mapping| mapping.view(at, doorbell::PAIR_BYTES)?.words32()?.first_chunk()).ok_or_else(beyond)
}

fn beyond() -> io::Error {
    io::Error::other("the layout reaches beyond its memory")
}

impl<B: Backing> Ring<B> {
    pub(super) fn transmit(memory: &PortMemory<B>, layout: &Layout, ring: u16) -> io::Result<Self> {
        Self::new(memory, layout, ring, layout.tx_ring(ring), layout.shape.tx_slots)
    }

    pub(super) fn receive(memory: &PortMemory<B>, layout: &Layout, ring: u16) -> io::Result<Self> {
        Self::new(memory, layout, ring, layout.rx_ring(ring), layout.shape.rx_slots)
    }

    fn new(memory: &PortMemory<B>, layout: &Layout, pair: u16, at: usize, slots: u32) -> io::Result<Self> {
        let PortMemory { own: mapping, backing } = memory;
        let (buffers, stride) = (backing.mapping(mapping), backing.stride(layout));
        let size = layout.shape.buffer_size;
        let all = layout.buffer(FIRST_BUFFER)..layout.buffer(layout.buffer_count - 1) + size as usize;
        let at = at + netmap_ring::SLOTS;
        let words =
            Kept::new(mapping, |mapping| Some(mapping.view(at, slots as usize * SLOT_BYTES)?.words64()?.as_chunks().0));
        Ok(Ring {
            words: words.ok_or_else(beyond)?,
            buffers: PinnedPieces::new(buffers, all, size as usize, stride).ok_or_else(beyond)?,
            backing: backing.clone(),
            doorbell: doorbell_of(mapping, layout, pair)?,
            slots,
            buffer_size: size,
            offload: layout.shape.offload,
            prefix: PREFIX_BYTES,
        })
    }

    #[inline(always)]
    pub(super) fn memory(&self) -> RingMemory<'_, B::Stride> {
        RingMemory { slots: &self.words, buffers: self.buffers.get() }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.words.mapping().is_lost() || self.backing.is_lost()
    }

    /// Returns the fault of a port whose memory is lost.
    #[cold]
    pub(super) fn lost(&self) -> PortFault {
        self.backing.fault()
    }

    /// Returns the number of slots from `from` up to `to`, around the ring.
    #[inline]
    pub(super) fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { to + self.slots - from }
    }

    /// Returns the slot `steps` (at most the size of the ring) after `at`.
    #[inline]
    pub(super) fn after(&self, at: u32, steps: u32) -> u32 {
        let sum = at + steps;
        if sum >= self.slots { sum - self.slots } else { sum }
    }
}

impl<'m, S: Stride> RingMemory<'m, S> {
    /// Returns the first word of slot `at`. The caller reads or writes it only once.
    #[inline]
    pub(super) fn word(&self, at: u32) -> &'m AtomicU64 {
        &self.slots[at as usize][0]
    }

    /// Returns the slots from `from` up to `to`. The caller reads or writes the first word of each only once.
    #[inline]
    pub(super) fn slots(&self, from: u32, to: u32) -> &'m [[AtomicU64; 2]] {
        &self.slots[from as usize..to as usize]
    }

    /// Returns the slot's buffer, or `None` if the slot names a buffer that does not exist.
    #[inline(always)]
    pub(super) fn buffer(&self, slot: Slot) -> Option<View<'m>> {
        // The subtraction wraps for indices 0 and 1: they become the largest numbers.
        self.buffers.get(slot.buffer.wrapping_sub(FIRST_BUFFER) as usize)
    }

    /// Counts the slots, from the first on, whose frame is complete in this slot, begins with `addresses` and has an
    /// EtherType after them. Returns their number and the bytes of their frames.
    #[inline(never)]
    pub(super) fn count_alike(&self, mut slots: &[[AtomicU64; 2]], addresses: &[u8; 12]) -> Discarded {
        let mut all = Discarded::default();
        let mut alike = PrefixComparer::new(addresses);
        let mut together = ROW;
        while !slots.is_empty() {
            let (row, others) = slots.split_at(slots.len().min(together));
            let some = self.count_whole(row, &mut alike);
            if alike.all_match() {
                all.frames += some.frames;
                all.bytes += some.bytes;
                slots = if some.frames == row.len() as u64 { others } else { &[] };
            } else if together > 1 {
                // Compares one frame at a time, up to the first that differs. The slots are read again.
                together = 1;
            } else {
                break;
            }
        }
        all
    }

    /// Counts the slots, from the first on, whose frame is complete in this slot, of valid length and in an existing
    /// buffer. Adds these frames to the comparison in `alike`, without looking at its result.
    #[inline(always)]
    fn count_whole(&self, slots: &[[AtomicU64; 2]], alike: &mut PrefixComparer) -> Discarded {
        let longest = self.buffers.size() as u64;
        let mut whole = Discarded::default();
        for [word, _] in slots {
            let word = word.load(Ordering::Relaxed);
            let len = Slot::plain_len(word);
            // For a frame that is too short, the subtraction wraps to a length that is too long.
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

    /// Prefetches the buffer of a slot for reading. The buffer need not exist.
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
