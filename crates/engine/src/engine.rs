//! The pollers as a whole.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use crate::call;
use crate::poller;
use crate::published::Published;
use crate::quarantine;
use crate::reaper::Reaper;
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
    /// The next poller that adopts a topology is to panic ([`Engine::upset`]).
    pub(crate) upset: AtomicBool,
    pub(crate) faults: OwnedFd,
    /// How many there are.
    pub(crate) pollers: usize,
    /// The pollers, and behind them those of ports in quarantine.
    pub(crate) states: Vec<Arc<PollerState>>,
}

impl Shared {
    /// Wakes every poller that serves ports.
    pub(crate) fn wake(&self) {
        let serves = |state: &&Arc<PollerState>| !state.is_dormant();
        self.states.iter().filter(serves).for_each(|state| state.wake());
    }

    /// The pollers of ports in quarantine.
    pub(crate) fn keepers(&self) -> &[Arc<PollerState>] {
        &self.states[self.pollers..]
    }
}

/// One poller as the engine sees it.
#[derive(Debug)]
pub(crate) struct PollerState {
    pub(crate) number: usize,
    pub(crate) core: Option<usize>,
    pub(crate) wake: OwnedFd,
    /// An input that it waits for may be there now.
    pub(crate) returned: AtomicBool,
    pub(crate) asked: Asked,
    pub(crate) account: Account,
    /// Ports in quarantine that it serves, about.
    pub(crate) load: AtomicUsize,
}

/// [`Account::adopted`] of one that serves nothing and works with no topology.
pub(crate) const DORMANT: u64 = u64::MAX;

impl PollerState {
    fn new(number: usize, core: Option<usize>, adopted: u64) -> io::Result<Arc<PollerState>> {
        let account = Account { adopted: AtomicU64::new(adopted), ..Account::default() };
        let (returned, asked, load) = (AtomicBool::new(false), Asked::default(), AtomicUsize::new(0));
        Ok(Arc::new(PollerState { number, core, wake: new_eventfd()?, returned, asked, account, load }))
    }

    /// Whether it serves nothing, and is not to be woken for what is published.
    pub(crate) fn is_dormant(&self) -> bool {
        self.account.adopted.load(Ordering::Acquire) == DORMANT
    }

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

/// Whether the poller still goes round its loop: how often somebody asked, and which of these it has answered.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    asked: AtomicU64,
    answered: AtomicU64,
}

impl Asked {
    /// Asks once more. Returns whether what was asked before is answered.
    fn ask(&self) -> bool {
        let before = self.asked.fetch_add(1, Ordering::Relaxed);
        self.answered.load(Ordering::Relaxed) == before
    }

    /// The poller goes round.
    #[inline]
    pub(crate) fn answer(&self) {
        let asked = self.asked.load(Ordering::Relaxed);
        if asked != self.answered.load(Ordering::Relaxed) {
            self.answered.store(asked, Ordering::Relaxed);
        }
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
    keepers: Vec<JoinHandle<()>>,
    /// Ends after the pollers.
    reaper: Reaper,
}

/// Threads for ports in quarantine: so many of these do not wait for each other.
const KEEPERS: usize = 4;

fn new_eventfd() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

impl Engine {
    /// Starts the pollers, serving nothing.
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
        let states: io::Result<Vec<_>> = (cores.into_iter().enumerate())
            .map(|(number, core)| PollerState::new(number, core, 0))
            .chain((pollers..pollers + KEEPERS).map(|number| PollerState::new(number, None, DORMANT)))
            .collect();
        let shared = Arc::new(Shared {
            topology: Published::new(Topology::default()),
            stop: AtomicBool::new(false),
            upset: AtomicBool::new(false),
            faults: new_eventfd()?,
            pollers,
            states: states?,
        });
        let reaper = Reaper::start(&shared)?;
        let mut engine = Engine { shared: Arc::clone(&shared), pollers: Vec::new(), keepers: Vec::new(), reaper };
        for state in &shared.states {
            let thread = poller::spawn(Arc::clone(&shared), Arc::clone(state), settings)?;
            if state.number < pollers {
                engine.pollers.push((Arc::clone(state), Some(thread)));
            } else {
                engine.keepers.push(thread);
            }
        }
        Ok(engine)
    }

    /// Makes pollers serve this topology, from their next batch on.
    pub fn publish(&self, topology: Topology) {
        let (old, _) = self.shared.topology.get();
        self.shared.topology.replace(topology);
        self.reaper.take(self.shared.topology.version(), old);
        self.shared.wake();
    }

    /// Whether what was published before the last [`Engine::publish`], and is nowhere else, is released: its memory unmapped, its
    /// descriptors closed.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.is_settled() && self.reaper.is_done()
    }

    /// Whether every poller has let go of what was published before the last [`Engine::publish`].
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let version = self.shared.topology.version();
        self.shared.states.iter().all(|state| state.account.adopted.load(Ordering::Acquire) >= version)
    }

    /// The same, but for the threads that serve ports in quarantine: these may wait for such a port's memory for as long as its
    /// client likes.
    #[must_use]
    pub fn is_taken_over(&self) -> bool {
        let version = self.shared.topology.version();
        let has_it = |state: &Arc<PollerState>| state.account.adopted.load(Ordering::Acquire) >= version;
        self.pollers.iter().all(|(state, _)| has_it(state))
    }

    /// The numbers of the pollers that have not gone round their loops since this was called last. One that sleeps is woken for
    /// that, so that calls some seconds apart tell which ones are stuck. Does not wait.
    #[must_use]
    pub fn stuck_pollers(&self) -> Vec<usize> {
        let stuck = |state: &PollerState| {
            let answered = state.asked.ask();
            state.wake();
            !answered
        };
        self.pollers.iter().filter(|(state, _)| stuck(state)).map(|(state, _)| state.number).collect()
    }

    /// For tests: the next poller that adopts a topology panics, by no port's fault.
    #[doc(hidden)]
    pub fn upset(&self) {
        self.shared.upset.store(true, Ordering::Release);
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
        self.shared.states.iter().for_each(|state| state.wake());
        let pollers = self.pollers.iter_mut().filter_map(|(_, thread)| thread.take());
        for thread in pollers.chain(self.keepers.drain(..)) {
            let _ = thread.join();
        }
        // Another engine may serve them.
        for attached in &self.shared.topology.get().0.ports {
            quarantine::forget(attached);
        }
        self.reaper.end();
    }
}
