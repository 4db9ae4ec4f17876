//! The pollers as a whole: their start and end, the published topology, their readings.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringway_runtime::call;
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
    threads: Mutex<Vec<JoinHandle<()>>>,
    starting: Mutex<Starting>,
    /// Ends before the pollers.
    relief: Vec<JoinHandle<()>>,
    /// Ends after the pollers.
    reaper: Reaper,
}

/// What an engine that starts waits for.
#[derive(Debug)]
struct Starting {
    /// Pollers that are not known to run.
    threads: Vec<Spare>,
    /// Says once that pollers can be relieved.
    prepared: Option<Receiver<()>>,
}

impl Engine {
    /// Starts the pollers, which serve no port yet.
    ///
    /// # Errors
    /// The kernel refuses a thread, a descriptor or memory. [`Engine::wait_until_started`] has further ones.
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
        let starting = Mutex::new(Starting { threads: Vec::new(), prepared: Some(prepared) });
        let engine = Engine { shared: Arc::clone(&shared), threads: Mutex::default(), relief, starting, reaper };
        for state in &shared.states {
            let thread = spare(&shared, settings, name_of(&shared, state.number))?;
            thread.order(Arc::clone(state));
            lock(&engine.starting).threads.push(thread);
        }
        Ok(engine)
    }

    /// Waits until all pollers run, and all that relieves them is there: once a client's port is served, the client can keep the kernel from giving any.
    /// [`Engine::publish`] waits, too. The start of an engine that this is not called for costs its caller less.
    ///
    /// # Errors
    /// The kernel refuses a descriptor, or the pinning to a CPU that is not there.
    pub fn wait_until_started(&self) -> io::Result<()> {
        let mut starting = lock(&self.starting);
        let mut failed = None;
        for thread in starting.threads.drain(..) {
            match thread.begun() {
                Ok(thread) => lock(&self.threads).push(thread),
                Err(why) => failed = Some(why),
            }
        }
        // What there is no room for is tried again each second.
        let _ = starting.prepared.take().map(|prepared| prepared.recv_timeout(PREPARED_WITHIN));
        failed.map_or(Ok(()), Err)
    }

    /// The pollers without those of ports in quarantine.
    fn states(&self) -> &[Arc<PollerState>] {
        &self.shared.states[..self.shared.pollers]
    }

    /// Makes the pollers serve this topology, from their next batch on.
    pub fn publish(&self, topology: Topology) {
        // Who wants to know has asked.
        let _ = self.wait_until_started();
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
        let threads = lock(&self.threads);
        let are_done = || threads.iter().chain(&relieving).all(JoinHandle::is_finished);
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
        let _ = self.wait_until_started();
        self.shared.stop.store(true, Ordering::Release);
        self.shared.relief.wake();
        for thread in self.relief.drain(..) {
            let _ = thread.join();
        }
        self.shared.relief.take_spares().into_iter().for_each(Spare::end);
        self.shared.states.iter().for_each(|state| state.wake());
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads.into_iter().chain(self.shared.relief.take_successors()) {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
