//! The netmap ports that the daemon has, their registrations, and the persistent ports.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use ringway_abi::netmap::Family;
use ringway_ports::process::{ClientId, RegionPort};

use crate::config::Name;

/// The daemon's netmap ports.
#[derive(Debug, Default)]
pub struct NetmapPorts {
    /// The ports, by their leaders.
    pub(super) groups: HashMap<ClientId, Group>,
    /// The leader of each client with a registration.
    leaders: HashMap<ClientId, ClientId>,
    /// Persistent ports by name, with the switch that each is attached to.
    pub(super) persistent: BTreeMap<Name, Option<Name>>,
}

/// A port and its registrations.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) family: Family,
    pub(super) port: Arc<RegionPort>,
    pub(super) members: HashSet<ClientId>,
}

impl NetmapPorts {
    /// Removes a port that has ended. Returns its clients, which the caller notifies.
    pub fn take(&mut self, leader: ClientId) -> Option<HashSet<ClientId>> {
        let group = self.groups.remove(&leader)?;
        group.members.iter().for_each(|member| _ = self.leaders.remove(member));
        Some(group.members)
    }

    /// Removes a registration. Returns the leader of a port whose last registration this was.
    pub(super) fn leave(&mut self, client: ClientId) -> Option<ClientId> {
        let leader = self.leaders.remove(&client)?;
        let group = self.groups.get_mut(&leader)?;
        group.members.remove(&client);
        group.members.is_empty().then(|| self.groups.remove(&leader))?.map(|_| leader)
    }

    pub(super) fn join(&mut self, leader: ClientId, client: ClientId) {
        if let Some(group) = self.groups.get_mut(&leader) {
            group.members.insert(client);
            self.leaders.insert(client, leader);
        }
    }
}
