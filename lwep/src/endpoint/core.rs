//! The state of an endpoint.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

use super::answer::Answer;
use super::counters::Counters;
use super::event::Reason;
use super::lack::Lack;
use super::lingering::Lingering;
use super::options::Options;
use super::peer::{Connection, Peer, State};
use super::pool::Pool;
use super::table::Table;
use super::timers::Timers;
use crate::connection::{MILLISECOND, Nanos};
use crate::link::Link;
use crate::wire::{Kind, Mac, PLAIN_BYTES, checksum};

/// Answers to strangers that wait to be sent, and most answers at once.
const MOST_ANSWERS: u32 = 64;

/// What may be done for strangers: 64 times at once, and once more whenever some time has passed. Each of some groups of addresses has
/// its own credit, so that one station seldom uses up another one's.
#[derive(Debug)]
pub struct Credit {
    /// What is left, and since when, of each group.
    groups: [(u32, Nanos); 16],
    each: Nanos,
    /// Nobody knows which addresses share a credit.
    secret: RandomState,
}

impl Credit {
    fn new(each: Nanos) -> Self {
        Self { groups: [(MOST_ANSWERS, 0); 16], each, secret: RandomState::new() }
    }

    /// Returns true if it may be done for this station.
    pub fn take(&mut self, mac: Mac, now: Nanos) -> bool {
        let group = self.secret.hash_one(mac) as usize % self.groups.len();
        let (left, since) = &mut self.groups[group];
        let more = now.saturating_sub(*since) / self.each;
        if more > 0 {
            *left = left.saturating_add(more.min(MOST_ANSWERS.into()) as u32).min(MOST_ANSWERS);
            *since = now;
        }
        let may = *left > 0;
        *left = left.saturating_sub(1);
        may
    }
}

/// An event that the program has not had.
#[derive(Clone, Copy, Debug)]
pub enum Pending {
    Connected(u32),
    Accepted(u32, u32),
    Room(u32),
    Finished(u32),
    Ended { id: u32, reason: Reason, acknowledged: u64, received: u64 },
}

/// Connections with something to do.
#[derive(Debug, Default)]
pub struct Lists {
    /// Something can be sent, if the link has room.
    pub sending: VecDeque<u32>,
    /// An acknowledgement is due at once.
    pub urgent: VecDeque<u32>,
    /// The endpoint sends a PROBE: does the peer know the connection?
    pub doubted: VecDeque<u32>,
    /// The endpoint sends an ACCEPT.
    pub accepting: VecDeque<u32>,
    /// Messages wait for the program.
    pub ready: VecDeque<u32>,
    /// They want more buffers than they may have, and so many of them are looked at next: some may have them now.
    pub without_buffers: VecDeque<u32>,
    pub hopeful: usize,
    pub timers: Timers,
    pub events: VecDeque<Pending>,
}

impl Lists {
    /// Returns true if nothing is due.
    #[inline]
    pub fn are_quiet(&self, now: Nanos) -> bool {
        let is_later = self.timers.next().is_none_or(|at| at > now);
        is_later
            && self.sending.is_empty()
            && self.doubted.is_empty()
            && self.urgent.is_empty()
            && self.accepting.is_empty()
            && self.without_buffers.is_empty()
    }

    #[inline]
    pub fn send(&mut self, peer: &mut Peer) {
        if !peer.is_in_sending {
            peer.is_in_sending = true;
            self.sending.push_back(peer.id);
        }
    }

    /// The peer's receiver owes an acknowledgement.
    #[inline]
    pub fn owe(&mut self, peer: &mut Peer, at: Nanos) {
        if peer.receiver.is_urgent() {
            if !peer.is_in_urgent {
                peer.is_in_urgent = true;
                self.urgent.push_back(peer.id);
            }
        } else if peer.receiver.owes() && !peer.is_in_owed {
            peer.is_in_owed = true;
            self.timers.owe(at, peer.id);
        }
    }

    #[inline]
    pub fn ready(&mut self, peer: &mut Peer) {
        if !peer.is_in_ready && !peer.is_paused && peer.receiver.has_waiting() {
            peer.is_in_ready = true;
            self.ready.push_back(peer.id);
        }
    }

    /// Sees to it that the connection's deadline is in the timers.
    #[inline]
    pub fn arm(&mut self, peer: &mut Peer, keep_alive: Option<Nanos>) {
        // The timer is looked at anyway before anything can be due.
        if peer.timer <= peer.sender.earliest() {
            return;
        }
        if let Some(at) = peer.deadline(keep_alive)
            && at < peer.timer
        {
            peer.timer = at;
            self.timers.add(at, peer.id);
        }
    }
}

/// An endpoint without its link.
#[derive(Debug)]
pub struct Core {
    pub options: Options,
    pub mac: Mac,
    /// Bytes of a buffer before the frame.
    pub front: usize,
    /// Most bytes of data in a frame.
    pub data: usize,
    /// Frames that wait for this end at once without loss; 0: not known.
    pub holds: u16,
    pub pool: Pool,
    pub table: Table,
    pub lists: Lists,
    pub services: Vec<u32>,
    /// Connections that a peer has asked for and not confirmed, the oldest first.
    pub half_open: VecDeque<u32>,
    pub answers: VecDeque<Answer>,
    pub lingering: Lingering,
    /// For RESET and UNKNOWN; for ACCEPT, which such answers must not hinder.
    credit: Credit,
    pub accept_credit: Credit,
    pub lack: Lack,
    pub counters: Counters,
    pub now: Nanos,
}

impl Core {
    pub fn answer(&mut self, answer: Answer) {
        if self.answers.len() < MOST_ANSWERS as usize && self.credit.take(answer.to, self.now) {
            self.answers.push_back(answer);
        } else {
            self.counters.unanswered += 1;
        }
    }

    /// Answers a station that repeats something of a connection that is over. Its secret was right: no rate limits that.
    pub fn answer_late(&mut self, answer: Answer) {
        self.counters.duplicates += 1;
        if self.answers.len() < MOST_ANSWERS as usize {
            self.answers.push_back(answer);
        } else {
            self.counters.unanswered += 1;
        }
    }

    /// A frame with what the connection has received was not sent: the next one is to tell it.
    #[cold]
    pub fn tell_again(&mut self, id: u32) {
        if let Some(peer) = self.table.get(id) {
            peer.receiver.hurry();
            self.lists.owe(peer, self.now);
        }
    }

    /// Ends a connection for the program.
    #[cold]
    pub fn end(&mut self, id: u32, reason: Reason) {
        let Some(peer) = self.table.get(id) else { return };
        let was_known = !matches!(peer.state, State::Accepting(_));
        let (acknowledged, received) = (peer.sender.acknowledged(), peer.receiver.received());
        let pool = &mut self.pool;
        peer.sender.clear(|part| pool.release(part.slot));
        peer.receiver.clear().filter_map(|arrival| arrival.data).for_each(|(slot, ..)| pool.release(slot));
        if was_known {
            self.lists.events.push_back(Pending::Ended { id, reason, acknowledged, received });
        }
        self.forget(id);
    }

    /// Forgets a connection that has no buffers any more.
    pub fn forget(&mut self, id: u32) {
        self.completed(id);
        if let Some(peer) = self.table.remove(id) {
            self.pool.stations.end_long(peer.far.station, peer.assembled_since, id, peer.assembly.capacity());
            self.pool.stations.leave(peer.far.station);
        }
    }

    /// A connection that a peer has asked for is complete, or over.
    pub fn completed(&mut self, id: u32) {
        let before = self.half_open.len();
        self.half_open.retain(|half| *half != id);
        if self.half_open.len() < before
            && let Some(peer) = self.table.get(id)
        {
            self.pool.stations.get(peer.far.station).half_open -= 1;
        }
    }

    /// Ends a connection for the program and its peer.
    #[cold]
    pub fn reset(&mut self, id: u32, reason: Reason) {
        let Some(peer) = self.table.get(id) else { return };
        let answer = Answer {
            to: peer.far.mac,
            kind: Kind::Reset,
            connection: peer.far.connection,
            token: peer.far.token,
            number: peer.sender.next(),
            acknowledgement: peer.receiver.next(),
            reason: Some(reason),
        };
        if !matches!(peer.state, State::Asking(_)) {
            self.answers.push_back(answer);
        }
        self.end(id, reason);
    }
}

/// A network interface of this program, with its connections.
pub struct Endpoint<L> {
    pub(super) link: L,
    pub(super) core: Core,
    /// Frames queued at the link.
    pub(super) queued: u64,
    pub(super) current: Current,
    /// The link shows a frame of the segmentation layout; the program has yet to get these messages of it.
    pub(super) riding: Option<Ride>,
    /// Frames up to this one were handed over to the device.
    pub(super) flushed: u64,
    /// Frames since things that are due were last looked after.
    pub(super) judged: u32,
    /// Times that this was done since no frame was left.
    pub(super) busy: u32,
}

/// What the program was given last.
#[derive(Clone, Copy, Debug)]
pub enum Current {
    Nothing,
    /// The frame that the link shows, of which these bytes are a connection's message; the events before it come first.
    Next {
        id: u32,
        from: usize,
        to: usize,
    },
    /// These bytes of the frame that the link shows.
    InPlace {
        from: usize,
        to: usize,
    },
    /// A buffer.
    Kept {
        slot: u32,
        from: u32,
        len: u32,
    },
    /// A connection's long message.
    Assembled(u32),
}

/// The messages of a buffer, of which the link shows the frame.
#[derive(Clone, Copy, Debug)]
pub struct Ride {
    pub id: u32,
    pub number: u32,
    pub count: usize,
    pub index: usize,
    pub part: usize,
    /// The data in the frame.
    pub from: usize,
    pub len: usize,
    pub remaining: u16,
}

/// State of a connection, for people and programs that watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The peer's address.
    pub mac: Mac,
    /// Messages flow: the handshake is over.
    pub is_open: bool,
    /// Messages that are queued or under way.
    pub queued: usize,
    /// Own messages that the peer has acknowledged.
    pub acknowledged: u64,
    /// The peer's messages that have arrived without a gap.
    pub received: u64,
    /// The smoothed round trip, once measured.
    pub round_trip: Option<Nanos>,
    /// Most bytes of a message in one frame to this peer.
    pub message: usize,
    /// Buffers to this peer can be segmented.
    pub is_segmented: bool,
}

impl<L: Link> Endpoint<L> {
    /// Makes an endpoint at a link, all of whose buffers it takes.
    pub fn new(mut link: L, options: Options) -> Self {
        let interface = link.interface().clone();
        let buffers = link.take_buffers();
        let room = interface.longest.min(interface.buffer - interface.front);
        let core = Core {
            mac: interface.mac,
            front: interface.front,
            data: room.saturating_sub(PLAIN_BYTES + checksum::BYTES).min(usize::from(u16::MAX)),
            holds: interface.holds.min(usize::from(u16::MAX)) as u16,
            pool: Pool::new(buffers, interface.places, options.long),
            table: Table::new(options.connections),
            lists: Lists::default(),
            services: Vec::new(),
            half_open: VecDeque::with_capacity(options.half_open),
            answers: VecDeque::with_capacity(2 * MOST_ANSWERS as usize),
            lingering: Lingering::default(),
            credit: Credit::new(MILLISECOND),
            accept_credit: Credit::new(MILLISECOND / 64),
            lack: Lack::default(),
            counters: Counters::default(),
            now: 0,
            options,
        };
        let queued = link.sent();
        Self { link, core, queued, flushed: queued, current: Current::Nothing, riding: None, judged: 0, busy: 0 }
    }

    /// Returns the interface's address.
    pub fn mac(&self) -> Mac {
        self.core.mac
    }

    /// Returns most bytes of a message in one frame, if the peer takes as many.
    pub fn message(&self) -> usize {
        self.core.data
    }

    /// Returns what was counted.
    pub fn counters(&self) -> &Counters {
        &self.core.counters
    }

    /// Returns the link.
    pub fn link(&mut self) -> &mut L {
        &mut self.link
    }

    /// Returns the number of connections.
    pub fn connections(&self) -> u32 {
        self.core.table.len()
    }

    /// Returns the state of a connection, if it is not over.
    pub fn status(&mut self, connection: Connection) -> Option<Status> {
        let data = self.core.data;
        let segmented = self.link.interface().segmented > 0;
        self.core.table.get(connection.0).map(|peer| Status {
            mac: peer.far.mac,
            is_open: peer.is_open(),
            queued: peer.sender.queued(),
            acknowledged: peer.sender.acknowledged(),
            received: peer.receiver.received(),
            round_trip: peer.sender.trip().smoothed(),
            message: data.min(peer.far.frame),
            is_segmented: segmented && peer.addresses.is_some(),
        })
    }

    #[inline]
    pub(super) fn advance(&mut self, now: Nanos) {
        // A clock that runs backwards stands still.
        self.core.now = self.core.now.max(now);
    }
}
