//! Connections by their identifiers.

use std::collections::HashMap;

use super::peer::Peer;
use super::share;
use crate::wire::Mac;

/// Lower bits of an identifier: the place in the table. Those above: how often the place was used.
const PLACE_BITS: u32 = 20;
const PLACES: u32 = 1 << PLACE_BITS;
/// The highest bit: an identifier that was agreed elsewhere.
pub const AGREED: u32 = 1 << 31;

/// All connections.
#[derive(Debug)]
pub struct Table {
    places: Vec<Option<Box<Peer>>>,
    generations: Vec<u16>,
    free: Vec<u32>,
    most: u32,
    /// Places of agreed connections by identifier on the wire.
    agreed: HashMap<u32, u32>,
    /// Connections by what the peer calls them: its address, identifier and secret.
    by_far: HashMap<(Mac, u32, u32), u32>,
    used: u32,
}

impl Table {
    /// A table in which one station alone can have `of_one` connections.
    pub fn new(of_one: u32) -> Self {
        let most = share::all_for(of_one.clamp(1, PLACES) as usize) as u32;
        Self {
            places: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
            most: most.min(PLACES),
            agreed: HashMap::new(),
            by_far: HashMap::new(),
            used: 0,
        }
    }

    /// Returns the identifier of the next connection to be added, if there is room.
    pub fn next_id(&mut self) -> Option<u32> {
        if self.free.is_empty() {
            if self.places.len() as u32 >= self.most {
                return None;
            }
            self.free.push(self.places.len() as u32);
            self.places.push(None);
            self.generations.push(0);
        }
        let place = *self.free.last()?;
        Some(u32::from(self.generations[place as usize] & 0x7ff) << PLACE_BITS | place)
    }

    /// Adds a connection with the identifier that [`Table::next_id`] returned.
    pub fn add(&mut self, peer: Box<Peer>) {
        let Some(place) = self.free.pop() else { return };
        if peer.wire_id & AGREED != 0 {
            self.agreed.insert(peer.wire_id, place);
        }
        let id = peer.id;
        self.places[place as usize] = Some(peer);
        self.used += 1;
        self.learn(id);
    }

    /// Finds a connection by what its peer calls it from now on. Of several that a peer calls so, it finds the first one.
    pub fn learn(&mut self, id: u32) {
        if let Some(far) = self.get(id).filter(|peer| !peer.is_asking()).map(|peer| peer.far_name()) {
            self.by_far.entry(far).or_insert(id);
        }
    }

    /// Returns the connection that a peer calls so.
    pub fn by_far(&mut self, mac: Mac, connection: u32, token: u32) -> Option<&mut Peer> {
        let id = *self.by_far.get(&(mac, connection, token))?;
        self.get(id)
    }

    pub fn remove(&mut self, id: u32) -> Option<Box<Peer>> {
        self.get(id)?;
        let place = id % PLACES;
        let peer = self.places[place as usize].take()?;
        if peer.wire_id & AGREED != 0 {
            self.agreed.remove(&peer.wire_id);
        }
        if self.by_far.get(&peer.far_name()) == Some(&id) {
            self.by_far.remove(&peer.far_name());
        }
        self.generations[place as usize] = self.generations[place as usize].wrapping_add(1);
        self.free.push(place);
        self.used -= 1;
        Some(peer)
    }

    /// Returns the connection with this identifier.
    #[inline]
    pub fn get(&mut self, id: u32) -> Option<&mut Peer> {
        self.places.get_mut((id % PLACES) as usize)?.as_deref_mut().filter(|peer| peer.id == id)
    }

    /// Returns the peer's address, if an acknowledgement of a few bytes says everything of this connection.
    #[inline]
    pub fn get_brief(&mut self, id: u32) -> Option<Mac> {
        self.get(id).filter(|peer| peer.is_told_briefly()).map(|peer| peer.far.mac)
    }

    /// Returns the connection with this identifier on the wire.
    #[inline]
    pub fn by_wire_id(&mut self, wire_id: u32) -> Option<&mut Peer> {
        if wire_id & AGREED != 0 {
            let place = *self.agreed.get(&wire_id)?;
            return self.places.get_mut(place as usize)?.as_deref_mut();
        }
        self.get(wire_id).filter(|peer| peer.wire_id == wire_id)
    }

    /// Returns all connections.
    pub fn all(&self) -> impl Iterator<Item = &Peer> {
        self.places.iter().flatten().map(|peer| &**peer)
    }

    /// Returns all connections, to change them.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.places.iter_mut().flatten().map(|peer| &mut **peer)
    }

    pub fn len(&self) -> u32 {
        self.used
    }

    /// Returns how many connections there can be.
    pub fn most(&self) -> usize {
        self.most as usize
    }

    /// Returns how many more connections there can be.
    pub fn left(&self) -> usize {
        (self.most - self.used) as usize
    }
}
