//! What pollers, the engine and the thread that relieves pollers ([`crate::relieving`]) share.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};

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
        self.thread.get().inspect(|thread| thread.unpark());
    }

    /// Takes the reports since the last call.
    pub(crate) fn take_reports(&self) -> Vec<Relieved> {
        std::mem::take(&mut self.reports.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the threads that have relieved others.
    pub(crate) fn take_successors(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut self.successors.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Names the thread that relieves.
    pub(crate) fn begin(&self, thread: Thread) {
        let _ = self.thread.set(thread);
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
