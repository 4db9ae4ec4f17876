//! Frames to a client: its receive rings.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ringway_abi::doorbell::{INDEX, RX_CLIENT, RX_SWITCH};
use ringway_abi::layout::MAX_SLOTS_PER_FRAME;
use ringway_abi::offload::PREFIX_BYTES;
use ringway_abi::slot::NS_MOREFRAG;
use ringway_abi::{Layout, Offload, Slot};
use ringway_memory::{Mapping, View, prefetch_write};
use ringway_switch::{Accepts, Counters, DropReason, Frame, Frames, Output, PortFault};

use super::ring::{Ring, RingMemory};
use crate::copy::{self, ROW, prefetch};
use crate::steer::{Picks, room_of};

/// A delivery of so few frames needs no longer row: clearing one takes longer than filling it.
const FEW: usize = 4;

pub(super) struct ProcessOutput {
    rings: Vec<RxRing>,
    picks: Picks,
}

struct RxRing {
    ring: Ring,
    given: Given,
}

/// The slots that are the client's to read.
struct Given {
    /// The first of them, which is the client's head as last read.
    head: u32,
    /// Behind the last: the next slot to fill.
    next: u32,
}

/// What was done with the frames of one delivery.
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
    fn lose(&mut self, reason: DropReason) {
        match reason {
            DropReason::ReceiverFull => self.full += 1,
            DropReason::ReceiverTooSmall => self.small += 1,
            DropReason::ReceiverDown => self.down += 1,
            _ => self.bad += 1,
        }
    }
}

impl ProcessOutput {
    pub(super) fn new(mapping: Arc<Mapping>, layout: Layout) -> io::Result<Self> {
        let rings = (0..layout.shape.rx_rings)
            .map(|number| {
                Ok(RxRing { ring: Ring::receive(&mapping, &layout, number)?, given: Given { head: 0, next: 0 } })
            })
            .collect::<io::Result<_>>()?;
        Ok(Self { rings, picks: Picks::new() })
    }
}

impl Output for ProcessOutput {
    fn accepts(&self) -> Accepts {
        if self.rings.iter().any(|ring| ring.ring.offload) { Accepts::EVERYTHING } else { Accepts::NOTHING }
    }

    fn room(&mut self, frames: Frames<'_, '_>) -> Option<(usize, usize)> {
        let used = if self.rings.len() > 1 { self.picks.pick(frames, self.rings.len()) } else { 1 };
        room_of(used, self.rings.iter_mut().map(RxRing::look))
    }

    #[inline]
    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        let mut tally = Tally::default();
        let few = frames.len() <= FEW;
        let result = match self.rings.as_mut_slice() {
            [ring] if !ring.ring.offload && few => ring.deliver::<0, FEW>(frames, &mut tally),
            [ring] if !ring.ring.offload => ring.deliver::<0, ROW>(frames, &mut tally),
            [ring] => ring.deliver::<PREFIX_BYTES, ROW>(frames, &mut tally),
            rings => deliver_spread(rings, &mut self.picks, frames, &mut tally),
        };
        counters.add_out(tally.frames, tally.bytes);
        if tally.full + tally.small + tally.bad + tally.down > 0 {
            counters.drop_out(DropReason::ReceiverFull, tally.full);
            counters.drop_out(DropReason::ReceiverTooSmall, tally.small);
            counters.drop_out(DropReason::BadBuffer, tally.bad);
            counters.drop_out(DropReason::ReceiverDown, tally.down);
        }
        result
    }
}

/// Several rings: a flow stays on one.
#[cold]
fn deliver_spread(
    rings: &mut [RxRing],
    picks: &mut Picks,
    frames: Frames<'_, '_>,
    tally: &mut Tally,
) -> Result<(), PortFault> {
    let used = picks.pick(frames.clone(), rings.len());
    let mut result = Ok(());
    for (number, ring) in rings.iter_mut().enumerate().filter(|(number, _)| used >> number & 1 != 0) {
        let mine = picks.of(frames.clone(), number);
        let delivered = if ring.ring.offload {
            ring.deliver::<PREFIX_BYTES, ROW>(mine, tally)
        } else {
            ring.deliver::<0, ROW>(mine, tally)
        };
        result = result.and(delivered);
    }
    result
}

impl Given {
    /// Slots the switch may fill: netmap keeps one empty.
    #[inline]
    fn room(&self, ring: &Ring) -> u32 {
        ring.slots - 1 - ring.distance(self.head, self.next)
    }

    /// Reads how far the client has come.
    #[inline]
    fn look(&mut self, ring: &Ring) -> Result<(), PortFault> {
        let head = ring.doorbell[RX_CLIENT + INDEX].load(Ordering::Acquire);
        if head >= ring.slots || ring.distance(self.head, head) > ring.distance(self.head, self.next) {
            return Err(PortFault::RxHeadOutOfRange(head));
        }
        self.head = head;
        Ok(())
    }
}

impl RxRing {
    /// Slots that the switch may fill now, of at most so many. A client that is wrong is met by the next delivery.
    fn look(&mut self) -> Option<(usize, usize)> {
        self.given.look(&self.ring).ok()?;
        Some((self.given.room(&self.ring) as usize, self.ring.slots as usize - 1))
    }

    /// Delivers frames, each behind `PREFIX` bytes of header: 0 or [`PREFIX_BYTES`], in rows of `ROW`.
    #[inline]
    fn deliver<'b, 'm: 'b, const PREFIX: usize, const ROW: usize>(
        &mut self,
        mut frames: impl Iterator<Item = Frame<'b, 'm>>,
        tally: &mut Tally,
    ) -> Result<(), PortFault> {
        let RxRing { ring, given } = self;
        // The client writes its line whenever it takes frames, so its line is left alone while there is room anyway: it would
        // have to come from the client's core before the frames can go there.
        let looks = (given.room(ring) as usize) < frames.size_hint().1.unwrap_or(usize::MAX);
        if looks && let Err(fault) = given.look(ring) {
            frames.for_each(|_| tally.lose(DropReason::ReceiverDown));
            return Err(fault);
        }
        let (mut room, mut next) = (given.room(ring), given.next);
        let memory = ring.memory();
        let buffer_size = ring.buffer_size as usize;
        let (mut delivered, mut bytes, mut result) = (0, 0, Ok(()));
        let mut waiting = frames.next();
        let mut row = [None; ROW];
        while waiting.is_some() {
            let mut found = 0;
            while let Some(frame) = waiting.filter(|frame| found < ROW && PREFIX + frame.len() <= buffer_size) {
                waiting = frames.next();
                if room == 0 {
                    tally.lose(DropReason::ReceiverFull);
                    continue;
                }
                let word = memory.word(next);
                let old = word.load(Ordering::Relaxed);
                // A slot that cannot be filled stays where it is: the client finds its mistake there.
                let Some(buffer) = memory.buffer(Slot::from_word(old)) else {
                    tally.lose(DropReason::BadBuffer);
                    continue;
                };
                prefetch(buffer, prefetch_write);
                row[found] = Some((buffer, frame, word, old));
                found += 1;
                next = ring.after(next, 1);
                room -= 1;
                bytes += frame.len() as u64;
            }
            fill::<PREFIX>(&row[..found]);
            delivered += found as u64;
            if let Some(frame) = waiting.filter(|frame| PREFIX + frame.len() > buffer_size) {
                // It takes more slots than were counted on.
                result = given.look(ring);
                if result.is_err() {
                    waiting.into_iter().chain(&mut frames).for_each(|_| tally.lose(DropReason::ReceiverDown));
                    break;
                }
                room = ring.slots - 1 - ring.distance(given.head, next);
                waiting = frames.next();
                match fill_slots::<PREFIX>(ring, &memory, next, room, frame) {
                    Ok(slots) => {
                        next = ring.after(next, slots);
                        room -= slots;
                        delivered += 1;
                        bytes += frame.len() as u64;
                    }
                    Err(reason) => tally.lose(reason),
                }
            }
        }
        tally.frames += delivered;
        tally.bytes += bytes;
        if next != given.next {
            ring.doorbell[RX_SWITCH + INDEX].store(next, Ordering::Release);
            given.next = next;
        }
        // Whoever is wrong is found out with every delivery all the same, and the bell looks at this line next.
        if !looks && result.is_ok() {
            result = given.look(ring);
        }
        if ring.is_lost() { Err(PortFault::MemoryLost) } else { result }
    }
}

/// A buffer, the frame that fits into it, and its slot: where it is and what it said.
type Fill<'c, 'b, 'm> = (View<'c>, Frame<'b, 'm>, &'c AtomicU64, u64);

/// Copies frames that fit into one buffer each.
#[inline(always)]
fn fill<const PREFIX: usize>(row: &[Option<Fill<'_, '_, '_>>]) {
    if row.len() > 1 {
        for (buffer, frame, ..) in row.iter().map_while(Option::as_ref) {
            buffer.behind(PREFIX).inspect(|room| copy::touch(*room, frame));
        }
    }
    for (buffer, frame, word, old) in row.iter().map_while(Option::as_ref) {
        let room = if PREFIX > 0 { write_prefix(*buffer, frame) } else { Some(*buffer) };
        room.inspect(|room| copy::write(*room, frame));
        let new = Slot { len: (PREFIX + frame.len()) as u16, flags: 0, ..Slot::from_word(*old) }.to_word();
        if new != *old {
            word.store(new, Ordering::Relaxed);
        }
    }
}

/// Writes the frame's header to the beginning of a buffer; gives what follows it.
fn write_prefix<'m>(buffer: View<'m>, frame: &Frame<'_, '_>) -> Option<View<'m>> {
    let mut prefix = [0; PREFIX_BYTES];
    prefix[..Offload::BYTES].copy_from_slice(&Offload::encode(frame.offload()));
    buffer.write(&prefix).then(|| buffer.sub(PREFIX_BYTES, buffer.len() - PREFIX_BYTES))?
}

/// Copies a frame over several buffers, each full but the last. Returns how many slots it took.
#[cold]
fn fill_slots<const PREFIX: usize>(
    ring: &Ring,
    memory: &RingMemory<'_>,
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
            buffer = write_prefix(buffer, &frame).ok_or(DropReason::ReceiverTooSmall)?;
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

/// Where copying a frame has come to.
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
