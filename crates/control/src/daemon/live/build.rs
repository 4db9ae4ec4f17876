//! From a running switch's settings to the value that pollers work with.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringway_engine::Attached;
use ringway_switch::policy::{Bound, Domain, Guard, Membership, Reach};
use ringway_switch::{self as data, Forward, Learning, MacMap, Member, Moderation, Policy, Spread, Spreads, Watch};

use super::{LivePort, LiveSwitch};
use crate::config::identity::{Ports, Vlan};
use crate::config::{Calls, Direction, Flood, Forwarding, Name, Port};
use crate::daemon::limits::{self, Buckets};

/// In whose name a port's frames may be; none: anybody's.
fn guard(settings: &Port) -> Option<Arc<Guard>> {
    let checks = settings.identity.checks(&settings.mac);
    let macs: Vec<data::Mac> = settings.mac.iter().map(|mac| mac.get()).collect();
    let prefixes: Vec<_> = settings.identity.ip.iter().map(|prefix| prefix.get()).collect();
    let guard = Guard::new(checks, &macs, &prefixes);
    (!guard.is_idle()).then(|| Arc::new(guard))
}

/// In which broadcast domains a port is.
fn vlans(settings: &Port) -> Membership {
    match &settings.identity.vlans() {
        Vlan::Unset => Membership::default(),
        Vlan::Access(vlan) => Membership::access(*vlan),
        Vlan::Trunk { tagged, native } => Membership::trunk(tagged.iter(), *native),
    }
}

impl LiveSwitch {
    /// The ports as pollers take them, to be published at once: their calls are moderated as their settings say from now on.
    pub fn attached(&mut self, buckets: &Buckets) -> Vec<Attached> {
        let switch = self.build(buckets);
        let one = |live: &LivePort| {
            let Calls { interval, above } = live.settings.calls;
            live.port.set_moderation(Moderation { interval, above: (above > 0).then_some(above) });
            Attached {
                switch: Arc::clone(&switch),
                index: live.owner.index(),
                source: Arc::clone(&live.source),
                poller: live.poller,
                weight: live.settings.weight,
            }
        };
        self.ports.values().map(one).collect()
    }

    /// Whether any port says in which VLANs it is.
    fn has_vlans(&self) -> bool {
        self.ports.values().any(|live| live.settings.identity.vlans() != Vlan::Unset)
    }

    /// Whom a port may exchange frames with. Names that nobody has are nobody.
    fn reach(&self, settings: &Port) -> Reach {
        let identity = &settings.identity;
        let indices = |names: &Ports| match names {
            Ports::All => None,
            Ports::These(names) => {
                let live = names.iter().filter_map(|name| self.ports.get(name));
                let mut indices: Box<[u16]> = live.map(|live| live.owner.index()).collect();
                indices.sort_unstable();
                Some(indices)
            }
        };
        let mut others = self.ports.iter().filter(|(_, live)| live.settings.identity.uplink);
        let outlet = match &identity.uplinks {
            _ if identity.uplink || self.settings.forwarding != Forwarding::Map => None,
            Ports::All => others.next(),
            Ports::These(names) => others.find(|(name, _)| names.contains(*name)),
        };
        Reach {
            uplink: identity.uplink,
            uplinks: indices(&identity.uplinks),
            allow: indices(&identity.allow),
            outlet: outlet.map(|(_, live)| live.owner.index()),
        }
    }

    fn build(&mut self, buckets: &Buckets) -> Arc<data::Switch> {
        if let Some(built) = &self.built {
            return Arc::clone(built);
        }
        if self.has_vlans() != self.vlans {
            // What was learned is of no use: it is in no VLAN, or in one.
            self.vlans = !self.vlans;
            let names: Vec<Name> = self.ports.keys().cloned().collect();
            names.iter().for_each(|name| self.flush(name));
        }
        for live in self.ports.values_mut() {
            let limits = limits::policy(live.policy.as_ref(), &live.settings, buckets);
            live.policy = Policy { guard: guard(&live.settings), ..limits }.in_use();
        }
        let member = |live: &LivePort| Member {
            isolated: live.settings.isolated,
            macs: live.settings.mac.iter().map(|mac| mac.get()).collect(),
            weight: live.settings.weight,
            policy: live.policy.clone(),
            reach: self.reach(&live.settings),
            vlans: vlans(&live.settings),
            ..Member::new(live.owner, Arc::clone(&live.port))
        };
        let members: Vec<Member> = self.ports.values().map(member).collect();
        let forward: Box<dyn Forward> = match self.settings.forwarding {
            Forwarding::Learning => Box::new(Learning),
            Forwarding::Map => Box::new(MacMap::new(&members)),
        };
        // A port that is not there (yet) gets nothing.
        let spread = |flood: &Flood| match flood {
            Flood::Flood => Spread::Flood,
            Flood::Drop => Spread::Drop,
            Flood::Port(name) => self.ports.get(name).map_or(Spread::Drop, |live| Spread::Port(live.owner.index())),
        };
        let spreads = Spreads {
            broadcast: spread(&self.settings.broadcast),
            multicast: spread(&self.settings.multicast),
            unknown_unicast: spread(&self.settings.unknown_unicast),
        };
        let table = Arc::clone(&self.table);
        let domain = Domain {
            // In a learning switch only guarded addresses stay where they are bound.
            bound: Bound::new(&members),
            rules: self.settings.rules.get(),
            vlans: self.vlans,
        };
        let built = data::Switch::new(self.name.as_str(), members, table, forward, spreads).within(domain);
        let built = Arc::new(built.with_watches(self.watches()));
        self.built = Some(Arc::clone(&built));
        built
    }

    /// Who watches which port, by the port's index. What is not there (yet) is not watched.
    fn watches(&self) -> BTreeMap<u16, Watch> {
        let index = |name: &Name| self.ports.get(name).map(|live| live.owner.index());
        let is_mirror = |live: &LivePort| !live.settings.mirror.is_empty();
        let mut watches: BTreeMap<u16, Watch> = BTreeMap::new();
        for (port, tap) in self.taps.iter().filter_map(|(name, tap)| Some((index(name)?, tap))) {
            watches.entry(port).or_default().taps.push(Arc::clone(tap));
        }
        for mirror in self.ports.values().filter(|live| is_mirror(live)) {
            watches.entry(mirror.owner.index()).or_default().is_mirror = true;
            let direction = mirror.settings.mirror_direction;
            for live in mirror.settings.mirror.iter().filter_map(|name| self.ports.get(name)) {
                // A client's port may have become a mirror, or be asked to mirror itself.
                if is_mirror(live) {
                    continue;
                }
                let watch = watches.entry(live.owner.index()).or_default();
                if direction != Direction::Out {
                    watch.mirrors_in.push(mirror.owner.index());
                }
                if direction != Direction::In {
                    watch.mirrors_out.push(mirror.owner.index());
                }
            }
        }
        watches
    }
}
