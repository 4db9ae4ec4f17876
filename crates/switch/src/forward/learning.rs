//! The learning bridge (VALE §3.2).

use super::addresses::{admit, group, group_in, to_port, within};
use crate::batch::{Batch, Destination};
use crate::frame::{DropReason, Mac};
use crate::policy::{Domain, SourceBinding};
use crate::topology::{Forward, Member, Switch};

/// A learning bridge (VALE §3.2): an address is at the port that last sent from it. Bound addresses are at their port.
///
/// Where frames may wait in their sender's ring after this, and are looked at again, `learn_sources` learns from those that leave it.
#[derive(Debug, Default)]
pub struct Learning;

impl Forward for Learning {
    fn forward(&self, batch: &mut Batch<'_>, from: &Member, switch: &Switch, now: u32) {
        if let Some(domain) = switch.domain() {
            return Self::forward_in(domain, batch, from, switch, now);
        }
        let table = switch.table();
        let (mut learned, is_unlearned) = (Mac::BROADCAST, is_unlearned(batch, switch));
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
        let (mut learned, is_unlearned) = ((0, Mac::BROADCAST), is_unlearned(batch, switch));
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

/// Returns true if no address is learned from the frames now.
#[inline]
fn is_unlearned(batch: &mut Batch<'_>, switch: &Switch) -> bool {
    let is_unlearned = batch.is_unlearned();
    if !is_unlearned && switch.may_leave_behind() {
        batch.note_sources(switch.has_vlans());
        return true;
    }
    is_unlearned
}

/// Learns the source addresses of the frames that leave their sender's ring: those that [`Learning`] has noted, without those that the batch
/// has no longer.
#[cold]
pub(crate) fn learn_sources(batch: &mut Batch<'_>, from: &Member, switch: &Switch, now: u32) {
    let (mut sources, mut learned) = (batch.take_sources(), None);
    for index in sources.drain(..).map(usize::from).take_while(|&index| index < batch.len()) {
        let (head, vlan) = (batch.head(index), if switch.has_vlans() { batch.class(index).vlan() } else { 0 });
        let (source, destination) = (Mac::source(head), Mac::destination(head));
        let is_learnable = || {
            let binding = switch.domain().map(|domain| admit(domain, from, source, destination));
            binding.is_none_or(|binding| binding == Ok(SourceBinding::Learnable))
        };
        if source.is_station() && learned != Some((vlan, source)) && is_learnable() {
            switch.table().learn_with(vlan, source, from.owner, now, switch);
            learned = Some((vlan, source));
        }
    }
    batch.keep_sources(sources);
}
