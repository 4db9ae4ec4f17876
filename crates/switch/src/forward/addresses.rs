//! What both forwarding functions decide by a frame's addresses.

use super::hear::may_hear;
use crate::batch::Destination;
use crate::frame::{Class, DropReason, Mac};
use crate::policy::{Domain, Heard};
use crate::topology::{Member, Switch};

#[inline]
pub(super) fn group(mac: Mac, switch: &Switch) -> Destination {
    if mac == Mac::BROADCAST {
        switch.spreads().broadcast.destination(DropReason::GroupDropped)
    } else if mac.is_bridge_reserved() {
        Destination::Drop(DropReason::BridgeReserved)
    } else {
        switch.spreads().multicast.destination(DropReason::GroupDropped)
    }
}

/// Looks at a frame's source, and at the rules of the switch.
#[inline]
pub(super) fn admit(domain: &Domain, from: &Member, source: Mac, destination: Mac) -> Result<Heard, DropReason> {
    if !source.is_station() {
        return Err(DropReason::BadSource);
    }
    let heard = domain.hear(source, from.owner.index())?;
    if !destination.is_group() {
        domain.judge(source, destination)?;
    }
    Ok(heard)
}

/// Where a frame for an address on `port` goes: there, if the port is in the frame's VLAN.
#[inline]
pub(super) fn to_port(domain: &Domain, vlan: u16, port: u16, from: &Member, switch: &Switch) -> Destination {
    if port == from.owner.index() {
        return Destination::Drop(DropReason::SamePort);
    }
    within(domain, vlan, Destination::Port(port), from, switch)
}

/// Where a frame for a group goes.
#[inline]
pub(super) fn group_in(domain: &Domain, vlan: u16, mac: Mac, from: &Member, switch: &Switch) -> Destination {
    within(domain, vlan, group(mac, switch), from, switch)
}

/// A destination within the frame's VLAN. A flood goes to no others in any case. Where two ports may not exchange frames, delivery
/// finds that.
#[inline]
pub(super) fn within(
    domain: &Domain,
    vlan: u16,
    destination: Destination,
    from: &Member,
    switch: &Switch,
) -> Destination {
    let Destination::Port(port) = destination else { return destination };
    let Some(to) = switch.member(port).filter(|_| domain.vlans) else { return destination };
    match may_hear(to, from, Some(Class::untagged(vlan))) {
        Err(reason @ DropReason::VlanDenied) => Destination::Drop(reason),
        _ => destination,
    }
}
