//! Ports at which a thread is kept: no other thread touches their memory until that one is let go.
//!
//! The kernel may keep a poller's thread in a page fault of a client's memory ([`crate::relieving`]). Each further thread that touches that memory
//! could be kept as well: at the doorbell when it calls the client, at another page, at another port. So the port is *shut*, and with a second thread
//! that is kept at a port of the same client, all ports of that client: no poller has their inputs, frames for them are dropped as
//! `receiver_slow`, and calls wait. When the thread is let go, the memory has answered: the ports are opened, and the port at which the thread was kept
//! is charged for the time.
//!
//! [`Relief::stalls`](crate::relief::Relief) is locked while ports are shut or opened and while a topology is published, so that a port that comes
//! later is shut before a poller has it.

use std::sync::Arc;
use std::task::Waker;

use ringway_switch::{DetourRoom, Port};

use crate::client::Client;
use crate::clock;
use crate::quarantine;
use crate::shared::Shared;
use crate::topology::{Attached, Topology};

/// A thread that is kept at a port.
#[derive(Debug)]
pub(crate) struct Stall {
    /// The number of the port's source.
    source: u64,
    /// What counts the thread: the port's memory, and that of its client.
    own: Arc<Client>,
    client: Option<Arc<Client>>,
    /// When the thread was noticed, in nanoseconds.
    since: u64,
    /// The thread itself charges the port afterwards.
    is_measured: bool,
}

impl Stall {
    /// Shuts the port, or all ports of its client.
    pub(crate) fn begin(shared: &Shared, attached: &Attached, is_measured: bool) -> Stall {
        let (own, client) = attached.source.memory();
        let _order = shared.relief.stalls();
        own.begin_stall();
        client.iter().for_each(|client| client.begin_stall());
        shut_stalled(&shared.topology.get().0);
        shared.topology.touch();
        shared.wake();
        Stall { own, client, source: attached.source.id(), since: clock::nanoseconds(), is_measured }
    }

    /// Opens the ports again: no other thread could relieve the one that is kept.
    pub(crate) fn cancel(mut self, shared: &Shared) {
        self.is_measured = true;
        self.end(shared);
    }

    /// Charges the port, as the thread has been let go, and opens the ports that were shut for it.
    pub(crate) fn end(self, shared: &Shared) {
        let Stall { since, is_measured, source, .. } = self;
        let (topology, _) = shared.topology.get();
        let now = clock::nanoseconds();
        let charged = topology.ports.iter().find(|attached| attached.source.id() == source && !is_measured);
        if charged.is_some_and(|attached| attached.source.charge_stall(now, now.saturating_sub(since))) {
            shared.report_fault();
        }
        let _order = shared.relief.stalls();
        drop(self);
        let (topology, _) = shared.topology.get();
        topology.ports.iter().for_each(|attached| open(shared, attached, now));
        shared.topology.touch();
        shared.wake();
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        self.own.end_stall();
        self.client.iter().for_each(|client| client.end_stall());
    }
}

/// Shuts the ports whose memory keeps threads. The caller has [`Relief::stalls`](crate::relief::Relief) locked.
pub(crate) fn shut_stalled(topology: &Topology) {
    for attached in topology.ports.iter().filter(|attached| attached.source.is_stalled()) {
        let begins = |port: &Arc<Port>| port.begin_detour(Waker::noop().clone(), DetourRoom::Nothing, || ());
        // A port in quarantine has a detour, which stays afterwards.
        attached.source.shut(|| attached.port().is_some_and(begins));
    }
}

/// Opens a port whose memory keeps no thread any more.
fn open(shared: &Shared, attached: &Attached, now: u64) {
    let (source, port) = (&attached.source, attached.port());
    if source.is_stalled() || !source.open(|| port.into_iter().for_each(|port| port.abandon_detour())) {
        return;
    }
    match source.quarantine_poller() {
        // It may be dormant.
        Some(poller) => shared.states[poller].wake(),
        // Its client kept a thread: it gets nothing of what is reserved for the ports of others.
        None if source.is_quarantined(now) => {
            let _ = quarantine::begin(shared, attached, DetourRoom::Prepared)
                || quarantine::begin(shared, attached, DetourRoom::Nothing);
        }
        None => {}
    }
}

/// Opens a port after all pollers have ended.
pub(crate) fn forget(attached: &Attached) {
    attached.source.open(|| attached.port().into_iter().for_each(|port| port.abandon_detour()));
}
