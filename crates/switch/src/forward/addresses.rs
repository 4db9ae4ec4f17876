//! What both forwarding functions decide by a frame's addresses.

use crate::batch::Destination;
use crate::frame::{DropReason, Mac};
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

/// To a port, if it is in the frame's VLAN.
#[inline]
pub(super) fn to_port(domain: &Domain, vlan: u16, port: u16, from: &Member, switch: &Switch) -> Destination {
    if port == from.owner.index() {
        return Destination::Drop(DropReason::SamePort);
    }
    spread_in(domain, vlan, Destination::Port(port), switch)
}

#[inline]
pub(super) fn group_in(domain: &Domain, vlan: u16, mac: Mac, switch: &Switch) -> Destination {
    spread_in(domain, vlan, group(mac, switch), switch)
}

/// A single port must be in the frame's VLAN; a flood goes to no others.
#[inline]
pub(super) fn spread_in(domain: &Domain, vlan: u16, destination: Destination, switch: &Switch) -> Destination {
    match destination {
        Destination::Port(port) if domain.vlans && switch.member(port).is_some_and(|to| !to.vlans.contains(vlan)) => {
            Destination::Drop(DropReason::VlanDenied)
        }
        other => other,
    }
}
