//! Quarantine: a port whose memory stalls the thread that touches it is served by a *quarantine poller*, a thread that waits for
//! that memory and for little else.
//!
//! The engine has four of them: pollers without a core that sleep without a topology until they are needed. A quarantine poller
//! examines every visit ([`ringway_switch::Examined`]): it waits for the port's memory while it has no port's output
//! locked. What others send to the port is copied to the port's *detour* (`switch/src/detour.rs`), as are calls that became due
//! elsewhere. The quarantine poller empties the detour, so that no other thread touches the port's memory. Ports that share a
//! quarantine poller have a quarter of it each, and growing pauses where they go on. After 10 s without an excess (twice as long
//! after each further quarantine, up to 640 s) the port goes back to its poller.
//!
//! A quarantine poller without ports is dormant: it has no topology, and a publication does not wake it. It is woken when a port is
//! given to it. It then announces that it is not dormant, and takes the newest topology after that. A thread that publishes a
//! topology and still finds the poller dormant has published before the poller takes one.

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
