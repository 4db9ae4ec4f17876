//! From the link to the program.

use std::ops::Deref;

use ringway_memory::Buffer;

use super::core::{Core, Current, Endpoint, Pending, Ride};
use super::event::Event;
use super::judge::Verdict;
use super::peer::Connection;
use super::stations::Use;
use crate::connection::{Arrival, Nanos, Taken};
use crate::link::Link;
use crate::wire::PLAIN_BYTES;

/// Frames after which things that are due are looked after, although more frames are there.
const MOST_JUDGED: u32 = 64;
/// Frames without anything for the program after which it gets a turn.
const MOST_USELESS: u32 = 1024;

/// Times that this is so before timers are looked at, too.
const MOST_BUSY: u32 = 64;

/// A message that the program has taken out of the endpoint with its buffer. It counts against no window. [`Endpoint::give_back`]
/// takes it back; without that its buffer is lost to the endpoint. No other endpoint takes it.
#[derive(Debug)]
#[must_use = "the endpoint lacks its buffer until `give_back`"]
pub struct Kept {
    slot: u32,
    pool: u32,
    buffer: Buffer,
    from: usize,
    len: usize,
}

impl Deref for Kept {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[self.from..self.from + self.len]
    }
}

/// What was found for the program.
enum Found {
    Event(Pending),
    InPlace { id: u32, from: usize, to: usize },
    Kept { id: u32, slot: u32, from: u32, len: u32 },
    Assembled(u32),
}

impl Core {
    /// Returns the next message that waited for its turn. Returns the buffer of a fragment.
    fn waiting(&mut self) -> Option<Found> {
        while let Some(id) = self.lists.ready.front().copied() {
            let arrival = self.table.get(id).filter(|peer| !peer.is_paused).and_then(|peer| peer.receiver.pop());
            let Some(Arrival { data, remaining }) = arrival else {
                self.lists.ready.pop_front();
                if let Some(peer) = self.table.get(id) {
                    peer.is_in_ready = false;
                    self.lists.owe(peer, self.now);
                }
                continue;
            };
            let Some((slot, from, len)) = data else {
                self.finished(id);
                self.ridden(id);
                continue;
            };
            self.counters.messages_received += 1;
            let is_whole = remaining == 0 && self.table.get(id).is_some_and(|peer| peer.fragments_left.is_none());
            if is_whole {
                return Some(Found::Kept { id, slot, from, len });
            }
            // Copied out of the buffer, which goes back.
            let buffer = self.pool.slot(slot).buffer.take();
            let bytes = buffer.as_deref().and_then(|bytes| bytes.get(from as usize..)?.get(..len as usize));
            let verdict = bytes.map_or(Verdict::Release, |bytes| self.assemble(id, remaining, bytes));
            self.pool.slot(slot).buffer = buffer;
            self.pool.release(slot);
            if let Verdict::Assembled(id) = verdict {
                return Some(Found::Assembled(id));
            }
        }
        None
    }

    /// Returns a free buffer for a message of a connection that has to wait.
    fn take_to_keep(&mut self, id: u32) -> Option<u32> {
        let station = self.table.get(id)?.far.station;
        self.pool.take_to_keep(station)
    }

    /// Messages are dropped because no buffer is free. Their sender hears that this end is there.
    fn without_buffer(&mut self, id: u32, count: usize) {
        self.counters.no_buffer += count as u64;
        self.tell_again(id);
        if let Some(station) = self.table.get(id).map(|peer| peer.far.station) {
            self.lacks(station, Use::Keep);
        }
    }

    /// Takes up to `most` messages of a buffer, if they are the next ones and the program can have them as they are. Returns their number.
    #[inline]
    fn take_riding(&mut self, ride: &Ride, most: usize) -> usize {
        let Some(peer) = self.table.get(ride.id) else { return 0 };
        let is_usual = ride.remaining == 0
            && peer.takes_usual()
            && peer.receiver.is_next(ride.number.wrapping_add(ride.index as u32));
        // One less than a buffer may have.
        let most = most.min(usize::from(u16::MAX));
        let count = if is_usual { most.min(ride.count - ride.index) } else { 0 };
        peer.receiver.passed_many(count as u16);
        self.counters.messages_received += count as u64;
        count
    }
}

impl<L: Link> Endpoint<L> {
    /// Returns what has happened next: a message, in the order of arrival, or another event. `None`: nothing more for now, or only
    /// frames that are of no use; everything that was due by `now` is done then. Call it again and again, or after [`Endpoint::sleep`].
    #[inline]
    pub fn poll(&mut self, now: Nanos) -> Option<Event<'_>> {
        self.advance(now);
        self.finish_current();
        let found = self.find()?;
        Some(match found {
            Found::InPlace { id, from, to } => {
                let data = self.link.peek().and_then(|frame| frame.bytes.get(from..to)).unwrap_or_default();
                Event::Message { connection: Connection(id), data }
            }
            Found::Kept { id, slot, from, len } => {
                let data = self.core.pool.bytes(slot, from, len).unwrap_or_default();
                Event::Message { connection: Connection(id), data }
            }
            Found::Assembled(id) => {
                let data = self.core.table.get(id).map_or(&[][..], |peer| &peer.assembly);
                Event::Message { connection: Connection(id), data }
            }
            Found::Event(pending) => match pending {
                Pending::Connected(id) => Event::Connected { connection: Connection(id) },
                Pending::Accepted(id, service) => Event::Accepted { connection: Connection(id), service },
                Pending::Room(id) => Event::Room { connection: Connection(id) },
                Pending::Finished(id) => Event::Finished { connection: Connection(id) },
                Pending::Ended { id, reason, acknowledged, received } => {
                    Event::Ended { connection: Connection(id), reason, acknowledged, received }
                }
            },
        })
    }

    /// Calls `take` with up to `most` events like [`Endpoint::poll`], which is slower for many messages. Returns their number: fewer than
    /// `most` if nothing more is there for now.
    #[inline]
    pub fn drain(&mut self, now: Nanos, most: usize, mut take: impl FnMut(Event<'_>)) -> usize {
        let mut taken = 0;
        while taken < most {
            self.advance(now);
            self.finish_current();
            let is_usual = self.core.lists.events.is_empty() && self.core.lists.ready.is_empty();
            if let (true, Some(ride)) = (is_usual, self.riding) {
                taken += self.ride_on(ride, most - taken, &mut take);
            }
            if is_usual && self.riding.is_none() && matches!(self.current, Current::Nothing) {
                while taken < most && self.judged < MOST_JUDGED {
                    let Some(frame) = self.link.peek() else { break };
                    let Some((id, len)) = self.core.take_usual(frame.bytes) else { break };
                    let data = &frame.bytes[PLAIN_BYTES..PLAIN_BYTES + len];
                    take(Event::Message { connection: Connection(id), data });
                    self.link.release();
                    self.judged += 1;
                    taken += 1;
                }
            }
            if taken == most {
                break;
            }
            let Some(event) = self.poll(now) else { break };
            take(event);
            taken += 1;
        }
        taken
    }

    /// Gives back what the program was given last.
    #[inline]
    fn finish_current(&mut self) {
        match self.current {
            Current::Nothing | Current::Next { .. } => return,
            Current::InPlace { .. } => self.link.release(),
            Current::Kept { slot, .. } => self.core.pool.release(slot),
            Current::Assembled(id) => self.core.assembled(id),
        }
        self.current = Current::Nothing;
    }

    #[inline]
    fn find(&mut self) -> Option<Found> {
        let mut looked = 0;
        loop {
            if let Some(event) = self.core.lists.events.pop_front() {
                if let Pending::Ended { .. } = event {
                    // A program that ends now calls nothing any more: the peer hears what it has to.
                    self.service(false);
                }
                return Some(Found::Event(event));
            }
            if let Current::Next { id, from, to } = self.current {
                self.current = Current::InPlace { from, to };
                return Some(Found::InPlace { id, from, to });
            }
            if !self.core.lists.ready.is_empty()
                && let Some(found) = self.core.waiting()
            {
                return Some(self.give(found));
            }
            if let Some(ride) = self.riding {
                match self.ride(ride) {
                    Some(found) => return Some(found),
                    None => continue,
                }
            }
            if self.judged >= MOST_JUDGED {
                self.judged = 0;
                self.busy += 1;
                // Acknowledgements may be among the frames that have not been looked at: timers come after them, but not never.
                self.service(self.busy >= MOST_BUSY);
            }
            let frame = if looked < MOST_USELESS { self.link.peek() } else { None };
            looked += 1;
            let Some(frame) = frame else {
                (self.judged, self.busy) = (0, 0);
                self.service(true);
                if self.core.lists.events.is_empty() {
                    return None;
                }
                continue;
            };
            self.judged += 1;
            match self.core.judge(&frame) {
                Verdict::Release => self.link.release(),
                Verdict::InPlace { id, from, to } if !self.core.lists.events.is_empty() => {
                    self.current = Current::Next { id, from, to };
                }
                Verdict::InPlace { id, from, to } => {
                    self.current = Current::InPlace { from, to };
                    return Some(Found::InPlace { id, from, to });
                }
                Verdict::Keep { id, number, from, len, remaining } => {
                    self.keep_frame(id, number, (from, len), remaining)
                }
                Verdict::Assembled(id) => {
                    self.link.release();
                    return Some(self.give(Found::Assembled(id)));
                }
                Verdict::Ride(ride) => {
                    self.judged += ride.count as u32 / 4;
                    self.riding = Some(ride);
                }
            }
        }
    }

    fn give(&mut self, found: Found) -> Found {
        match found {
            Found::Kept { slot, from, len, .. } => self.current = Current::Kept { slot, from, len },
            Found::Assembled(id) => self.current = Current::Assembled(id),
            Found::InPlace { .. } | Found::Event(_) => {}
        }
        found
    }

    /// Takes the frame that the link shows out of its place: its message has to wait.
    #[cold]
    fn keep_frame(&mut self, id: u32, number: u32, (from, len): (usize, usize), remaining: u16) {
        let core = &mut self.core;
        let Some(slot) = core.take_to_keep(id) else {
            core.without_buffer(id, 1);
            return self.link.release();
        };
        let Some(spare) = &mut core.pool.slot(slot).buffer else { return self.link.release() };
        let (start, bytes) = self.link.exchange(spare);
        let Some(peer) = core.table.get(id).filter(|_| from + len <= bytes) else {
            return core.pool.give_back(slot);
        };
        core.pool.hold(slot, 1);
        let data = Some((slot, (start + from) as u32, len as u32));
        peer.receiver.keep(number, Arrival { data, remaining });
        core.lists.ready(peer);
        core.lists.owe(peer, core.now.saturating_add(core.options.acknowledge_within));
    }

    /// Takes the frame that the link shows out of its place: the messages of this buffer that are left have to wait in it.
    #[cold]
    fn keep_rest(&mut self, ride: Ride) {
        self.riding = None;
        let core = &mut self.core;
        let Some(slot) = core.take_to_keep(ride.id) else {
            core.without_buffer(ride.id, ride.count - ride.index);
            return self.link.release();
        };
        let Some(spare) = &mut core.pool.slot(slot).buffer else { return self.link.release() };
        let (start, bytes) = self.link.exchange(spare);
        let Some(peer) = core.table.get(ride.id).filter(|_| ride.from + ride.len <= bytes) else {
            return core.pool.give_back(slot);
        };
        let mut kept = 0;
        for index in ride.index..ride.count {
            let number = ride.number.wrapping_add(index as u32);
            let (at, remaining) = (index * ride.part, ride.remaining.saturating_sub(index as u16));
            let len = ride.part.min(ride.len.saturating_sub(at));
            match peer.receiver.judge(number) {
                Taken::Next | Taken::Early => {
                    let data = Some((slot, (start + ride.from + at) as u32, len as u32));
                    peer.receiver.keep(number, Arrival { data, remaining });
                    kept += 1;
                }
                Taken::Duplicate => core.counters.duplicates += 1,
                Taken::Outside => core.counters.outside_window += 1,
            }
        }
        core.pool.hold(slot, kept);
        core.lists.ready(peer);
        core.ridden(ride.id);
    }

    /// Calls `take` with the messages of a buffer that [`Core::take_riding`] takes. Returns their number.
    #[inline]
    fn ride_on(&mut self, ride: Ride, most: usize, take: &mut impl FnMut(Event<'_>)) -> usize {
        let count = self.core.take_riding(&ride, most);
        let frame = self.link.peek();
        let data = frame.and_then(|frame| frame.bytes.get(ride.from..ride.from + ride.len)).unwrap_or_default();
        for data in data.chunks(ride.part).skip(ride.index).take(count) {
            take(Event::Message { connection: Connection(ride.id), data });
        }
        let index = ride.index + count;
        self.riding = Some(Ride { index, ..ride });
        if index == ride.count {
            self.riding = None;
            self.link.release();
            self.core.ridden(ride.id);
        }
        count
    }

    /// Takes the next message of a buffer.
    #[inline]
    fn ride(&mut self, ride: Ride) -> Option<Found> {
        let at = ride.index * ride.part;
        let len = ride.part.min(ride.len.saturating_sub(at));
        let (from, to) = (ride.from + at, ride.from + at + len);
        let number = ride.number.wrapping_add(ride.index as u32);
        let remaining = ride.remaining.saturating_sub(ride.index as u16);
        let is_last = ride.index + 1 >= ride.count;
        let Some(data) = self.link.peek().and_then(|frame| frame.bytes.get(from..to)) else {
            self.riding = None;
            return None;
        };
        let verdict = self.core.take(ride.id, number, remaining, data, from);
        if let Verdict::Keep { .. } = verdict {
            self.keep_rest(ride);
            return None;
        }
        self.riding = Some(Ride { index: ride.index + 1, ..ride }).filter(|_| !is_last);
        if is_last {
            self.core.ridden(ride.id);
        }
        match verdict {
            Verdict::InPlace { id, from, to } => {
                if is_last {
                    self.current = Current::InPlace { from, to };
                }
                Some(Found::InPlace { id, from, to })
            }
            Verdict::Assembled(id) => {
                if is_last {
                    self.link.release();
                }
                Some(self.give(Found::Assembled(id)))
            }
            _ => {
                if is_last {
                    self.link.release();
                }
                None
            }
        }
    }

    /// Takes the message that [`Endpoint::poll`] has returned last out of the endpoint, with its buffer and without a copy. Returns `None`
    /// if there is no such message, if it shares its buffer with others (a long message, or one of a segmented buffer), or if no other
    /// buffer is free.
    pub fn keep(&mut self) -> Option<Kept> {
        let (slot, from, len) = match self.current {
            Current::Kept { slot, .. } if self.core.pool.is_shared(slot) => return None,
            Current::Kept { slot, from, len } if self.core.pool.hand_to_program(slot) => {
                (slot, from as usize, len as usize)
            }
            Current::InPlace { from, to } => {
                let slot = self.core.pool.take_for_program()?;
                let spare = self.core.pool.slot(slot).buffer.as_mut()?;
                let (start, bytes) = self.link.exchange(spare);
                self.current = Current::Nothing;
                if to > bytes {
                    self.core.pool.give_back(slot);
                    return None;
                }
                (slot, start + from, to - from)
            }
            Current::Nothing | Current::Next { .. } | Current::Kept { .. } | Current::Assembled(_) => return None,
        };
        let buffer = self.core.pool.slot(slot).buffer.take()?;
        self.current = Current::Nothing;
        Some(Kept { slot, pool: self.core.pool.number, buffer, from, len })
    }

    /// Gives a message back that was kept. One of another endpoint is lost to that one.
    pub fn give_back(&mut self, kept: Kept) {
        if kept.pool != self.core.pool.number {
            return;
        }
        self.core.pool.slot(kept.slot).buffer = Some(kept.buffer);
        self.core.pool.give_back(kept.slot);
    }

    /// Takes no messages of a connection for the program. They wait in buffers of the endpoint until its window is full; then the
    /// peer waits.
    pub fn pause(&mut self, connection: Connection) {
        if let Some(peer) = self.core.table.get(connection.0)
            && !peer.is_paused
        {
            (peer.is_paused, peer.paused_since) = (true, self.core.now);
        }
    }

    /// Takes messages of a connection again.
    pub fn resume(&mut self, connection: Connection) {
        if let Some(peer) = self.core.table.get(connection.0) {
            if peer.is_paused {
                peer.is_paused = false;
                peer.paused += self.core.now.saturating_sub(peer.paused_since);
            }
            self.core.lists.ready(peer);
        }
    }
}
