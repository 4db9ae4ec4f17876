//! A switch with its ports, as it runs: the state from which `build` makes the value that pollers work with.

mod build;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use ringway_engine::Source;
use ringway_ports::process::ClientId;
use ringway_switch::{self as data, CountersReading, MAX_PORTS, MacTable, Owner, Policy, Tap};

use super::front_end::FrontEnd;
use crate::config::{Forwarding, Name, Placement, Port, Switch};

/// Generations of a port index in the MAC table; before one comes round again the table must be swept.
const GENERATIONS: u32 = 16;

/// A port with somebody or something behind it. A clone is the same port, possibly with other settings.
#[derive(Clone, Debug)]
pub struct LivePort {
    /// Its settings.
    pub settings: Port,
    /// Its counters and output.
    pub port: Arc<data::Port>,
    /// Its input.
    pub source: Arc<Source>,
    /// Which poller serves it.
    pub poller: usize,
    /// The client of a process port.
    pub client: Option<ClientId>,
    /// The control side of a port whose peer comes and goes.
    pub front_end: Option<Arc<FrontEnd>>,
    /// What its settings say of its frames, as of the last build.
    pub policy: Option<Policy>,
    /// What those before it counted that had its name and its settings.
    before: CountersReading,
    owner: Owner,
}

impl LivePort {
    /// What has been counted since its settings were made, by whatever was behind it.
    pub fn counters(&self) -> CountersReading {
        self.port.counters().read().and(&self.before)
    }
}

/// A port on its way into a switch; fields as in [`LivePort`].
#[derive(Debug)]
#[allow(missing_docs, reason = "documented in LivePort")]
pub struct NewPort {
    pub settings: Port,
    pub port: Arc<data::Port>,
    pub source: Arc<Source>,
    pub poller: usize,
    pub client: Option<ClientId>,
    pub front_end: Option<Arc<FrontEnd>>,
}

/// An address that a switch knows.
#[derive(Clone, Copy, Debug)]
pub struct Address<'a> {
    /// The VLAN in which it was heard; 0: none, or every one.
    pub vlan: u16,
    /// The address.
    pub mac: data::Mac,
    /// Where it is.
    pub port: &'a Name,
    /// Second it was last heard; none: it is bound.
    pub heard: Option<u32>,
}

/// A switch and its live ports. A clone has the same ports and MAC table and can be changed on trial: nothing of it is
/// seen by pollers before [`LiveSwitch::attached`] is published.
#[derive(Clone)]
pub struct LiveSwitch {
    name: Name,
    /// Its settings.
    pub settings: Switch,
    ports: BTreeMap<Name, LivePort>,
    table: Arc<MacTable>,
    /// How often addresses moved in tables before this one, and how often they were held.
    moved_before: u64,
    moves_held_before: u64,
    /// The next generation of each index that was ever used.
    generations: Vec<u8>,
    free: VecDeque<u16>,
    /// What lasts of configured ports whose clients have gone: as many as are configured.
    left: BTreeMap<Name, Left>,
    /// Generations given since the last sweep, and the indices that got one since pollers were told last.
    flushes: u32,
    flushed: Vec<u16>,
    /// Who is shown the frames of which port.
    taps: Vec<(Name, Arc<dyn Tap>)>,
    /// Whether pollers know it to have VLANs.
    vlans: bool,
    built: Option<Arc<data::Switch>>,
}

/// What a port that went finds again when it comes back.
#[derive(Clone, Debug)]
pub struct Left {
    /// Its limits, with what it has had of them.
    pub policy: Option<Policy>,
    /// What was counted.
    pub counters: CountersReading,
    /// By this others know what it has had of their limits.
    index: u16,
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
        let (ports, generations, free) = (BTreeMap::new(), Vec::new(), VecDeque::new());
        Ok(Self {
            name,
            settings,
            ports,
            table,
            moved_before: 0,
            moves_held_before: 0,
            generations,
            free,
            left: BTreeMap::new(),
            flushes: 0,
            flushed: Vec::new(),
            taps: Vec::new(),
            vlans: false,
            built: None,
        })
    }

    /// Takes over settings. Another size of the MAC table means a new one, which has to learn anew.
    ///
    /// # Errors
    /// The kernel has no random numbers.
    pub fn change(&mut self, settings: Switch) -> io::Result<()> {
        let size = |s: &Switch| (s.mac_entries, s.mac_limit, s.forwarding);
        if size(&settings) != size(&self.settings) {
            let before = std::mem::replace(&mut self.table, new_table(&settings)?);
            self.moved_before += before.moved();
            self.moves_held_before += before.moves_held();
        }
        self.settings = settings;
        self.built = None;
        Ok(())
    }

    /// Whether another port fits.
    pub fn has_room(&self) -> bool {
        self.ports.len() < MAX_PORTS
    }

    /// The ports, by name.
    pub fn ports(&self) -> &BTreeMap<Name, LivePort> {
        &self.ports
    }

    /// What lasts of a port that went and may come back.
    pub fn left(&self, name: &Name) -> Option<&Left> {
        self.left.get(name)
    }

    /// Takes in a port. It must be new, and there must be room.
    pub fn insert(&mut self, name: Name, new: NewPort) {
        let left = self.left.remove(&name);
        let place = left.as_ref().and_then(|left| self.free.iter().position(|index| *index == left.index));
        let index = match place.and_then(|place| self.free.remove(place)).or_else(|| self.free.pop_front()) {
            Some(index) => index,
            None => {
                self.generations.push(0);
                u16::try_from(self.generations.len() - 1).expect("has_room was asked")
            }
        };
        let owner = Owner::new(index, self.generations[usize::from(index)]);
        let NewPort { settings, port, source, poller, client, front_end } = new;
        let (policy, before) = left.map(|left| (left.policy, left.counters)).unwrap_or_default();
        let live = LivePort { settings, port, source, poller, client, front_end, policy, before, owner };
        let replaced = self.ports.insert(name, live);
        debug_assert!(replaced.is_none(), "a port's name is taken");
        self.built = None;
    }

    /// Takes out a port that stays configured, so that it may come back: it then has what it had not used up of its limits, and
    /// counts on.
    pub fn leave(&mut self, name: &Name) -> Option<LivePort> {
        let live = self.remove(name)?;
        let policy = live.policy.clone().and_then(|policy| Policy { guard: None, ..policy }.in_use());
        let left = Left { policy, counters: live.counters(), index: live.owner.index() };
        self.left.insert(name.clone(), left);
        Some(live)
    }

    /// Takes a port out, if it is there; what it taught the switch is forgotten.
    pub fn remove(&mut self, name: &Name) -> Option<LivePort> {
        self.left.remove(name);
        let live = self.ports.remove(name)?;
        let index = live.owner.index();
        let generation = &mut self.generations[usize::from(index)];
        *generation = (*generation + 1) % GENERATIONS as u8;
        self.free.push_back(index);
        self.built = None;
        self.flushed(index);
        Some(live)
    }

    /// Gives a port other settings. One that may be anywhere stays where it is.
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

    /// Shows the frames of these ports, and of no others.
    pub fn show(&mut self, taps: Vec<(Name, Arc<dyn Tap>)>) {
        let mut pairs = self.taps.iter().zip(&taps);
        let same = pairs.all(|((a, old), (b, new))| a == b && Arc::ptr_eq(old, new));
        if self.taps.len() != taps.len() || !same {
            self.taps = taps;
            self.built = None;
        }
    }

    /// Forgets what a port taught the switch, as of the next time pollers are told: it gets its next generation.
    fn flush(&mut self, name: &Name) {
        let Some(live) = self.ports.get_mut(name) else { return };
        let index = live.owner.index();
        let generation = &mut self.generations[usize::from(index)];
        *generation = (*generation + 1) % GENERATIONS as u8;
        live.owner = Owner::new(index, *generation);
        self.flushed(index);
    }

    /// Notes that this index has another generation: what the table has of it is forgotten once pollers know.
    fn flushed(&mut self, index: u16) {
        self.flushes += 1;
        self.flushed.push(index);
    }

    /// Pollers have been told of what is here now: the table, which is shared with what ran before, follows. One change gives an
    /// index a few generations at most, so half of them are enough between two sweeps.
    pub fn published(&mut self) {
        self.flushed.drain(..).for_each(|index| self.table.reset_count(index));
        if self.flushes >= GENERATIONS / 2 {
            self.sweep(0);
        }
    }

    /// Puts each port on the poller it is to be on, if that is there, or the next of `pollers` pollers, from `next` on. Returns
    /// the poller whose turn is next.
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

    /// Clears MAC entries that are too old in second `now`, and those of ports that went.
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

    /// Every address the switch knows.
    pub fn addresses(&self) -> Vec<Address<'_>> {
        let is_map = self.settings.forwarding == Forwarding::Map;
        // In a learning switch only guarded addresses stay where they are bound.
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

    /// The addresses that moved last, with the ports that there still are: before, now.
    pub fn moves(&self) -> Vec<(data::Move, Option<&Name>, Option<&Name>)> {
        let by_owner: BTreeMap<u16, (&Name, Owner)> =
            self.ports.iter().map(|(name, live)| (live.owner.index(), (name, live.owner))).collect();
        let name = |owner: Owner| by_owner.get(&owner.index()).filter(|(_, now)| *now == owner).map(|(name, _)| *name);
        self.table.moves().into_iter().map(|moved| (moved, name(moved.from), name(moved.to))).collect()
    }

    /// How often an address turned up at another port than before.
    pub fn moved(&self) -> u64 {
        self.moved_before + self.table.moved()
    }

    /// How often an address turned up at another port than before and did not move, because it had moved shortly before.
    pub fn moves_held(&self) -> u64 {
        self.moves_held_before + self.table.moves_held()
    }

    /// Something that ports refer to has changed.
    pub fn rebuild(&mut self) {
        self.built = None;
    }
}

#[cfg(test)]
mod tests {
    use ringway_abi::Shape;
    use ringway_ports::process;

    use super::*;
    use crate::config::Kind;

    fn come(switch: &mut LiveSwitch, name: &str) -> u16 {
        let (name, lan): (Name, Name) = (name.parse().unwrap(), "lan0".parse().unwrap());
        let (sides, _ends) = process::open("p", Shape::default(), 0).unwrap();
        let port = Arc::new(data::Port::new("p", sides.output, sides.bell));
        let source = Arc::new(Source::new(sides.input, sides.signal));
        let settings = Port::new(lan, Kind::Process, &name);
        switch.insert(name.clone(), NewPort { settings, port, source, poller: 0, client: None, front_end: None });
        switch.ports()[&name].owner.index()
    }

    #[test]
    fn who_leaves_and_comes_back_is_known_to_others_as_before_and_is_forgotten_when_removed() {
        let mut switch = LiveSwitch::new("lan0".parse().unwrap(), Switch::default()).unwrap();
        let [a, b] = ["a", "b"].map(|name| come(&mut switch, name));
        let names = ["a", "b"].map(|name| name.parse::<Name>().unwrap());
        // The first of the free indices would be that of the other.
        names.iter().for_each(|name| assert!(switch.leave(name).is_some()));
        assert_eq!((come(&mut switch, "b"), come(&mut switch, "a")), (b, a));
        assert!(switch.left.is_empty());
        names.iter().for_each(|name| assert!(switch.leave(name).is_some()));
        names.iter().for_each(|name| assert!(switch.remove(name).is_none()));
        assert!(switch.left.is_empty());
        assert_eq!(come(&mut switch, "b"), a);
    }

    #[test]
    fn moves_are_counted_on_when_the_table_is_replaced() {
        let mut switch = LiveSwitch::new("lan0".parse().unwrap(), Switch::default()).unwrap();
        let owners = ["a", "b"].map(|name| Owner::new(come(&mut switch, name), 0));
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
            come(&mut switch, name.as_str());
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
        // The one that learned; and as many as it takes to have the table swept.
        for count in [1, 20] {
            let mut trial = switch.clone();
            names.iter().take(count).for_each(|name| drop(trial.remove(name)));
            drop(trial);
            assert_eq!([1, 2].map(|last| knows(&switch, last)), [true, true], "{count} taken out");
            assert!(!learns(&switch, 3), "{count} taken out");
        }
        // It may learn as many once its addresses are forgotten.
        switch.flush(&names[0]);
        switch.published();
        assert_eq!([3, 4, 5].map(|last| learns(&switch, last)), [true, true, false]);
    }
}
