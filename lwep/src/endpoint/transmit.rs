//! From the program to the link.

use std::ops::{Deref, DerefMut};

use ringway_memory::Buffer;

use super::core::Endpoint;
use super::peer::{Connection, Peer};
use super::stations::Use;
use crate::connection::{Nanos, Part};
use crate::link::Link;
use crate::wire::header::{BYTES, CHECKSUM};
use crate::wire::segmented;
use crate::wire::{ETHERNET_BYTES, Header, Kind, PLAIN_BYTES, checksum};

/// Least bytes of a frame (IEEE 802.3, without FCS).
const LEAST_FRAME: usize = 60;
/// Frames of one connection that are sent before it is the next one's turn.
const TURN: usize = 32;

/// A buffer for a message, or for many: its bytes are written in place. [`Endpoint::commit`] sends it. A buffer that is neither
/// committed nor discarded is lost to the endpoint. No other endpoint takes it.
#[derive(Debug)]
#[must_use = "the endpoint lacks its buffer until `commit` or `discard`"]
pub struct Outgoing {
    pub(super) slot: u32,
    pool: u32,
    pub(super) buffer: Buffer,
    start: usize,
    end: usize,
}

impl Deref for Outgoing {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }
}

impl DerefMut for Outgoing {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }
}

/// Why a message is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Too many messages are not acknowledged, no buffer is free, the peer's station has its share of the buffers, or messages wait for
    /// a link that is full. [`crate::Event::Room`] tells when there is room.
    #[error("there is no room for another message until the peer has acknowledged earlier ones")]
    Full,
    /// The message is longer than a frame, or than the peer takes.
    #[error("the message is longer than the peer takes")]
    TooLong,
    /// [`Endpoint::send_long`] has sent a part of another message, which comes first.
    #[error("the rest of a long message has to be sent before anything else")]
    InMessage,
    /// There is no such connection, or its end was announced.
    #[error("the connection is over")]
    Over,
    /// The buffer was reserved from another endpoint.
    #[error("the buffer is another endpoint's: commit it to the one that it was reserved from")]
    OtherEndpoint,
}

/// A message that was not taken, with its buffer.
#[derive(Debug)]
pub struct Refused {
    /// The buffer, as it was.
    pub outgoing: Outgoing,
    /// Why.
    pub error: SendError,
}

/// Writes a frame of the plain layout around its data. Returns its bytes, or `None` if the buffer is too short.
#[inline]
pub fn write_plain(frame: &mut [u8], ethernet: &[u8; ETHERNET_BYTES], header: &Header) -> Option<usize> {
    let data = usize::from(header.length);
    let is_summed = header.flags & CHECKSUM != 0;
    let end = PLAIN_BYTES + data;
    let total = if is_summed { end + checksum::BYTES } else { end };
    let len = total.max(LEAST_FRAME);
    let frame = frame.get_mut(..len)?;
    let (head, rest) = frame.split_first_chunk_mut::<PLAIN_BYTES>()?;
    let (first, second) = head.split_first_chunk_mut::<ETHERNET_BYTES>()?;
    *first = *ethernet;
    header.encode(second.first_chunk_mut::<BYTES>()?);
    if end < LEAST_FRAME {
        rest.get_mut(data..LEAST_FRAME - PLAIN_BYTES)?.fill(0);
    }
    if is_summed {
        let sum = checksum::crc(&frame[ETHERNET_BYTES..end]);
        frame[end..total].copy_from_slice(&sum);
    }
    Some(len)
}

impl Peer {
    /// Returns true if a message goes out at once, and a queue of at most `most` has room for it.
    #[inline]
    fn may_send_at_once(&self, most: usize) -> bool {
        self.is_open() && !self.is_in_sending && self.sender.may_send_at_once(most)
    }

    /// Writes the headers of a usual DATA frame before its `length` bytes of data. Returns the frame's bytes.
    #[inline]
    fn write_usual(&mut self, frame: &mut [u8], number: u32, length: usize) -> Option<usize> {
        if self.checksums {
            let header = self.header(Kind::Data, number, length);
            return write_plain(frame, &self.ethernet(), &header);
        }
        let (head, rest) = frame.split_first_chunk_mut::<PLAIN_BYTES>()?;
        let (acknowledgement, window, selective) = self.receiver.tell();
        *head = self.template;
        let (_, fields) = head.split_first_chunk_mut::<ETHERNET_BYTES>()?;
        fields[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        fields[12..16].copy_from_slice(&number.to_be_bytes());
        fields[16..20].copy_from_slice(&acknowledgement.to_be_bytes());
        fields[20..22].copy_from_slice(&window.to_be_bytes());
        if selective != 0 {
            fields[24..32].copy_from_slice(&selective.to_be_bytes());
        }
        if length < LEAST_FRAME - PLAIN_BYTES {
            rest.get_mut(length..LEAST_FRAME - PLAIN_BYTES)?.fill(0);
            return Some(LEAST_FRAME);
        }
        rest.get(..length)?;
        Some(PLAIN_BYTES + length)
    }

    /// Returns the header of a frame to the peer, with what this end has received.
    #[inline]
    pub fn header(&mut self, kind: Kind, number: u32, length: usize) -> Header {
        let (acknowledgement, window, selective) = self.receiver.tell();
        Header {
            kind,
            flags: if self.checksums { CHECKSUM } else { 0 },
            length: length as u16,
            connection: self.far.connection,
            token: self.far.token,
            number,
            acknowledgement,
            window,
            remaining: 0,
            selective,
        }
    }
}

/// What became of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// A frame.
    Frame,
    /// The link or the pool is full.
    NoRoom,
    /// Acknowledgements of what is under way make room for it.
    Waits,
}

impl<L: Link> Endpoint<L> {
    /// Returns a buffer for a message of up to [`Endpoint::message`] bytes, to any connection. `None`: no buffer is free.
    #[inline]
    pub fn reserve(&mut self) -> Option<Outgoing> {
        let start = self.core.front + PLAIN_BYTES;
        self.reserve_from(start, start + self.core.data)
    }

    #[inline]
    pub(super) fn reserve_from(&mut self, start: usize, end: usize) -> Option<Outgoing> {
        let slot = match self.core.pool.take_for_program() {
            Some(slot) => slot,
            None => {
                // The device may have read some.
                let sent = self.link.sent();
                self.core.pool.sent(sent);
                self.core.pool.take_for_program()?
            }
        };
        let buffer = self.core.pool.slot(slot).buffer.take()?;
        Some(Outgoing { slot, pool: self.core.pool.number, buffer, start, end })
    }

    /// Gives back a buffer that is not needed. One of another endpoint is lost to that one.
    pub fn discard(&mut self, outgoing: Outgoing) {
        if outgoing.pool != self.core.pool.number {
            return;
        }
        self.core.pool.slot(outgoing.slot).buffer = Some(outgoing.buffer);
        self.core.pool.give_back(outgoing.slot);
    }

    /// Sends the first `len` bytes of a buffer as one message. It goes out at once if the windows allow; [`Endpoint::flush`] and
    /// [`Endpoint::poll`] hand it over to the device.
    ///
    /// # Errors
    /// The buffer comes back: see [`SendError`].
    #[inline]
    pub fn commit(
        &mut self,
        connection: Connection,
        outgoing: Outgoing,
        len: usize,
        now: Nanos,
    ) -> Result<(), Refused> {
        self.commit_parts(connection, outgoing, len, len, now)
    }

    #[inline]
    pub(super) fn commit_parts(
        &mut self,
        connection: Connection,
        outgoing: Outgoing,
        len: usize,
        part: usize,
        now: Nanos,
    ) -> Result<(), Refused> {
        self.advance(now);
        let outgoing = match self.commit_at_once(connection, outgoing, len, part) {
            None => return Ok(()),
            Some(outgoing) => outgoing,
        };
        self.commit_queued(connection, outgoing, len, part)
    }

    /// Sends one message at once, if nothing stands against it: the usual case. Otherwise returns the buffer.
    #[inline]
    fn commit_at_once(
        &mut self,
        connection: Connection,
        outgoing: Outgoing,
        len: usize,
        part: usize,
    ) -> Option<Outgoing> {
        let core = &mut self.core;
        let Some(peer) = core.table.get(connection.0) else { return Some(outgoing) };
        let is_usual = len == part
            && len <= peer.far.frame.min(core.data)
            && len <= outgoing.len()
            && outgoing.start == core.front + PLAIN_BYTES
            && outgoing.pool == core.pool.number
            && peer.may_send_at_once(core.options.queue)
            && core.pool.may_charge(peer.far.station);
        if !is_usual {
            return Some(outgoing);
        }
        core.pool.charge(outgoing.slot, peer.far.station);
        core.pool.fill(outgoing.slot, outgoing.buffer, 1, len, part);
        self.launch(connection.0, outgoing.slot, len);
        None
    }

    /// Sends the message of `len` bytes that is in this buffer. Nothing stands against it: only the link may have no room. Then it is
    /// queued.
    #[inline]
    fn launch(&mut self, id: u32, slot: u32, len: usize) {
        let core = &mut self.core;
        let Some(peer) = core.table.get(id) else { return core.pool.release(slot) };
        let (number, front) = (peer.sender.next(), core.front);
        let is_sent = core.pool.slot(slot).buffer.as_mut().is_some_and(|buffer| {
            let frame = buffer.get_mut(front..).unwrap_or_default();
            peer.write_usual(frame, number, len).is_some_and(|bytes| self.link.send(buffer, bytes, None))
        });
        let part = Part { slot, index: 0, remaining: 0 };
        if !is_sent {
            peer.sender.queue(Some(part), core.now);
            // What the header told is told again by the next frame.
            peer.receiver.hurry();
            core.lists.owe(peer, core.now);
            core.lists.send(peer);
            return;
        }
        self.queued += 1;
        core.counters.frames_sent += 1;
        core.counters.messages_sent += 1;
        core.pool.queued(slot, self.queued);
        peer.sender.sent_at_once(part, core.now);
        core.lists.arm(peer, core.options.keep_alive);
    }

    fn commit_queued(
        &mut self,
        connection: Connection,
        mut outgoing: Outgoing,
        len: usize,
        part: usize,
    ) -> Result<(), Refused> {
        if outgoing.pool != self.core.pool.number {
            return Err(Refused { outgoing, error: SendError::OtherEndpoint });
        }
        let count = if len > part { len.div_ceil(part.max(1)) } else { 1 };
        if let Err(error) = self.check_message(connection, part, count).and_then(|()| {
            let fits = len <= outgoing.len() && (part > 0 || len == 0);
            if fits { Ok(()) } else { Err(SendError::TooLong) }
        }) {
            return Err(Refused { outgoing, error });
        }
        let core = &mut self.core;
        let station = core.table.get(connection.0).map(|peer| peer.far.station);
        if !station.is_some_and(|station| core.pool.may_charge(station)) {
            let error = self.without_buffer(connection);
            return Err(Refused { outgoing, error });
        }
        if !self.place(&mut outgoing, len, count > 1) {
            return Err(Refused { outgoing, error: SendError::TooLong });
        }
        let core = &mut self.core;
        let slot = outgoing.slot;
        core.pool.fill(slot, outgoing.buffer, count as u16, len, part);
        station.into_iter().for_each(|station| core.pool.charge(slot, station));
        if count > 1 && self.launch_many(connection.0, slot, count) {
            return Ok(());
        }
        let core = &mut self.core;
        let Some(peer) = core.table.get(connection.0) else { return Ok(()) };
        for index in 0..count as u16 {
            peer.sender.queue(Some(Part { slot, index, remaining: 0 }), core.now);
        }
        self.go(connection.0);
        Ok(())
    }

    /// Moves the data to where the headers of one message or of many end, if it is elsewhere. Returns false if there is no room.
    #[inline]
    pub(super) fn place(&self, outgoing: &mut Outgoing, len: usize, is_many: bool) -> bool {
        let start = self.core.front + if is_many { segmented::HEADERS } else { PLAIN_BYTES };
        if outgoing.start == start {
            return true;
        }
        let fits = start + len <= outgoing.buffer.len();
        if fits {
            outgoing.buffer.copy_within(outgoing.start..outgoing.start + len, start);
        }
        fits
    }

    /// Checks that a connection takes `count` messages of `part` bytes.
    #[inline]
    fn check_message(&mut self, connection: Connection, part: usize, count: usize) -> Result<(), SendError> {
        let data = self.core.data;
        let peer = self.core.table.get(connection.0).filter(|peer| peer.may_queue()).ok_or(SendError::Over)?;
        if peer.sender.is_in_message() {
            return Err(SendError::InMessage);
        }
        if part > peer.far.frame.min(data) {
            return Err(SendError::TooLong);
        }
        self.check_queue(connection, count)
    }

    /// Checks that a connection's queue takes `count` messages more. If not, the program hears when it may.
    #[inline]
    pub(super) fn check_queue(&mut self, connection: Connection, count: usize) -> Result<(), SendError> {
        let most = self.core.options.queue;
        let peer = self.core.table.get(connection.0).filter(|peer| peer.may_queue()).ok_or(SendError::Over)?;
        // More than the queue takes at all is taken by an empty queue. Few wait for a link that is full.
        let is_full = peer.sender.queued() > 0 && peer.sender.queued() + count > most;
        if is_full || peer.is_in_sending && peer.sender.waiting() >= TURN && self.link.room() == 0 {
            peer.wants_room = true;
            return Err(SendError::Full);
        }
        Ok(())
    }

    /// Sends a message of `len` bytes that `write` writes in place: [`Endpoint::reserve`] and [`Endpoint::commit`] in one, the fastest
    /// way for many messages. `write` gets exactly `len` bytes of unspecified contents, and is not called after an error.
    ///
    /// # Errors
    /// See [`SendError`].
    #[inline(always)]
    pub fn send_with(
        &mut self,
        connection: Connection,
        len: usize,
        now: Nanos,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        self.advance(now);
        let core = &mut self.core;
        let at = core.front + PLAIN_BYTES;
        if let Some(peer) = core.table.get(connection.0)
            && peer.may_send_at_once(core.options.queue)
            && len <= peer.far.frame.min(core.data)
            && let Some(slot) = core.pool.take_to_send(peer.far.station)
        {
            let held = core.pool.slot(slot);
            if let Some(place) = held.buffer.as_mut().and_then(|buffer| buffer.get_mut(at..at + len)) {
                write(place);
                (held.users, held.bytes, held.part) = (1, len as u32, len as u32);
                self.launch(connection.0, slot, len);
                return Ok(());
            }
            core.pool.give_back(slot);
        }
        self.send_queued(connection, len, now, write)
    }

    #[cold]
    fn send_queued(
        &mut self,
        connection: Connection,
        len: usize,
        now: Nanos,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        self.check_message(connection, len, 1)?;
        self.check_buffer(connection)?;
        let Some(mut outgoing) = self.reserve() else {
            return Err(self.without_buffer(connection));
        };
        let Some(place) = outgoing.get_mut(..len) else {
            self.discard(outgoing);
            return Err(SendError::TooLong);
        };
        write(place);
        self.commit(connection, outgoing, len, now).map_err(|refused| {
            let error = refused.error;
            self.discard(refused.outgoing);
            error
        })
    }

    /// Copies a message and sends it: see [`Endpoint::send_with`].
    ///
    /// # Errors
    /// See [`SendError`].
    #[inline(always)]
    pub fn send(&mut self, connection: Connection, message: &[u8], now: Nanos) -> Result<(), SendError> {
        self.send_with(connection, message.len(), now, |place| place.copy_from_slice(message))
    }

    /// Checks that a connection's station may have one more buffer. If not, the program hears when it may.
    pub(super) fn check_buffer(&mut self, connection: Connection) -> Result<(), SendError> {
        let Some(station) = self.core.table.get(connection.0).map(|peer| peer.far.station) else { return Ok(()) };
        if !self.core.pool.may_take(station, Use::Send, 1) {
            // The device may have read some.
            let sent = self.link.sent();
            self.core.pool.sent(sent);
        }
        if !self.core.pool.may_take(station, Use::Send, 1) {
            return Err(self.without_buffer(connection));
        }
        Ok(())
    }

    /// The program hears when a connection may have a buffer.
    #[cold]
    pub(super) fn without_buffer(&mut self, connection: Connection) -> SendError {
        // The device may have read some.
        let sent = self.link.sent();
        self.core.pool.sent(sent);
        if let Some(peer) = self.core.table.get(connection.0) {
            let station = peer.far.station;
            if !std::mem::replace(&mut peer.wants_buffer, true) {
                self.core.lists.without_buffers.push_back(connection.0);
            }
            self.core.lacks(station, Use::Send);
        }
        SendError::Full
    }

    /// Sends what a connection has queued, if nothing waits before it.
    #[inline]
    pub(super) fn go(&mut self, id: u32) {
        let Some(peer) = self.core.table.get(id) else { return };
        if peer.is_in_sending {
            return;
        }
        if !self.pump(id)
            && let Some(peer) = self.core.table.get(id)
        {
            self.core.lists.send(peer);
        }
    }

    /// Sends a turn's messages of a connection. Returns false if there is more to send.
    pub(super) fn pump(&mut self, id: u32) -> bool {
        let mut left = TURN;
        let is_done = loop {
            let Some(peer) = self.core.table.get(id).filter(|peer| peer.is_open()) else { return true };
            let Some(number) = peer.sender.sendable() else { break true };
            if left == 0 {
                break false;
            }
            match self.transmit(id, number) {
                Sent::Frame => left -= 1,
                Sent::NoRoom => break false,
                Sent::Waits => break true,
            }
        };
        if let Some(peer) = self.core.table.get(id) {
            self.core.lists.arm(peer, self.core.options.keep_alive);
        }
        is_done
    }

    /// Sends the message with this number.
    #[inline]
    pub(super) fn transmit(&mut self, id: u32, number: u32) -> Sent {
        let core = &mut self.core;
        let Some(peer) = core.table.get(id) else { return Sent::NoRoom };
        let Some(part) = peer.sender.entry(number).map(|entry| entry.part) else { return Sent::NoRoom };
        let Some(part) = part else {
            let is_sent = self.control(id, Kind::End, number);
            return self.mark(id, number, is_sent, 1);
        };
        let slot = core.pool.slot(part.slot);
        if slot.bytes > slot.part {
            return self.transmit_part(id, number, part);
        }
        if !core.pool.is_read(part.slot) {
            let sent = self.link.sent();
            core.pool.sent(sent);
            if !core.pool.is_read(part.slot) {
                // The device has yet to read the last transmission, whose bytes must not change: that one is still to come.
                peer.sender.sent(number, core.now);
                return Sent::Frame;
            }
        }
        let is_sent = self.send_plain(id, number, part);
        self.mark(id, number, is_sent, 1)
    }

    /// Writes the headers of the only message in a buffer, and queues it at the link. Returns false if the link does not take it.
    #[inline]
    pub(super) fn send_plain(&mut self, id: u32, number: u32, part: Part) -> bool {
        let core = &mut self.core;
        let Some(peer) = core.table.get(id) else { return false };
        let slot = core.pool.slot(part.slot);
        let header = Header { remaining: part.remaining, ..peer.header(Kind::Data, number, slot.bytes as usize) };
        let frame = slot.buffer.as_mut().and_then(|buffer| buffer.get_mut(core.front..)).unwrap_or_default();
        let len = write_plain(frame, &peer.ethernet(), &header);
        let is_sent = slot.buffer.as_mut().zip(len).is_some_and(|(buffer, len)| self.link.send(buffer, len, None));
        if is_sent {
            self.queued += 1;
            core.pool.queued(part.slot, self.queued);
        } else {
            core.tell_again(id);
        }
        is_sent
    }

    #[inline]
    pub(super) fn mark(&mut self, id: u32, first: u32, is_sent: bool, count: usize) -> Sent {
        if !is_sent {
            return Sent::NoRoom;
        }
        let core = &mut self.core;
        let Some(peer) = core.table.get(id) else { return Sent::NoRoom };
        core.counters.frames_sent += 1;
        for number in (0..count as u32).map(|index| first.wrapping_add(index)) {
            if peer.sender.is_new(number) {
                core.counters.messages_sent += 1;
            } else {
                core.counters.repeated += 1;
            }
            peer.sender.sent(number, core.now);
        }
        Sent::Frame
    }

    /// Sends a frame of a connection that carries no message. Returns false if there is no room for it.
    pub(super) fn control(&mut self, id: u32, kind: Kind, number: u32) -> bool {
        let core = &mut self.core;
        let Some(slot) = core.pool.take() else { return false };
        let Some(peer) = core.table.get(id) else {
            core.pool.give_back(slot);
            return false;
        };
        let data = core.data;
        let (wire_id, token, service) = (peer.wire_id, peer.token, peer.service);
        let description = match kind {
            Kind::Open | Kind::Accept => Some(core.description(wire_id, token, service).encode()),
            _ => None,
        };
        let Some(peer) = core.table.get(id) else { return false };
        let Some(buffer) = &mut core.pool.slot(slot).buffer else { return false };
        let frame = buffer.get_mut(core.front..).unwrap_or_default();
        let mut length = 0;
        if let Some(place) = frame.get_mut(PLAIN_BYTES..) {
            let mut put = |bytes: &[u8]| {
                if let Some(place) = place.get_mut(length..length + bytes.len()) {
                    place.copy_from_slice(bytes);
                    length += bytes.len();
                }
            };
            description.iter().for_each(|description| put(description));
            if kind == Kind::Ack {
                peer.receiver.further().take(peer.far.frame.min(data) / 8).for_each(|word| put(&word.to_be_bytes()));
            }
        }
        let mut header = peer.header(kind, number, length);
        if description.is_some() {
            // A damaged one would be taken for another connection.
            header.flags |= CHECKSUM;
        }
        if kind == Kind::Open {
            (header.connection, header.token, header.acknowledgement) = (0, 0, 0);
        }
        let len = write_plain(frame, &peer.ethernet(), &header);
        let is_sent = self.push(slot, len);
        if !is_sent {
            self.core.tell_again(id);
        }
        is_sent
    }

    /// Queues the frame in a buffer that is free afterwards. Returns false if there is no room.
    pub(super) fn push(&mut self, slot: u32, len: Option<usize>) -> bool {
        let core = &mut self.core;
        let buffer = core.pool.slot(slot).buffer.as_mut();
        let is_sent = buffer.zip(len).is_some_and(|(buffer, len)| self.link.send(buffer, len, None));
        if is_sent {
            self.queued += 1;
            core.counters.frames_sent += u64::from(is_sent);
            core.pool.queued(slot, self.queued);
        }
        core.pool.give_back(slot);
        is_sent
    }

    /// Hands over to the device what was sent. [`Endpoint::poll`] does it, too, when nothing more has arrived.
    #[inline]
    pub fn flush(&mut self) {
        if self.flushed != self.queued {
            self.flushed = self.queued;
            self.link.flush();
        }
    }
}
