//! The learning bridge (VALE §3.2).

use super::addresses::{admit, group, group_in, to_port, within};
use crate::batch::{Batch, Destination};
use crate::frame::{DropReason, Mac};
use crate::policy::{Domain, Heard};
use crate::topology::{Forward, Member, Switch};

/// A learning bridge: addresses are where they were last heard (VALE §3.2), but for those that are bound.
#[derive(Debug, Default)]
pub struct Learning;

impl Forward for Learning {
    fn forward(&self, batch: &mut Batch<'_>, from: &Member, switch: &Switch, now: u32) {
        if let Some(domain) = switch.domain() {
            return Self::forward_in(domain, batch, from, switch, now);
        }
        let table = switch.table();
        let mut learned = Mac::BROADCAST;
        batch.place(|source, destination| {
            if !source.is_station() {
                return Destination::Drop(DropReason::BadSource);
            }
            if source != learned {
                table.hear(0, source, from.owner, now, |owner| switch.is_alive(owner), |to| switch.note_held(to));
                learned = source;
            }
            if destination.is_group() {
                return group(destination, switch);
            }
            match table.lookup(destination).filter(|&owner| switch.is_alive(owner)) {
                Some(owner) if owner == from.owner => Destination::Drop(DropReason::SamePort),
                Some(owner) => Destination::Port(owner.index()),
                None => switch.spreads().unknown_unicast.destination(DropReason::NoDestination),
            }
        });
    }
}

impl Learning {
    fn forward_in(domain: &Domain, batch: &mut Batch<'_>, from: &Member, switch: &Switch, now: u32) {
        let table = switch.table();
        let mut learned = (0, Mac::BROADCAST);
        batch.place_in(domain.vlans, |vlan, source, destination| {
            let heard = match admit(domain, from, source, destination) {
                Ok(heard) => heard,
                Err(reason) => return Destination::Drop(reason),
            };
            if heard == Heard::Stranger && (vlan, source) != learned {
                table.hear(vlan, source, from.owner, now, |owner| switch.is_alive(owner), |to| switch.note_held(to));
                learned = (vlan, source);
            }
            if destination.is_group() {
                return group_in(domain, vlan, destination, from, switch);
            }
            let known = || table.lookup_in(vlan, destination).filter(|&owner| switch.is_alive(owner));
            match domain.home(destination).or_else(|| known().map(|owner| owner.index())) {
                Some(port) => to_port(domain, vlan, port, from, switch),
                None => {
                    let spread = switch.spreads().unknown_unicast.destination(DropReason::NoDestination);
                    within(domain, vlan, spread, from, switch)
                }
            }
        });
    }
}
