//! Receiving: the client's side of a receive ring, and the memory that both directions share.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ringway_abi::doorbell::{self, INDEX, RX_CLIENT, RX_SWITCH, WISH, Wish};
use ringway_abi::layout::{FIRST_BUFFER, netmap_ring};
use ringway_abi::slot::SLOT_BYTES;
use ringway_abi::{Layout, Slot};
use ringway_memory::Mapping;

/// How many slots ahead the first line of a frame is prefetched.
const PREFETCH_AHEAD: u32 = 8;

/// A receive ring.
#[derive(Debug)]
pub struct RxRing {
    memory: Memory,
    /// The next slot to read.
    head: u32,
    /// The switch's tail as last read.
    tail: u32,
    wish: Wish,
    /// For frames over several slots.
    gathered: Vec<u8>,
}

impl RxRing {
    pub(crate) fn new(mapping: &Arc<Mapping>, layout: &Layout, ring: u16) -> io::Result<RxRing> {
        let memory = Memory::new(mapping, layout, layout.rx_ring(ring), ring, layout.shape.rx_slots)?;
        Ok(RxRing { memory, head: 0, tail: 0, wish: Wish::default(), gathered: Vec::new() })
    }

    /// Slots that hold received frames.
    #[inline]
    pub fn available(&mut self) -> usize {
        self.tail = self.memory.doorbell()[RX_SWITCH + INDEX].load(Ordering::Acquire).min(self.memory.slots - 1);
        self.memory.distance(self.head, self.tail) as usize
    }

    /// Hands up to `max` received frames to `take`, in order, and gives their buffers back to the switch. Returns how
    /// many.
    #[inline]
    pub fn drain(&mut self, max: usize, mut take: impl FnMut(&[u8])) -> usize {
        if self.head == self.tail && self.available() == 0 {
            return 0;
        }
        let mut taken = 0;
        let mut left = self.memory.distance(self.head, self.tail);
        while left > 0 && taken < max {
            if left > PREFETCH_AHEAD {
                let ahead = self.memory.word(self.memory.add(self.head, PREFETCH_AHEAD)).load(Ordering::Relaxed);
                self.memory.prefetch(Slot::from_word(ahead).buffer);
            }
            let slot = Slot::from_word(self.memory.word(self.head).load(Ordering::Relaxed));
            if slot.more() || !self.gathered.is_empty() {
                self.gathered.extend_from_slice(self.memory.buffer(slot.buffer, slot.len.into()));
                if !slot.more() {
                    take(&self.gathered);
                    self.gathered.clear();
                    taken += 1;
                }
            } else {
                take(self.memory.buffer(slot.buffer, slot.len.into()));
                taken += 1;
            }
            self.head = self.memory.after(self.head);
            left -= 1;
        }
        self.give_back();
        taken
    }

    #[inline]
    fn give_back(&mut self) {
        let doorbell = self.memory.doorbell();
        doorbell[RX_CLIENT + INDEX].store(self.head, Ordering::Release);
        self.memory.header(netmap_ring::HEAD, self.head);
        self.memory.header(netmap_ring::CUR, self.head);
        self.memory.header(netmap_ring::TAIL, self.tail);
    }

    /// True when there are frames already.
    pub(crate) fn want_call(&mut self) -> bool {
        if self.available() > 0 {
            return true;
        }
        let Self { memory, wish, .. } = self;
        wish.make(&memory.doorbell()[RX_CLIENT + WISH]);
        self.available() > 0
    }

    pub(crate) fn want_no_call(&mut self) {
        let Self { memory, wish, .. } = self;
        wish.withdraw(&memory.doorbell()[RX_CLIENT + WISH]);
    }
}

/// A ring's memory as its client sees it. The client trusts the switch, which is the only other writer and does not
/// touch what is the client's: slots from head up to tail and their buffers.
#[derive(Debug)]
pub(crate) struct Memory {
    mapping: Arc<Mapping>,
    slots_at: usize,
    header_at: usize,
    pub(crate) slots: u32,
    doorbell_at: usize,
    buffers_at: usize,
    buffer_count: u32,
    pub(crate) buffer_size: u32,
}

impl Memory {
    pub(crate) fn new(
        mapping: &Arc<Mapping>,
        layout: &Layout,
        header_at: usize,
        pair: u16,
        slots: u32,
    ) -> io::Result<Memory> {
        let memory = Memory {
            mapping: Arc::clone(mapping),
            slots_at: header_at + netmap_ring::SLOTS,
            header_at,
            slots,
            doorbell_at: layout.doorbell(pair),
            buffers_at: layout.buffers,
            buffer_count: layout.buffer_count,
            buffer_size: layout.shape.buffer_size,
        };
        let buffers = memory.buffer_count as usize * memory.buffer_size as usize;
        let slots = mapping.view(memory.slots_at, slots as usize * SLOT_BYTES).and_then(|v| v.words64());
        let doorbell = mapping.view(memory.doorbell_at, doorbell::PAIR_BYTES).and_then(|v| v.words32());
        if slots.is_none() || doorbell.is_none() || mapping.view(memory.buffers_at, buffers).is_none() {
            return Err(io::Error::other("the layout reaches beyond the shared memory"));
        }
        Ok(memory)
    }

    #[inline]
    pub(crate) fn doorbell(&self) -> &[AtomicU32] {
        // Seen to be there in `new`.
        self.mapping.view(self.doorbell_at, doorbell::PAIR_BYTES).and_then(|view| view.words32()).unwrap_or(&[])
    }

    #[inline]
    pub(crate) fn word(&self, slot: u32) -> &AtomicU64 {
        let slots = self.mapping.view(self.slots_at, self.slots as usize * SLOT_BYTES).and_then(|view| view.words64());
        &slots.unwrap_or(&[])[slot as usize * 2]
    }

    /// Keeps netmap's own header true for whoever reads it.
    #[inline]
    pub(crate) fn header(&self, field: usize, value: u32) {
        if let Some([word]) = self.mapping.view(self.header_at + field, 4).and_then(|view| view.words32()) {
            word.store(value, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn buffer(&self, index: u32, len: usize) -> &[u8] {
        let view = self.view(index, len);
        // SAFETY: the view is mapped as long as self; the buffer is the client's, so the switch does not write it.
        unsafe { std::slice::from_raw_parts(view.as_ptr(), view.len()) }
    }

    #[inline]
    pub(crate) fn buffer_mut(&mut self, index: u32, len: usize) -> &mut [u8] {
        let view = self.view(index, len);
        // SAFETY: as in `buffer`; `&mut self` keeps this client from having it twice.
        unsafe { std::slice::from_raw_parts_mut(view.as_ptr(), view.len()) }
    }

    #[inline]
    pub(crate) fn prefetch(&self, index: u32) {
        if (FIRST_BUFFER..self.buffer_count).contains(&index) {
            self.view(index, 0).prefetch();
        }
    }

    /// A buffer number or length that is not there gives no bytes.
    #[inline]
    fn view(&self, index: u32, len: usize) -> ringway_memory::View<'_> {
        let at = self.buffers_at + index as usize * self.buffer_size as usize;
        let inside = (index < self.buffer_count && len <= self.buffer_size as usize).then_some(());
        inside.and_then(|()| self.mapping.view(at, len)).unwrap_or_else(|| {
            let whole = self.mapping.whole();
            whole.sub(0, 0).unwrap_or(whole)
        })
    }

    #[inline]
    pub(crate) fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { to + self.slots - from }
    }

    #[inline]
    pub(crate) fn after(&self, slot: u32) -> u32 {
        if slot + 1 == self.slots { 0 } else { slot + 1 }
    }

    #[inline]
    fn add(&self, slot: u32, steps: u32) -> u32 {
        let sum = slot + steps;
        if sum >= self.slots { sum - self.slots } else { sum }
    }
}
