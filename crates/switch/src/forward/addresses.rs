//! Decisions by a frame's addresses that both forwarding functions share.

use super::permission::may_receive;
use crate::batch::Destination;
use crate::frame::{Class, DropReason, Mac};
use crate::policy::{Domain, SourceBinding};
use crate::topology::{Member, Switch};

#[inline]
pub(super) fn group(mac: Mac, switch: &Switch) -> Destination {
    if mac == Mac::BROADCAST {
        switch.flood_policy().broadcast.destination(DropReason::GroupDropped)
    } else if mac.is_bridge_reserved() && !switch.flood_policy().reserved.contains(mac) {
        Destination::Drop(DropReason::BridgeReserved)
    } else {
        switch.flood_policy().multicast.destination(DropReason::GroupDropped)
    }
}

/// Checks a frame's addresses against the bound addresses and the rules of the switch.
#[inline]
pub(super) fn admit(
    domain: &Domain,
    from: &Member,
    source: Mac,
    destination: Mac,
) -> Result<SourceBinding, DropReason> {
    let binding = domain.check_source(source, from.owner.index())?;
    if !destination.is_group() {
        domain.check_pair(source, destination)?;
    }
    Ok(binding)
}

/// The destination of a frame for an address on `port`: that port, if it is in the frame's VLAN.
#[inline]
pub(super) fn to_port(domain: &Domain, vlan: u16, port: u16, from: &Member, switch: &Switch) -> Destination {
    if port == from.owner.index() {
        return Destination::Drop(DropReason::SamePort);
    }
    within(domain, vlan, Destination::Port(port), from, switch)
}

/// The destination of a frame for a group address.
#[inline]
pub(super) fn group_in(domain: &Domain, vlan: u16, mac: Mac, from: &Member, switch: &Switch) -> Destination {
    within(domain, vlan, group(mac, switch), from, switch)
}

/// Drops a frame for a port that is not in the frame's VLAN; other destinations stay. Delivery restricts a flood to the
/// VLAN, and drops frames between ports that may not exchange any.
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
    match may_receive(to, from, Some(Class::untagged(vlan))) {
        Err(reason @ DropReason::VlanDenied) => Destination::Drop(reason),
        _ => destination,
    }
}
