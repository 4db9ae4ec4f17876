//! From a live switch to the immutable value that pollers use.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringway_config::identity::{PortSet, Vlan};
use ringway_config::{CallInterval, Calls, Coalesce, Direction, Flood, Forwarding, Name, Port};
use ringway_engine::{Attached, Place};
use ringway_switch::policy::{Bound, Domain, Guard, Membership, Reach};
use ringway_switch::{
    self as data, FloodAction, FloodPolicy, Forward, Learning, MacMap, Member, Moderation, Policy, Programmed,
    ReservedGroups, Unprogrammed, View, ViewPort, Watch,
};

use super::port::LivePort;
use super::switch::LiveSwitch;
use crate::daemon::limits::{self, Buckets};

/// Returns the source guard of a port, if it checks anything.
fn guard(settings: &Port) -> Option<Arc<Guard>> {
    let checks = settings.identity.checks(&settings.mac);
    let macs: Vec<data::Mac> = settings.mac.iter().map(|mac| mac.get()).collect();
    let prefixes: Vec<_> = settings.identity.ip.iter().map(|prefix| prefix.get()).collect();
    let guard = Guard::new(checks, &macs, &prefixes);
    (!guard.is_idle()).then(|| Arc::new(guard))
}

/// Returns the VLANs of a port.
fn vlans(settings: &Port) -> Membership {
    match &settings.identity.vlans() {
        Vlan::Unset => Membership::default(),
        Vlan::Access(vlan) => Membership::access(*vlan),
        Vlan::Trunk { tagged, native } => Membership::trunk(tagged.iter(), *native),
    }
}

impl LiveSwitch {
    /// Returns the ports as pollers take them, for immediate publication: the moderation of calls changes at once.
    pub fn attached(&mut self, buckets: &Buckets) -> Vec<Attached> {
        let switch = self.build(buckets);
        let one = |live: &LivePort| {
            let Calls { interval, above } = live.settings.calls;
            live.port.set_moderation(match interval {
                CallInterval::Auto => Moderation::Auto,
                CallInterval::Fixed(interval) => Moderation::Fixed { interval, above: (above > 0).then_some(above) },
            });
            Attached {
                place: Place::Port(Arc::clone(&switch), live.owner.index()),
                source: Arc::clone(&live.source),
                poller: live.poller,
                weight: live.settings.weight,
            }
        };
        self.ports.values().map(one).collect()
    }

    /// Returns true if a port has VLANs configured.
    fn has_vlans(&self) -> bool {
        self.ports.values().any(|live| live.settings.identity.vlans() != Vlan::Unset)
    }

    /// Returns the ports that a port may reach. Names without a live port are left out.
    fn reach(&self, settings: &Port) -> Reach {
        let identity = &settings.identity;
        let indices = |names: &PortSet| match names {
            PortSet::All => None,
            PortSet::These(names) => {
                let live = names.iter().filter_map(|name| self.ports.get(name));
                let mut indices: Box<[u16]> = live.map(|live| live.owner.index()).collect();
                indices.sort_unstable();
                Some(indices)
            }
        };
        let mut others = self.ports.iter().filter(|(_, live)| live.settings.identity.uplink);
        let default_uplink = match &identity.uplinks {
            _ if identity.uplink || self.settings.forwarding != Forwarding::Map => None,
            PortSet::All => others.next(),
            PortSet::These(names) => others.find(|(name, _)| names.contains(*name)),
        };
        Reach {
            uplink: identity.uplink,
            uplinks: indices(&identity.uplinks),
            allow: indices(&identity.allow),
            default_uplink: default_uplink.map(|(_, live)| live.owner.index()),
        }
    }

    fn build(&mut self, buckets: &Buckets) -> Arc<data::Switch> {
        if let Some(built) = &self.built {
            return Arc::clone(built);
        }
        if self.has_vlans() != self.vlans {
            // All learned addresses are invalid: they were learned without VLANs, or in VLANs.
            self.vlans = !self.vlans;
            let names: Vec<Name> = self.ports.keys().cloned().collect();
            names.iter().for_each(|name| self.flush(name));
        }
        for live in self.ports.values_mut() {
            let limits = limits::policy(live.policy.as_ref(), &live.settings, buckets);
            live.policy = Policy { guard: guard(&live.settings), ..limits }.in_use();
        }
        let member = |live: &LivePort| Member {
            account: live.account,
            isolated: live.settings.isolated,
            macs: live.settings.mac.iter().map(|mac| mac.get()).collect(),
            weight: live.settings.weight,
            policy: live.policy.clone(),
            reach: self.reach(&live.settings),
            vlans: vlans(&live.settings),
            any_source: live.any_source,
            coalesces: live.settings.coalesce == Coalesce::Auto,
            ..Member::new(live.owner, Arc::clone(&live.port))
        };
        let members: Vec<Member> = self.ports.values().map(member).collect();
        let forward: Box<dyn Forward> = match (&self.settings.forwarding, &self.program) {
            (Forwarding::Map, _) => Box::new(MacMap::new(&members)),
            (Forwarding::Program(keys), Some(program)) => {
                let view = Arc::new(self.view(&members));
                Box::new(Programmed::new(program.get(), view, keys.on_fault))
            }
            (Forwarding::Program(_), None) => Box::new(Unprogrammed),
            (Forwarding::Learning, _) => Box::new(Learning),
        };
        // A port that is not live gets nothing.
        let spread = |flood: &Flood| match flood {
            Flood::Flood => FloodAction::Flood,
            Flood::Drop => FloodAction::Drop,
            Flood::Port(name) => {
                self.ports.get(name).map_or(FloodAction::Drop, |live| FloodAction::Port(live.owner.index()))
            }
        };
        let flood_policy = FloodPolicy {
            broadcast: spread(&self.settings.broadcast),
            multicast: spread(&self.settings.multicast),
            unknown_unicast: spread(&self.settings.unknown_unicast),
            reserved: self
                .settings
                .forward_reserved
                .iter()
                .fold(ReservedGroups::default(), |all, one| all.with(one.last())),
        };
        let table = Arc::clone(&self.table);
        let domain = Domain {
            // In a learning switch only guarded addresses are bound to their ports.
            bound: Bound::new(&members),
            rules: self.settings.rules.get(),
            vlans: self.vlans,
        };
        let built = data::Switch::new(self.name.as_str(), members, table, forward, flood_policy).within(domain);
        let built = Arc::new(built.with_watches(self.watches()));
        self.built = Some(Arc::clone(&built));
        built
    }

    /// Returns the ports and addresses as a forwarding program sees them.
    fn view(&self, members: &[Member]) -> View {
        let port = |(name, live): (&Name, &LivePort)| ViewPort {
            owner: live.owner,
            name: name.to_string(),
            port: Arc::downgrade(&live.port),
            is_mirror: live.is_mirror() || live.monitor.is_some(),
        };
        let domain = Domain { bound: Bound::new(members), rules: self.settings.rules.get(), vlans: self.vlans };
        let used = u16::try_from(self.generations.len()).unwrap_or(u16::MAX);
        View::new(self.ports.iter().map(port), used, Arc::clone(&self.table), domain)
    }

    /// Returns the ports as a program that is being loaded sees them.
    pub fn present_view(&self) -> Arc<View> {
        Arc::new(self.view(&[]))
    }

    /// Returns the captures and mirrors of each port, by the port's index. Ports that are not live are left out.
    fn watches(&self) -> BTreeMap<u16, Watch> {
        let index = |name: &Name| self.ports.get(name).map(|live| live.owner.index());
        let mut watches: BTreeMap<u16, Watch> = BTreeMap::new();
        for (port, tap) in self.taps.iter().filter_map(|(name, tap)| Some((index(name)?, tap))) {
            watches.entry(port).or_default().taps.push(Arc::clone(tap));
        }
        for mirror in self.ports.values().filter(|live| live.is_mirror()) {
            watches.entry(mirror.owner.index()).or_default().is_mirror = true;
            let direction = mirror.settings.mirror_direction;
            for live in mirror.settings.mirror.iter().filter_map(|name| self.ports.get(name)) {
                // Nothing prevents a dynamic port from being a mirror, or from mirroring itself.
                if live.is_mirror() {
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
        for (mirror, monitored) in self.ports.values().filter_map(|live| Some((live, live.monitor.as_ref()?))) {
            let Some(live) = self.ports.get(&monitored.port).filter(|live| !live.is_mirror()) else { continue };
            let watch = watches.entry(live.owner.index()).or_default();
            if monitored.frames.sent {
                watch.mirrors_in.push(mirror.owner.index());
            }
            if monitored.frames.received {
                watch.mirrors_out.push(mirror.owner.index());
            }
        }
        watches
    }
}
