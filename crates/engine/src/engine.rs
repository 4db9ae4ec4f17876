//! The pollers as a whole: their start and end, the published topology, their readings.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringway_runtime::{call, warn_limited};
use ringway_switch::Port;

use crate::known::KnownPorts;
use crate::poller::{name_of, spare};
use crate::poller_state::{DORMANT, PollerReading, PollerState, new_eventfd};
use crate::published::Published;
use crate::quarantine;
use crate::reaper::Reaper;
use crate::relief::{Relief, Relieved};
use crate::relieving;
use crate::settings::EngineSettings;
use crate::shared::{Old, Released, Shared};
use crate::spare::Spare;
use crate::stall::{self, shut_stalled};
use crate::topology::Topology;

/// Pollers of ports in quarantine. More ports than that share them, and stall one another.
const QUARANTINE_POLLERS: usize = 4;

/// Longest wait for the threads that can relieve others.
const PREPARED_WITHIN: Duration = Duration::from_secs(1);

/// The running pollers. Ends and joins them when dropped.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Says once whether pollers can be relieved.
    prepared: Mutex<Option<Receiver<bool>>>,
    /// Ends before the pollers.
    relief: Vec<JoinHandle<()>>,
    /// Ends after the pollers.
    reaper: Reaper,
}

impl Engine {
    /// Starts the pollers, which serve no port yet.
    ///
    /// # Errors
    /// The kernel refuses a thread, a descriptor or the pinning to a CPU that is not there.
    pub fn start(settings: &EngineSettings) -> io::Result<Engine> {
        call::prepare();
        let cores: Vec<Option<usize>> = match settings.cores.as_slice() {
            [] => vec![None],
            cores => cores.iter().copied().map(Some).collect(),
        };
        let pollers = cores.len();
        let quarantine = pollers..pollers + QUARANTINE_POLLERS;
        let states = (cores.into_iter().enumerate())
            .map(|(number, core)| PollerState::new(number, core, 0))
            .chain(quarantine.map(|number| PollerState::new(number, None, DORMANT)))
            .collect::<io::Result<Vec<_>>>()?;
        let (old, queue) = channel();
        let shared = Arc::new(Shared {
            topology: Published::new(Topology::default()),
            stop: AtomicBool::new(false),
            inject_panic: AtomicBool::new(false),
            relief: Relief::new(states.len()),
            known: KnownPorts::default(),
            old: Old::new(old),
            faults: new_eventfd()?,
            pollers,
            states,
        });
        let reaper = Reaper::start(&shared, queue)?;
        let (relief, prepared) = relieving::start(&shared, settings)?;
        let prepared = Mutex::new(Some(prepared));
        let mut engine = Engine { shared: Arc::clone(&shared), threads: Vec::new(), relief, prepared, reaper };
        // All at once: each takes a moment until it serves.
        let ordered = shared.states.iter().map(|state| {
            let thread = spare(&shared, settings, name_of(&shared, state.number))?;
            thread.order(Arc::clone(state));
            Ok(thread)
        });
        let ordered: Vec<io::Result<Spare>> = ordered.collect();
        let mut failed = None;
        for thread in ordered {
            match thread.and_then(Spare::begun) {
                Ok(thread) => engine.threads.push(thread),
                Err(why) => failed = Some(why),
            }
        }
        failed.map_or(Ok(engine), Err)
    }

    /// Waits, the first time, until the threads and the memory are there that relieve pollers: once a client's port is served, it can keep the kernel from
    /// giving any. They are made while ports are opened.
    fn wait_until_prepared(&self) {
        let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner).take();
        if prepared.is_some_and(|prepared| prepared.recv_timeout(PREPARED_WITHIN) != Ok(true)) {
            warn_limited(
                "threads or memory are missing that take over from a poller which a client holds up: they are tried again each second",
            );
        }
    }

    /// The pollers without those of ports in quarantine.
    fn states(&self) -> &[Arc<PollerState>] {
        &self.shared.states[..self.shared.pollers]
    }

    /// Makes the pollers serve this topology, from their next batch on.
    pub fn publish(&self, topology: Topology) {
        self.wait_until_prepared();
        self.shared.known.add(&topology);
        // Before the lock, as it takes memory.
        let topology = Arc::new(topology);
        let order = self.shared.relief.stalls();
        if self.shared.relief.is_keeping() {
            shut_stalled(&topology);
        }
        let (old, _) = self.shared.topology.get();
        self.shared.topology.replace(topology);
        drop(order);
        self.shared.old.release(Released::Topology(old));
        self.shared.wake();
    }

    /// Returns true if everything that the last [`Engine::publish`] removed is released: its memory unmapped, its
    /// descriptors closed.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.is_settled() && self.shared.old.is_done()
    }

    /// Returns true if no poller uses a topology older than the last [`Engine::publish`].
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let version = self.shared.topology.version();
        self.shared.states.iter().all(|state| state.has_adopted(version))
    }

    /// Returns true if no poller, except the quarantine pollers, uses a topology older than the last
    /// [`Engine::publish`]. A quarantine poller may wait for a client's memory without bound.
    #[must_use]
    pub fn is_taken_over(&self) -> bool {
        let version = self.shared.topology.version();
        self.states().iter().all(|state| state.has_adopted(version))
    }

    /// The numbers of the pollers whose loops have not run since the last call. Wakes the sleeping pollers, so that two
    /// calls some seconds apart show which pollers are stuck. Does not wait.
    #[must_use]
    pub fn stuck_pollers(&self) -> Vec<usize> {
        let is_stuck = |state: &&Arc<PollerState>| {
            let answered = state.heartbeat.ask();
            state.wake();
            !answered
        };
        self.states().iter().filter(is_stuck).map(|state| state.number).collect()
    }

    /// The pollers whose threads the kernel keeps, since the last call. Other threads have their ports. [`Engine::faults`] becomes readable when there
    /// is one.
    #[must_use]
    pub fn take_relieved(&self) -> Vec<Relieved> {
        let named = |(poller, port): (usize, Weak<Port>)| {
            let port = self.shared.old.peek(&port, |port| port.name().to_owned());
            Relieved { poller, port }
        };
        self.shared.relief.take_reports().into_iter().map(named).collect()
    }

    /// Has the pollers end their batches and serve nobody any more. Waits at most so long for that: one that its client's memory keeps is left
    /// alone. The process is about to end.
    pub fn halt(&self, within: Duration) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.relief.wake();
        self.shared.states.iter().for_each(|state| state.wake());
        let until = Instant::now() + within;
        let relieving = self.shared.relief.take_successors();
        let are_done = || self.threads.iter().chain(&relieving).all(JoinHandle::is_finished);
        while !are_done() && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// For tests: the number of threads that others have relieved, also those of quarantine pollers, which [`Engine::take_relieved`] leaves out.
    #[doc(hidden)]
    #[must_use]
    pub fn relieved_threads(&self) -> usize {
        self.shared.relief.relieved()
    }

    /// For tests: the next poller that adopts a topology panics outside of any port.
    #[doc(hidden)]
    pub fn inject_panic(&self) {
        self.shared.inject_panic.store(true, Ordering::Release);
    }

    /// A descriptor that becomes readable when some port has a fault. Reading its eight bytes resets it.
    #[must_use]
    pub fn faults(&self) -> BorrowedFd<'_> {
        self.shared.faults.as_fd()
    }

    /// The number of pollers.
    #[must_use]
    pub fn pollers(&self) -> usize {
        self.shared.pollers
    }

    /// The accounts of the pollers.
    #[must_use]
    pub fn readings(&self) -> Vec<PollerReading> {
        self.states().iter().map(|state| state.read()).collect()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.relief.wake();
        for thread in self.relief.drain(..) {
            let _ = thread.join();
        }
        self.shared.relief.take_spares().into_iter().for_each(Spare::end);
        self.shared.states.iter().for_each(|state| state.wake());
        self.threads.extend(self.shared.relief.take_successors());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        // Another engine may serve the ports.
        for attached in &self.shared.topology.get().0.ports {
            quarantine::forget(attached);
            stall::forget(attached);
        }
        self.shared.old.close();
        self.reaper.end();
    }
}
