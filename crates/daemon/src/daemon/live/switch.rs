//! A live switch and its ports.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Weak};

use ringway_config::{Forwarding, Name, Placement, Port, Switch};
use ringway_switch::{self as data, Account, CountersReading, MAX_PORTS, MacTable, Owner, Policy, Tap};

use super::port::{Address, LivePort, NewPort, SuspendedPort};
use crate::daemon::programs::LoadedProgram;

/// Generations of a port index in the MAC table. The table must be swept before a generation is used again.
const GENERATIONS: u32 = 16;

/// A switch and its live ports. A clone has the same ports and MAC table, and serves as the candidate of a change: pollers see nothing
/// of it before [`LiveSwitch::attached`] is published.
#[derive(Clone)]
pub struct LiveSwitch {
    pub(super) name: Name,
    /// Its settings.
    pub settings: Switch,
    pub(super) ports: BTreeMap<Name, LivePort>,
    pub(super) table: Arc<MacTable>,
    /// Moves of addresses in earlier tables, and the moves that were held there.
    moved_before: u64,
    moves_held_before: u64,
    /// The present generation of each index that was ever used.
    pub(super) generations: Vec<u8>,
    /// Indices without a port, each with the last port that had it.
    free_indices: VecDeque<(u16, Weak<data::Port>)>,
    /// The number of the next account.
    next_account: u32,
    /// Configured ports that are closed: at most as many as are configured.
    suspended: BTreeMap<Name, SuspendedPort>,
    /// The number of new generations since the last sweep.
    flushes: u32,
    /// The captures of each port.
    pub(super) taps: Vec<(Name, Arc<dyn Tap>)>,
    /// True if the published switch has VLANs.
    pub(super) vlans: bool,
    pub(super) program: Option<LoadedProgram>,
    pub(super) built: Option<Arc<data::Switch>>,
}

fn new_table(settings: &Switch) -> io::Result<Arc<MacTable>> {
    let mut seed = [0; 16];
    rustix::rand::getrandom(&mut seed[..], rustix::rand::GetRandomFlags::empty())?;
    let half = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| seed[at + i]));
    Ok(Arc::new(MacTable::new(settings.mac_entries as usize, settings.mac_limit, [half(0), half(8)])))
}

impl LiveSwitch {
    /// A switch without ports.
    ///
    /// # Errors
    /// The kernel has no random numbers.
    pub fn new(name: Name, settings: Switch) -> io::Result<Self> {
        let table = new_table(&settings)?;
        let (ports, generations, free_indices) = (BTreeMap::new(), Vec::new(), VecDeque::new());
        Ok(Self {
            name,
            settings,
            ports,
            table,
            moved_before: 0,
            moves_held_before: 0,
            generations,
            free_indices,
            next_account: 0,
            suspended: BTreeMap::new(),
            flushes: 0,
            taps: Vec::new(),
            vlans: false,
            program: None,
            built: None,
        })
    }

    /// Changes the settings. Another size of the MAC table means a new, empty table.
    ///
    /// # Errors
    /// The kernel has no random numbers.
    pub fn change(&mut self, settings: Switch) -> io::Result<()> {
        let size = |s: &Switch| (s.mac_entries, s.mac_limit, s.forwarding == Forwarding::Map);
        if size(&settings) != size(&self.settings) {
            let before = std::mem::replace(&mut self.table, new_table(&settings)?);
            self.moved_before += before.moved();
            self.moves_held_before += before.moves_held();
        }
        if settings.forwarding.program().is_none() {
            self.program = None;
        }
        self.settings = settings;
        self.built = None;
        Ok(())
    }

    /// Sets the forwarding program. The settings name it.
    pub fn set_program(&mut self, program: LoadedProgram) {
        self.program = Some(program);
        self.built = None;
    }

    /// Returns the forwarding program, if there is one.
    pub fn program(&self) -> Option<&LoadedProgram> {
        self.program.as_ref()
    }

    /// Returns true if another port fits.
    pub fn has_room(&self) -> bool {
        self.ports.len() < MAX_PORTS
    }

    /// Returns the ports by name.
    pub fn ports(&self) -> &BTreeMap<Name, LivePort> {
        &self.ports
    }

    /// Returns what remains of a configured port that is closed.
    pub fn suspended(&self, name: &Name) -> Option<&SuspendedPort> {
        self.suspended.get(name)
    }

    /// Inserts a port. No port may have its name, and there must be room.
    pub fn insert(&mut self, name: Name, new: NewPort) {
        let before = self.suspended.remove(&name);
        let index = self.take_index(before.as_ref().map(|before| before.index));
        let owner = Owner::new(index, self.generations[usize::from(index)]);
        let account = before.as_ref().map_or_else(|| self.open_account(), |before| before.account);
        let NewPort { settings, port, source, poller, client, front_end, namespace, any_source, monitor } = new;
        let (policy, before) = before.map(|before| (before.policy, before.counters)).unwrap_or_default();
        let live = LivePort {
            settings,
            port,
            source,
            poller,
            client,
            front_end,
            namespace,
            any_source,
            monitor,
            policy,
            before,
            owner,
            account,
        };
        let replaced = self.ports.insert(name, live);
        debug_assert!(replaced.is_none(), "a port's name is taken");
        self.built = None;
    }

    fn open_account(&mut self) -> Account {
        let number = self.next_account;
        self.next_account = number.wrapping_add(1);
        Account::new(number)
    }

    /// Takes a free index: this one if it is free, or one whose last port is in no topology any more. A poller that is held up learns for
    /// that port until it adopts a newer topology, and generations repeat.
    fn take_index(&mut self, wanted: Option<u16>) -> u16 {
        for (_, last) in &mut self.free_indices {
            if last.strong_count() == 0 {
                // Its memory is not needed either.
                *last = Weak::new();
            }
        }
        let again = self.free_indices.iter().position(|(index, _)| Some(*index) == wanted);
        let released = || self.free_indices.iter().position(|(_, last)| last.strong_count() == 0);
        let is_full = self.generations.len() == MAX_PORTS;
        match again.or_else(released).or(is_full.then_some(0)).and_then(|place| self.free_indices.remove(place)) {
            Some((index, _)) => index,
            None => {
                self.generations.push(0);
                u16::try_from(self.generations.len() - 1).expect("has_room was asked")
            }
        }
    }

    /// Removes a port that stays configured. The port that is opened in its place continues its counters and the fill of its limits.
    pub fn suspend(&mut self, name: &Name) -> Option<LivePort> {
        let live = self.remove(name)?;
        let policy = live.policy.clone().and_then(|policy| Policy { guard: None, ..policy }.in_use());
        let suspended =
            SuspendedPort { policy, counters: live.counters(), index: live.owner.index(), account: live.account };
        self.suspended.insert(name.clone(), suspended);
        Some(live)
    }

    /// Removes a port, if there is one, with the addresses learned from it.
    pub fn remove(&mut self, name: &Name) -> Option<LivePort> {
        self.suspended.remove(name);
        let live = self.ports.remove(name)?;
        let index = live.owner.index();
        self.next_generation(index);
        self.free_indices.push_back((index, Arc::downgrade(&live.port)));
        self.built = None;
        Some(live)
    }

    /// Changes the settings of a port. It stays on its poller unless the settings name another. Returns false if there is no such port.
    pub fn set(&mut self, name: &Name, settings: Port) -> bool {
        let Some(live) = self.ports.get_mut(name) else { return false };
        if let Placement::Poller(number) = settings.poller {
            live.poller = number as usize;
        }
        let moved = live.settings.identity.vlans() != settings.identity.vlans();
        live.settings = settings;
        self.built = None;
        if moved {
            self.flush(name);
        }
        true
    }

    /// Sets the captures of ports.
    pub fn show(&mut self, taps: Vec<(Name, Arc<dyn Tap>)>) {
        let mut pairs = self.taps.iter().zip(&taps);
        let same = pairs.all(|((a, old), (b, new))| a == b && Arc::ptr_eq(old, new));
        if self.taps.len() != taps.len() || !same {
            self.taps = taps;
            self.built = None;
        }
    }

    /// Forgets the addresses learned from a port, as of the next publication: the port gets its next generation.
    pub(super) fn flush(&mut self, name: &Name) {
        let Some(live) = self.ports.get(name) else { return };
        let index = live.owner.index();
        let generation = self.next_generation(index);
        if let Some(live) = self.ports.get_mut(name) {
            live.owner = Owner::new(index, generation);
        }
    }

    /// Gives an index its next generation. Its entries in the table are invalid once the switch is published.
    fn next_generation(&mut self, index: u16) -> u8 {
        self.flushes += 1;
        let generation = &mut self.generations[usize::from(index)];
        *generation = (*generation + 1) % GENERATIONS as u8;
        *generation
    }

    /// Updates the table after the switch was published. Earlier topologies share the table, so that it must not change before. One
    /// change gives an index a few generations at most, so that half of all generations are a safe number between two sweeps.
    pub fn published(&mut self) {
        if self.flushes >= GENERATIONS / 2 {
            self.sweep(0);
        }
    }

    /// Assigns each port to its configured poller, if that exists, or round robin to one of `pollers` pollers, from `next` on. Returns
    /// the next poller of the round.
    pub fn spread_over(&mut self, pollers: usize, mut next: usize) -> usize {
        for live in self.ports.values_mut() {
            live.settings.poller = live.settings.poller.within(pollers);
            live.poller = match live.settings.poller {
                Placement::Poller(number) => number as usize,
                Placement::Any => {
                    next += 1;
                    (next - 1) % pollers
                }
            };
        }
        next
    }

    /// Removes the MAC table entries that are too old in second `now`, and those of removed ports. `now` of 0 removes the latter only.
    pub fn sweep(&mut self, now: u32) {
        let ageing = if now == 0 { 0 } else { u32::try_from(self.settings.ageing.as_secs()).unwrap_or(u32::MAX) };
        if ageing == 0 && self.flushes == 0 {
            return;
        }
        let mut owners = vec![None; self.generations.len()];
        for live in self.ports.values() {
            owners[usize::from(live.owner.index())] = Some(live.owner);
        }
        self.table.sweep(now, ageing, |owner| owners.get(usize::from(owner.index())) == Some(&Some(owner)));
        self.flushes = 0;
    }

    /// Returns every address that the switch knows.
    pub fn addresses(&self) -> Vec<Address<'_>> {
        let is_map = self.settings.forwarding == Forwarding::Map;
        // In a learning switch only guarded addresses are bound to their ports.
        let stays = |live: &LivePort| is_map || live.settings.identity.checks(&live.settings.mac).mac;
        let bound = |(port, live)| {
            let live: &LivePort = live;
            live.settings.mac.iter().map(move |mac| Address { vlan: 0, mac: mac.get(), port, heard: None })
        };
        let mut all: Vec<Address<'_>> = self.ports.iter().filter(|(_, live)| stays(live)).flat_map(bound).collect();
        if is_map {
            return all;
        }
        let by_owner: BTreeMap<u16, (&Name, Owner)> =
            self.ports.iter().map(|(name, live)| (live.owner.index(), (name, live.owner))).collect();
        all.extend(self.table.entries().filter_map(|data::MacEntry { vlan, mac, owner, heard }| {
            let (port, now) = by_owner.get(&owner.index())?;
            (*now == owner).then_some(Address { vlan, mac, port, heard: Some(heard) })
        }));
        all
    }

    /// The counters of all ports, also of configured ones that are closed.
    pub fn all_counters(&self) -> impl Iterator<Item = (&Name, CountersReading)> {
        let closed = self.suspended.iter().map(|(name, suspended)| (name, suspended.counters.clone()));
        self.ports.iter().map(|(name, live)| (name, live.counters())).chain(closed)
    }

    /// Adds what another switch of this name has counted at a port. `is_configured`: the port is opened later, if it is not there.
    pub fn go_on_counting(&mut self, port: &Name, before: &CountersReading, is_configured: bool) {
        if let Some(live) = self.ports.get_mut(port) {
            live.before = live.before.and(before);
        } else if is_configured && !self.suspended.contains_key(port) {
            let account = self.open_account();
            let suspended = SuspendedPort { policy: None, counters: before.clone(), index: u16::MAX, account };
            self.suspended.insert(port.clone(), suspended);
        }
    }

    /// Learns an address that another switch of this name has heard at a port in this second.
    pub fn learn(&self, vlan: u16, mac: data::Mac, port: &Name, heard: u32) {
        if let Some(live) = self.ports.get(port) {
            self.table.learn_in(vlan, mac, live.owner, heard, |_| true);
        }
    }

    /// Returns the latest moves of addresses, each with the old and the new port if they still exist.
    pub fn moves(&self) -> Vec<(data::Move, Option<&Name>, Option<&Name>)> {
        let by_owner: BTreeMap<u16, (&Name, Owner)> =
            self.ports.iter().map(|(name, live)| (live.owner.index(), (name, live.owner))).collect();
        let name = |owner: Owner| by_owner.get(&owner.index()).filter(|(_, now)| *now == owner).map(|(name, _)| *name);
        self.table.moves().into_iter().map(|moved| (moved, name(moved.from), name(moved.to))).collect()
    }

    /// Returns how often an address was heard at another port than before.
    pub fn moved(&self) -> u64 {
        self.moved_before + self.table.moved()
    }

    /// Returns how often an address was heard at another port and did not move, because it had moved shortly before.
    pub fn moves_held(&self) -> u64 {
        self.moves_held_before + self.table.moves_held()
    }

    /// Has the switch built again, because a bucket that its ports use has changed.
    pub fn rebuild(&mut self) {
        self.built = None;
    }
}

#[cfg(test)]
mod tests {
    use ringway_abi::Shape;
    use ringway_engine::Source;
    use ringway_port_process as process;

    use super::*;
    use crate::daemon::limits::Buckets;
    use ringway_config::Kind;

    fn add(switch: &mut LiveSwitch, name: &str) -> u16 {
        let (name, lan): (Name, Name) = (name.parse().unwrap(), "lan0".parse().unwrap());
        let (sides, _ends) = process::open("p", Shape::default(), 0).unwrap();
        let port = Arc::new(data::Port::new("p", sides.output, sides.bell));
        let source = Arc::new(Source::new(sides.input, sides.signal));
        let settings = Port::new(lan, Kind::Process, &name);
        let new = NewPort {
            settings,
            port,
            source,
            poller: 0,
            client: None,
            front_end: None,
            namespace: None,
            any_source: false,
            monitor: None,
        };
        switch.insert(name.clone(), new);
        switch.ports()[&name].owner.index()
    }

    #[test]
    fn a_port_that_is_suspended_and_comes_back_has_its_index_again_and_is_forgotten_when_removed() {
        let mut switch = LiveSwitch::new("lan0".parse().unwrap(), Switch::default()).unwrap();
        let [a, b] = ["a", "b"].map(|name| add(&mut switch, name));
        let names = ["a", "b"].map(|name| name.parse::<Name>().unwrap());
        // The first free index would be that of the other port.
        names.iter().for_each(|name| assert!(switch.suspend(name).is_some()));
        assert_eq!((add(&mut switch, "b"), add(&mut switch, "a")), (b, a));
        assert!(switch.suspended.is_empty());
        names.iter().for_each(|name| assert!(switch.suspend(name).is_some()));
        names.iter().for_each(|name| assert!(switch.remove(name).is_none()));
        assert!(switch.suspended.is_empty());
        assert_eq!(add(&mut switch, "b"), a);
    }

    #[test]
    fn an_index_has_no_new_port_while_a_topology_has_its_old_one() {
        let mut switch = LiveSwitch::new("lan0".parse().unwrap(), Switch::default()).unwrap();
        let name: Name = "a".parse().unwrap();
        let first = add(&mut switch, "a");
        let held = switch.attached(&Buckets::default());
        drop(switch.remove(&name));
        for _ in 0..2 * GENERATIONS {
            assert_ne!(add(&mut switch, "a"), first);
            drop(switch.remove(&name));
        }
        assert_eq!(switch.generations.len(), 2, "an index that no topology has is used again");
        drop((held, switch.attached(&Buckets::default())));
        let again = [add(&mut switch, "a"), add(&mut switch, "b")];
        assert!(again.contains(&first));
    }

    #[test]
    fn moves_are_counted_on_when_the_table_is_replaced() {
        let mut switch = LiveSwitch::new("lan0".parse().unwrap(), Switch::default()).unwrap();
        let owners = ["a", "b"].map(|name| Owner::new(add(&mut switch, name), 0));
        for times in 1..=2 {
            for owner in [owners[0], owners[1], owners[0], owners[1]] {
                switch.table.learn(data::Mac::new([2, 0, 0, 0, 0, 1]), owner, 1, |_| true);
            }
            assert_eq!((switch.moved(), switch.moves_held()), (2 * times, times));
            let mac_limit = switch.settings.mac_limit - 1;
            switch.change(Switch { mac_limit, ..switch.settings.clone() }).unwrap();
            assert_eq!((switch.moved(), switch.moves_held()), (2 * times, times), "in another table");
        }
    }

    #[test]
    fn a_change_that_is_given_up_leaves_the_addresses_and_their_count_as_they_were() {
        let settings = Switch { mac_limit: 2, ..Switch::default() };
        let mut switch = LiveSwitch::new("lan0".parse().unwrap(), settings).unwrap();
        let names: Vec<Name> = (0..20).map(|number| format!("p{number}").parse().unwrap()).collect();
        for name in &names {
            add(&mut switch, name.as_str());
        }
        let table = Arc::clone(&switch.table);
        let owner = |switch: &LiveSwitch| switch.ports()[&names[0]].owner;
        let mac = |last| data::Mac::new([2, 0, 0, 0, 0, last]);
        let knows = |switch: &LiveSwitch, last| table.lookup(mac(last)) == Some(owner(switch));
        let learns = |switch: &LiveSwitch, last| {
            let owners: Vec<Owner> = switch.ports().values().map(|live| live.owner).collect();
            table.learn(mac(last), owner(switch), 1, |owner| owners.contains(&owner));
            knows(switch, last)
        };
        assert_eq!([1, 2, 3].map(|last| learns(&switch, last)), [true, true, false]);
        // The port that learned; then as many ports as it takes to have the table swept.
        for count in [1, 20] {
            let mut trial = switch.clone();
            names.iter().take(count).for_each(|name| drop(trial.remove(name)));
            drop(trial);
            assert_eq!([1, 2].map(|last| knows(&switch, last)), [true, true], "{count} taken out");
            assert!(!learns(&switch, 3), "{count} taken out");
        }
        // It may learn as many once its addresses are forgotten.
        switch.flush(&names[0]);
        switch.attached(&Buckets::default());
        switch.published();
        assert_eq!([3, 4, 5].map(|last| learns(&switch, last)), [true, true, false]);
    }
}
