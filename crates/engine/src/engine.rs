//! The pollers as a whole.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use crate::call::{self, CallWatch};
use crate::poller;
use crate::published::Published;
use crate::source::Attached;

/// What a poller does when there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Keeps looking, without end.
    Spin,
    /// Keeps looking for this long after the last frame, then asks for kicks and sleeps.
    Adaptive(Duration),
    /// Asks for kicks and sleeps at once.
    Sleep,
}

/// How to run the pollers.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// CPUs, one poller pinned to each; empty: one poller that runs anywhere.
    pub cores: Vec<usize>,
    /// What to do when there is nothing to do.
    pub idle: Idle,
    /// Most frames of a batch, 1 to 1024.
    pub batch: usize,
    /// Whether rings are left alone for a while where that lets their drivers send more.
    pub pacing: bool,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self { cores: Vec::new(), idle: Idle::Adaptive(Duration::from_micros(50)), batch: 256, pacing: true }
    }
}

/// Everything that is served, as of some moment.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    /// The ports.
    pub ports: Vec<Attached>,
}

/// A poller's account.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PollerReading {
    /// The CPU it is pinned to.
    pub core: Option<usize>,
    /// Time spent moving frames (VPE utilisation).
    pub busy: Duration,
    /// Time spent looking or sleeping.
    pub free: Duration,
    /// Passes that moved frames.
    pub passes: u64,
    /// Times it went to sleep.
    pub sleeps: u64,
}

/// What the pollers share with the engine.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) topology: Published<Topology>,
    pub(crate) stop: AtomicBool,
    pub(crate) faults: OwnedFd,
    /// How many there are.
    pub(crate) pollers: usize,
}

/// One poller as the engine sees it.
#[derive(Debug)]
pub(crate) struct PollerState {
    pub(crate) number: usize,
    pub(crate) core: Option<usize>,
    pub(crate) wake: OwnedFd,
    /// An input that it waits for may be there now.
    pub(crate) returned: AtomicBool,
    pub(crate) account: Account,
    pub(crate) watch: Arc<CallWatch>,
}

impl PollerState {
    /// Whether an input has come back since this was last asked.
    #[inline]
    pub(crate) fn has_returned(&self) -> bool {
        self.returned.load(Ordering::Relaxed) && self.returned.swap(false, Ordering::Acquire)
    }

    pub(crate) fn wake(&self) {
        // Only this process has the descriptor; a full counter is as good as a write.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// Counters a poller writes and others read.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) busy_ns: AtomicU64,
    pub(crate) free_ns: AtomicU64,
    pub(crate) passes: AtomicU64,
    pub(crate) sleeps: AtomicU64,
    /// Version of the topology the poller works with.
    pub(crate) adopted: AtomicU64,
}

/// The running pollers. Ends and joins them when dropped.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<Shared>,
    pollers: Vec<(Arc<PollerState>, Option<JoinHandle<()>>)>,
    watchdog: Option<JoinHandle<()>>,
    watchdog_stop: Arc<(Mutex<bool>, Condvar)>,
}

fn new_eventfd() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

impl Engine {
    /// Starts the pollers, serving nothing.
    ///
    /// # Errors
    /// The kernel refuses a thread, a descriptor or the pinning to a CPU that is not there.
    pub fn start(settings: &EngineSettings) -> io::Result<Engine> {
        call::install_interrupt();
        let cores: Vec<Option<usize>> = match settings.cores.as_slice() {
            [] => vec![None],
            cores => cores.iter().copied().map(Some).collect(),
        };
        let shared = Arc::new(Shared {
            topology: Published::new(Topology::default()),
            stop: AtomicBool::new(false),
            faults: new_eventfd()?,
            pollers: cores.len(),
        });
        let mut engine = Engine {
            shared,
            pollers: Vec::new(),
            watchdog: None,
            watchdog_stop: Arc::new((Mutex::new(false), Condvar::new())),
        };
        for (number, core) in cores.into_iter().enumerate() {
            let (account, watch) = (Account::default(), Arc::new(CallWatch::default()));
            let (wake, returned) = (new_eventfd()?, AtomicBool::new(false));
            let state = Arc::new(PollerState { number, core, wake, returned, account, watch });
            let thread = poller::spawn(Arc::clone(&engine.shared), Arc::clone(&state), settings)?;
            engine.pollers.push((state, Some(thread)));
        }
        engine.start_watchdog()?;
        Ok(engine)
    }

    fn start_watchdog(&mut self) -> io::Result<()> {
        let watches: Vec<Arc<CallWatch>> = self.pollers.iter().map(|(state, _)| Arc::clone(&state.watch)).collect();
        let stop = Arc::clone(&self.watchdog_stop);
        let thread = std::thread::Builder::new().name("watchdog".into()).spawn(move || {
            let mut seen: HashMap<*const CallWatch, u64> = HashMap::new();
            let (stopped, changed) = &*stop;
            let mut guard = stopped.lock().unwrap_or_else(PoisonError::into_inner);
            while !*guard {
                guard = match changed.wait_timeout(guard, Duration::from_millis(250)) {
                    Ok((guard, _)) => guard,
                    Err(poisoned) => poisoned.into_inner().0,
                };
                let look = |watch: &Arc<CallWatch>| {
                    let key = Arc::as_ptr(watch);
                    (key, watch.check(seen.get(&key).copied().unwrap_or(0)))
                };
                seen = watches.iter().chain(&call::others()).map(look).collect();
            }
        })?;
        self.watchdog = Some(thread);
        Ok(())
    }

    /// Makes pollers serve this topology, from their next batch on.
    pub fn publish(&self, topology: Topology) {
        self.shared.topology.replace(topology);
        self.wake();
    }

    /// Whether every poller has let go of what was published before the last [`Engine::publish`].
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let version = self.shared.topology.version();
        self.pollers.iter().all(|(state, _)| state.account.adopted.load(Ordering::Acquire) >= version)
    }

    fn wake(&self) {
        self.pollers.iter().for_each(|(state, _)| state.wake());
    }

    /// Becomes readable when some port has a fault; read its eight bytes to reset it.
    #[must_use]
    pub fn faults(&self) -> BorrowedFd<'_> {
        self.shared.faults.as_fd()
    }

    /// How many pollers there are.
    #[must_use]
    pub fn pollers(&self) -> usize {
        self.pollers.len()
    }

    /// The pollers' accounts.
    #[must_use]
    pub fn readings(&self) -> Vec<PollerReading> {
        let read = |state: &PollerState| PollerReading {
            core: state.core,
            busy: Duration::from_nanos(state.account.busy_ns.load(Ordering::Relaxed)),
            free: Duration::from_nanos(state.account.free_ns.load(Ordering::Relaxed)),
            passes: state.account.passes.load(Ordering::Relaxed),
            sleeps: state.account.sleeps.load(Ordering::Relaxed),
        };
        self.pollers.iter().map(|(state, _)| read(state)).collect()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.wake();
        for (_, thread) in &mut self.pollers {
            if let Some(thread) = thread.take() {
                let _ = thread.join();
            }
        }
        *self.watchdog_stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.watchdog_stop.1.notify_all();
        if let Some(thread) = self.watchdog.take() {
            let _ = thread.join();
        }
    }
}
