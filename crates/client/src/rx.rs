//! Receiving: the client's side of a receive ring, and the memory that both directions share.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ringway_abi::doorbell::{self, INDEX, RX_CLIENT, RX_SWITCH, WISH, WakeRequest};
use ringway_abi::layout::netmap_ring;
use ringway_abi::offload::PREFIX_BYTES;
use ringway_abi::slot::SLOT_BYTES;
use ringway_abi::{Layout, Offload, Slot};
use ringway_memory::{Kept, Mapping, prefetch_read, prefetch_write};

use crate::batch::{Peeked, Run};

mod exchange;

pub use exchange::{Buffer, NotExchanged};

/// How many slots ahead the first cache line of a frame is prefetched.
const PREFETCH_AHEAD: usize = 16;

/// A receive ring.
#[derive(Debug)]
pub struct RxRing {
    memory: Memory,
    /// The next slot to read.
    head: u32,
    /// The published `head`: the switch owns the slots before it.
    published: u32,
    /// The switch's `tail`, as of the last read.
    tail: u32,
    wish: WakeRequest,
    /// Buffer for frames that span several slots.
    gathered: Vec<u8>,
}

impl RxRing {
    pub(crate) fn new(mapping: &Arc<Mapping>, layout: &Layout, ring: u16) -> io::Result<RxRing> {
        let memory = Memory::new(mapping, layout, layout.rx_ring(ring), ring, layout.shape.rx_slots)?;
        Ok(RxRing { memory, head: 0, published: 0, tail: 0, wish: WakeRequest::default(), gathered: Vec::new() })
    }

    /// Returns the number of slots that hold received frames.
    #[inline]
    pub fn available(&mut self) -> usize {
        self.tail = self.memory.doorbell[RX_SWITCH + INDEX].load(Ordering::Acquire).min(self.memory.slots - 1);
        self.memory.distance(self.head, self.tail) as usize
    }

    /// Calls `take` with up to `max` received frames, in order. Returns their number. Their buffers go back to the
    /// switch when they are an eighth of the ring, and otherwise with the next call or before this side sleeps. Thus a
    /// reply to a few frames does not wait for the cache line that returns their buffers.
    #[inline]
    pub fn drain(&mut self, max: usize, mut take: impl FnMut(&[u8])) -> usize {
        if self.head == self.tail && self.available() == 0 {
            self.give_back();
            return 0;
        }
        let mut taken = 0;
        while self.head != self.tail && taken < max {
            taken += self.drain_whole(max - taken, &mut take);
            if self.head != self.tail && taken < max {
                taken += self.drain_piece(&mut take);
            }
        }
        if self.memory.distance(self.published, self.head) >= self.memory.slots / 8 {
            self.give_back();
        }
        taken
    }

    /// Calls `take` with frames of one slot each, up to the end of the ring or to the first slot that is part of a
    /// longer frame.
    #[inline]
    fn drain_whole(&mut self, max: usize, take: &mut impl FnMut(&[u8])) -> usize {
        let end = if self.tail >= self.head { self.tail } else { self.memory.slots };
        if !self.gathered.is_empty() {
            return 0;
        }
        let words = self.memory.words(self.head, end.min(self.head.saturating_add(max as u32)));
        let mut ahead = words.get(PREFETCH_AHEAD..).unwrap_or_default().iter();
        let mut taken = 0;
        for [word, _] in words {
            if let Some([word, _]) = ahead.next() {
                self.memory.prefetch(word);
            }
            let slot = Slot::from_word(word.load(Ordering::Relaxed));
            if slot.more() {
                break;
            }
            take(self.memory.buffer(slot.buffer, slot.len.into()));
            taken += 1;
        }
        self.head = self.memory.add(self.head, taken);
        taken as usize
    }

    /// Takes one slot of a longer frame, or a frame of one slot. Calls `take` with a frame that is complete. Returns
    /// the number of frames.
    #[cold]
    fn drain_piece(&mut self, take: &mut impl FnMut(&[u8])) -> usize {
        let slot = Slot::from_word(self.memory.word(self.head).load(Ordering::Relaxed));
        self.gathered.extend_from_slice(self.memory.buffer(slot.buffer, slot.len.into()));
        self.head = self.memory.after(self.head);
        if slot.more() {
            return 0;
        }
        take(&self.gathered);
        self.gathered.clear();
        1
    }

    /// Receives like [`RxRing::drain`], on a port attached with [`ringway_abi::Shape::offload`]. Each frame comes with
    /// the offload that it still needs. (`drain` would return the header as the frame's first bytes.)
    pub fn drain_offloaded(&mut self, max: usize, mut take: impl FnMut(&[u8], Option<Offload>)) -> usize {
        self.drain(max, |bytes| {
            let Some((prefix, frame)) = bytes.split_first_chunk::<PREFIX_BYTES>() else { return };
            let header = prefix.first_chunk().map_or(Ok(None), Offload::decode);
            take(frame, header.ok().flatten());
        })
    }

    /// Returns the contents of up to `max` received slots, in order, without a copy. The slots stay the client's until
    /// [`RxRing::release`]: without it, the next `peek` returns them again. A frame that is longer than a buffer lies in
    /// several slots, all but the last one with [`crate::Received::more`].
    #[inline]
    pub fn peek(&mut self, max: usize) -> Peeked<'_> {
        let count = self.look(max);
        Peeked::new(&self.memory, self.head, count)
    }

    /// Like [`RxRing::peek`], as raw memory: the received slots up to the end of the ring.
    #[inline]
    pub fn peek_run(&mut self, max: usize) -> Run {
        let count = self.look(max);
        Run::new(&self.memory, self.head, count)
    }

    /// Returns the number of received slots, up to `max`.
    #[inline]
    fn look(&mut self, max: usize) -> u32 {
        if (self.memory.distance(self.head, self.tail) as usize) < max && self.available() == 0 {
            self.give_back();
        }
        max.min(self.memory.distance(self.head, self.tail) as usize) as u32
    }

    /// Gives back the first `slots` of the slots that [`RxRing::peek`] returned. As with [`RxRing::drain`], the switch
    /// gets them when they are an eighth of the ring, and otherwise later. Returns false, and gives back nothing, if so
    /// many were never returned.
    #[inline]
    pub fn release(&mut self, slots: usize) -> bool {
        if slots > self.memory.distance(self.head, self.tail) as usize {
            return false;
        }
        self.head = self.memory.add(self.head, slots as u32);
        if self.memory.distance(self.published, self.head) >= self.memory.slots / 8 {
            self.give_back();
        }
        true
    }

    #[inline]
    pub(crate) fn give_back(&mut self) {
        if self.published != self.head {
            self.published = self.head;
            self.memory.doorbell[RX_CLIENT + INDEX].store(self.head, Ordering::Release);
            self.memory.tell(self.head, self.tail);
        }
    }

    /// Requests a call. Returns true when there are frames already.
    pub(crate) fn want_call(&mut self) -> bool {
        if self.available() > 0 {
            return true;
        }
        self.give_back();
        self.wish.make(&self.memory.doorbell[RX_CLIENT + WISH]);
        self.available() > 0
    }

    pub(crate) fn want_no_call(&mut self) {
        self.wish.withdraw(&self.memory.doorbell[RX_CLIENT + WISH]);
    }
}

/// A ring's memory as the client sees it. The client trusts the switch, which is the only other writer and does not
/// touch what the client owns: the slots from `head` up to `tail` and their buffers.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Two words for each slot. The first word holds buffer index, length and flags.
    words: Kept<[[AtomicU64; 2]]>,
    pub(crate) doorbell: Kept<[AtomicU32; doorbell::PAIR_WORDS]>,
    /// netmap's own ring header.
    header: Kept<[AtomicU32; HEADER_WORDS]>,
    /// `buffer_count` times `buffer_size` bytes of the mapping, which the fields above keep alive.
    buffers: NonNull<u8>,
    pub(crate) slots: u32,
    buffer_count: u32,
    pub(crate) buffer_size: u32,
}

/// Words before the slots.
const HEADER_WORDS: usize = netmap_ring::SLOTS / 4;

// SAFETY: the pointer refers to the mapping that is kept next to it, which is Send.
unsafe impl Send for Memory {}
// SAFETY: through a shared reference only atomics and the client's own receive buffers are read.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn new(mapping: &Arc<Mapping>, layout: &Layout, at: usize, pair: u16, slots: u32) -> io::Result<Memory> {
        let (buffer_count, buffer_size) = (layout.buffer_count, layout.shape.buffer_size);
        let (places, bell) = (slots as usize * SLOT_BYTES, layout.doorbell(pair));
        let words = Kept::new(mapping, |m| Some(m.view(at + netmap_ring::SLOTS, places)?.words64()?.as_chunks().0));
        let doorbell = Kept::new(mapping, |m| m.view(bell, doorbell::PAIR_BYTES)?.words32()?.first_chunk());
        let header = Kept::new(mapping, |m| m.view(at, netmap_ring::SLOTS)?.words32()?.first_chunk());
        let buffers = mapping.view(layout.buffers, buffer_count as usize * buffer_size as usize);
        let (Some(words), Some(doorbell), Some(header), Some(buffers)) = (words, doorbell, header, buffers) else {
            return Err(io::Error::other("the layout reaches beyond the shared memory"));
        };
        let buffers = NonNull::new(buffers.as_ptr()).ok_or_else(|| io::Error::other("memory at address 0"))?;
        Ok(Memory { words, doorbell, header, buffers, slots, buffer_count, buffer_size })
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
        (unsafe { self.buffers.add(index as usize * self.buffer_size as usize) }, len)
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
    fn prefetch(&self, word: &AtomicU64) {
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
