//! The state that an engine and its pollers share.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ringway_switch::Port;

use crate::known::KnownPorts;
use crate::poller_state::PollerState;
use crate::published::Published;
use crate::relief::Relief;
use crate::source::Source;
use crate::topology::Topology;

/// The shared state of an engine and its pollers.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) topology: Published<Topology>,
    pub(crate) stop: AtomicBool,
    /// The next poller that adopts a topology panics ([`crate::Engine::inject_panic`]).
    pub(crate) inject_panic: AtomicBool,
    pub(crate) relief: Relief,
    pub(crate) known: KnownPorts,
    pub(crate) old: Old,
    /// An eventfd, readable when a port has a fault.
    pub(crate) faults: OwnedFd,
    /// The number of pollers without those of ports in quarantine.
    pub(crate) pollers: usize,
    /// The pollers, followed by the quarantine pollers.
    pub(crate) states: Vec<Arc<PollerState>>,
}

/// What the reaper releases.
#[derive(Debug)]
pub(crate) enum Released {
    Topology(Arc<Topology>),
    /// A port whose last owner was a poller.
    Port(Box<Port>),
    /// An input whose last owner was the thread that relieves.
    Source(Box<Source>),
}

impl From<Port> for Released {
    fn from(port: Port) -> Released {
        Released::Port(Box::new(port))
    }
}

impl From<Source> for Released {
    fn from(source: Source) -> Released {
        Released::Source(Box::new(source))
    }
}

/// What waits for the reaper.
#[derive(Debug)]
pub(crate) struct Old {
    /// `None`: the engine ends.
    queue: Mutex<Option<Sender<Released>>>,
    left: AtomicUsize,
}

impl Old {
    pub(crate) fn new(queue: Sender<Released>) -> Old {
        Old { queue: Mutex::new(Some(queue)), left: AtomicUsize::new(0) }
    }

    /// Gives something to the reaper.
    pub(crate) fn release(&self, old: Released) {
        if let Some(queue) = &*self.queue.lock().unwrap_or_else(PoisonError::into_inner) {
            self.left.fetch_add(1, Ordering::Relaxed);
            let _ = queue.send(old);
        }
    }

    /// Looks at something that its last owner may let go of meanwhile: then the reaper gets it. `None`: nobody has it any more.
    pub(crate) fn peek<P, T>(&self, port: &Weak<P>, look: impl FnOnce(&P) -> T) -> Option<T>
    where
        Released: From<P>,
    {
        let port = port.upgrade()?;
        let seen = look(&port);
        Arc::into_inner(port).into_iter().for_each(|port| self.release(port.into()));
        Some(seen)
    }

    /// The reaper has released something.
    pub(crate) fn note_released(&self) {
        self.left.fetch_sub(1, Ordering::Release);
    }

    /// Returns true if everything is released.
    pub(crate) fn is_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Nothing follows: the reaper ends.
    pub(crate) fn close(&self) {
        *self.queue.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Shared {
    /// Wakes every poller that serves ports.
    pub(crate) fn wake(&self) {
        let serves = |state: &&Arc<PollerState>| !state.is_dormant();
        self.states.iter().filter(serves).for_each(|state| state.wake());
    }

    /// Has all ports' clients asked anew whether they want calls: a thread that is relieved makes none of its pending ones.
    pub(crate) fn owe_calls(&self) {
        let (topology, _) = self.topology.get();
        topology.ports.iter().for_each(|attached| attached.source.owe_calls());
        self.topology.touch();
        self.wake();
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
