//! Sending: the client's side of a transmit ring.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ringway_abi::doorbell::{self, INDEX, TX_CLIENT, TX_SWITCH, WISH, WakeRequest};
use ringway_abi::layout::{MAX_FRAME, MAX_OFFLOADED_FRAME, MAX_SLOTS_PER_FRAME};
use ringway_abi::offload::PREFIX_BYTES;
use ringway_abi::slot::NS_MOREFRAG;
use ringway_abi::{Layout, Offload, Slot};
use ringway_memory::Buffer;

use crate::batch::{Piece, Reserved, Run};
use crate::external::Area;
use crate::memory::{Memory, PortMemory};

/// How many slots ahead the first cache line of a buffer is prefetched for writing.
const PREFETCH_AHEAD: u32 = 8;

/// A transmit ring. [`TxRing::push`] and similar methods queue frames. `Port::flush` publishes them on all rings,
/// [`TxRing::flush`] on one.
#[derive(Debug)]
pub struct TxRing {
    memory: Memory,
    /// The next slot to fill.
    head: u32,
    /// The published `head`.
    published: u32,
    /// The switch's `tail`, as of the last read: the client owns the slots up to it.
    tail: u32,
    wish: WakeRequest,
    kicked: AtomicU32,
    /// The eventfd that wakes the switch.
    kick: Arc<OwnedFd>,
    layout: Layout,
    ring: u16,
    /// A slot may name a part of an [`Area`] in place of its own buffer.
    names_areas: bool,
    /// See [`TxRing::longest`].
    longest: usize,
}

impl TxRing {
    pub(crate) fn new(port: PortMemory<'_>, ring: u16, kick: &Arc<OwnedFd>) -> io::Result<TxRing> {
        let layout = *port.layout;
        let memory = Memory::new(port, layout.tx_ring(ring), ring, layout.shape.tx_slots)?;
        let most_slots = MAX_SLOTS_PER_FRAME.min(memory.slots as usize - 1);
        let longest = if layout.shape.offload { PREFIX_BYTES + MAX_OFFLOADED_FRAME } else { MAX_FRAME };
        let longest = longest.min(most_slots * memory.buffer_size as usize);
        Ok(TxRing {
            memory,
            head: 0,
            published: 0,
            tail: layout.shape.tx_slots - 1,
            wish: WakeRequest::default(),
            kicked: AtomicU32::new(0),
            kick: Arc::clone(kick),
            layout,
            ring,
            names_areas: false,
            longest,
        })
    }

    /// Returns how many slots can be filled now. This is the number of frames if each fits into a buffer.
    #[inline]
    pub fn room(&mut self) -> usize {
        self.tail = self.memory.doorbell[TX_SWITCH + INDEX].load(Ordering::Acquire).min(self.memory.slots - 1);
        self.memory.distance(self.head, self.tail) as usize
    }

    /// Returns the room as of the last read, without reading the switch's cache line.
    #[inline]
    fn known_room(&self) -> usize {
        self.memory.distance(self.head, self.tail) as usize
    }

    #[inline]
    fn has_room(&mut self, slots: usize) -> bool {
        self.known_room() >= slots || self.room() >= slots
    }

    /// Returns the bytes of the longest frame that can be queued: 65,535, or fewer if they do not fit into 64 slots or the ring. On a
    /// port with offload headers it is 65,601: the header, and a frame with an offload request.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Queues a copy of `frame`. Returns false when there is no room. A frame longer than a buffer takes several slots.
    /// There is never room for a frame that is longer than [`TxRing::longest`].
    #[inline]
    pub fn push(&mut self, frame: &[u8]) -> bool {
        if frame.len() <= self.memory.buffer_size as usize {
            return self.push_with(frame.len(), |buffer| buffer.copy_from_slice(frame));
        }
        let slots = frame.len().div_ceil(self.memory.buffer_size as usize);
        if frame.len() > self.longest || !self.has_room(slots) {
            return false;
        }
        let last = slots - 1;
        for (number, piece) in frame.chunks(self.memory.buffer_size as usize).enumerate() {
            let flags = if number < last { NS_MOREFRAG } else { 0 };
            self.fill(piece.len(), flags, |buffer| buffer.copy_from_slice(piece));
        }
        true
    }

    /// Queues a copy of `frame` after its header, on a port attached with [`ringway_abi::Shape::offload`]. On such a
    /// port the other methods expect bytes that begin with the header. Returns false when there is no room, like
    /// [`TxRing::push`]. Without an offload request a frame has at most 65,535 bytes.
    pub fn push_offloaded(&mut self, frame: &[u8], offload: Option<&Offload>) -> bool {
        let mut prefix = [0; PREFIX_BYTES];
        prefix[..Offload::BYTES].copy_from_slice(&Offload::encode(offload));
        let buffer_size = self.memory.buffer_size as usize;
        let bytes = PREFIX_BYTES + frame.len();
        let slots = bytes.div_ceil(buffer_size);
        let is_oversize = bytes > self.longest || (offload.is_none() && frame.len() > MAX_FRAME);
        if is_oversize || !self.has_room(slots) {
            return false;
        }
        let (first, others) = frame.split_at(frame.len().min(buffer_size - PREFIX_BYTES));
        let flags = |number| if number < slots { NS_MOREFRAG } else { 0 };
        self.fill(PREFIX_BYTES + first.len(), flags(1), |buffer| {
            buffer[..PREFIX_BYTES].copy_from_slice(&prefix);
            buffer[PREFIX_BYTES..].copy_from_slice(first);
        });
        for (number, piece) in (2..).zip(others.chunks(buffer_size)) {
            self.fill(piece.len(), flags(number), |buffer| buffer.copy_from_slice(piece));
        }
        true
    }

    /// Queues a frame of `len` bytes that `write` writes in place: `write` gets exactly `len` bytes of unspecified
    /// contents. Returns false, without calling `write`, when there is no room or `len` exceeds a buffer.
    #[inline]
    pub fn push_with(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> bool {
        if len > self.memory.buffer_size as usize || !self.has_room(1) {
            return false;
        }
        self.fill(len, 0, write);
        true
    }

    /// Queues again the contents that the next slots' buffers have from an earlier lap, as up to `most` frames of `len`
    /// bytes each. Does not touch the buffers. Returns the number of frames for which there was room, and 0 if `len`
    /// exceeds a buffer.
    #[inline]
    pub fn push_again(&mut self, len: usize, most: usize) -> usize {
        if len > self.memory.buffer_size as usize || (self.known_room() < most && self.room() == 0) {
            return 0;
        }
        let most = most.min(self.known_room()) as u32;
        self.take_back(most);
        let mut left = most;
        while left > 0 {
            let end = self.memory.slots.min(self.head + left);
            for [word, _] in self.memory.words(self.head, end) {
                let old = word.load(Ordering::Relaxed);
                let new = Slot { len: len as u16, flags: 0, ..Slot::from_word(old) }.to_word();
                if new != old {
                    word.store(new, Ordering::Relaxed);
                }
            }
            left -= end - self.head;
            self.head = if end == self.memory.slots { 0 } else { end };
        }
        most as usize
    }

    /// Queues a part of an area as a frame, without a copy: the switch reads the bytes when it takes the frame. That is done
    /// when [`TxRing::is_sent`] says so. Changes before it are sent, or not. Returns false when there is no room, like
    /// [`TxRing::push`].
    ///
    /// # Panics
    /// The area belongs to another memory than the port's, the part is not inside, or it does not begin at a multiple of the
    /// memory's unit.
    #[inline]
    pub fn push_from(&mut self, area: &Area, part: Range<usize>) -> bool {
        assert!(
            self.takes_from(area, &part),
            "the part is in the port's memory and the area, from a multiple of the unit"
        );
        // Units are powers of two.
        let first = ((area.offset() + part.start) >> self.memory.unit.trailing_zeros()) as u32;
        if part.len() > self.memory.buffer_size as usize {
            return self.push_long_from(first, part.len());
        }
        let has_room = self.has_room(1);
        if has_room {
            self.name_place(Slot { buffer: first, len: part.len() as u16, flags: 0 });
        }
        has_room
    }

    /// Queues the first `len` bytes of a buffer of the port as a frame, without a copy: see [`TxRing::push_from`] for when they may be
    /// changed. The buffer stays the caller's. Returns false when there is no room, or the buffer has fewer bytes.
    ///
    /// # Panics
    /// The buffer belongs to another port.
    #[inline]
    pub fn push_buffer(&mut self, buffer: &Buffer, len: usize) -> bool {
        assert!(self.memory.start(buffer.index(), 0).0 == buffer.start(), "the buffer belongs to another port");
        let has_room = len <= buffer.len() && self.has_room(1);
        if has_room {
            self.names_areas = true;
            let word = self.memory.word(self.head);
            let new = Slot { buffer: buffer.index(), len: len as u16, flags: 0 }.to_word();
            // A store would take the cache line from the switch: programs often use the same buffers in turn.
            if word.load(Ordering::Relaxed) != new {
                word.store(new, Ordering::Relaxed);
            }
            self.head = self.memory.after(self.head);
        }
        has_room
    }

    /// Returns true if [`TxRing::push_from`] can queue this part: it is inside the area and the port's memory, and begins at a multiple
    /// of the memory's unit.
    #[inline]
    #[must_use]
    pub fn takes_from(&self, area: &Area, part: &Range<usize>) -> bool {
        let is_inside = part.start <= part.end && part.end <= area.len();
        let is_ours = self.memory.is_at(area.start(), area.offset());
        is_inside && is_ours && (area.offset() + part.start) & (self.memory.unit as usize - 1) == 0
    }

    /// Queues a frame of several slots. The first slot names `first`, and each further one the place behind the one before.
    #[cold]
    fn push_long_from(&mut self, first: u32, len: usize) -> bool {
        let size = self.memory.buffer_size as usize;
        let slots = len.div_ceil(size);
        if len > self.longest || !self.has_room(slots) {
            return false;
        }
        // The size of a buffer is a multiple of the unit.
        let step = self.memory.buffer_size / self.memory.unit;
        for (number, done) in (0..).zip((0..len).step_by(size)) {
            let left = len - done;
            let flags = if left > size { NS_MOREFRAG } else { 0 };
            self.name_place(Slot { buffer: first + number * step, len: left.min(size) as u16, flags });
        }
        true
    }

    /// Lets the next slot name a place of the program's memory. There is room.
    #[inline]
    fn name_place(&mut self, slot: Slot) {
        self.names_areas = true;
        self.memory.word(self.head).store(slot.to_word(), Ordering::Relaxed);
        self.head = self.memory.after(self.head);
    }

    /// Lets the next `count` free slots name their own buffers, which the caller may write.
    #[inline]
    fn take_back(&mut self, count: u32) {
        if self.names_areas {
            self.name_own_buffers(count);
        }
    }

    #[cold]
    fn name_own_buffers(&mut self, count: u32) {
        let mut at = self.head;
        for _ in 0..count {
            let buffer = self.layout.first_tx_buffer(self.ring, at);
            let word = self.memory.word(at);
            let old = Slot::from_word(word.load(Ordering::Relaxed));
            if old.buffer != buffer {
                word.store(Slot { buffer, ..old }.to_word(), Ordering::Relaxed);
            }
            at = self.memory.after(at);
        }
    }

    #[inline]
    fn fill(&mut self, len: usize, flags: u16, write: impl FnOnce(&mut [u8])) {
        self.take_back(1);
        if self.known_room() > PREFETCH_AHEAD as usize {
            self.memory.prefetch_mut(self.head, PREFETCH_AHEAD);
        }
        let slot = Slot::from_word(self.memory.word(self.head).load(Ordering::Relaxed));
        write(self.memory.buffer_mut(slot.buffer, len));
        let new = Slot { len: len as u16, flags, ..slot };
        if new != slot {
            self.memory.word(self.head).store(new.to_word(), Ordering::Relaxed);
        }
        self.head = self.memory.after(self.head);
    }

    /// Returns the buffers of up to `max` free slots, in the order of the ring, for frames that are written in place.
    /// [`TxRing::commit`] queues them. Without `commit`, the next `reserve` or push returns the same buffers.
    #[inline]
    pub fn reserve(&mut self, max: usize) -> Reserved<'_> {
        let count = self.look(max);
        // SAFETY: the client owns the `count` slots from `head`, and `&mut self` prevents other references to their
        // buffers in this client.
        unsafe { Reserved::new(&self.memory, self.head, count) }
    }

    /// Returns the number of free slots, up to `max`.
    #[inline]
    fn look(&mut self, max: usize) -> u32 {
        if self.known_room() < max {
            self.room();
        }
        let count = max.min(self.known_room()) as u32;
        self.take_back(count);
        count
    }

    /// Like [`TxRing::reserve`], as raw memory: the free slots up to the end of the ring. Their words and buffers may be
    /// written, and [`TxRing::commit_run`] queues them.
    #[inline]
    pub fn reserve_run(&mut self, max: usize) -> Run {
        let count = self.look(max);
        Run::new(&self.memory, self.head, count)
    }

    /// Like [`TxRing::reserve_run`], with the free slots from the start of the ring as a second run.
    #[inline]
    pub fn reserve_runs(&mut self, max: usize) -> [Run; 2] {
        let count = self.look(max);
        Run::both(&self.memory, self.head, count)
    }

    /// Returns the free slots as of the last look, up to `max`: a call of `reserve_run` may have been before.
    #[inline]
    pub fn reserved_runs(&self, max: usize) -> [Run; 2] {
        Run::both(&self.memory, self.head, max.min(self.known_room()) as u32)
    }

    /// Queues the first `slots` free slots with the lengths and flags that are in their words. Returns false, and queues
    /// nothing, if there are fewer.
    #[inline]
    pub fn commit_run(&mut self, slots: usize) -> bool {
        let is_possible = slots <= self.known_room();
        if is_possible {
            self.head = self.memory.add(self.head, slots as u32);
        }
        is_possible
    }

    /// Queues the contents of the buffers that [`TxRing::reserve`] returned, from the first one on: one piece for each
    /// buffer. A frame that is longer than a buffer takes several pieces, all but the last one with [`Piece::more`].
    /// Returns false, and queues nothing, if there are more pieces than free slots, if a piece is longer than a buffer,
    /// or if the last piece has `more`.
    #[inline]
    pub fn commit(&mut self, pieces: impl IntoIterator<Item = Piece>) -> bool {
        let mut pieces = pieces.into_iter();
        let (mut head, mut left) = (self.head, self.known_room() as u32);
        let mut more = false;
        loop {
            // Up to the end of the ring, or of the room.
            let end = self.memory.slots.min(head + left);
            for [word, _] in self.memory.words(head, end) {
                let Some(piece) = pieces.next() else { return self.advance(head, more) };
                if piece.len > self.memory.buffer_size as usize {
                    return false;
                }
                more = piece.more;
                let old = word.load(Ordering::Relaxed);
                let flags = if more { NS_MOREFRAG } else { 0 };
                let new = Slot { len: piece.len as u16, flags, ..Slot::from_word(old) }.to_word();
                if new != old {
                    word.store(new, Ordering::Relaxed);
                }
                head += 1;
                left -= 1;
            }
            if head == self.memory.slots {
                head = 0;
            }
            if left == 0 {
                return pieces.next().is_none() && self.advance(head, more);
            }
        }
    }

    /// Queues the slots before `head`, unless the last one is not the last of its frame.
    #[inline]
    fn advance(&mut self, head: u32, is_cut: bool) -> bool {
        if !is_cut {
            // The iteration may end at the end of the ring.
            self.head = if head == self.memory.slots { 0 } else { head };
        }
        !is_cut
    }

    /// Publishes the frames queued on this ring, and wakes the switch if it has asked for a kick. For a thread that
    /// sends on a ring of its own; [`crate::Port::flush`] publishes those of all rings with at most one kick.
    #[inline]
    pub fn flush(&mut self) {
        if self.publish() {
            wake(&self.kick);
        }
    }

    /// Returns the number of slots of the ring. One of them is always empty.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.memory.slots as usize
    }

    /// Returns the number of bytes of a buffer.
    #[must_use]
    pub fn buffer_size(&self) -> usize {
        self.memory.buffer_size as usize
    }

    /// Returns the number of slots that are queued and not published.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.memory.distance(self.published, self.head) as usize
    }

    /// Publishes the queued frames. Returns true when the switch wants a kick.
    #[inline]
    pub(crate) fn publish(&mut self) -> bool {
        if self.head == self.published {
            return false;
        }
        self.published = self.head;
        self.memory.doorbell[TX_CLIENT + INDEX].store(self.head, Ordering::Release);
        self.memory.tell(self.head, self.tail);
        doorbell::publish_fence();
        doorbell::granted(&self.memory.doorbell[TX_SWITCH + WISH], &self.kicked)
    }

    /// Requests a call when there is room to send. Returns true when there is room already: then the caller must not sleep. To
    /// sleep, wait for a write to [`crate::Port::call_fd`], and end with [`TxRing::want_no_call`].
    pub fn want_call(&mut self) -> bool {
        self.want_room(1)
    }

    /// Requests a call like [`TxRing::want_call`], for room for so many slots: what a frame longer than a buffer takes. A call can come
    /// before there is as much room.
    pub fn want_room(&mut self, slots: usize) -> bool {
        if self.room() >= slots {
            return true;
        }
        self.wish.make(&self.memory.doorbell[TX_CLIENT + WISH]);
        self.room() >= slots
    }

    /// Requests a call when the switch takes frames. Returns true when it has taken all that were published: then what
    /// [`TxRing::push_from`] named may be changed, and the caller must not sleep.
    pub fn want_sent(&mut self) -> bool {
        if self.is_sent() {
            return true;
        }
        self.wish.make(&self.memory.doorbell[TX_CLIENT + WISH]);
        self.is_sent()
    }

    /// Returns the number of slots that are queued or published and that the switch has not taken.
    #[inline]
    pub fn unsent(&mut self) -> usize {
        self.memory.slots as usize - 1 - self.room()
    }

    /// Returns true when the switch has taken all frames that were published.
    pub fn is_sent(&mut self) -> bool {
        self.room();
        self.memory.distance(self.published, self.tail) == self.memory.slots - 1
    }

    /// Withdraws the request for a call.
    pub fn want_no_call(&mut self) {
        self.wish.withdraw(&self.memory.doorbell[TX_CLIENT + WISH]);
    }
}

/// Wakes the switch.
pub(crate) fn wake(kick: &OwnedFd) {
    // The switch has made the eventfd non-blocking. If its counter is full, it is readable already.
    let _ = rustix::io::write(kick, &1u64.to_ne_bytes());
}
