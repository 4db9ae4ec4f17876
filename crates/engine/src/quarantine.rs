//! Ports whose memory stalls whoever touches it: each is served by a thread that waits for that memory and for little else.
//!
//! Such a thread (a *keeper*) is a poller without a core of its own. It examines every visit, so that it has copied what it
//! collected before it locks anybody's output: nobody waits for the port's memory with it. What others send to the port is left
//! in the port's detour, so that only the keeper touches the port's memory. A port that stalls there, too, is set aside with
//! growing pauses, so that ports that share a keeper have their turns. Who behaves for long enough goes back to its poller.
//!
//! A keeper without ports is dormant: it has no topology, and is not woken when one is published. It is woken when a port is
//! given to it, takes the newest topology then, and says so before it does: whoever publishes one later and finds it dormant
//! has published before that.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Wake, Waker};

use ringway_switch::{Spent, empty};

use crate::clock;
use crate::engine::{DORMANT, PollerState, Topology};
use crate::poller::{NOBODY, Poller};
use crate::source::Attached;

/// How often a keeper looks whether a port may go back.
pub(crate) const LOOK_EVERY: u64 = 250_000_000;
/// A port's share of its keeper is one of so many.
pub(crate) const ONE_OF: u64 = 4;

/// Ends a port's quarantine, when no poller runs.
pub(crate) fn forget(attached: &Attached) {
    if attached.source.keeper().is_some() {
        attached.source.set_keeper(None);
        attached.switch.member(attached.index).inspect(|member| member.port.abandon_detour());
    }
}

/// Wakes the keeper when something is left for a port.
struct Keeper(Arc<PollerState>);

impl Wake for Keeper {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }
}

/// Which poller serves a port, of so many besides keepers.
pub(crate) fn place(attached: &Attached, pollers: usize) -> usize {
    attached.source.keeper().unwrap_or(attached.poller % pollers)
}

impl Poller {
    /// Whether it serves ports in quarantine only.
    pub(crate) fn is_keeper(&self) -> bool {
        self.state.number >= self.shared.pollers
    }

    /// Gives a port to a keeper. False when there is no memory for that.
    #[cold]
    pub(crate) fn quarantine(&self, attached: &Attached) -> bool {
        let load = |state: &Arc<PollerState>| state.load.load(Ordering::Relaxed);
        let Some(keeper) = self.shared.keepers().iter().min_by_key(|state| load(state)) else { return false };
        let Some(member) = attached.switch.member(attached.index) else { return false };
        if !member.port.begin_detour(Waker::from(Arc::new(Keeper(Arc::clone(keeper))))) {
            return false;
        }
        keeper.load.fetch_add(1, Ordering::Relaxed);
        attached.source.set_keeper(Some(keeper.number));
        self.shared.topology.touch();
        self.shared.wake();
        keeper.wake();
        true
    }

    /// A keeper's chores: sends ports back that behaved, and rests when it has none. Returns when it is to be asked again.
    #[cold]
    pub(crate) fn keep(&mut self) -> u64 {
        let now = clock::nanoseconds();
        let mut released = false;
        for served in self.served.iter().flatten() {
            let source = &served.attached.source;
            let Some(member) = served.attached.switch.member(served.attached.index) else { continue };
            // What is left for it is given to it first.
            if !source.is_quarantined(now) && served.input.is_some() && member.port.end_detour() {
                source.set_keeper(None);
                released = true;
            }
        }
        if released {
            self.shared.topology.touch();
            self.shared.wake();
        } else if self.places.is_empty() && self.work.calls.due().is_none() {
            self.rest();
        }
        now.saturating_add(LOOK_EVERY)
    }

    /// Waits, without a topology, until a port is given to it or the engine ends.
    fn rest(&mut self) {
        self.state.load.store(0, Ordering::Relaxed);
        self.topology = Arc::new(Topology::default());
        self.state.account.adopted.store(DORMANT, Ordering::Release);
        self.wait(None);
        self.meter.slept();
        // Before the topology is taken: see above.
        self.state.account.adopted.store(0, Ordering::SeqCst);
        self.version = 0;
    }

    /// Gives a port what others left for it.
    pub(crate) fn empty_detour(&mut self, index: usize) -> u64 {
        let Some(served) = self.served[index].as_ref() else { return 0 };
        let attached = served.attached.clone();
        let Some(member) = attached.switch.member(attached.index) else { return 0 };
        self.at = index;
        let began = clock::nanoseconds();
        let emptied = empty(member, &mut self.work, &self.now);
        let nanoseconds = clock::nanoseconds().saturating_sub(began);
        self.at = NOBODY;
        if emptied.fault {
            self.report_fault();
        }
        self.charge_emptied(index, Spent { nanoseconds, frames: emptied.frames, bytes: emptied.bytes });
        emptied.frames
    }
}
