//! The learning bridge (VALE §3.2).

use super::addresses::{admit, group, group_in, to_port, within};
use crate::batch::{Batch, Destination};
use crate::frame::{DropReason, Mac};
use crate::policy::{Domain, SourceBinding};
use crate::topology::{Forward, Member, Switch};

/// A learning bridge (VALE §3.2): an address is at the port that last sent from it. Bound addresses are at their port.
#[derive(Debug, Default)]
pub struct Learning;

impl Forward for Learning {
    fn forward(&self, batch: &mut Batch<'_>, from: &Member, switch: &Switch, now: u32) {
        if let Some(domain) = switch.domain() {
            return Self::forward_in(domain, batch, from, switch, now);
        }
        let table = switch.table();
        let (mut learned, is_unlearned) = (Mac::BROADCAST, batch.is_unlearned());
        batch.set_destinations(|source, destination| {
            if !source.is_station() {
                if !from.any_source {
                    return Destination::Drop(DropReason::BadSource);
                }
            } else if source != learned && !is_unlearned {
                table.learn_with(0, source, from.owner, now, switch);
                learned = source;
            }
            if destination.is_group() {
                return group(destination, switch);
            }
            match table.lookup(destination).filter(|&owner| switch.is_alive(owner)) {
                Some(owner) if owner == from.owner => Destination::Drop(DropReason::SamePort),
                Some(owner) => Destination::Port(owner.index()),
                None => switch.flood_policy().unknown_unicast.destination(DropReason::NoDestination),
            }
        });
    }

    fn goes_by_addresses(&self) -> bool {
        true
    }
}

impl Learning {
    fn forward_in(domain: &Domain, batch: &mut Batch<'_>, from: &Member, switch: &Switch, now: u32) {
        let table = switch.table();
        let (mut learned, is_unlearned) = ((0, Mac::BROADCAST), batch.is_unlearned());
        batch.set_destinations_by_vlan(domain.vlans, |vlan, source, destination| {
            if !source.is_station() && !from.any_source {
                return Destination::Drop(DropReason::BadSource);
            }
            let binding = match admit(domain, from, source, destination) {
                Ok(binding) => binding,
                Err(reason) => return Destination::Drop(reason),
            };
            let is_new = source.is_station() && (vlan, source) != learned && !is_unlearned;
            if binding == SourceBinding::Learnable && is_new {
                table.learn_with(vlan, source, from.owner, now, switch);
                learned = (vlan, source);
            }
            if destination.is_group() {
                return group_in(domain, vlan, destination, from, switch);
            }
            let known = || table.lookup_in(vlan, destination).filter(|&owner| switch.is_alive(owner));
            match domain.guarded_port(destination).or_else(|| known().map(|owner| owner.index())) {
                Some(port) => to_port(domain, vlan, port, from, switch),
                None => {
                    let spread = switch.flood_policy().unknown_unicast.destination(DropReason::NoDestination);
                    within(domain, vlan, spread, from, switch)
                }
            }
        });
    }
}
