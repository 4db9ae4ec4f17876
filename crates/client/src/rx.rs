//! Receiving: the client's side of a receive ring.

use std::io;
use std::sync::atomic::Ordering;

use ringway_abi::doorbell::{INDEX, RX_CLIENT, RX_SWITCH, WISH, WakeRequest};
use ringway_abi::offload::PREFIX_BYTES;
use ringway_abi::slot::NS_BUF_CHANGED;
use ringway_abi::{Offload, Slot};
use ringway_memory::Buffer;

use crate::batch::{Peeked, Run};
use crate::memory::{Memory, PortMemory};

/// How many slots ahead the first cache line of a frame is prefetched.
const PREFETCH_AHEAD: usize = 16;

/// Why [`RxRing::exchange`] took no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotExchanged {
    /// There is no frame.
    Empty,
    /// The next frame spans several slots: [`RxRing::drain`] takes it.
    SeveralSlots,
}

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
    pub(crate) fn new(port: PortMemory<'_>, ring: u16) -> io::Result<RxRing> {
        let memory = Memory::new(port, port.layout.rx_ring(ring), ring, port.layout.shape.rx_slots)?;
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

    /// Like [`RxRing::peek_run`], with the received slots from the start of the ring as a second run.
    #[inline]
    pub fn peek_runs(&mut self, max: usize) -> [Run; 2] {
        let count = self.look(max);
        Run::both(&self.memory, self.head, count)
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

    /// Takes the next frame out of the ring with its buffer, which comes in place of `spare`; `spare` takes its place in
    /// the ring. Returns the length of the frame, which begins at the buffer's start.
    ///
    /// Slots go back to the switch as with [`RxRing::drain`].
    ///
    /// # Errors
    /// See [`NotExchanged`]. `spare` is unchanged.
    ///
    /// # Panics
    /// `spare` belongs to another port.
    #[inline]
    pub fn exchange(&mut self, spare: &mut Buffer) -> Result<usize, NotExchanged> {
        assert!(self.memory.start(spare.index(), 0).0 == spare.start(), "the buffer belongs to another port");
        if self.head == self.tail && self.available() == 0 {
            self.give_back();
            return Err(NotExchanged::Empty);
        }
        let word = self.memory.word(self.head);
        let slot = Slot::from_word(word.load(Ordering::Relaxed));
        let (start, len) = self.memory.start(slot.buffer, slot.len.into());
        if slot.more() || !self.gathered.is_empty() || slot.buffer >= self.memory.buffer_count {
            return Err(NotExchanged::SeveralSlots);
        }
        let left = Slot { buffer: spare.index(), len: 0, flags: NS_BUF_CHANGED };
        word.store(left.to_word(), Ordering::Relaxed);
        // SAFETY: the client owns the slot and so its buffer, which no slot names now. The ring has the spare's bytes.
        unsafe { spare.become_other(slot.buffer, start) };
        self.head = self.memory.after(self.head);
        if self.memory.distance(self.published, self.head) >= self.memory.slots / 8 {
            self.give_back();
        }
        Ok(len)
    }

    #[inline]
    pub(crate) fn give_back(&mut self) {
        if self.published != self.head {
            self.published = self.head;
            self.memory.doorbell[RX_CLIENT + INDEX].store(self.head, Ordering::Release);
            self.memory.tell(self.head, self.tail);
        }
    }

    /// Requests a call when frames arrive. Returns true when there are frames already: then the caller must not sleep. To sleep,
    /// wait for a write to [`crate::Port::call_fd`], and end with [`RxRing::want_no_call`].
    pub fn want_call(&mut self) -> bool {
        if self.available() > 0 {
            return true;
        }
        self.give_back();
        self.wish.make(&self.memory.doorbell[RX_CLIENT + WISH]);
        self.available() > 0
    }

    /// Withdraws the request for a call.
    pub fn want_no_call(&mut self) {
        self.wish.withdraw(&self.memory.doorbell[RX_CLIENT + WISH]);
    }
}
