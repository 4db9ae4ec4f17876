//! Quarantine: a port whose memory stalls the thread that touches it is served by a *quarantine poller*, a thread for
//! such ports only.
//!
//! The engine has four of them: pollers without a core that sleep without a topology until they are needed. A
//! quarantine poller examines every visit ([`ringway_switch::Examined`]): it waits for the port's memory while it has
//! no port's output locked. Frames for the port are copied to the port's *detour* (`switch/src/port/detour.rs`), as are
//! calls that become due in other pollers. The quarantine poller empties the detour, so that no other thread touches
//! the port's memory. Ports that share a quarantine poller have a quarter of its time each, and growing pauses while
//! they keep stalling. After 10 s without an excess (twice as long after each further quarantine, up to 640 s) the port
//! goes back to its poller.
//!
//! A quarantine poller without ports is dormant: it has no topology, and a publication does not wake it. It is woken when a port is
//! given to it. It then announces that it is not dormant, and takes the newest topology after that. A thread that publishes a
//! topology and still finds the poller dormant has published before the poller takes one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use ringway_switch::{DetourEnd, DetourRoom, Port};

use crate::poller_state::PollerState;
use crate::shared::Shared;
use crate::source::Source;
use crate::topology::Attached;

/// Nanoseconds after which a quarantine poller checks again whether a port may go back.
pub(crate) const CHECK_EVERY_NS: u64 = 250_000_000;
/// The same while a port's detour has frames that keep it from ending.
pub(crate) const CHECK_ENDING_EVERY_NS: u64 = 1_000_000;
/// Checks that found frames in a detour that could end, after which it takes no more. A diversion waits no more for threads that copy frames to it.
pub(crate) const ENDS_IN_VAIN: u32 = 16;
/// A port's share of its quarantine poller is one part in this many.
pub(crate) const PARTS: u64 = 4;

/// Gives a port to the quarantine poller with the fewest ports, which takes over the detour of a diversion. Returns false if there is no memory for
/// that, or one has it.
#[cold]
pub(crate) fn begin(shared: &Shared, attached: &Attached, room: DetourRoom) -> bool {
    let load = |state: &&Arc<PollerState>| state.load.load(Ordering::Relaxed);
    let Some(poller) = shared.quarantine_pollers().iter().min_by_key(load) else { return false };
    let Some(port) = attached.port() else { return false };
    let waker = || Waker::from(Arc::clone(poller));
    let begun = || attached.source.set_quarantine_poller(Some(poller.number));
    let takes = || {
        let is_diverted = attached.source.is_diverted();
        if is_diverted {
            begun();
            attached.source.end_diversion();
        }
        is_diverted
    };
    let has_begun = port.begin_detour(waker(), room, begun) || port.hand_over_detour(waker(), takes);
    // For the next one, and for this one if it was refused.
    shared.relief.prepare();
    if !has_begun {
        return false;
    }
    poller.load.fetch_add(1, Ordering::Relaxed);
    shared.topology.touch();
    shared.wake();
    poller.wake();
    true
}

/// Takes a port from its quarantine poller, if its detour can end. One that is shut keeps it: shut first, it finds the detour or begins one.
pub(crate) fn end(source: &Source, port: &Port) -> DetourEnd {
    port.end_detour(|| {
        let may_end = !source.is_shut();
        if may_end {
            source.set_quarantine_poller(None);
        }
        may_end
    })
}

/// Ends a port's quarantine after all pollers have ended.
pub(crate) fn forget(attached: &Attached) {
    if attached.source.quarantine_poller().is_some() {
        attached.source.set_quarantine_poller(None);
        attached.port().inspect(|port| port.abandon_detour());
    }
    forget_diversion(attached);
}

/// Frames for a port whose output a kept thread has take a detour. The port's own poller empties it afterwards, so that the port waits at no
/// quarantine poller.
#[cold]
pub(crate) fn divert(attached: &Attached) {
    let begun = || attached.source.begin_diversion();
    attached.port().inspect(|port| _ = port.begin_detour(Waker::noop().clone(), DetourRoom::Spare, begun));
}

/// Ends a diversion, if its detour can end, and is not that of a quarantine meanwhile. One of a port that is shut stays: shut first, it finds the
/// detour or begins one. `waits`: it stays while a thread copies frames to the detour, too.
pub(crate) fn end_diversion(source: &Source, port: &Port, waits: bool) -> DetourEnd {
    let ends = || {
        let may_end = !source.is_shut() && source.is_diverted();
        if may_end {
            source.end_diversion();
        }
        may_end
    };
    if waits { port.end_detour(ends) } else { port.end_detour_at_once(ends) }
}

/// Ends a diversion after all pollers have ended.
fn forget_diversion(attached: &Attached) {
    if attached.source.is_diverted() {
        attached.source.end_diversion();
        attached.port().inspect(|port| port.abandon_detour());
    }
}

/// The number of the poller that serves a port, of `pollers` besides the quarantine pollers. `None`: no one may at present.
pub(crate) fn poller_of(attached: &Attached, pollers: usize) -> Option<usize> {
    let poller = attached.source.quarantine_poller().unwrap_or(attached.poller % pollers);
    (!attached.source.is_shut()).then_some(poller)
}

#[cfg(test)]
#[path = "quarantine_tests.rs"]
pub(crate) mod tests;
