//! A connection as an endpoint keeps it.

use crate::connection::{Nanos, Receiver, Sender};
use crate::wire::segmented::Addresses;
use crate::wire::{ETHERNET_BYTES, Mac};

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
    /// It is over for the program. Repetitions are acknowledged until this time.
    Lingering(Nanos),
}

/// The other end, as it has described itself.
#[derive(Clone, Copy, Debug)]
pub struct Far {
    pub mac: Mac,
    pub connection: u32,
    pub token: u32,
    /// Most bytes of data in a frame.
    pub frame: usize,
    pub long: u32,
}

/// A connection.
#[derive(Debug)]
pub struct Peer {
    pub id: u32,
    /// Own identifier and secret on the wire.
    pub wire_id: u32,
    pub token: u32,
    pub state: State,
    pub far: Far,
    pub service: u32,
    /// The Ethernet header of frames to the peer.
    pub ethernet: [u8; ETHERNET_BYTES],
    pub addresses: Option<Addresses>,
    pub checksums: bool,
    pub sender: Sender,
    pub receiver: Receiver,
    /// The first number that was sent.
    pub first_sent: u32,
    /// Fragments of a long message, and how many are missing.
    pub assembly: Vec<u8>,
    pub fragments_left: Option<u16>,
    pub is_paused: bool,
    /// The program was refused a message, and hears when there is room.
    pub wants_room: bool,
    /// The peer has refused the OPEN for its version. That may be a damaged frame, so this end asks on.
    pub is_other_version: bool,
    /// The peer sends no further messages.
    pub is_finished: bool,
    /// An answer was asked for and did not come: PROBEs of an idle connection.
    pub unanswered: u32,
    pub probed: Nanos,
    /// The earliest deadline in the endpoint's timers; `Nanos::MAX`: none.
    pub timer: Nanos,
    /// The lists of the endpoint that have it.
    pub is_in_owed: bool,
    pub is_in_urgent: bool,
    pub is_in_sending: bool,
    pub is_in_ready: bool,
}

impl Peer {
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
            State::Lingering(end) => Some(end),
            State::Open => {
                let idle = keep_alive.map(|after| self.sender.heard().max(self.probed).saturating_add(after));
                self.sender.deadline().into_iter().chain(idle).min()
            }
        }
    }
}
