//! The state that an engine and its pollers share.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::poller_state::PollerState;
use crate::published::Published;
use crate::relief::Relief;
use crate::topology::Topology;

/// The shared state of an engine and its pollers.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) topology: Published<Topology>,
    pub(crate) stop: AtomicBool,
    /// The next poller that adopts a topology panics ([`crate::Engine::inject_panic`]).
    pub(crate) inject_panic: AtomicBool,
    pub(crate) relief: Relief,
    /// An eventfd, readable when a port has a fault.
    pub(crate) faults: OwnedFd,
    /// The number of pollers without those of ports in quarantine.
    pub(crate) pollers: usize,
    /// The pollers, followed by the quarantine pollers.
    pub(crate) states: Vec<Arc<PollerState>>,
}

impl Shared {
    /// Wakes every poller that serves ports.
    pub(crate) fn wake(&self) {
        let serves = |state: &&Arc<PollerState>| !state.is_dormant();
        self.states.iter().filter(serves).for_each(|state| state.wake());
    }

    /// The pollers of ports in quarantine.
    pub(crate) fn quarantine_pollers(&self) -> &[Arc<PollerState>] {
        &self.states[self.pollers..]
    }

    /// Tells the control thread that a port has a fault.
    #[cold]
    pub(crate) fn report_fault(&self) {
        let _ = rustix::io::write(&self.faults, &1u64.to_ne_bytes());
    }
}
