//! Quarantine: a port whose memory stalls the thread that touches it is served by a poller that waits for little else.
//!
//! A quarantine poller has no core of its own. It examines every visit ([`ringway_switch::Examined`]), so that it has copied
//! what it collected before it locks another port's output: no other thread waits for the port's memory with it. Frames for the
//! port are left in the port's detour, so that only the quarantine poller touches the port's memory. A port that stalls there, too,
//! is set aside with growing pauses, so that the ports that share a quarantine poller have their turns. A port that behaves for
//! long enough goes back to its poller.
//!
//! A quarantine poller without ports is dormant: it has no topology, and a publication does not wake it. It is woken when a
//! port is given to it. It then announces that it is not dormant, and takes the newest topology after that: a topology that
//! is published while the poller still looks dormant was published before the poller takes one.

use std::sync::Arc;
use std::task::Wake;

use crate::poller_state::PollerState;
use crate::topology::Attached;

/// Nanoseconds after which a quarantine poller checks again whether a port may go back.
pub(crate) const CHECK_EVERY: u64 = 250_000_000;
/// A port's share of its quarantine poller is one part in this many.
pub(crate) const PARTS: u64 = 4;

/// Ends a port's quarantine, when no poller runs.
pub(crate) fn forget(attached: &Attached) {
    if attached.source.quarantine_poller().is_some() {
        attached.source.set_quarantine_poller(None);
        attached.port().inspect(|port| port.abandon_detour());
    }
}

/// Wakes a quarantine poller when something is left for its port.
pub(crate) struct DetourWaker(pub(crate) Arc<PollerState>);

impl Wake for DetourWaker {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }
}

/// The number of the poller that serves a port, of `pollers` besides the quarantine pollers.
pub(crate) fn poller_of(attached: &Attached, pollers: usize) -> usize {
    attached.source.quarantine_poller().unwrap_or(attached.poller % pollers)
}
