//! Timers, acknowledgements and answers that are due.

use std::io;
use std::time::Duration;

use super::answer::Answer;
use super::core::{Core, Endpoint, Pending};
use super::event::Reason;
use super::peer::State;
use super::stations::Use;
use super::transmit::write_plain;
use crate::connection::{MILLISECOND, Nanos, TimedOut};
use crate::link::Link;
use crate::wire::header::{CHECKSUM, VERSION};
use crate::wire::{AcksEntry, ETHER_TYPE, Ethernet, Header, Kind, PLAIN_BYTES, acks};

/// Turns of connections that send, at most, before other things are done.
const MOST_TURNS: usize = 64;
/// PROBEs without an answer that end a connection with keep-alive.
const MOST_PROBES: u8 = 8;

impl<L: Link> Endpoint<L> {
    /// Does everything that is due; what only time has made due only with `timers`.
    #[inline]
    pub(super) fn service(&mut self, timers: bool) {
        let core = &self.core;
        let is_late = core.lack.deadline().is_some_and(|at| at <= core.now);
        let is_quiet = core.lists.are_quiet(core.now) && core.answers.is_empty() && !core.pool.waits_for_device();
        let is_quiet = is_quiet && !is_late;
        if !is_quiet {
            self.serve(timers);
        }
        self.flush();
    }

    fn serve(&mut self, timers: bool) {
        if self.core.pool.waits_for_device() || !self.core.lists.without_buffers.is_empty() {
            let sent = self.link.sent();
            self.core.pool.sent(sent);
        }
        let Core { table, lists, .. } = &mut self.core;
        let connections = table.len();
        lists.timers.tidy(connections, |at, id| table.get(id).is_some_and(|peer| peer.timer == at));
        if timers {
            self.busy = 0;
            self.time_out();
        }
        self.acknowledge_due(self.core.now);
        self.answer_strangers();
        self.ask_doubted();
        self.send_in_turn();
        if timers {
            let is_full = self.link.room() == 0;
            self.core.take_back_due(is_full);
        }
        self.offer_buffers();
    }

    /// Sends what connections have queued, some frames of each in turn, until the link is full.
    fn send_in_turn(&mut self) {
        for _ in 0..self.core.lists.sending.len().max(MOST_TURNS) {
            let Some(id) = self.core.lists.sending.pop_front() else { return };
            let is_done = self.pump(id);
            let Some(peer) = self.core.table.get(id) else { continue };
            peer.is_in_sending = !is_done;
            if !is_done {
                self.core.lists.sending.push_back(id);
                if self.link.room() == 0 {
                    return;
                }
            }
        }
    }

    /// Tells connections that lacked buffers that there are some.
    fn offer_buffers(&mut self) {
        let core = &mut self.core;
        let waiting = core.lists.without_buffers.len();
        if std::mem::take(&mut core.pool.has_more) {
            core.lists.hopeful = waiting;
        }
        // Many may wait in vain: not all in one go.
        let looks = core.lists.hopeful.min(waiting).min(MOST_TURNS);
        core.lists.hopeful -= looks;
        for _ in 0..looks {
            let Some(id) = core.lists.without_buffers.pop_front() else { return };
            match core.table.get(id) {
                Some(peer) if !core.pool.may_take(peer.far.station, Use::Send, 1) => {
                    core.lists.without_buffers.push_back(id);
                }
                Some(peer) => {
                    peer.wants_buffer = false;
                    core.lists.events.push_back(Pending::Room(id));
                }
                None => {}
            }
        }
    }

    fn time_out(&mut self) {
        let now = self.core.now;
        // Timers that expire again at once would keep this going.
        for _ in 0..=self.core.table.len() {
            let Some((at, id)) = self.core.lists.timers.due(now) else { return };
            let keep_alive = self.core.options.keep_alive;
            let Some(peer) = self.core.table.get(id).filter(|peer| peer.timer == at) else { continue };
            peer.timer = Nanos::MAX;
            if peer.deadline(keep_alive).is_some_and(|deadline| deadline <= now) {
                self.expired(id);
            }
            if let Some(peer) = self.core.table.get(id) {
                self.core.lists.arm(peer, keep_alive);
            }
        }
    }

    #[cold]
    fn expired(&mut self, id: u32) {
        let now = self.core.now;
        let Some(peer) = self.core.table.get(id) else { return };
        match peer.state {
            State::Asking(end) if now >= end => {
                let reason = if peer.is_other_version { Reason::OtherVersion } else { Reason::NoAnswer };
                self.core.end(id, reason);
            }
            State::Asking(_) => {
                peer.sender.back_off();
                self.ask(id);
            }
            State::Accepting(end) if now >= end => self.core.end(id, Reason::NoAnswer),
            State::Accepting(_) => {
                peer.sender.back_off();
                peer.probed = now;
                self.core.lists.accepting.push_back(id);
            }
            State::Open => match peer.sender.deadline() {
                Some(at) if at <= now => match peer.sender.time_out(now) {
                    TimedOut::GiveUp => self.core.reset(id, Reason::NoAnswer),
                    TimedOut::Send => {
                        self.core.counters.timeouts += 1;
                        self.core.lists.send(peer);
                    }
                    TimedOut::Probe => {
                        self.probe(id);
                    }
                },
                _ if peer.unanswered >= MOST_PROBES => self.core.reset(id, Reason::NoAnswer),
                _ => {
                    peer.unanswered += 1;
                    self.probe(id);
                }
            },
        }
    }

    /// Asks peers that have answered by UNKNOWN once more.
    fn ask_doubted(&mut self) {
        while let Some(id) = self.core.lists.doubted.front().copied() {
            let is_doubted = self.core.table.get(id).is_some_and(|peer| peer.is_doubted);
            if is_doubted && !self.probe(id) {
                return;
            }
            self.core.lists.doubted.pop_front();
        }
    }

    /// Sends PROBE. Returns false if there is no room for it.
    fn probe(&mut self, id: u32) -> bool {
        let now = self.core.now;
        let Some(peer) = self.core.table.get(id) else { return false };
        peer.probed = now;
        let number = peer.sender.next();
        self.control(id, Kind::Probe, number)
    }

    /// Sends OPEN.
    pub(super) fn ask(&mut self, id: u32) {
        let now = self.core.now;
        let Some(peer) = self.core.table.get(id) else { return };
        peer.probed = now;
        let number = peer.first_sent;
        self.control(id, Kind::Open, number);
        if let Some(peer) = self.core.table.get(id) {
            self.core.lists.arm(peer, None);
        }
    }

    /// Sends the acknowledgements that are due by `until`.
    fn acknowledge_due(&mut self, until: Nanos) {
        let now = self.core.now;
        while let Some(id) = self.core.lists.timers.due_acknowledgement(until) {
            let Some(peer) = self.core.table.get(id) else { continue };
            peer.is_in_owed = false;
            if peer.receiver.owes() {
                peer.receiver.hurry();
                self.core.lists.owe(peer, now);
            }
        }
        let mut left = self.core.lists.urgent.len();
        while left > 0 {
            let Some(id) = self.core.lists.urgent.front().copied() else { return };
            let together = self.acknowledge_together(id, left);
            left = left.saturating_sub(together.max(1));
            if together == 0 && !self.acknowledge(id) {
                return;
            }
        }
    }

    /// Sends the acknowledgement that is owed to the first connection in the list. Returns false if there is no room.
    fn acknowledge(&mut self, id: u32) -> bool {
        let Some(peer) = self.core.table.get(id) else {
            self.core.lists.urgent.pop_front();
            return true;
        };
        let number = peer.sender.next();
        let is_sent = !peer.receiver.owes() || self.control(id, Kind::Ack, number);
        if is_sent {
            self.core.lists.urgent.pop_front();
            if let Some(peer) = self.core.table.get(id) {
                peer.is_in_urgent = false;
            }
        }
        is_sent
    }

    /// Sends the acknowledgements that are owed to the next connections in the list, up to `most` with the first one, `id`, if at
    /// least two have one peer, in one frame. Returns how many were taken off the list.
    fn acknowledge_together(&mut self, id: u32, most: usize) -> usize {
        let core = &mut self.core;
        let Some(second) = core.lists.urgent.get(1).copied().filter(|_| most > 1) else { return 0 };
        let (Some(to), Some(other)) = (core.table.get_brief(id), core.table.get_brief(second)) else { return 0 };
        if to != other || self.link.room() == 0 {
            return 0;
        }
        let Some(slot) = core.pool.take() else { return 0 };
        let (front, ethernet) = (core.front, Ethernet::encode(to, core.mac, ETHER_TYPE));
        let mut frame_most = core.data;
        let frame = core.pool.slot(slot).buffer.as_mut().and_then(|buffer| buffer.get_mut(front..)).unwrap_or_default();
        let (mut taken, mut length, mut flags) = (0, 0, 0);
        while taken < most
            && let Some(id) = core.lists.urgent.front().copied()
            && core.table.get_brief(id) == Some(to)
            && let Some(peer) = core.table.get(id)
        {
            frame_most = frame_most.min(peer.far.frame);
            let at = PLAIN_BYTES + length;
            let Some(place) = frame.get_mut(at..at + acks::BYTES).filter(|_| length + acks::BYTES <= frame_most) else {
                break;
            };
            if peer.receiver.owes() {
                let (acknowledgement, window, _) = peer.receiver.tell();
                let (connection, token) = (peer.far.connection, peer.far.token);
                place.copy_from_slice(&AcksEntry { connection, token, acknowledgement, window }.encode());
                length += acks::BYTES;
                flags |= if peer.checksums { CHECKSUM } else { 0 };
            }
            peer.is_in_urgent = false;
            core.lists.urgent.pop_front();
            taken += 1;
        }
        let header = Header { length: length as u16, flags, ..Header::new(Kind::Acks) };
        let len = if length > 0 { write_plain(frame, &ethernet, &header) } else { None };
        self.push(slot, len);
        taken
    }

    pub(super) fn answer_strangers(&mut self) {
        while let Some(id) = self.core.lists.accepting.pop_front() {
            let core = &mut self.core;
            let Some(peer) = core.table.get(id) else { continue };
            if !core.accept_credit.take(peer.far.mac, core.now) {
                core.counters.unanswered += 1;
                continue;
            }
            let number = peer.first_sent;
            self.control(id, Kind::Accept, number);
        }
        while let Some(answer) = self.core.answers.front().copied() {
            if !self.send_answer(&answer) {
                return;
            }
            self.core.answers.pop_front();
        }
    }

    fn send_answer(&mut self, answer: &Answer) -> bool {
        let core = &mut self.core;
        let Some(slot) = core.pool.take() else { return false };
        let (front, ethernet) = (core.front, Ethernet::encode(answer.to, core.mac, ETHER_TYPE));
        let buffer = core.pool.slot(slot).buffer.as_mut();
        let Some(frame) = buffer.and_then(|buffer| buffer.get_mut(front..)) else { return true };
        let mut length = 0;
        if let (Some(reason), Some(place)) = (answer.reason, frame.get_mut(PLAIN_BYTES..PLAIN_BYTES + 2)) {
            place.copy_from_slice(&[reason.number(), VERSION]);
            length = if reason == Reason::OtherVersion { 2 } else { 1 };
        }
        let header = Header {
            flags: CHECKSUM,
            length,
            connection: answer.connection,
            token: answer.token,
            number: answer.number,
            acknowledgement: answer.acknowledgement,
            ..Header::new(answer.kind)
        };
        let len = write_plain(frame, &ethernet, &header);
        self.push(slot, len)
    }

    /// Returns when [`Endpoint::poll`] is to be called at the latest, although nothing has arrived.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let Core { lists, pool, now, lack, .. } = &self.core;
        // Nothing tells that the device has read a buffer, or which connection gives one back.
        let lacks_read = !lists.without_buffers.is_empty() && (pool.has_unread() || lists.hopeful > 0);
        let lacks_buffers = lacks_read || !lists.sending.is_empty() && !pool.has_to_copy();
        let look = lacks_buffers.then(|| now.saturating_add(MILLISECOND));
        lists.timers.next().into_iter().chain(look).chain(lack.deadline()).min()
    }

    /// Prepares for a sleep until the link's descriptor ([`Link::descriptor`]) is readable or [`Endpoint::next_deadline`] has come: sends
    /// the acknowledgements that are owed, and asks the device to wake this side. Returns false if there is something to do at once:
    /// then call [`Endpoint::poll`]. After the sleep, call [`Link::awake`] of the link.
    pub fn prepare_sleep(&mut self, now: Nanos) -> bool {
        if !self.is_quiet(now) {
            return false;
        }
        let waits_for_room = self.waits_for_room();
        !self.link.want(waits_for_room)
    }

    /// Returns false if there is something to do at once. Otherwise sends the acknowledgements that are owed.
    fn is_quiet(&mut self, now: Nanos) -> bool {
        self.advance(now);
        let core = &self.core;
        if !core.lists.events.is_empty() || !core.lists.ready.is_empty() {
            return false;
        }
        // What is owed goes out now: it would wake this side soon.
        self.acknowledge_due(Nanos::MAX);
        self.flush();
        true
    }

    /// Returns true if the endpoint has something to send that found no room at the link.
    fn waits_for_room(&mut self) -> bool {
        let Core { lists, answers, pool, .. } = &self.core;
        // What lacks a buffer while the link has room waits for that.
        let sends = !lists.sending.is_empty() && (pool.has_to_copy() || self.link.room() == 0);
        sends || !lists.urgent.is_empty() || !lists.doubted.is_empty() || !answers.is_empty()
    }

    /// Sleeps until there is something to do, or `longest` has passed.
    ///
    /// # Errors
    /// The link has ended: the message says why.
    pub fn sleep(&mut self, now: Nanos, longest: Duration) -> io::Result<()> {
        if !self.is_quiet(now) {
            return self.link.wait(false, Duration::ZERO);
        }
        let until = self.next_deadline().map(|at| Duration::from_nanos(at.saturating_sub(self.core.now)));
        let waits_for_room = self.waits_for_room();
        self.link.wait(waits_for_room, until.unwrap_or(longest).min(longest))
    }
}
