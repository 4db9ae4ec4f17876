//! The state of a poller that other threads see.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Wake;
use std::time::Duration;

use ringway_switch::Touching;
use rustix::event::{EventfdFlags, eventfd};

use crate::charging::Charging;

/// [`Account::adopted`] of a poller that serves no port and has no topology.
pub(crate) const DORMANT: u64 = u64::MAX;

/// A non-blocking eventfd whose counter is 0.
///
/// # Errors
/// The kernel refuses a descriptor.
pub(crate) fn new_eventfd() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// One poller as the engine and other pollers see it.
#[derive(Debug)]
pub(crate) struct PollerState {
    pub(crate) number: usize,
    pub(crate) core: Option<usize>,
    pub(crate) wake: OwnedFd,
    /// True if an input that the poller waits for may have been put back.
    pub(crate) returned: AtomicBool,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) account: Account,
    /// Approximate number of ports in quarantine that the poller serves.
    pub(crate) load: AtomicUsize,
    /// The thread on duty.
    shift: Mutex<Arc<Shift>>,
}

/// A thread of a poller. Another one relieves it if the kernel keeps it ([`crate::relieving`]).
#[derive(Debug)]
pub(crate) struct Shift {
    /// Owns the inputs that the thread has taken. 0: no thread's.
    pub(crate) id: u64,
    /// The number of the thread, once it runs.
    pub(crate) thread: AtomicI32,
    /// The number of the source that it has used last.
    pub(crate) using: AtomicU64,
    /// The port that it touches as a receiver.
    pub(crate) touching: Touching,
    /// It examines its visits.
    pub(crate) is_examining: AtomicBool,
    /// Who charges ports for what the thread did.
    pub(crate) charging: Charging,
    /// Readings of the clock.
    pub(crate) turns: AtomicU64,
    /// It waits for events, without a port in use.
    pub(crate) is_asleep: AtomicBool,
    is_relieved: AtomicBool,
}

impl Shift {
    /// A thread that has taken no input yet.
    pub(crate) fn new(touching: Touching) -> Arc<Shift> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(Shift::of(NEXT.fetch_add(1, Ordering::Relaxed), touching))
    }

    fn of(id: u64, touching: Touching) -> Shift {
        Shift {
            id,
            thread: AtomicI32::new(0),
            using: AtomicU64::new(0),
            touching,
            is_examining: AtomicBool::new(false),
            charging: Charging::default(),
            turns: AtomicU64::new(0),
            is_asleep: AtomicBool::new(false),
            is_relieved: AtomicBool::new(false),
        }
    }

    /// Returns true if another thread has the poller's ports: this one ends.
    #[inline]
    pub(crate) fn is_relieved(&self) -> bool {
        self.is_relieved.load(Ordering::Acquire)
    }
}

/// Wakes a quarantine poller when the detour of its port gets frames.
impl Wake for PollerState {
    fn wake(self: Arc<Self>) {
        PollerState::wake(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        PollerState::wake(self);
    }
}

impl PollerState {
    pub(crate) fn new(number: usize, core: Option<usize>, adopted: u64) -> io::Result<Arc<PollerState>> {
        let account = Account { adopted: AtomicU64::new(adopted), ..Account::default() };
        let (returned, heartbeat, load) = (AtomicBool::new(false), Heartbeat::default(), AtomicUsize::new(0));
        let shift = Mutex::new(Arc::new(Shift::of(0, Touching::nowhere())));
        Ok(Arc::new(PollerState { number, core, wake: new_eventfd()?, returned, heartbeat, account, load, shift }))
    }

    /// The thread on duty.
    pub(crate) fn shift(&self) -> Arc<Shift> {
        Arc::clone(&self.shift.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts a thread on duty. Returns the one that it relieves.
    pub(crate) fn begin_shift(&self, shift: &Arc<Shift>) -> Arc<Shift> {
        let mut on_duty = self.shift.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *on_duty, Arc::clone(shift));
        before.is_relieved.store(true, Ordering::Release);
        before
    }

    /// Returns true if the poller serves no port, so that a new topology does not wake it.
    pub(crate) fn is_dormant(&self) -> bool {
        self.account.adopted.load(Ordering::Acquire) == DORMANT
    }

    /// Returns true if the poller has this version of the topology, or a later one, or none.
    pub(crate) fn has_adopted(&self, version: u64) -> bool {
        self.account.adopted.load(Ordering::Acquire) >= version
    }

    /// Returns true if an input has been put back since the last call. To be called by this thread of the poller.
    #[inline]
    pub(crate) fn has_returned(&self, shift: &Shift) -> bool {
        let has = self.returned.load(Ordering::Relaxed) && self.returned.swap(false, Ordering::Acquire);
        if has && shift.is_relieved() {
            // That is for the thread that relieved this one.
            self.note_returned();
        }
        has
    }

    /// Wakes the poller, as an input that it waits for may have been put back.
    pub(crate) fn note_returned(&self) {
        self.returned.store(true, Ordering::Release);
        self.wake();
    }

    /// Wakes the poller if it sleeps.
    pub(crate) fn wake(&self) {
        // No other process has the descriptor. A full counter wakes the poller, too.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// Shows whether the poller's loop runs: the number of requests, and the last request that the poller answered.
#[derive(Debug, Default)]
pub(crate) struct Heartbeat {
    asked: AtomicU64,
    answered: AtomicU64,
}

impl Heartbeat {
    /// Makes a request. Returns true if the one before is answered.
    pub(crate) fn ask(&self) -> bool {
        let before = self.asked.fetch_add(1, Ordering::Relaxed);
        self.answered.load(Ordering::Relaxed) == before
    }

    /// Answers the last request. To be called in the poller's loop.
    #[inline]
    pub(crate) fn answer(&self) {
        let asked = self.asked.load(Ordering::Relaxed);
        if asked != self.answered.load(Ordering::Relaxed) {
            self.answered.store(asked, Ordering::Relaxed);
        }
    }
}

/// Counters that one poller writes and other threads read.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) busy_ns: AtomicU64,
    pub(crate) free_ns: AtomicU64,
    pub(crate) passes: AtomicU64,
    pub(crate) sleeps: AtomicU64,
    /// True while other threads want the poller's processor.
    pub(crate) shared: AtomicBool,
    /// The version of the topology that the poller works with, or [`DORMANT`].
    pub(crate) adopted: AtomicU64,
}

/// Adds to a counter that only the calling thread writes.
#[inline]
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

/// The account of one poller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PollerReading {
    /// The CPU that the poller is pinned to.
    pub core: Option<usize>,
    /// Time spent moving frames (VPE utilisation).
    pub busy: Duration,
    /// Time spent polling or asleep.
    pub free: Duration,
    /// Rounds that moved frames.
    pub passes: u64,
    /// Times that the poller went to sleep.
    pub sleeps: u64,
    /// Other threads want the poller's processor: one that is not pinned sleeps at once with [`crate::Idle::Adaptive`]. As of its last work; false with other
    /// settings.
    pub shared: bool,
}

impl PollerState {
    /// The poller's account.
    pub(crate) fn read(&self) -> PollerReading {
        PollerReading {
            core: self.core,
            busy: Duration::from_nanos(self.account.busy_ns.load(Ordering::Relaxed)),
            free: Duration::from_nanos(self.account.free_ns.load(Ordering::Relaxed)),
            passes: self.account.passes.load(Ordering::Relaxed),
            sleeps: self.account.sleeps.load(Ordering::Relaxed),
            shared: self.account.shared.load(Ordering::Relaxed),
        }
    }
}
