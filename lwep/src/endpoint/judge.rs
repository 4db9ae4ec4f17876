//! What a received frame changes. Every byte of it may be hostile: it changes a connection only if its addresses, identifier and secret
//! are those of the connection.

use super::answer::Answer;
use super::core::{Core, Pending, Ride};
use super::event::Reason;
use super::peer::{EXPECTED, Peer, State};
use super::table::AGREED;
use crate::connection::{Acknowledged, Acknowledgement, Arrival, Taken};
use crate::link::Received;
use crate::wire::header::{ANSWER, CHECKSUM};
use crate::wire::segmented::{self, Train};
use crate::wire::{AcksEntry, ETHER_TYPE, Ethernet, Header, IPV4, Kind, Malformed, PLAIN_BYTES, header};

/// What becomes of a frame.
#[derive(Clone, Copy, Debug)]
pub enum Verdict {
    /// Nothing in it is for the program.
    Release,
    /// The program gets these bytes of it.
    InPlace { id: u32, from: usize, to: usize },
    /// The message in these bytes has to wait.
    Keep { id: u32, number: u32, from: usize, len: usize, remaining: u16 },
    /// It completes a long message.
    Assembled(u32),
    /// It holds several messages.
    Ride(Ride),
}

impl Core {
    /// Judges a frame.
    #[inline]
    pub fn judge(&mut self, frame: &Received<'_>) -> Verdict {
        match self.take_usual(frame.bytes) {
            Some((id, data)) => Verdict::InPlace { id, from: PLAIN_BYTES, to: PLAIN_BYTES + data },
            None => self.judge_other(frame),
        }
    }

    fn judge_other(&mut self, frame: &Received<'_>) -> Verdict {
        self.counters.frames_received += 1;
        let Some(ethernet) = Ethernet::split(frame.bytes).filter(|ethernet| ethernet.to == self.mac) else {
            self.counters.foreign += 1;
            return Verdict::Release;
        };
        match ethernet.ether_type {
            ETHER_TYPE => self.judge_plain(&ethernet),
            IPV4 if self.options.address.is_some() => self.judge_train(&ethernet, frame),
            _ => {
                self.counters.foreign += 1;
                Verdict::Release
            }
        }
    }

    fn judge_plain(&mut self, ethernet: &Ethernet<'_>) -> Verdict {
        let (header, data) = match Header::decode(ethernet.rest) {
            Ok(read) => read,
            Err(malformed) => return self.judge_malformed(malformed, ethernet),
        };
        match header.kind {
            Kind::Open => {
                self.asked(ethernet, &header, data);
                return Verdict::Release;
            }
            Kind::Unknown => {
                self.unknown(ethernet, &header);
                return Verdict::Release;
            }
            Kind::Acks => {
                self.judge_acks(ethernet, &header, data);
                return Verdict::Release;
            }
            _ => {}
        }
        self.judge_one(ethernet, &header, data)
    }

    /// Takes what ACKS says of each connection.
    fn judge_acks(&mut self, ethernet: &Ethernet<'_>, header: &Header, data: &[u8]) {
        for bytes in data.as_chunks().0 {
            let AcksEntry { connection, token, acknowledgement: next, window } = AcksEntry::decode(bytes);
            let has_checksum = header.flags & CHECKSUM != 0;
            let now = self.now;
            match self.table.by_wire_id(connection) {
                Some(peer)
                    if peer.token == token
                        && peer.far.mac == ethernet.from
                        && (has_checksum || !peer.checksums)
                        && peer.is_told_usual(next) =>
                {
                    let (ack, pool) = (Acknowledgement { next, window, selective: 0, further: &[] }, &mut self.pool);
                    peer.sender.acknowledge(&ack, now, |part| pool.release(part.slot));
                    (peer.unanswered, peer.is_doubted) = (0, false);
                }
                _ => {
                    let ack = Header {
                        flags: header.flags,
                        connection,
                        token,
                        acknowledgement: next,
                        window,
                        ..Header::new(Kind::Ack)
                    };
                    self.judge_one(ethernet, &ack, &[]);
                }
            }
        }
    }

    /// Judges a frame, or an entry of ACKS, that names a connection.
    fn judge_one(&mut self, ethernet: &Ethernet<'_>, header: &Header, data: &[u8]) -> Verdict {
        if !self.find(ethernet, header) {
            return Verdict::Release;
        }
        let Some(peer) = self.table.by_wire_id(header.connection) else { return Verdict::Release };
        if peer.checksums && header.flags & CHECKSUM == 0 {
            self.counters.bad_checksum += 1;
            return Verdict::Release;
        }
        if !peer.is_open() && !self.judge_state(header, data) {
            return Verdict::Release;
        }
        let Some(peer) = self.table.by_wire_id(header.connection) else { return Verdict::Release };
        let id = peer.id;
        if header.kind == Kind::Reset {
            let reason = data.first().map_or(Reason::Reset, |number| Reason::from_number(*number));
            if reason.refuses() && !matches!(peer.state, State::Asking(_)) {
                // The answer to a late duplicate of the OPEN.
                return Verdict::Release;
            }
            if reason == Reason::OtherVersion && matches!(peer.state, State::Asking(_)) {
                peer.is_other_version = true;
                return Verdict::Release;
            }
            // Identifier and secret are in every frame of the connection: its next number shows that it is not made up.
            if !matches!(peer.state, State::Asking(_)) && !peer.receiver.has_in_window(header.number) {
                self.counters.outside_window += 1;
                return Verdict::Release;
            }
            self.end(id, reason);
            return Verdict::Release;
        }
        let further = if header.kind == Kind::Ack { data } else { &[] };
        if !self.acknowledge(header, further) {
            return Verdict::Release;
        }
        let start = ethernet.bytes + header::BYTES;
        let verdict = match header.kind {
            Kind::Data => self.take(id, header.number, header.remaining, data, start),
            Kind::End => self.take_end(id, header.number),
            _ => Verdict::Release,
        };
        // An ACCEPT again: the ACK for it was lost.
        let hurries = matches!(header.kind, Kind::Probe | Kind::Accept) || header.flags & ANSWER != 0;
        self.settle(id, hurries);
        verdict
    }

    /// Takes the next message of a connection for which nothing else is to be done: the usual case, recognised by bytes that are the
    /// same in all such frames. Changes nothing otherwise. Returns the connection and the bytes of data.
    #[inline]
    pub fn take_usual(&mut self, frame: &[u8]) -> Option<(u32, usize)> {
        let Self { table, pool, lists, counters, options, now, .. } = self;
        let head = frame.first_chunk::<PLAIN_BYTES>()?;
        let (start, fields) = head.split_first_chunk::<EXPECTED>()?;
        let (&[l0, l1, c0, c1, c2, c3, t0, t1, t2, t3, n0, n1, n2, n3], rest) = fields.split_first_chunk::<14>()?;
        let (&told, rest) = rest.split_first_chunk::<6>()?;
        let peer = table.by_wire_id(u32::from_be_bytes([c0, c1, c2, c3]))?;
        let data = usize::from(u16::from_be_bytes([l0, l1]));
        let is_usual = *start == peer.expected
            && u32::from_be_bytes([t0, t1, t2, t3]) == peer.token
            && frame.len() >= PLAIN_BYTES + data
            // Remaining, selective.
            && rest.first_chunk::<10>() == Some(&[0; 10])
            && peer.takes_usual()
            && peer.receiver.is_next(u32::from_be_bytes([n0, n1, n2, n3]));
        if !is_usual {
            return None;
        }
        if told != peer.told {
            let [a0, a1, a2, a3, w0, w1] = told;
            let next = u32::from_be_bytes([a0, a1, a2, a3]);
            if !peer.sender.is_usual(next) {
                return None;
            }
            let window = u16::from_be_bytes([w0, w1]);
            let ack = Acknowledgement { next, window, selective: 0, further: &[] };
            peer.sender.acknowledge(&ack, *now, |part| pool.release(part.slot));
            peer.told = told;
        }
        peer.sender.hear(*now);
        (peer.unanswered, peer.is_doubted) = (0, false);
        peer.receiver.passed();
        counters.frames_received += 1;
        counters.messages_received += 1;
        lists.owe(peer, now.saturating_add(options.acknowledge_within));
        Some((peer.id, data))
    }

    #[cold]
    fn judge_malformed(&mut self, malformed: Malformed, ethernet: &Ethernet<'_>) -> Verdict {
        match malformed {
            Malformed::Checksum => self.counters.bad_checksum += 1,
            Malformed::Version { is_open } => {
                self.counters.other_version += 1;
                let ends = ethernet.rest.get(header::BYTES..).and_then(|data| data.first_chunk::<8>());
                if let (true, Some([a, b, c, d, e, f, g, h])) = (is_open, ends) {
                    let (connection, token) =
                        (u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h]));
                    self.refuse(ethernet.from, connection, token, Reason::OtherVersion);
                }
            }
            Malformed::Short | Malformed::Kind | Malformed::Fields => self.counters.malformed += 1,
        }
        Verdict::Release
    }

    /// Answers a request for a connection by RESET.
    pub fn refuse(&mut self, to: [u8; 6], connection: u32, token: u32, reason: Reason) {
        self.counters.refused += 1;
        let answer =
            Answer { to, kind: Kind::Reset, connection, token, number: 0, acknowledgement: 0, reason: Some(reason) };
        self.answer(answer);
    }

    /// Returns true if a frame belongs to a connection.
    fn find(&mut self, ethernet: &Ethernet<'_>, header: &Header) -> bool {
        let found = self.table.by_wire_id(header.connection);
        if found.is_some_and(|peer| peer.token == header.token && peer.far.mac == ethernet.from) {
            return true;
        }
        self.stranger(ethernet, header);
        false
    }

    #[cold]
    fn stranger(&mut self, ethernet: &Ethernet<'_>, header: &Header) {
        let asks = matches!(header.kind, Kind::Data | Kind::End | Kind::Probe);
        if let Some(answer) = self.late_answer(ethernet, header) {
            return if asks { self.answer_late(answer) } else { self.counters.duplicates += 1 };
        }
        self.counters.no_connection += 1;
        if asks {
            self.answer(Answer {
                to: ethernet.from,
                kind: Kind::Unknown,
                connection: header.connection,
                token: header.token,
                number: header.number,
                acknowledgement: 0,
                reason: None,
            });
        }
    }

    /// Returns the answer to a frame of a connection that is over.
    fn late_answer(&mut self, ethernet: &Ethernet<'_>, header: &Header) -> Option<Answer> {
        let own = (header.connection, header.token);
        self.lingering.answer(own, ethernet.from, &mut self.pool.stations, self.now)
    }

    /// A peer does not know a connection, if it names identifier, secret and number of something sent to it.
    #[cold]
    fn unknown(&mut self, ethernet: &Ethernet<'_>, header: &Header) {
        let named = self.table.by_far(ethernet.from, header.connection, header.token);
        let is_it = |peer: &&mut Peer| {
            let sent = header.number.wrapping_sub(peer.sender.oldest());
            // The peer of an agreed connection may come later.
            let has_begun = peer.wire_id & AGREED == 0 || peer.sender.acknowledged() + peer.receiver.received() > 0;
            has_begun && sent <= peer.sender.next().wrapping_sub(peer.sender.oldest())
        };
        let Some(peer) = named.filter(is_it) else {
            self.counters.no_connection += 1;
            return;
        };
        let id = peer.id;
        // The addresses of a frame are in no checksum. A damaged frame may have been answered: the peer is asked once more.
        if !peer.is_doubted {
            peer.is_doubted = true;
            // It may be there since the last doubt.
            if !self.lists.doubted.contains(&id) {
                self.lists.doubted.push_back(id);
            }
            return;
        }
        self.end(id, Reason::Unknown);
    }

    /// A frame of a connection that is not open. Returns true if it is to be judged further.
    #[cold]
    fn judge_state(&mut self, header: &Header, data: &[u8]) -> bool {
        let Some(peer) = self.table.by_wire_id(header.connection) else { return false };
        match (peer.state, header.kind) {
            (State::Open, _) | (State::Asking(_), Kind::Reset) => true,
            (State::Asking(_), Kind::Accept) => {
                let id = peer.id;
                self.accepted(id, header, data);
                false
            }
            (State::Accepting(_), Kind::Data | Kind::Ack | Kind::Probe | Kind::End) => {
                let id = peer.id;
                peer.state = State::Open;
                self.lists.events.push_back(Pending::Accepted(id, peer.service));
                self.completed(id);
                true
            }
            (State::Accepting(_), Kind::Reset) => true,
            _ => false,
        }
    }

    /// Takes a frame's acknowledgement. Returns false if the frame is not to be used.
    fn acknowledge(&mut self, header: &Header, further: &[u8]) -> bool {
        let Some(peer) = self.table.by_wire_id(header.connection) else { return false };
        let ack = Acknowledgement {
            next: header.acknowledgement,
            window: header.window,
            selective: header.selective,
            further,
        };
        let pool = &mut self.pool;
        let acknowledged = peer.sender.acknowledge(&ack, self.now, |part| pool.release(part.slot));
        (peer.unanswered, peer.is_doubted) = (0, false);
        if acknowledged == Acknowledged::Invalid {
            self.counters.bad_acknowledgement += 1;
        }
        acknowledged != Acknowledged::Invalid
    }

    /// After a frame of a connection: what is to be done for it now.
    fn settle(&mut self, id: u32, hurries: bool) {
        let Some(peer) = self.table.get(id) else { return };
        if hurries {
            peer.receiver.hurry();
        }
        if peer.sender.sendable().is_some() {
            self.lists.send(peer);
        }
        if peer.wants_room && peer.sender.queued() <= self.options.queue / 2 {
            peer.wants_room = false;
            self.lists.events.push_back(Pending::Room(id));
        }
        self.lists.owe(peer, self.now.saturating_add(self.options.acknowledge_within));
        self.lists.arm(peer, self.options.keep_alive);
        if peer.is_open() && peer.is_finished && peer.sender.is_ended() && peer.sender.queued() == 0 {
            self.finish_both(id);
        }
    }

    /// Takes a message, whose data begins `start` bytes after the start of the frame.
    pub fn take(&mut self, id: u32, number: u32, remaining: u16, data: &[u8], start: usize) -> Verdict {
        let Some(peer) = self.table.get(id) else { return Verdict::Release };
        match peer.receiver.judge(number) {
            Taken::Next | Taken::Early if peer.is_finished => {
                self.counters.outside_window += 1;
                Verdict::Release
            }
            Taken::Next if !peer.is_paused => {
                peer.receiver.passed();
                self.lists.ready(peer);
                self.counters.messages_received += 1;
                if remaining == 0 && peer.fragments_left.is_none() {
                    Verdict::InPlace { id, from: start, to: start + data.len() }
                } else {
                    self.assemble(id, remaining, data)
                }
            }
            Taken::Next | Taken::Early => Verdict::Keep { id, number, from: start, len: data.len(), remaining },
            Taken::Duplicate => {
                self.counters.duplicates += 1;
                Verdict::Release
            }
            Taken::Outside => {
                self.counters.outside_window += 1;
                Verdict::Release
            }
        }
    }

    /// Adds a fragment to a long message.
    pub fn assemble(&mut self, id: u32, remaining: u16, data: &[u8]) -> Verdict {
        let Some(peer) = self.table.get(id) else { return Verdict::Release };
        let is_next = peer.fragments_left.is_none_or(|left| left == remaining);
        let is_too_long = peer.assembly.len() + data.len() > self.options.long as usize;
        // Dropped alone, a fragment would come again and again: those that are there wait for it.
        if !is_next || is_too_long || !self.grows(id, remaining, data.len()) {
            self.reset(id, Reason::TooLong);
            return Verdict::Release;
        }
        let Some(peer) = self.table.get(id) else { return Verdict::Release };
        if peer.fragments_left.is_none() {
            (peer.assembled_since, peer.paused) = (self.now, 0);
            self.pool.stations.begin_long(peer.far.station, self.now, id);
        }
        peer.assembly.extend_from_slice(data);
        peer.fragments_left = remaining.checked_sub(1);
        if remaining == 0 { Verdict::Assembled(id) } else { Verdict::Release }
    }

    /// Gives a long message memory for a fragment, which counts as memory of its station. Returns false if the station may have no more.
    fn grows(&mut self, id: u32, remaining: u16, bytes: usize) -> bool {
        let Some(peer) = self.table.get(id) else { return false };
        let (has, len, station) = (peer.assembly.capacity(), peer.assembly.len(), peer.far.station);
        let needed = len + bytes;
        if needed <= has {
            return true;
        }
        // If there is much, twice as much as before, so that little is copied. Never more than the message can become.
        let whole = len + bytes.saturating_mul(usize::from(remaining) + 1);
        let twice = (2 * has).min(whole).min(self.options.long as usize).max(needed);
        let wanted = if self.pool.stations.may_be_longer(station, twice - has) { twice } else { needed };
        if !self.makes_room_for(id, station, wanted - has) {
            return false;
        }
        let Some(peer) = self.table.get(id) else { return false };
        peer.assembly.reserve_exact(wanted - len);
        self.pool.stations.add_long(station, peer.assembly.capacity() - has);
        true
    }

    /// The program has had the long message of a connection.
    pub fn assembled(&mut self, id: u32) {
        let Some(peer) = self.table.get(id) else { return };
        let assembly = std::mem::take(&mut peer.assembly);
        self.pool.stations.end_long(peer.far.station, peer.assembled_since, id, assembly.capacity());
    }

    fn take_end(&mut self, id: u32, number: u32) -> Verdict {
        let Some(peer) = self.table.get(id) else { return Verdict::Release };
        match peer.receiver.judge(number) {
            Taken::Next | Taken::Early if peer.is_finished => self.counters.outside_window += 1,
            Taken::Next if !peer.is_paused => {
                peer.receiver.passed();
                self.lists.ready(peer);
                self.finished(id);
            }
            Taken::Next | Taken::Early => {
                peer.receiver.keep(number, Arrival { data: None, remaining: 0 });
                self.lists.ready(peer);
            }
            Taken::Duplicate => self.counters.duplicates += 1,
            Taken::Outside => self.counters.outside_window += 1,
        }
        Verdict::Release
    }

    /// The peer sends no further messages.
    pub fn finished(&mut self, id: u32) {
        let Some(peer) = self.table.get(id) else { return };
        if !peer.is_finished {
            peer.is_finished = true;
            // Nothing follows an END.
            let pool = &mut self.pool;
            peer.receiver.clear().filter_map(|arrival| arrival.data).for_each(|(slot, ..)| pool.release(slot));
            peer.receiver.hurry();
            self.lists.events.push_back(Pending::Finished(id));
            self.lists.owe(peer, self.now);
        }
    }

    /// Both ENDs have arrived.
    pub fn finish_both(&mut self, id: u32) {
        let Some(peer) = self.table.get(id) else { return };
        let answer = Answer {
            to: peer.far.mac,
            kind: Kind::Ack,
            connection: peer.far.connection,
            token: peer.far.token,
            number: peer.sender.next(),
            acknowledgement: peer.receiver.next(),
            reason: None,
        };
        if peer.receiver.owes() {
            self.answers.push_back(answer);
        }
        let (acknowledged, received) = (peer.sender.acknowledged(), peer.receiver.received());
        self.lists.events.push_back(Pending::Ended { id, reason: Reason::Closed, acknowledged, received });
        let (own, station) = ((peer.wire_id, peer.token), peer.far.station);
        self.lingering.add(own, answer, station, &mut self.pool.stations, self.now);
        self.forget(id);
    }

    #[inline]
    fn judge_train(&mut self, ethernet: &Ethernet<'_>, frame: &Received<'_>) -> Verdict {
        let part = frame.offload.filter(|offload| offload.gso_size > 0).map(|offload| usize::from(offload.gso_size));
        let is_summed = frame.offload.is_some_and(|offload| offload.needs_csum);
        let (train, addresses, data) = match Train::decode(ethernet.rest, part, is_summed) {
            Ok(read) => read,
            Err(None) => {
                self.counters.foreign += 1;
                return Verdict::Release;
            }
            Err(Some(malformed)) => return self.judge_malformed(malformed, ethernet),
        };
        if !self.find(ethernet, &train.header) {
            return Verdict::Release;
        }
        let Some(peer) = self.table.by_wire_id(train.header.connection) else { return Verdict::Release };
        let id = peer.id;
        if peer.addresses.is_none_or(|own| (own.from, own.to) != (addresses.to, addresses.from)) {
            self.counters.no_connection += 1;
            return Verdict::Release;
        }
        let is_judged = peer.is_open() || self.judge_state(&train.header, &[]);
        if !is_judged || !self.acknowledge(&train.header, &[]) {
            return Verdict::Release;
        }
        let from = ethernet.bytes + segmented::BYTES;
        let Header { number, remaining, .. } = train.header;
        let ride =
            Ride { id, number, count: train.count, index: 0, part: train.part, from, len: data.len(), remaining };
        let verdict = if data.is_empty() {
            // Some devices (QEMU's e1000) cut a segment without data off the end, with the number of the next message.
            Verdict::Release
        } else if train.count == 1 {
            self.take(id, number, remaining, data, from)
        } else if train.fragments && self.is_whole(&ride) {
            Verdict::InPlace { id, from, to: from + data.len() }
        } else {
            Verdict::Ride(ride)
        };
        self.settle(id, false);
        verdict
    }

    /// Takes all fragments of a long message at once, if the frame has them all and they are the next ones.
    fn is_whole(&mut self, ride: &Ride) -> bool {
        let Some(peer) = self.table.get(ride.id) else { return false };
        let is_whole = usize::from(ride.remaining) + 1 == ride.count
            && peer.fragments_left.is_none()
            && ride.len <= self.options.long as usize
            && !peer.is_paused
            && !peer.is_finished
            && peer.receiver.is_next(ride.number);
        if is_whole {
            (0..ride.count).for_each(|_| peer.receiver.passed());
            self.counters.messages_received += ride.count as u64;
        }
        is_whole
    }

    /// After the last message of a ride.
    pub fn ridden(&mut self, id: u32) {
        self.settle(id, false);
    }
}
