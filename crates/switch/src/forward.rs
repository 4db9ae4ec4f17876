//! Forwarding functions: where each frame of a batch goes (VALE §3.3.1 and §3.3.3).

use std::collections::HashMap;
use std::collections::hash_map::RandomState;

use crate::batch::{Batch, Destination};
use crate::counters::DropReason;
use crate::mac::Mac;
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

/// A learning bridge: addresses are where they were last heard (VALE §3.2).
#[derive(Debug, Default)]
pub struct Learning;

impl Forward for Learning {
    fn forward(&self, batch: &mut Batch<'_>, from: &Member, switch: &Switch, now: u32) {
        let table = switch.table();
        let mut learned = Mac::BROADCAST;
        batch.place(|source, destination| {
            if !source.is_station() {
                return Destination::Drop(DropReason::BadSource);
            }
            if source != learned {
                table.learn(source, from.owner, now, |owner| switch.is_alive(owner));
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

/// The MAC map of the fairness paper (§4.2): frames go to the port an address is bound to, or nowhere.
#[derive(Debug)]
pub struct MacMap {
    ports: HashMap<u64, u16, RandomState>,
}

impl MacMap {
    /// The map of these members' bound addresses. An address bound twice goes to the later one.
    #[must_use]
    pub fn new<'a>(members: impl IntoIterator<Item = &'a Member>) -> MacMap {
        let bound = members.into_iter().flat_map(|m| m.macs.iter().map(|mac| (mac.bits(), m.owner.index())));
        MacMap { ports: bound.collect() }
    }
}

impl Forward for MacMap {
    fn forward(&self, batch: &mut Batch<'_>, from: &Member, switch: &Switch, _now: u32) {
        batch.place(|source, destination| {
            if !source.is_station() {
                return Destination::Drop(DropReason::BadSource);
            }
            if destination.is_group() {
                return group(destination, switch);
            }
            match self.ports.get(&destination.bits()) {
                Some(&port) if port == from.owner.index() => Destination::Drop(DropReason::SamePort),
                Some(&port) => Destination::Port(port),
                None => Destination::Drop(DropReason::NoDestination),
            }
        });
    }
}
