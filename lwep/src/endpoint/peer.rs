//! A connection as an endpoint keeps it.

use std::collections::VecDeque;

use super::lack::Marks;
use crate::connection::{Nanos, Receiver, Sender};
use crate::wire::segmented::Addresses;
use crate::wire::{ETHER_TYPE, ETHERNET_BYTES, Ethernet, Header, Kind, Mac, PLAIN_BYTES};

/// Bytes of a frame up to its flags.
pub const EXPECTED: usize = ETHERNET_BYTES + 2;

/// A connection of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Connection(pub(super) u32);

impl Connection {
    /// Returns the connection's number in this endpoint, for other languages and for tables.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }

    /// Returns the connection with this number. Of no connection, it is refused where it is used.
    #[must_use]
    pub fn from_number(number: u32) -> Self {
        Self(number)
    }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its OPEN is not answered; the attempt ends at this time.
    Asking(Nanos),
    /// Its ACCEPT is not answered; it is dropped at this time.
    Accepting(Nanos),
    /// Messages flow.
    Open,
}

/// The other end, as it has described itself.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Far {
    /// Most bytes of data in a frame.
    pub frame: usize,
    pub connection: u32,
    pub token: u32,
    pub mac: Mac,
    /// Frames that wait for it at once without loss; 0: not known.
    pub holds: u16,
    pub long: u32,
    /// The station's number: what the connection has counts against it.
    pub station: u32,
}

/// Buffers of many messages that are not acknowledged.
#[derive(Debug, Default)]
pub struct Trains {
    /// The last message of each, counted from the connection's first one, and the places that it takes at the receiver.
    under_way: VecDeque<(u64, usize)>,
    places: usize,
}

impl Trains {
    /// Returns true if the receiver has `places` more, when so many messages are acknowledged. One is always let out.
    pub fn may_add(&mut self, places: usize, acknowledged: u64, holds: u16) -> bool {
        while let Some((last, places)) = self.under_way.front().copied()
            && last < acknowledged
        {
            self.under_way.pop_front();
            self.places -= places;
        }
        holds == 0 || self.places == 0 || self.places + places <= holds.into()
    }

    /// One more was sent.
    pub fn add(&mut self, last: u64, places: usize) {
        self.under_way.push_back((last, places));
        self.places += places;
    }
}

/// A connection. With many of them, what counts is how many cache lines a message touches: those of every message come first.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Peer {
    pub state: State,
    pub id: u32,
    /// Own identifier and secret on the wire.
    pub wire_id: u32,
    pub token: u32,
    /// How the usual DATA frame of the peer begins, up to its flags.
    pub expected: [u8; EXPECTED],
    /// Acknowledgement and window of the last usual frame.
    pub told: [u8; 6],
    /// How many fragments of a long message are missing.
    pub fragments_left: Option<u16>,
    pub is_paused: bool,
    /// The peer sends no further messages.
    pub is_finished: bool,
    /// The peer has answered by UNKNOWN, and nothing else came since.
    pub is_doubted: bool,
    /// An answer was asked for and did not come: PROBEs of an idle connection.
    pub unanswered: u8,
    pub checksums: bool,
    /// The program was refused a message, and hears when there is room.
    pub wants_room: bool,
    /// The lists of the endpoint that have it.
    pub is_in_owed: bool,
    pub is_in_urgent: bool,
    pub is_in_sending: bool,
    pub is_in_ready: bool,
    pub receiver: Receiver,
    /// The headers of a DATA frame to the peer, but for number, length and what was received.
    pub template: [u8; PLAIN_BYTES],
    /// The earliest deadline in the endpoint's timers; `Nanos::MAX`: none.
    pub timer: Nanos,
    pub far: Far,
    pub sender: Sender,
    pub service: u32,
    pub addresses: Option<Addresses>,
    pub trains: Trains,
    /// The first number that was sent.
    pub first_sent: u32,
    /// Fragments of a long message, and when the first one came.
    pub assembly: Vec<u8>,
    pub assembled_since: Nanos,
    /// When the program has paused the connection, and how long it had before, since then.
    pub paused_since: Nanos,
    pub paused: Nanos,
    /// The long message that is queued in part: its bytes, and those that are queued.
    pub in_message: Option<(usize, usize)>,
    /// The program was refused a message for lack of a buffer, and hears when there is one.
    pub wants_buffer: bool,
    /// The peer has refused the OPEN for its version. That may be a damaged frame, so this end asks on.
    pub is_other_version: bool,
    pub probed: Nanos,
    pub marks: Marks,
}

const _: () = assert!(std::mem::offset_of!(Peer, receiver) == 64 && std::mem::offset_of!(Peer, template) == 128);

impl Peer {
    /// Writes the templates, by what is known of the peer.
    pub fn make_templates(&mut self, own: Mac) {
        let (connection, token) = (self.far.connection, self.far.token);
        let header = Header { connection, token, ..Header::new(Kind::Data) };
        let (to, from) = self.template.split_at_mut(ETHERNET_BYTES);
        to.copy_from_slice(&Ethernet::encode(self.far.mac, own, ETHER_TYPE));
        if let Some(bytes) = from.first_chunk_mut() {
            header.encode(bytes);
        }
        let mut theirs = self.template;
        theirs[..ETHERNET_BYTES].copy_from_slice(&Ethernet::encode(own, self.far.mac, ETHER_TYPE));
        // Checksums are looked at the usual way: no frame begins so.
        theirs[ETHERNET_BYTES + 1] = if self.checksums { u8::MAX } else { 0 };
        self.expected.copy_from_slice(&theirs[..EXPECTED]);
    }

    /// Returns how many places a buffer of `count` messages takes at the peer: it is cut if it is longer than a frame there.
    pub fn places(&self, bytes: usize, count: usize) -> usize {
        if bytes <= self.far.frame { 1 } else { count }
    }

    /// Returns the Ethernet header of frames to the peer.
    pub fn ethernet(&self) -> [u8; ETHERNET_BYTES] {
        *self.template.first_chunk().unwrap_or(&[0; ETHERNET_BYTES])
    }

    /// Returns true if the next message can go to the program without anything else.
    #[inline]
    pub fn takes_usual(&self) -> bool {
        self.is_open() && !self.is_finished && self.fragments_left.is_none() && !self.is_paused && !self.wants_room
    }

    /// Returns true if an acknowledgement of a few bytes says everything that the peer has to know.
    #[inline]
    pub fn is_told_briefly(&self) -> bool {
        self.is_open() && self.receiver.is_told_briefly()
    }

    /// Returns true if an acknowledgement without a gap changes nothing but what is under way.
    #[inline]
    pub fn is_told_usual(&self, next: u32) -> bool {
        self.is_open() && !self.wants_room && self.sender.is_usual(next)
    }

    /// Returns true if messages may be queued. They go out when the connection is open.
    pub fn may_queue(&self) -> bool {
        matches!(self.state, State::Open | State::Asking(_)) && !self.sender.is_ended()
    }

    /// Returns true if the peer has not answered the OPEN.
    pub fn is_asking(&self) -> bool {
        matches!(self.state, State::Asking(_))
    }

    /// Returns what the peer calls the connection: its address, identifier and secret.
    pub fn far_name(&self) -> (Mac, u32, u32) {
        (self.far.mac, self.far.connection, self.far.token)
    }

    /// Returns true if messages may go out.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// Returns when something is due.
    pub fn deadline(&self, keep_alive: Option<Nanos>) -> Option<Nanos> {
        match self.state {
            State::Asking(end) | State::Accepting(end) => {
                Some(self.probed.saturating_add(self.sender.trip().timeout()).min(end))
            }
            State::Open => {
                let idle = keep_alive.map(|after| self.sender.heard().max(self.probed).saturating_add(after));
                self.sender.deadline().into_iter().chain(idle).min()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_of_long_ago_takes_no_places() {
        let mut trains = Trains::default();
        trains.add(10, 45);
        assert!(!trains.may_add(45, 10, 50));
        assert!(trains.may_add(45, (1 << 31) + 15, 50));
    }
}
