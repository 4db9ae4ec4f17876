//! The netmap ports that the daemon has, their registrations, and the persistent ports.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use ringway_abi::netmap::Family;
use ringway_config::Name;
use ringway_port_process::{Asker, ClientId, Process, RegionPort};

/// The daemon's netmap ports.
#[derive(Debug, Default)]
pub struct NetmapPorts {
    /// The ports, by their leaders.
    pub(super) groups: HashMap<ClientId, Group>,
    /// The leader of each client with a registration.
    leaders: HashMap<ClientId, ClientId>,
    /// Persistent ports, by their makers' user and their name: what one user calls a port is no matter of others.
    pub(super) persistent: BTreeMap<(User, Name), Persistent>,
}

/// A user, if the kernel tells.
pub(super) type User = Option<u32>;

/// A persistent port.
#[derive(Debug)]
pub(super) struct Persistent {
    /// The process that has made it.
    pub(super) maker: Process,
    /// The switch that it is attached to.
    pub(super) switch: Option<Name>,
}

/// A port and its registrations.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) family: Family,
    pub(super) port: Arc<RegionPort>,
    pub(super) members: HashSet<ClientId>,
}

impl NetmapPorts {
    /// Returns true if a persistent port of this name is attached to this switch.
    pub(super) fn is_attached(&self, switch: &Name, port: &Name) -> bool {
        self.attached().any(|attached| attached == (switch, port))
    }

    /// Returns the persistent ports that are attached: switch and name.
    pub(super) fn attached(&self) -> impl Iterator<Item = (&Name, &Name)> {
        self.persistent.iter().filter_map(|((_, name), port)| Some((port.switch.as_ref()?, name)))
    }

    /// Returns true if one more persistent port of this maker leaves enough of `most` for others: a user has at most as many as are left,
    /// and each of its processes a third of that.
    pub(super) fn has_name_for(&self, asker: Asker, most: usize) -> bool {
        let left = most.saturating_sub(self.persistent.len());
        let of_user = self.persistent.iter().filter(|((user, _), _)| *user == asker.user);
        let of_process = of_user.clone().filter(|(_, port)| port.maker == asker.process);
        of_user.count() < left && 3 * of_process.count() < left
    }

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

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    /// Makes as many persistent ports of a maker as there may be. Returns their number.
    fn fill(ports: &mut NetmapPorts, user: u32, process: u32, most: usize) -> usize {
        let asker = Asker { process: NonZeroU32::new(process), user: Some(user) };
        let mut count = 0;
        while ports.has_name_for(asker, most) {
            let name = format!("p{process}-{count}").parse().unwrap();
            ports.persistent.insert((asker.user, name), Persistent { maker: asker.process, switch: None });
            count += 1;
        }
        count
    }

    #[test]
    fn persistent_ports_of_a_process_leave_names_for_others_and_for_other_users() {
        let mut ports = NetmapPorts::default();
        assert_eq!(fill(&mut ports, 1, 1, 1024), 256);
        for process in 2..40 {
            fill(&mut ports, 1, process, 1024);
        }
        assert!((500..=512).contains(&ports.persistent.len()), "{}", ports.persistent.len());
        for user in 2..=6 {
            assert!(fill(&mut ports, user, user, 1024) > 0, "user {user}");
        }
        assert_eq!(fill(&mut NetmapPorts::default(), 1, 1, 1), 1);
    }
}
