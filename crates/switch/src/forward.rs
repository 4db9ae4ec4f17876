//! Forwarding functions: where each frame of a batch goes (VALE §3.3.1 and §3.3.3).

use crate::batch::{Batch, Destination};
use crate::counters::DropReason;
use crate::mac::Mac;
use crate::policy::{Bound, Domain, Heard};
use crate::switch::{Member, Switch};

/// Sets the destination of every frame of a batch. Replaceable; sees only the private copies of the heads.
pub trait Forward: Send + Sync {
    /// Decides. `now` is the second of the batch's one clock reading.
    fn forward(&self, batch: &mut Batch<'_>, from: &Member, switch: &Switch, now: u32);
}

#[inline]
fn group(mac: Mac, switch: &Switch) -> Destination {
    if mac == Mac::BROADCAST {
        switch.spreads().broadcast.destination(DropReason::GroupDropped)
    } else if mac.is_bridge_reserved() {
        Destination::Drop(DropReason::BridgeReserved)
    } else {
        switch.spreads().multicast.destination(DropReason::GroupDropped)
    }
}

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
                return group_in(domain, vlan, destination, switch);
            }
            let known = || table.lookup_in(vlan, destination).filter(|&owner| switch.is_alive(owner));
            match domain.home(destination).or_else(|| known().map(|owner| owner.index())) {
                Some(port) => to_port(domain, vlan, port, from, switch),
                None => spread_in(
                    domain,
                    vlan,
                    switch.spreads().unknown_unicast.destination(DropReason::NoDestination),
                    switch,
                ),
            }
        });
    }
}

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
                return group_in(domain, vlan, destination, switch);
            }
            match self.bound.port(destination).or(from.reach.outlet) {
                Some(port) => to_port(domain, vlan, port, from, switch),
                None => Destination::Drop(DropReason::NoDestination),
            }
        });
    }
}

/// Looks at a frame's source, and at the rules of the switch.
#[inline]
fn admit(domain: &Domain, from: &Member, source: Mac, destination: Mac) -> Result<Heard, DropReason> {
    if !source.is_station() {
        return Err(DropReason::BadSource);
    }
    let heard = domain.hear(source, from.owner.index())?;
    if !destination.is_group() {
        domain.judge(source, destination)?;
    }
    Ok(heard)
}

/// To a port, if it is in the frame's VLAN.
#[inline]
fn to_port(domain: &Domain, vlan: u16, port: u16, from: &Member, switch: &Switch) -> Destination {
    if port == from.owner.index() {
        return Destination::Drop(DropReason::SamePort);
    }
    spread_in(domain, vlan, Destination::Port(port), switch)
}

#[inline]
fn group_in(domain: &Domain, vlan: u16, mac: Mac, switch: &Switch) -> Destination {
    spread_in(domain, vlan, group(mac, switch), switch)
}

/// A single port must be in the frame's VLAN; a flood goes to no others.
#[inline]
fn spread_in(domain: &Domain, vlan: u16, destination: Destination, switch: &Switch) -> Destination {
    match destination {
        Destination::Port(port) if domain.vlans && switch.member(port).is_some_and(|to| !to.vlans.contains(vlan)) => {
            Destination::Drop(DropReason::VlanDenied)
        }
        other => other,
    }
}
