//! What pollers, the engine and the thread that relieves pollers ([`crate::relieving`]) share. Nobody allocates with one of the locks here locked: who
//! allocates may have to wait, and the thread that relieves must not.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{JoinHandle, Thread};

use ringway_switch::Port;

use crate::spare::Spare;

/// Most reports that wait to be read.
const MOST_REPORTS: usize = 64;
/// Most threads that are kept at a time. A poller whose thread is one more waits for it.
pub(crate) const MOST_KEPT: usize = 64;
/// Threads that wait to relieve others.
pub(crate) const SPARES: usize = 4;

/// A poller whose thread the kernel keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relieved {
    /// The number of the poller.
    pub poller: usize,
    /// The port that the thread serves. `None`: the port has been removed, or there was none yet.
    pub port: Option<String>,
}

/// What the pollers and the relieving thread share.
#[derive(Debug, Default)]
pub(crate) struct Relief {
    /// The thread looks at nobody until this is false again.
    pub(crate) is_resting: AtomicBool,
    thread: OnceLock<Thread>,
    /// Numbers of pollers, and the ports.
    reports: Mutex<Vec<(usize, Weak<Port>)>>,
    /// Threads that can relieve others, and the thread that starts further ones.
    spares: Mutex<Vec<Spare>>,
    starter: OnceLock<Thread>,
    /// Number of threads that are kept.
    kept: AtomicUsize,
    /// Number of threads that others have relieved, for tests.
    relieved: AtomicUsize,
    /// Locked while ports are shut or opened ([`crate::stall`]), or a topology is published.
    stalls: Mutex<()>,
    /// The threads that have relieved others.
    successors: Mutex<Vec<JoinHandle<()>>>,
}

impl Relief {
    /// For an engine with so many pollers.
    pub(crate) fn new(pollers: usize) -> Relief {
        // Successors that are kept, that serve, and that have ended since the last time that spare threads were added.
        let successors = Mutex::new(Vec::with_capacity(MOST_KEPT + pollers + 2 * SPARES));
        let (reports, spares) = (Mutex::new(Vec::with_capacity(MOST_REPORTS)), Mutex::new(Vec::with_capacity(SPARES)));
        Relief { reports, spares, successors, ..Relief::default() }
    }

    /// To be called by a poller that has slept: someone looks at it from now on.
    #[inline]
    pub(crate) fn look(&self) {
        // What says that the poller is awake comes before.
        fence(Ordering::SeqCst);
        if self.is_resting.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Wakes the thread, also to end it.
    #[cold]
    pub(crate) fn wake(&self) {
        self.is_resting.store(false, Ordering::Relaxed);
        [&self.thread, &self.starter].into_iter().filter_map(OnceLock::get).for_each(Thread::unpark);
    }

    /// Returns true if a thread is kept.
    pub(crate) fn is_keeping(&self) -> bool {
        self.kept.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn set_kept(&self, threads: usize) {
        self.kept.store(threads, Ordering::Relaxed);
    }

    /// Locks who may shut and open ports, and publish.
    pub(crate) fn stalls(&self) -> MutexGuard<'_, ()> {
        lock(&self.stalls)
    }

    /// Takes the reports since the last call.
    pub(crate) fn take_reports(&self) -> Vec<(usize, Weak<Port>)> {
        let mut taken = Vec::with_capacity(MOST_REPORTS);
        taken.append(&mut lock(&self.reports));
        taken
    }

    /// Takes the threads that have relieved others.
    pub(crate) fn take_successors(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut lock(&self.successors))
    }

    /// Names the thread that relieves, and the one that starts spare threads.
    pub(crate) fn begin(&self, thread: Thread, starter: Thread) {
        let _ = self.thread.set(thread);
        let _ = self.starter.set(starter);
    }

    /// Takes a spare thread, and has another one started.
    pub(crate) fn take_spare(&self) -> Option<Spare> {
        let spare = lock(&self.spares).pop();
        self.prepare();
        spare
    }

    /// Wakes the thread that starts spare threads and maps spare memory.
    pub(crate) fn prepare(&self) {
        self.starter.get().inspect(|starter| starter.unpark());
    }

    /// The number of spare threads.
    pub(crate) fn spares(&self) -> usize {
        lock(&self.spares).len()
    }

    /// Adds a spare thread.
    pub(crate) fn add_spare(&self, spare: Spare) {
        lock(&self.spares).push(spare);
    }

    /// Takes all spare threads.
    pub(crate) fn take_spares(&self) -> Vec<Spare> {
        std::mem::take(&mut lock(&self.spares))
    }

    /// Notes the thread that relieves another one.
    pub(crate) fn add_successor(&self, successor: JoinHandle<()>) {
        lock(&self.successors).push(successor);
        self.relieved.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of threads that others have relieved.
    pub(crate) fn relieved(&self) -> usize {
        self.relieved.load(Ordering::Relaxed)
    }

    /// Forgets the threads that have relieved others and have ended: each keeps a stack until its handle is dropped. To be called before spare threads
    /// are added.
    pub(crate) fn forget_ended(&self) {
        let mut successors = lock(&self.successors);
        let most = successors.capacity();
        drop(successors);
        let mut ended = Vec::with_capacity(most);
        successors = lock(&self.successors);
        ended.extend(successors.extract_if(.., |successor| successor.is_finished()).take(most));
        drop(successors);
        drop(ended);
    }

    /// Reports a poller that was at this port, if there are not too many reports.
    pub(crate) fn report(&self, poller: usize, port: Weak<Port>) {
        let mut reports = lock(&self.reports);
        if reports.len() < MOST_REPORTS {
            reports.push((poller, port));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
