//! The ports and addresses of a switch, as a program sees them: an immutable value, made with each topology.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::frame::{Mac, Owner};
use crate::policy::{Domain, SourceBinding};
use crate::port::Port;
use crate::table::{Learned, MacTable, Owners};

/// A port of a [`View`].
#[derive(Debug)]
pub struct ViewPort {
    /// Its index and generation. Programs know it by these 16 bits.
    pub owner: Owner,
    /// Its name in the switch.
    pub name: String,
    /// The port. Programs keep views longer than pollers keep ports, and the last owner of a port unmaps its client's memory.
    pub port: Weak<Port>,
    /// True if it is a mirror, which no program sends to.
    pub is_mirror: bool,
}

/// The ports and addresses of a switch, as a program sees them.
#[derive(Debug)]
pub struct View {
    version: u64,
    /// By index.
    ports: Box<[Option<ViewPort>]>,
    by_name: HashMap<String, u16>,
    longest_name: usize,
    /// Indices below this one belong to a port, or belonged to one.
    used_indices: u16,
    table: Arc<MacTable>,
    domain: Domain,
}

impl View {
    /// A view of these ports. `used_indices` is the number of indices that ever had a port.
    #[must_use]
    pub fn new(
        ports: impl IntoIterator<Item = ViewPort>,
        used_indices: u16,
        table: Arc<MacTable>,
        domain: Domain,
    ) -> View {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut places: Vec<Option<ViewPort>> = Vec::new();
        let (mut by_name, mut longest_name) = (HashMap::new(), 0);
        for port in ports {
            let index = port.owner.index();
            longest_name = longest_name.max(port.name.len());
            places.resize_with(places.len().max(usize::from(index) + 1), || None);
            by_name.insert(port.name.clone(), index);
            places[usize::from(index)] = Some(port);
        }
        let used_indices = used_indices.max(places.len() as u16);
        let version = NEXT.fetch_add(1, Ordering::Relaxed);
        View { version, ports: places.into(), by_name, longest_name, used_indices, table, domain }
    }

    /// Differs from the version of every other view. Never 0.
    #[inline]
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// All ports except mirrors, ascending by index.
    pub fn ports(&self) -> impl Iterator<Item = &ViewPort> {
        self.ports.iter().flatten().filter(|port| !port.is_mirror)
    }

    /// The port with this owner, if it is present.
    #[inline]
    #[must_use]
    pub fn port(&self, owner: Owner) -> Option<&ViewPort> {
        self.ports.get(usize::from(owner.index()))?.as_ref().filter(|port| port.owner == owner)
    }

    /// The port with this name, unless it is a mirror.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&ViewPort> {
        let index = *self.by_name.get(name)?;
        self.ports.get(usize::from(index))?.as_ref().filter(|port| !port.is_mirror)
    }

    /// Bytes of the longest name of a port.
    #[must_use]
    pub fn longest_name(&self) -> usize {
        self.longest_name
    }

    /// Returns true if a port may have had this owner and has left.
    #[must_use]
    pub fn has_left(&self, owner: Owner) -> bool {
        owner.index() < self.used_indices && self.port(owner).is_none()
    }

    /// The port that an address is bound to by its guard, or was learned at.
    #[inline]
    #[must_use]
    pub fn lookup(&self, vlan: u16, mac: Mac) -> Option<Owner> {
        let vlan = if self.domain.vlans { vlan } else { 0 };
        if let Some(index) = self.domain.guarded_port(mac) {
            return self.ports.get(usize::from(index))?.as_ref().map(|port| port.owner);
        }
        self.table.lookup_in(vlan, mac).filter(|&owner| self.port(owner).is_some())
    }

    /// Learns that an address is at a port, in second `now`. Returns true if it is known there. To be called by the poller that has the
    /// input of the port.
    #[inline]
    pub fn learn(&self, vlan: u16, mac: Mac, owner: Owner, now: u32) -> bool {
        if !mac.is_station() {
            return false;
        }
        let vlan = if self.domain.vlans { vlan } else { 0 };
        match self.domain.check_source(mac, owner.index()) {
            Err(_) => false,
            Ok(SourceBinding::Guarded) => true,
            Ok(SourceBinding::Learnable) => {
                let learned = self.table.learn_with(vlan, mac, owner, now, self);
                matches!(learned, Learned::Known | Learned::New | Learned::Moved(_))
            }
        }
    }
}

impl Owners for View {
    #[inline]
    fn is_alive(&self, owner: Owner) -> bool {
        self.port(owner).is_some()
    }

    #[cold]
    fn count_held_move(&self, owner: Owner) {
        if let Some(port) = self.port(owner).and_then(|port| port.port.upgrade()) {
            port.counters().add_move_held();
        }
    }
}
