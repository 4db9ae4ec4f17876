//! The MAC map.

use super::addresses::{admit, group, group_in, to_port};
use crate::batch::{Batch, Destination};
use crate::frame::DropReason;
use crate::policy::{Bound, Domain};
use crate::topology::{Forward, Member, Switch};

/// The MAC map of the fairness paper (§4.2): frames go to the port an address is bound to, or nowhere; those from a port
/// that has an uplink of its own go there instead.
#[derive(Debug)]
pub struct MacMap {
    bound: Bound,
}

impl MacMap {
    /// The map of these members' bound addresses. An address bound twice goes to the later one.
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
        batch.place(|source, destination| {
            if !source.is_station() {
                return Destination::Drop(DropReason::BadSource);
            }
            if destination.is_group() {
                return group(destination, switch);
            }
            match self.bound.port(destination).or(from.reach.outlet) {
                Some(port) if port == from.owner.index() => Destination::Drop(DropReason::SamePort),
                Some(port) => Destination::Port(port),
                None => Destination::Drop(DropReason::NoDestination),
            }
        });
    }
}

impl MacMap {
    fn forward_in(&self, domain: &Domain, batch: &mut Batch<'_>, from: &Member, switch: &Switch) {
        batch.place_in(domain.vlans, |vlan, source, destination| {
            if let Err(reason) = admit(domain, from, source, destination) {
                return Destination::Drop(reason);
            }
            if destination.is_group() {
                return group_in(domain, vlan, destination, from, switch);
            }
            match self.bound.port(destination).or(from.reach.outlet) {
                Some(port) => to_port(domain, vlan, port, from, switch),
                None => Destination::Drop(DropReason::NoDestination),
            }
        });
    }
}
