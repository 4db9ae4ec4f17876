//! Ports at which a thread is kept: no other thread touches their memory until that one is let go.
//!
//! The kernel may keep a poller's thread in a page fault of a client's memory ([`crate::relieving`]). Each further thread that touches that memory
//! could be kept as well: at the doorbell when it calls the client, at another page, at another port. So the port is *shut*, and with a second thread
//! that is kept at a port of the same client, all ports of that client: no poller has their inputs, frames for them are dropped as
//! `receiver_slow`, and calls wait. When the thread goes on, the memory has answered: the ports are opened, and the port at which the thread was kept
//! is charged for the time, by the thread here that noticed it, unless the other one has begun to do that meanwhile ([`crate::charging`]).
//!
//! [`Relief::stalls`](crate::relief::Relief) is locked while ports are shut or opened and while a topology is published, so that a port that comes
//! later is shut before a poller has it.

use std::sync::Arc;
use std::task::Waker;

use ringway_runtime::clock;
use ringway_switch::{DetourRoom, Port};

use crate::client::KeptIn;
use crate::known::Known;
use crate::quarantine::{self, PARTS};
use crate::shared::Shared;
use crate::topology::{Attached, Topology};

/// A thread that is kept at a port.
#[derive(Debug)]
pub(crate) struct Stall {
    /// The number of the port's source.
    source: u64,
    /// What counts the thread.
    kept_in: KeptIn,
    /// When the thread was noticed, in nanoseconds.
    since: u64,
    /// The thread does not charge the port itself.
    pub(crate) is_charged: bool,
}

impl Stall {
    /// Shuts the port, or all ports of its client. The port may have been removed.
    pub(crate) fn begin(shared: &Shared, port: &Known) -> Stall {
        let _order = shared.relief.stalls();
        let kept_in = KeptIn::new(Arc::clone(&port.memory));
        shut_stalled(&shared.topology.get().0);
        shared.topology.touch();
        shared.wake();
        Stall { source: port.id, kept_in, since: clock::nanoseconds(), is_charged: false }
    }

    /// Charges the port, as the thread is no longer at it, and opens the ports that were shut for it.
    pub(crate) fn end(self, shared: &Shared) {
        let Stall { source, kept_in, since, is_charged } = self;
        let (topology, _) = shared.topology.get();
        let now = clock::nanoseconds();
        let charged = topology.ports.iter().find(|attached| attached.source.id() == source && is_charged);
        // What the thread took before it was noticed is more than what it takes until that is seen.
        let is_slow = |Attached { source, .. }: &Attached| {
            let parts = if source.quarantine_poller().is_some() { PARTS } else { 1 };
            source.charge_stall(now, now.saturating_sub(since), parts)
        };
        if charged.is_some_and(is_slow) {
            shared.report_fault();
        }
        let order = shared.relief.stalls();
        drop(kept_in);
        let (topology, _) = shared.topology.get();
        topology.ports.iter().for_each(|attached| open(shared, attached));
        drop(order);
        // The client of this port kept a thread: without memory for its detour, the port gets no frames.
        for attached in topology.ports.iter().filter(|attached| attached.source.is_quarantined(now)) {
            let _ = quarantine::begin(shared, attached, DetourRoom::Prepared)
                || attached.source.id() == source && quarantine::begin(shared, attached, DetourRoom::Nothing);
        }
        shared.topology.touch();
        shared.wake();
    }
}

/// Shuts the ports whose memory keeps threads. The caller has [`Relief::stalls`](crate::relief::Relief) locked.
pub(crate) fn shut_stalled(topology: &Topology) {
    for attached in topology.ports.iter().filter(|attached| attached.source.memory().is_stalled()) {
        let begins = |port: &Arc<Port>| port.begin_detour(Waker::noop().clone(), DetourRoom::Nothing, || ());
        // A port in quarantine has a detour, which stays afterwards.
        attached.source.shut(|| attached.port().is_some_and(begins));
    }
}

/// Opens a port whose memory keeps no thread any more.
fn open(shared: &Shared, attached: &Attached) {
    let (source, port) = (&attached.source, attached.port());
    if source.memory().is_stalled() || !source.open(|| port.into_iter().for_each(|port| port.abandon_detour())) {
        return;
    }
    // The quarantine poller may be dormant.
    source.quarantine_poller().into_iter().for_each(|poller| shared.states[poller].wake());
}

/// Opens a port after all pollers have ended.
pub(crate) fn forget(attached: &Attached) {
    attached.source.open(|| attached.port().into_iter().for_each(|port| port.abandon_detour()));
}
