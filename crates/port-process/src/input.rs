//! Frames from a client: its transmit rings.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringway_abi::doorbell::{INDEX, TX_CLIENT, TX_SWITCH, WISH, WakeRequest};
use ringway_abi::layout::{MAX_FRAME, MAX_SLOTS_PER_FRAME};
use ringway_abi::slot::NS_NO_LEARN;
use ringway_abi::{Layout, Offload, Slot};
use ringway_memory::{Stride, View};
use ringway_switch::{Armed, Batch, Discarded, DropReason, Input, InputCapabilities, PortFault, WaitingPlace, WakeOn};

use super::positions::{Positions, RingPositions};
use super::region::part::Part;
use super::ring::{Backing, PortMemory, Ring, RingMemory};

/// How many slots ahead the first cache line of a frame is prefetched.
const PREFETCH_AHEAD: usize = 24;

pub(super) struct ProcessInput<B: Backing> {
    rings: Vec<TxRing<B>>,
    /// `next_ring`: the ring that the next batch begins with. `first_ring`: the ring that the last batch began with.
    next_ring: usize,
    first_ring: usize,
    /// The port's part of a region, if it lies in one.
    part: Option<Arc<Part>>,
}

struct TxRing<B: Backing> {
    ring: Ring<B>,
    /// The next slot to take.
    next: u32,
    /// The slot after those that the last collect took.
    taken: u32,
    /// The client's `head` at the time when the frame at `next` was found incomplete. The frame can be complete only
    /// after `head` has changed.
    waiting_at: Option<u32>,
    wish: WakeRequest,
    /// Where a successor finds how far this one came, if the port outlives the switch.
    positions: Option<RingPositions>,
}

impl<B: Backing> ProcessInput<B> {
    /// `positions`: of rings that outlive the switch; `is_left`: a predecessor has served them, and they go on from there.
    ///
    /// # Errors
    /// The layout does not fit the memory, or a position its ring.
    pub(super) fn new(
        memory: &PortMemory<B>,
        layout: &Layout,
        positions: Option<&Positions>,
        is_left: bool,
    ) -> io::Result<Self> {
        let mut rings = Vec::new();
        for number in 0..layout.shape.tx_rings {
            let ring = Ring::transmit(memory, layout, number)?;
            let positions = positions.map(|positions| positions.ring(number)).transpose()?;
            let left = positions.as_ref().filter(|_| is_left);
            let next = left.map_or(0, RingPositions::taken);
            if next >= ring.slots {
                return Err(io::Error::other("a position beyond its ring"));
            }
            let wish = left.map_or_else(WakeRequest::default, |left| WakeRequest::after(left.last_wish()));
            if let Some(left) = left {
                // Another successor may follow before the next request is noted.
                left.note_wish(wish.number());
            }
            let ring = TxRing { ring, next, taken: next, waiting_at: None, wish, positions };
            ring.give_back();
            ring.ring.doorbell[TX_SWITCH + WISH].store(0, Ordering::Relaxed);
            rings.push(ring);
        }
        Ok(Self { rings, next_ring: 0, first_ring: 0, part: None })
    }

    /// Keeps the port's part of its region until this side is dropped. Headers before frames have `prefix` bytes.
    pub(super) fn keep(&mut self, part: Arc<Part>, prefix: usize) {
        self.part = Some(part);
        self.rings.iter_mut().for_each(|ring| ring.ring.prefix = prefix);
    }
}

impl<B: Backing> Input for ProcessInput<B> {
    #[inline]
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        let count = self.rings.len();
        let first = self.next_ring;
        self.first_ring = first;
        self.next_ring = if first + 1 < count { first + 1 } else { 0 };
        let (before, from) = self.rings.split_at_mut(first);
        for ring in from.iter_mut().chain(before) {
            ring.collect(batch)?;
        }
        Ok(())
    }

    /// Rings with headers cannot discard by address, because each frame's header would have to be checked first.
    fn capabilities(&self) -> InputCapabilities {
        let discard_like = !self.rings.iter().any(|ring| ring.ring.offload);
        InputCapabilities { rewind: true, discard_like, waiting: WaitingPlace::Ring }
    }

    fn rewind(&mut self, mut frames: usize) {
        let (before, from) = self.rings.split_at_mut(self.first_ring);
        for ring in from.iter_mut().chain(before) {
            frames -= ring.rewind(frames);
        }
    }

    fn discard(&mut self, most: usize) -> Result<Discarded, PortFault> {
        let mut discarded = Discarded::default();
        let first = self.next_ring;
        self.next_ring = if first + 1 < self.rings.len() { first + 1 } else { 0 };
        let (before, from) = self.rings.split_at_mut(first);
        for ring in from.iter_mut().chain(before) {
            ring.discard(most, &mut discarded)?;
        }
        Ok(discarded)
    }

    fn discard_like(&mut self, addresses: &[u8; 12], most: usize) -> Result<Discarded, PortFault> {
        let mut discarded = Discarded::default();
        let (before, from) = self.rings.split_at_mut(self.first_ring);
        for ring in from.iter_mut().chain(before) {
            ring.discard_like(addresses, most, &mut discarded)?;
        }
        Ok(discarded)
    }

    #[inline]
    fn release(&mut self) {
        for ring in &mut self.rings {
            ring.release();
        }
    }

    #[inline]
    fn pending(&mut self) -> bool {
        self.rings.iter().any(TxRing::pending)
    }

    /// A client may end right after it has published its last frames.
    fn last_frames(&self) -> usize {
        self.rings.iter().map(|ring| ring.ring.slots as usize - 1).sum()
    }

    fn arm(&mut self, wake_on: WakeOn) -> Armed {
        if wake_on == WakeOn::Events {
            // The client has no events.
            return Armed::Kick;
        }
        let mut pending = false;
        for ring in &mut self.rings {
            ring.wish.make(&ring.ring.doorbell[TX_SWITCH + WISH]);
            if let Some(positions) = &ring.positions {
                positions.note_wish(ring.wish.number());
            }
            pending |= ring.pending();
        }
        Armed::with_kick(pending)
    }

    fn disarm(&mut self) {
        for ring in &mut self.rings {
            ring.wish.withdraw(&ring.ring.doorbell[TX_SWITCH + WISH]);
        }
    }
}

impl<B: Backing> TxRing<B> {
    /// Replaces any fault by that of lost memory if memory was lost: lost pages read as zeroes, which can look
    /// like any other fault.
    #[cold]
    fn or_lost(&self, fault: PortFault) -> PortFault {
        if self.ring.is_lost() { self.ring.lost() } else { fault }
    }

    #[inline]
    fn head(&self) -> u32 {
        self.ring.doorbell[TX_CLIENT + INDEX].load(Ordering::Acquire)
    }

    #[inline]
    fn pending(&self) -> bool {
        let head = self.head();
        head != self.next && self.waiting_at != Some(head)
    }

    #[inline]
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        let head = self.head();
        if head == self.next {
            return Ok(());
        }
        if head >= self.ring.slots {
            return Err(self.or_lost(PortFault::TxHeadOutOfRange(head)));
        }
        let memory = self.ring.memory();
        let mut at = self.next;
        let is_single = self.ring.after(at, 1) == head && !self.ring.offload && !batch.is_unlearned();
        if is_single && take_one(&memory, at, batch) {
            self.taken = head;
            self.note_taken();
            return if self.ring.is_lost() { Err(self.ring.lost()) } else { Ok(()) };
        }
        let result = loop {
            // Up to the end of the ring, the client's `head`, or the room of the batch, whichever comes first.
            let end = if head >= at { head } else { self.ring.slots };
            let stop = end.min(at.saturating_add(batch.room() as u32));
            if at == stop {
                break Ok(());
            }
            at += if batch.is_unlearned() {
                // A row would be learned from.
                0
            } else if self.ring.offload {
                take_prefixed_row(&self.ring, &memory, (at, stop), batch)
            } else {
                take_row(&memory, at, stop, batch)
            };
            if at < stop {
                if batch.room() == 0 {
                    break Ok(());
                }
                match take_pieces(&self.ring, &memory, at, self.ring.distance(at, head), batch) {
                    Pieces::Slots(used) => at = self.ring.after(at, used),
                    Pieces::Unfinished => {
                        self.waiting_at = Some(head);
                        break Ok(());
                    }
                    Pieces::OtherKind => {
                        batch.note_more();
                        break Ok(());
                    }
                    Pieces::Endless => break Err(PortFault::EndlessFrame),
                }
            } else if at == self.ring.slots {
                at = 0;
            }
            if at == head {
                break Ok(());
            }
        };
        self.taken = at;
        self.note_taken();
        if self.ring.is_lost() { Err(self.ring.lost()) } else { result }
    }

    #[inline]
    fn note_taken(&self) {
        if let Some(positions) = &self.positions {
            positions.note_taken(self.taken);
        }
    }

    /// Undoes the last collect, except for its first `frames` frames. Returns how many of these there were. A client
    /// that changes its slots meanwhile only affects which of its own frames are taken again.
    fn rewind(&mut self, frames: usize) -> usize {
        let memory = self.ring.memory();
        let (mut at, mut counted) = (self.next, 0);
        while at != self.taken && counted < frames {
            counted += usize::from(!Slot::from_word(memory.word(at).load(Ordering::Relaxed)).more());
            at = self.ring.after(at, 1);
        }
        self.taken = at;
        self.note_taken();
        counted
    }

    /// Drops frames until `discarded` counts `most` of them, and returns their slots to the client. Reads only the
    /// slots, not the frames.
    fn discard(&mut self, most: usize, discarded: &mut Discarded) -> Result<(), PortFault> {
        let head = self.head();
        if head >= self.ring.slots {
            return Err(self.or_lost(PortFault::TxHeadOutOfRange(head)));
        }
        let memory = self.ring.memory();
        let prefix = if self.ring.offload { self.ring.prefix as u64 } else { 0 };
        let (mut at, mut frame, mut len) = (self.next, 0, 0);
        self.taken = self.next;
        while at != head && discarded.frames < most as u64 {
            let end = if head >= at { head } else { self.ring.slots };
            for [word, _] in memory.slots(at, end) {
                let slot = Slot::from_word(word.load(Ordering::Relaxed));
                at += 1;
                len += u64::from(slot.len);
                if slot.more() {
                    frame += 1;
                    if frame == MAX_SLOTS_PER_FRAME || frame + 1 == self.ring.slots as usize {
                        return Err(self.or_lost(PortFault::EndlessFrame));
                    }
                    continue;
                }
                discarded.frames += 1;
                discarded.bytes += len.saturating_sub(prefix);
                (frame, len) = (0, 0);
                self.taken = at;
                if discarded.frames == most as u64 {
                    break;
                }
            }
            if at == self.ring.slots {
                at = 0;
                self.taken = if frame == 0 { 0 } else { self.taken };
            }
        }
        if self.taken == self.next && at == head && at != self.next {
            self.waiting_at = Some(head);
        }
        self.note_taken();
        self.release();
        if self.ring.is_lost() { Err(self.ring.lost()) } else { Ok(()) }
    }

    /// Drops frames of one slot each that begin with `addresses`, up to the first that does not, until `discarded`
    /// counts `most` of them. Returns their slots to the client.
    fn discard_like(&mut self, addresses: &[u8; 12], most: usize, discarded: &mut Discarded) -> Result<(), PortFault> {
        let head = self.head();
        if head >= self.ring.slots {
            return Err(self.or_lost(PortFault::TxHeadOutOfRange(head)));
        }
        if self.ring.offload {
            return Ok(());
        }
        let memory = self.ring.memory();
        let mut at = self.next;
        while at != head && discarded.frames < most as u64 {
            let end = if head >= at { head } else { self.ring.slots };
            let end = end.min(at.saturating_add(most as u32 - discarded.frames as u32));
            let slots = memory.slots(at, end);
            let alike = memory.count_alike(slots, addresses);
            at += alike.frames as u32;
            discarded.frames += alike.frames;
            discarded.bytes += alike.bytes;
            if alike.frames < slots.len() as u64 {
                break;
            }
            if at == self.ring.slots {
                at = 0;
            }
        }
        self.taken = at;
        self.note_taken();
        self.release();
        if self.ring.is_lost() { Err(self.ring.lost()) } else { Ok(()) }
    }

    #[inline]
    fn release(&mut self) {
        if self.taken == self.next {
            return;
        }
        self.next = self.taken;
        self.waiting_at = None;
        self.give_back();
    }

    /// Gives the client all slots again, except one (netmap: `tail` is one before the first slot in use).
    #[inline]
    fn give_back(&self) {
        let tail = if self.next == 0 { self.ring.slots - 1 } else { self.next - 1 };
        self.ring.doorbell[TX_SWITCH + INDEX].store(tail, Ordering::Release);
    }
}

/// Takes a single frame on the fast path: a complete frame in one slot. Most request-response traffic takes this path.
/// Returns false, without effect, if the slot is not such a frame or the batch has no room.
#[inline]
fn take_one<'m, S: Stride>(memory: &RingMemory<'m, S>, at: u32, batch: &mut Batch<'m>) -> bool {
    let slot = Slot::from_word(memory.word(at).load(Ordering::Relaxed));
    let Some(buffer) = memory.buffer(slot).filter(|buffer| usize::from(slot.len) <= buffer.len()) else { return false };
    if !slot.is_plain() || slot.len == 0 || batch.room() == 0 {
        return false;
    }
    batch.push(buffer, slot.len.into());
    true
}

/// Takes frames of one slot each, from slot `at` on and before slot `stop`, up to the first slot that is part of a
/// longer frame or invalid. Returns their number. The caller has checked that the batch has room for all of them.
// Not inlined: within `collect` the loop takes 7 more instructions a frame.
#[inline(never)]
fn take_row<'m, S: Stride>(memory: &RingMemory<'m, S>, at: u32, stop: u32, batch: &mut Batch<'m>) -> u32 {
    let slots = memory.slots(at, stop);
    let mut ahead = slots.get(PREFETCH_AHEAD..).unwrap_or_default().iter();
    let frames = slots.iter().map_while(|[word, _]| {
        // Only a hint: the slot is read again when it is taken.
        if let Some([word, _]) = ahead.next() {
            memory.prefetch(word);
        }
        // Reads the slot once. A slot that is not taken here is read and checked again.
        let slot = Slot::from_word(word.load(Ordering::Relaxed));
        slot.is_plain().then_some((memory.buffer(slot)?, slot.len.into()))
    });
    batch.fill_from_buffers(frames) as u32
}

/// Takes frames of one slot each, each after a header, from slot `at` on and before slot `stop`, up to the first slot
/// that is part of a longer frame or invalid, and while the batch has room. Returns their number.
#[inline(never)]
fn take_prefixed_row<'m, B: Backing>(
    ring: &Ring<B>,
    memory: &RingMemory<'m, B::Stride>,
    (at, stop): (u32, u32),
    batch: &mut Batch<'m>,
) -> u32 {
    let slots = memory.slots(at, stop);
    for (taken, [word, _]) in slots.iter().enumerate() {
        if let Some([word, _]) = slots.get(taken + PREFETCH_AHEAD) {
            memory.prefetch(word);
        }
        let slot = Slot::from_word(word.load(Ordering::Relaxed));
        let Some(buffer) = memory.buffer(slot).filter(|_| slot.is_plain()) else { return taken as u32 };
        // A long frame, or one that will be segmented, takes the room of several.
        if batch.room() == 0 {
            return taken as u32;
        }
        match usize::from(slot.len) {
            len if len == 0 || len > buffer.len() => return taken as u32,
            len => take_prefixed(buffer, len, ring.prefix, batch),
        }
    }
    slots.len() as u32
}

/// Returns the header before a frame, read once, and the frame after it. Returns `None` if the view is shorter than a
/// header.
fn split_prefix<'m>(buffer: View<'m>, prefix: usize) -> Option<([u8; Offload::BYTES], View<'m>)> {
    let mut header = [0; Offload::BYTES];
    let frame = buffer.sub(prefix, buffer.len().checked_sub(prefix)?)?;
    buffer.read(&mut header).then_some((header, frame))
}

/// Takes a frame that lies with its header in the first `len` bytes of a buffer.
fn take_prefixed<'m>(buffer: View<'m>, len: usize, prefix: usize, batch: &mut Batch<'m>) {
    let (Some((header, frame)), Some(len)) = (split_prefix(buffer, prefix), len.checked_sub(prefix)) else {
        return batch.refuse(DropReason::BadLength);
    };
    match Offload::decode(&header) {
        Ok(None) => batch.push(frame, len),
        Ok(Some(offload)) => batch.push_offloaded(frame, len, offload),
        Err(_) => batch.refuse(DropReason::BadOffload),
    }
}

enum Pieces {
    /// The frame is complete and takes this many slots.
    Slots(u32),
    /// The client has not published the last slot of the frame yet.
    Unfinished,
    /// The switch learns the frame's address, and none from the frames of the batch, or the other way round. The next batch takes it.
    OtherKind,
    /// The frame has more slots than any frame may have.
    Endless,
}

/// Takes a frame in one or several slots. Counts an invalid frame.
#[cold]
fn take_pieces<'m, B: Backing>(
    ring: &Ring<B>,
    memory: &RingMemory<'m, B::Stride>,
    mut at: u32,
    left: u32,
    batch: &mut Batch<'m>,
) -> Pieces {
    let mut pieces: [Option<View<'m>>; MAX_SLOTS_PER_FRAME] = [None; MAX_SLOTS_PER_FRAME];
    let mut slot = Slot::from_word(memory.word(at).load(Ordering::Relaxed));
    if !batch.takes_unlearned(slot.flags & NS_NO_LEARN != 0) {
        return Pieces::OtherKind;
    }
    let mut used = 0;
    let mut len = 0;
    let mut fault = None;
    loop {
        match memory.buffer(slot) {
            None => fault = Some(DropReason::BadBuffer),
            Some(buffer) => match buffer.sub(0, slot.len.into()).filter(|piece| piece.len() > 0) {
                None => fault = Some(DropReason::BadLength),
                piece => pieces[used as usize] = piece,
            },
        }
        len += usize::from(slot.len);
        used += 1;
        if !slot.more() {
            break;
        }
        if used as usize == MAX_SLOTS_PER_FRAME || used == ring.slots - 1 {
            return Pieces::Endless;
        }
        if used == left {
            return Pieces::Unfinished;
        }
        at = ring.after(at, 1);
        slot = Slot::from_word(memory.word(at).load(Ordering::Relaxed));
    }
    let mut offload = Ok(None);
    if let (true, None) = (ring.offload, fault) {
        match pieces[0].and_then(|piece| split_prefix(piece, ring.prefix)) {
            Some((header, frame)) => {
                pieces[0] = Some(frame);
                len -= ring.prefix;
                offload = Offload::decode(&header);
            }
            None => fault = Some(DropReason::BadLength),
        }
    }
    let pieces = pieces[..used as usize].iter().flatten().copied();
    match (fault, offload) {
        (Some(reason), _) => batch.refuse(reason),
        (None, Err(_)) => batch.refuse(DropReason::BadOffload),
        (None, Ok(Some(offload))) => batch.push_pieces_offloaded(pieces, offload),
        (None, Ok(None)) if len > MAX_FRAME => batch.refuse(DropReason::Oversize),
        (None, Ok(None)) => batch.push_pieces(pieces),
    }
    Pieces::Slots(used)
}
