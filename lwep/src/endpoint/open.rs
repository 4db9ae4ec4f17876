//! How connections begin.

use std::net::Ipv4Addr;

use super::core::{Core, Endpoint, Pending};
use super::event::Reason;
use super::lack::Marks;
use super::peer::{Connection, EXPECTED, Far, Peer, State, Trains};
use super::share;
use super::stations::Stations;
use super::table::AGREED;
use crate::connection::{Nanos, Receiver, Sender};
use crate::link::Link;
use crate::wire::segmented::Addresses;
use crate::wire::{Description, Ethernet, Header, Mac, PLAIN_BYTES};

/// Bytes of data in frames of connections that were agreed elsewhere: the MTU is 1,500.
const AGREED_DATA: usize = 1_462;
/// Messages that may be under way on such a connection before the peer has told its window.
const AGREED_WINDOW: u16 = 8;

/// Why a connection cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// [`crate::Options::connections`] to this station are there.
    #[error("the endpoint has as many connections as its options allow")]
    Full,
    /// The identifier is in use.
    #[error("a connection with this identifier exists")]
    InUse,
    /// The peer's address is a group's, or this interface's own.
    #[error("the address is not that of another station")]
    Address,
}

/// What a new connection begins with.
struct Beginning {
    far: Far,
    state: State,
    service: u32,
    sent: u32,
    received: u32,
    window: u16,
}

impl Core {
    fn peer(&mut self, id: u32, ends: (u32, u32), begin: Beginning) -> Box<Peer> {
        let station = self.pool.stations.join(begin.far.mac);
        let mut peer = Box::new(Peer {
            id,
            wire_id: ends.0,
            token: ends.1,
            state: begin.state,
            far: Far { station, ..begin.far },
            service: begin.service,
            template: [0; PLAIN_BYTES],
            expected: [0; EXPECTED],
            told: [0; 6],
            addresses: None,
            trains: Trains::default(),
            checksums: self.options.checksums,
            sender: Sender::new(begin.sent, begin.window, self.now),
            receiver: Receiver::new(begin.received, self.options.window.clamp(8, 4096)),
            first_sent: begin.sent,
            assembly: Vec::new(),
            assembled_since: 0,
            paused_since: 0,
            paused: 0,
            fragments_left: None,
            is_paused: false,
            wants_room: false,
            in_message: None,
            wants_buffer: false,
            is_other_version: false,
            is_finished: false,
            unanswered: 0,
            is_doubted: false,
            probed: self.now,
            marks: Marks::default(),
            timer: Nanos::MAX,
            is_in_owed: false,
            is_in_urgent: false,
            is_in_sending: false,
            is_in_ready: false,
        });
        peer.make_templates(self.mac);
        peer
    }

    /// Returns the addresses of the segmentation layout, if both ends have one.
    fn addresses(&self, far: Ipv4Addr) -> Option<Addresses> {
        self.options.address.filter(|_| !far.is_unspecified()).map(|from| Addresses { from, to: far })
    }

    /// Returns what this end tells of itself.
    pub fn description(&self, peer_id: u32, token: u32, service: u32) -> Description {
        Description {
            connection: peer_id,
            token,
            service,
            frame: self.data as u16,
            checksums: self.options.checksums,
            long: self.options.long,
            address: self.options.address.unwrap_or(Ipv4Addr::UNSPECIFIED),
            holds: self.holds,
        }
    }

    /// A station asks for a connection.
    #[cold]
    pub fn asked(&mut self, ethernet: &Ethernet<'_>, header: &Header, data: &[u8]) {
        let Some(far) = Description::decode(data).filter(|_| ethernet.from[0] & 1 == 0) else {
            self.counters.malformed += 1;
            return;
        };
        if let Some(peer) = self.table.by_far(ethernet.from, far.connection, far.token) {
            // Repeated, as the ACCEPT has not arrived, or late.
            if let State::Accepting(_) = peer.state {
                self.lists.accepting.push_back(peer.id);
            }
            return;
        }
        if !self.services.contains(&far.service) {
            return self.refuse(ethernet.from, far.connection, far.token, Reason::NobodyListens);
        }
        let has_place = self.make_place_for(ethernet.from);
        let Some(id) = self.table.next_id().filter(|_| has_place) else {
            return self.refuse(ethernet.from, far.connection, far.token, Reason::NoRoom);
        };
        let random = (self.options.random)();
        let begin = Beginning {
            far: Far {
                mac: ethernet.from,
                connection: far.connection,
                token: far.token,
                frame: far.frame.into(),
                long: far.long,
                holds: far.holds,
                station: 0,
            },
            state: State::Accepting(self.now.saturating_add(self.options.connect_within)),
            service: far.service,
            sent: (random >> 32) as u32,
            received: header.number,
            window: header.window,
        };
        let mut peer = self.peer(id, (id, random as u32), begin);
        peer.addresses = self.addresses(far.address);
        peer.checksums |= far.checksums;
        peer.make_templates(self.mac);
        self.lists.arm(&mut peer, None);
        self.pool.stations.get(peer.far.station).half_open += 1;
        self.table.add(peer);
        self.half_open.push_back(id);
        self.lists.accepting.push_back(id);
    }

    /// Returns true if a station may have one more connection that it asks for.
    fn has_place_for(&self, mac: Mac) -> bool {
        let held = self.pool.stations.of(mac).map_or(0, |station| station.connections);
        share::may_take(held as usize, self.table.left(), self.table.most(), 1)
    }

    /// Returns the identifier of a connection that this end begins, if the station may have one more.
    fn next_id_for(&mut self, mac: Mac) -> Option<u32> {
        let held = self.pool.stations.of(mac).map_or(0, |station| station.connections);
        self.table.next_id().filter(|_| held < self.options.connections.max(1))
    }

    /// Makes a place for a connection that a station asks for, if need be: drops one that is not complete. A station displaces its own
    /// first, then those of the station that has most of them. Returns false if there is no place.
    fn make_place_for(&mut self, mac: Mac) -> bool {
        let has_place = self.has_place_for(mac);
        if has_place && self.half_open.len() < self.options.half_open.max(1) {
            return true;
        }
        let station = self.pool.stations.of(mac);
        let (held, asked) = station.map_or((0, 0), |station| (station.connections, station.half_open));
        if asked > 0 {
            self.displace(|peer, _| (peer.far.mac == mac).into());
        } else if held == 0 || has_place {
            self.displace(|peer, stations| stations.get(peer.far.station).half_open);
        }
        self.has_place_for(mac)
    }

    /// Drops the oldest of the connections that are not complete for which `weight` is largest.
    fn displace(&mut self, weight: impl Fn(&Peer, &mut Stations) -> u32) {
        let Self { table, pool, half_open, .. } = self;
        let weighed = half_open.iter().rev().filter_map(|id| Some((weight(table.get(*id)?, &mut pool.stations), *id)));
        // The last one of the largest.
        if let Some((_, id)) = weighed.max_by_key(|(weight, _)| *weight) {
            self.counters.refused += 1;
            self.end(id, Reason::NoAnswer);
        }
    }

    /// The peer has accepted a connection.
    #[cold]
    pub fn accepted(&mut self, id: u32, header: &Header, data: &[u8]) {
        let Some(far) = Description::decode(data) else {
            self.counters.malformed += 1;
            return;
        };
        let (addresses, window) = (self.addresses(far.address), self.options.window.clamp(8, 4096));
        let Some(peer) = self.table.get(id).filter(|peer| peer.first_sent == header.acknowledgement) else {
            self.counters.bad_acknowledgement += 1;
            return;
        };
        let frame = usize::from(far.frame);
        let pool = &mut self.pool;
        let fits = peer.sender.parts().all(|part| pool.slot(part.slot).part as usize <= frame);
        peer.far = Far {
            mac: peer.far.mac,
            connection: far.connection,
            token: far.token,
            frame,
            long: far.long,
            holds: far.holds,
            station: peer.far.station,
        };
        peer.addresses = addresses;
        peer.checksums |= far.checksums;
        peer.make_templates(self.mac);
        peer.receiver = Receiver::new(header.number, window);
        peer.receiver.hurry();
        peer.sender.open(header.window, self.now);
        peer.state = State::Open;
        self.table.learn(id);
        self.lists.events.push_back(Pending::Connected(id));
        let Some(peer) = self.table.get(id) else { return };
        if !fits {
            return self.reset(id, Reason::TooLong);
        }
        self.lists.owe(peer, self.now);
        self.lists.send(peer);
        self.lists.arm(peer, self.options.keep_alive);
    }
}

impl<L: Link> Endpoint<L> {
    /// Accepts connections to a service, a number that peers know.
    pub fn listen(&mut self, service: u32) {
        if !self.core.services.contains(&service) {
            self.core.services.push(service);
        }
    }

    /// Accepts no further connections to a service. Those that exist stay.
    pub fn ignore(&mut self, service: u32) {
        self.core.services.retain(|one| *one != service);
    }

    /// Asks the endpoint at `mac` for a connection to `service`. Messages may be sent at once: they go out when the peer has accepted,
    /// which [`crate::Event::Connected`] tells.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect(&mut self, mac: Mac, service: u32, now: Nanos) -> Result<Connection, ConnectError> {
        self.advance(now);
        self.check_address(mac)?;
        let core = &mut self.core;
        let id = core.next_id_for(mac).ok_or(ConnectError::Full)?;
        let random = (core.options.random)();
        let first = (random >> 32) as u32;
        let begin = Beginning {
            far: Far { mac, connection: 0, token: 0, frame: core.data, long: 0, holds: 0, station: 0 },
            state: State::Asking(core.now.saturating_add(core.options.connect_within)),
            service,
            sent: first,
            received: 0,
            window: 0,
        };
        let peer = core.peer(id, (id, random as u32), begin);
        core.table.add(peer);
        self.ask(id);
        self.flush();
        Ok(Connection(id))
    }

    /// Begins a connection that both ends have agreed on by other means: both call this with the other one's address and the same
    /// `identifier`, which was never used between them before. Nothing is sent for it.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn agree(&mut self, mac: Mac, identifier: u64, now: Nanos) -> Result<Connection, ConnectError> {
        self.advance(now);
        self.check_address(mac)?;
        let core = &mut self.core;
        let (wire_id, token) = ((identifier >> 32) as u32 | AGREED, identifier as u32);
        if core.table.by_wire_id(wire_id).is_some() {
            return Err(ConnectError::InUse);
        }
        let id = core.next_id_for(mac).ok_or(ConnectError::Full)?;
        let (frame, long) = (AGREED_DATA.min(core.data), core.options.long);
        let far = Far { mac, connection: wire_id, token, frame, long, holds: 0, station: 0 };
        let begin = Beginning { far, state: State::Open, service: 0, sent: 0, received: 0, window: AGREED_WINDOW };
        let mut peer = core.peer(id, (wire_id, token), begin);
        core.lists.arm(&mut peer, core.options.keep_alive);
        core.table.add(peer);
        Ok(Connection(id))
    }

    fn check_address(&self, mac: Mac) -> Result<(), ConnectError> {
        if mac[0] & 1 != 0 || mac == [0; 6] || mac == self.core.mac { Err(ConnectError::Address) } else { Ok(()) }
    }
}
