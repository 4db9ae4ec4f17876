//! The MAC map.

use super::addresses::{admit, group, group_in, to_port};
use crate::batch::{Batch, Destination};
use crate::frame::DropReason;
use crate::policy::{Bound, Domain};
use crate::topology::{Forward, Member, Switch};

/// The MAC map of the fairness paper (§4.2). A frame goes to the port that its destination address is bound to. Other
/// frames go to the source's own uplink, if it has one, and are dropped otherwise.
#[derive(Debug)]
pub struct MacMap {
    bound: Bound,
}

impl MacMap {
    /// The map of these members' bound addresses. An address bound twice belongs to the later member.
    #[must_use]
    pub fn new<'a>(members: impl IntoIterator<Item = &'a Member>) -> MacMap {
        MacMap { bound: Bound::new(members) }
    }
}

impl Forward for MacMap {
    fn forward(&self, batch: &mut Batch<'_>, from: &Member, switch: &Switch, _now: u32) {
        if let Some(domain) = switch.domain() {
            return self.forward_in(domain, batch, from, switch);
        }
        batch.set_destinations(|source, destination| {
            if !source.is_station() {
                return Destination::Drop(DropReason::BadSource);
            }
            if destination.is_group() {
                return group(destination, switch);
            }
            match self.bound.port(destination).or(from.reach.default_uplink) {
                Some(port) if port == from.owner.index() => Destination::Drop(DropReason::SamePort),
                Some(port) => Destination::Port(port),
                None => Destination::Drop(DropReason::NoDestination),
            }
        });
    }

    fn goes_by_addresses(&self) -> bool {
        true
    }
}

impl MacMap {
    fn forward_in(&self, domain: &Domain, batch: &mut Batch<'_>, from: &Member, switch: &Switch) {
        batch.set_destinations_by_vlan(domain.vlans, |vlan, source, destination| {
            if !source.is_station() {
                return Destination::Drop(DropReason::BadSource);
            }
            if let Err(reason) = admit(domain, from, source, destination) {
                return Destination::Drop(reason);
            }
            if destination.is_group() {
                return group_in(domain, vlan, destination, from, switch);
            }
            match self.bound.port(destination).or(from.reach.default_uplink) {
                Some(port) => to_port(domain, vlan, port, from, switch),
                None => Destination::Drop(DropReason::NoDestination),
            }
        });
    }
}
