//! Frames to a client: its receive rings.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ringway_abi::doorbell::{INDEX, LOST, RX_CLIENT, RX_SWITCH};
use ringway_abi::layout::MAX_SLOTS_PER_FRAME;
use ringway_abi::offload::PREFIX_BYTES;
use ringway_abi::slot::NS_MOREFRAG;
use ringway_abi::{Layout, Offload, Slot};
use ringway_memory::{HEAD_BYTES, Head, Stride, View, prefetch_write};
use ringway_port::copy::{self, FEW, ROW, prefetch};
use ringway_port::steer::{Picks, queue_of};
use ringway_switch::{Accepts, Counters, DropReason, Frame, Frames, Output, OutputCapabilities, PortFault};

use super::region::part::Part;
use super::ring::{Backing, PortMemory, Ring, RingMemory};

/// Fills the unused places of a row.
static NO_BYTES: Head = Head([0; HEAD_BYTES]);

pub(super) struct ProcessOutput<B: Backing> {
    rings: Vec<RxRing<B>>,
    picks: Picks,
    /// The port's part of a region, if it lies in one.
    part: Option<Arc<Part>>,
    /// The number of lost frames that the client was told.
    told_lost: u32,
    /// The part of them that predecessors have counted.
    lost_before: u32,
}

struct RxRing<B: Backing> {
    ring: Ring<B>,
    given: ClientSlots,
}

/// The slots that the client owns for reading.
struct ClientSlots {
    /// The first of these slots: the client's `head`, as of the last read.
    head: u32,
    /// Behind the last of these slots: the next slot to fill.
    next: u32,
}

/// Counts the results of one delivery.
#[derive(Default)]
struct Tally {
    frames: u64,
    bytes: u64,
    full: u64,
    small: u64,
    bad: u64,
    down: u64,
}

impl Tally {
    #[cold]
    fn lose(&mut self, frame: &Frame<'_, '_>, reason: DropReason) {
        frame.lose(reason);
        match reason {
            DropReason::ReceiverFull => self.full += 1,
            DropReason::ReceiverTooSmall => self.small += 1,
            DropReason::ReceiverDown => self.down += 1,
            _ => self.bad += 1,
        }
    }
}

impl<B: Backing> ProcessOutput<B> {
    /// `is_left`: a predecessor has served the rings, and they go on from what their memory has.
    ///
    /// # Errors
    /// The layout does not fit the memory, or an index in it its ring.
    pub(super) fn new(memory: &PortMemory<B>, layout: &Layout, is_left: bool) -> io::Result<Self> {
        let rings = (0..layout.shape.rx_rings)
            .map(|number| {
                let ring = Ring::receive(memory, layout, number)?;
                let given = if is_left { ClientSlots::left(&ring)? } else { ClientSlots { head: 0, next: 0 } };
                Ok(RxRing { ring, given })
            })
            .collect::<io::Result<Vec<_>>>()?;
        let lost = |ring: &RxRing<B>| ring.ring.doorbell[RX_SWITCH + LOST].load(Ordering::Relaxed);
        let lost_before = rings.first().filter(|_| is_left).map_or(0, lost);
        Ok(Self { rings, picks: Picks::new(), part: None, told_lost: lost_before, lost_before })
    }

    /// Keeps the port's part of its region until this side is dropped. Headers before frames have `prefix` bytes.
    pub(super) fn keep(&mut self, part: Arc<Part>, prefix: usize) {
        self.part = Some(part);
        self.rings.iter_mut().for_each(|ring| ring.ring.prefix = prefix);
    }
}

impl<B: Backing> ProcessOutput<B> {
    /// Counts the frames that a delivery lost.
    #[cold]
    #[inline(never)]
    fn lose(&mut self, tally: &Tally, counters: &Counters) {
        counters.drop_out(DropReason::ReceiverFull, tally.full);
        counters.drop_out(DropReason::ReceiverTooSmall, tally.small);
        counters.drop_out(DropReason::BadBuffer, tally.bad);
        counters.drop_out(DropReason::ReceiverDown, tally.down);
        self.note_losses(counters);
    }
}

impl<B: Backing> Output for ProcessOutput<B> {
    fn capabilities(&self) -> OutputCapabilities {
        let offload = self.rings.iter().any(|ring| ring.ring.offload);
        let accepts = if offload { Accepts::UNTUNNELLED } else { Accepts::NOTHING };
        let longest = self.rings.iter().map(|ring| longest(&ring.ring)).min().unwrap_or(0);
        OutputCapabilities { accepts, names_losses: true, longest }
    }

    fn queues(&mut self, frames: Frames<'_, '_>) -> Option<&[u8]> {
        (self.rings.len() > 1).then(|| self.picks.picked(frames, self.rings.len()))
    }

    fn room(&mut self, mut frames: Frames<'_, '_>) -> Option<(usize, usize)> {
        let number = queue_of(&frames.next()?, self.rings.len());
        self.rings.get_mut(number)?.look()
    }

    fn buffer(&mut self) -> usize {
        self.rings.iter().map(|ring| ring.ring.buffer_size as usize).min().unwrap_or(usize::MAX)
    }

    #[inline]
    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        if let ([ring], Some(frame)) = (self.rings.as_mut_slice(), frames.single())
            && ring.deliver_one(&frame)
        {
            counters.add_out(1, frame.len() as u64);
            return ring.check();
        }
        let mut tally = Tally::default();
        let result = deliver_all(&mut self.rings, &mut self.picks, frames, &mut tally);
        counters.add_out(tally.frames, tally.bytes);
        if tally.full + tally.small + tally.bad + tally.down > 0 {
            self.lose(&tally, counters);
        }
        result
    }

    #[cold]
    fn note_losses(&mut self, counters: &Counters) {
        // Modulo 2^32.
        let lost = self.lost_before.wrapping_add(counters.lost_by_receiver() as u32);
        if let Some(ring) = self.rings.first().filter(|_| lost != self.told_lost) {
            ring.ring.doorbell[RX_SWITCH + LOST].store(lost, Ordering::Relaxed);
            self.told_lost = lost;
        }
    }
}

/// Delivers to the rings of a port. Not inlined: in one function with what follows, its loops have one instruction more for
/// each frame.
#[inline(never)]
fn deliver_all<B: Backing>(
    rings: &mut [RxRing<B>],
    picks: &mut Picks,
    frames: Frames<'_, '_>,
    tally: &mut Tally,
) -> Result<(), PortFault> {
    let few = frames.len() <= FEW;
    match rings {
        [ring] if !ring.ring.offload => match frames.as_contiguous() {
            Some(frames) if few => ring.deliver::<0, FEW>(frames, tally),
            Some(frames) => ring.deliver::<0, ROW>(frames, tally),
            None if few => ring.deliver::<0, FEW>(frames, tally),
            None => ring.deliver::<0, ROW>(frames, tally),
        },
        [ring] => ring.deliver_prefixed(frames, tally),
        rings => deliver_spread(rings, picks, frames, tally),
    }
}

/// Delivers to several rings. All frames of a flow go to the same ring.
#[cold]
fn deliver_spread<B: Backing>(
    rings: &mut [RxRing<B>],
    picks: &mut Picks,
    frames: Frames<'_, '_>,
    tally: &mut Tally,
) -> Result<(), PortFault> {
    let used = picks.pick(frames.clone(), rings.len());
    let mut result = Ok(());
    for (number, ring) in rings.iter_mut().enumerate().filter(|(number, _)| used >> number & 1 != 0) {
        let mine = picks.of(frames.clone(), number);
        let delivered =
            if ring.ring.offload { ring.deliver_prefixed(mine, tally) } else { ring.deliver::<0, ROW>(mine, tally) };
        result = result.and(delivered);
    }
    result
}

impl ClientSlots {
    /// The slots that a predecessor has given. The client could write both indices: one that is wrong costs this client alone.
    fn left<B: Backing>(ring: &Ring<B>) -> io::Result<Self> {
        let index = |line: usize| {
            let index = ring.doorbell[line + INDEX].load(Ordering::Acquire);
            if index < ring.slots { Ok(index) } else { Err(io::Error::other("an index beyond its ring")) }
        };
        Ok(Self { head: index(RX_CLIENT)?, next: index(RX_SWITCH)? })
    }

    /// Returns how many slots the switch may fill. As in netmap, one slot stays empty.
    #[inline]
    fn room<B: Backing>(&self, ring: &Ring<B>) -> u32 {
        ring.slots - 1 - ring.distance(self.head, self.next)
    }

    /// Reads the client's `head` from the doorbell and checks it.
    #[inline]
    fn look<B: Backing>(&mut self, ring: &Ring<B>) -> Result<(), PortFault> {
        let head = ring.doorbell[RX_CLIENT + INDEX].load(Ordering::Acquire);
        if head >= ring.slots || ring.distance(self.head, head) > ring.distance(self.head, self.next) {
            return Err(PortFault::RxHeadOutOfRange(head));
        }
        self.head = head;
        Ok(())
    }
}

impl<B: Backing> RxRing<B> {
    /// Returns how many slots the switch may fill now, and the most that it ever may. The next delivery reports an
    /// invalid `head`.
    fn look(&mut self) -> Option<(usize, usize)> {
        self.given.look(&self.ring).ok()?;
        Some((self.given.room(&self.ring) as usize, self.ring.slots as usize - 1))
    }

    /// Delivers a single frame on the fast path: a short frame, without header, into a free slot. Most request-response
    /// traffic takes this path. Returns false, without effect, if a condition is not met.
    #[inline]
    fn deliver_one(&mut self, frame: &Frame<'_, '_>) -> bool {
        let RxRing { ring, given } = self;
        if ring.offload || !frame.is_short() || given.room(ring) == 0 {
            return false;
        }
        let memory = ring.memory();
        let word = memory.word(given.next);
        let (old, len) = (word.load(Ordering::Relaxed), frame.len());
        let slot = Slot::from_word(old);
        let written = memory.buffer(slot).is_some_and(|buffer| buffer.write_head(frame.head(), len));
        if written {
            let new = Slot { len: len as u16, flags: 0, ..slot }.to_word();
            if new != old {
                word.store(new, Ordering::Relaxed);
            }
            given.next = ring.after(given.next, 1);
            ring.doorbell[RX_SWITCH + INDEX].store(given.next, Ordering::Release);
        }
        written
    }

    /// Checks the client's `head` and the memory. Every delivery does so.
    #[inline]
    fn check(&mut self) -> Result<(), PortFault> {
        self.given.look(&self.ring)?;
        if self.ring.is_lost() { Err(self.ring.lost()) } else { Ok(()) }
    }

    /// Delivers frames, each after a header of the ring's size.
    fn deliver_prefixed<'b, 'm: 'b>(
        &mut self,
        frames: impl Iterator<Item = Frame<'b, 'm>> + Clone,
        tally: &mut Tally,
    ) -> Result<(), PortFault> {
        match self.ring.prefix {
            Offload::BYTES => self.deliver::<{ Offload::BYTES }, ROW>(frames, tally),
            _ => self.deliver::<PREFIX_BYTES, ROW>(frames, tally),
        }
    }

    /// Delivers frames, each after a header of `PREFIX` bytes (0, 10 or [`PREFIX_BYTES`]). Handles them in rows of `ROW`.
    #[inline]
    fn deliver<'b, 'm: 'b, const PREFIX: usize, const ROW: usize>(
        &mut self,
        mut frames: impl Iterator<Item = Frame<'b, 'm>> + Clone,
        tally: &mut Tally,
    ) -> Result<(), PortFault> {
        let RxRing { ring, given } = self;
        // The client writes its doorbell line whenever it takes frames. While there is room anyway, do not read the
        // line first: the frames would have to wait until it arrives from the client's core.
        let looks = (given.room(ring) as usize) < frames.size_hint().1.unwrap_or(usize::MAX);
        if looks && let Err(fault) = given.look(ring) {
            frames.for_each(|frame| tally.lose(&frame, DropReason::ReceiverDown));
            return Err(fault);
        }
        let mut next = given.next;
        let memory = ring.memory();
        let mut result = Ok(());
        loop {
            let room = ring.slots - 1 - ring.distance(given.head, next);
            let fits = |frame: Frame<'_, '_>| PREFIX + frame.len() <= ring.buffer_size as usize;
            if room > 0 && frames.clone().next().is_some_and(fits) {
                let slots = memory.slots(next, ring.slots.min(next + room));
                next = ring.after(next, give_rows::<_, PREFIX, ROW>(&memory, slots, &mut frames, tally));
                if next == 0 && room > slots.len() as u32 {
                    continue;
                }
            }
            // No frame is left, or the next frame needs several slots, or there is no free slot for it, or its slot
            // names an invalid buffer.
            let Some(frame) = frames.next() else { break };
            if PREFIX + frame.len() > ring.buffer_size as usize
                && let Err(fault) = given.look(ring)
            {
                let rest = std::iter::once(frame).chain(&mut frames);
                rest.for_each(|frame| tally.lose(&frame, DropReason::ReceiverDown));
                result = Err(fault);
                break;
            }
            let room = ring.slots - 1 - ring.distance(given.head, next);
            match fill_slots::<B, PREFIX>(ring, &memory, next, room, frame) {
                Ok(slots) => {
                    next = ring.after(next, slots);
                    tally.frames += 1;
                    tally.bytes += frame.len() as u64;
                }
                Err(reason) => tally.lose(&frame, reason),
            }
        }
        if next != given.next {
            ring.doorbell[RX_SWITCH + INDEX].store(next, Ordering::Release);
            given.next = next;
        }
        // An invalid `head` is still found with every delivery. Reading the line here costs little, because the bell
        // reads it next.
        if !looks && result.is_ok() {
            result = given.look(ring);
        }
        if ring.is_lost() { Err(ring.lost()) } else { result }
    }
}

/// Writes frames to these slots, in rows of `ROW`, up to the first frame that does not fit into the buffer of its slot.
/// Returns their number.
#[inline(always)]
fn give_rows<'b, 'm: 'b, S: Stride, const PREFIX: usize, const ROW: usize>(
    memory: &RingMemory<'_, S>,
    slots: &[[AtomicU64; 2]],
    frames: &mut (impl Iterator<Item = Frame<'b, 'm>> + Clone),
    tally: &mut Tally,
) -> u32 {
    // For each frame of the row: its buffer, cut to the bytes that will be written, and the head of the frame.
    let mut rooms = [View::private(&mut []); ROW];
    let mut firsts = [&NO_BYTES; ROW];
    let (mut given, mut bytes) = (0, 0);
    let waited = frames.clone().next().is_some_and(|frame| frame.has_waited());
    loop {
        let (row, slots, mut found, mut longs) = (frames.clone(), &slots[given..], 0, 0_usize);
        let places = rooms.iter_mut().zip(&mut firsts);
        for (frame, ([word, _], (room, first))) in frames.clone().zip(slots.iter().zip(places)) {
            let (slot, len) = (Slot::from_word(word.load(Ordering::Relaxed)), PREFIX + frame.len());
            // A slot that cannot be filled stays unchanged, so that the client can find its mistake there.
            let Some(buffer) = memory.buffer(slot).and_then(|all| all.sub(0, len)) else { break };
            if !frame.is_short() {
                if !waited {
                    prefetch(buffer, prefetch_write);
                }
                longs += 1;
            }
            // Most slots had the same contents in the last lap.
            let (old, new) = (slot.to_word(), Slot { len: len as u16, flags: 0, ..slot }.to_word());
            if new != old {
                word.store(new, Ordering::Relaxed);
            }
            (*room, *first) = (buffer, frame.head());
            bytes += frame.len() as u64;
            found += 1;
        }
        if found > 0 {
            frames.nth(found - 1);
        }
        let (rooms, firsts) = (&rooms[..found], &firsts[..found]);
        if longs == 0 && PREFIX == 0 {
            copy::write_short_row::<0>(rooms, firsts);
        } else if waited {
            if PREFIX > 0 {
                rooms.iter().zip(row.clone()).for_each(|(room, frame)| _ = write_prefix::<PREFIX>(*room, &frame));
            }
            copy::write_waited_row::<PREFIX>(rooms, row);
        } else {
            for (room, frame) in rooms.iter().zip(row.clone()) {
                room.behind(PREFIX).inspect(|room| copy::touch(*room, &frame));
            }
            for (room, frame) in rooms.iter().zip(row) {
                let room = if PREFIX > 0 { write_prefix::<PREFIX>(*room, &frame) } else { Some(*room) };
                room.inspect(|room| copy::write(*room, &frame));
            }
        }
        given += found;
        if found < ROW {
            break;
        }
    }
    tally.frames += given as u64;
    tally.bytes += bytes;
    given as u32
}

/// Writes the frame's header to the beginning of a buffer. Returns the rest of the buffer.
fn write_prefix<'m, const PREFIX: usize>(buffer: View<'m>, frame: &Frame<'_, '_>) -> Option<View<'m>> {
    let mut prefix = [0; PREFIX];
    prefix[..Offload::BYTES].copy_from_slice(&Offload::encode(frame.offload()));
    buffer.write(&prefix).then(|| buffer.sub(PREFIX, buffer.len() - PREFIX))?
}

/// Longest frame that fits a ring whose slots are all free.
fn longest<B: Backing>(ring: &Ring<B>) -> usize {
    let slots = MAX_SLOTS_PER_FRAME.min((ring.slots as usize).saturating_sub(1)).max(1);
    (slots * ring.buffer_size as usize).saturating_sub(PREFIX_BYTES)
}

/// Copies a frame to several buffers, all of them full except the last. Returns how many slots it took.
#[cold]
fn fill_slots<B: Backing, const PREFIX: usize>(
    ring: &Ring<B>,
    memory: &RingMemory<'_, B::Stride>,
    at: u32,
    room: u32,
    frame: Frame<'_, '_>,
) -> Result<u32, DropReason> {
    let buffer_size = ring.buffer_size as usize;
    let slots = (PREFIX + frame.len()).div_ceil(buffer_size);
    if slots > MAX_SLOTS_PER_FRAME || slots >= ring.slots as usize {
        return Err(DropReason::ReceiverTooSmall);
    }
    if slots > room as usize {
        return Err(DropReason::ReceiverFull);
    }
    let (mut piece, mut offset) = (0, 0);
    let mut source = Pieces { frame, rest: 0, offset: 0, in_head: true };
    while piece < slots {
        let word = memory.word(ring.after(at, piece as u32));
        let slot = Slot::from_word(word.load(Ordering::Relaxed));
        let mut buffer = memory.buffer(slot).ok_or(DropReason::BadBuffer)?;
        let mut prefix = 0;
        if PREFIX > 0 && piece == 0 {
            buffer = write_prefix::<PREFIX>(buffer, &frame).ok_or(DropReason::ReceiverTooSmall)?;
            prefix = PREFIX;
        }
        let bytes = buffer.len().min(frame.len() - offset);
        source.copy(buffer, bytes).ok_or(DropReason::ReceiverTooSmall)?;
        offset += bytes;
        let len = prefix + bytes;
        piece += 1;
        let flags = if piece < slots { NS_MOREFRAG } else { 0 };
        word.store(Slot { len: len as u16, flags, ..slot }.to_word(), Ordering::Relaxed);
    }
    Ok(slots as u32)
}

/// The bytes of a frame that remain to be copied.
struct Pieces<'b, 'm> {
    frame: Frame<'b, 'm>,
    rest: usize,
    offset: usize,
    in_head: bool,
}

impl Pieces<'_, '_> {
    /// Copies the next `len` bytes to the beginning of `target`.
    fn copy(&mut self, target: View<'_>, len: usize) -> Option<()> {
        let mut done = 0;
        while done < len {
            if self.in_head {
                let part = (len - done).min(self.frame.head_len() - self.offset);
                let source = &self.frame.head().0[self.offset..self.offset + part];
                if !target.sub(done, part)?.write(source) {
                    return None;
                }
                self.offset += part;
                done += part;
                if self.offset == self.frame.head_len() {
                    (self.in_head, self.offset) = (false, 0);
                }
            } else {
                let rest = self.frame.rest().get(self.rest)?;
                let part = (len - done).min(rest.len() - self.offset);
                if !target.sub(done, part)?.copy_from(rest.sub(self.offset, part)?) {
                    return None;
                }
                self.offset += part;
                done += part;
                if self.offset == rest.len() {
                    (self.rest, self.offset) = (self.rest + 1, 0);
                }
            }
        }
        Some(())
    }
}
