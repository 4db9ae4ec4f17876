//! What pollers, the engine and the thread that relieves pollers ([`crate::relieving`]) share.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};

use crate::spare::Spare;

/// Most reports that wait to be read.
const MOST_REPORTS: usize = 64;

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
    reports: Mutex<Vec<Relieved>>,
    /// Threads that can relieve others, and the thread that starts further ones.
    spares: Mutex<Vec<Spare>>,
    starter: OnceLock<Thread>,
    /// Number of threads that are kept.
    kept: AtomicUsize,
    /// Locked while ports are shut or opened ([`crate::stall`]), or a topology is published.
    stalls: Mutex<()>,
    /// The threads that have relieved others.
    successors: Mutex<Vec<JoinHandle<()>>>,
}

impl Relief {
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
        self.stalls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the reports since the last call.
    pub(crate) fn take_reports(&self) -> Vec<Relieved> {
        std::mem::take(&mut self.reports.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the threads that have relieved others.
    pub(crate) fn take_successors(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut self.successors.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Names the thread that relieves, and the one that starts spare threads.
    pub(crate) fn begin(&self, thread: Thread, starter: Thread) {
        let _ = self.thread.set(thread);
        let _ = self.starter.set(starter);
    }

    /// Takes a spare thread, and has another one started.
    pub(crate) fn take_spare(&self) -> Option<Spare> {
        let spare = self.spares().pop();
        self.prepare();
        spare
    }

    /// Has threads started and memory mapped, as many and as much as are to be spare.
    pub(crate) fn prepare(&self) {
        self.starter.get().inspect(|starter| starter.unpark());
    }

    /// The spare threads. Never locked while a thread is started.
    pub(crate) fn spares(&self) -> MutexGuard<'_, Vec<Spare>> {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all spare threads.
    pub(crate) fn take_spares(&self) -> Vec<Spare> {
        std::mem::take(&mut self.spares())
    }

    /// Notes the thread that relieves another one.
    pub(crate) fn add_successor(&self, successor: JoinHandle<()>) {
        let mut successors = self.successors.lock().unwrap_or_else(PoisonError::into_inner);
        // What has ended keeps a stack until its handle is dropped.
        successors.retain(|successor| !successor.is_finished());
        successors.push(successor);
    }

    /// Reports a poller, if there are not too many reports.
    pub(crate) fn report(&self, relieved: Relieved) {
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        if reports.len() < MOST_REPORTS {
            reports.push(relieved);
        }
    }
}
