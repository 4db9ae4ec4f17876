//! Threads that wait to become a poller's.
//!
//! Such a thread has its stack and all other memory that it needs. The kernel may keep every thread that maps memory just when it is wanted: a page
//! fault that waits while its page is punched has the lock of the process's mappings. So neither side allocates to hand a poller over.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use crate::poller_state::PollerState;

/// A thread that waits.
#[derive(Debug)]
pub(crate) struct Spare {
    handover: Arc<Handover>,
    thread: JoinHandle<()>,
}

/// What the thread waits for.
pub(crate) struct Order(Arc<Handover>);

/// Says whether the thread serves the poller.
pub(crate) struct Begun(Arc<Handover>);

#[derive(Debug, Default)]
struct Handover {
    stage: Mutex<Stage>,
    changed: Condvar,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Waits,
    Begins(Arc<PollerState>),
    /// The thread has the order.
    Taken,
    Begun(io::Result<()>),
    /// Nobody wants the thread any more, or it has ended.
    Ended,
}

impl Handover {
    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, stage: Stage) {
        *self.lock() = stage;
        self.changed.notify_all();
    }

    /// Waits for a stage for which `is_it` returns true, and sets the stage `next` after it.
    fn wait(&self, is_it: impl Fn(&Stage) -> bool, next: Stage) -> Stage {
        let stage = self.changed.wait_while(self.lock(), |stage| !is_it(stage));
        std::mem::replace(&mut stage.unwrap_or_else(PoisonError::into_inner), next)
    }
}

impl Spare {
    /// Starts a thread of this name.
    ///
    /// # Errors
    /// The kernel refuses a thread.
    pub(crate) fn start(name: String, run: impl FnOnce(Order) + Send + 'static) -> io::Result<Spare> {
        let handover = Arc::<Handover>::default();
        let order = Order(Arc::clone(&handover));
        let thread = Builder::new().name(name).spawn(move || run(order))?;
        Ok(Spare { handover, thread })
    }

    /// Makes the thread that of a poller.
    ///
    /// # Errors
    /// What the thread says.
    pub(crate) fn begin(self, state: Arc<PollerState>) -> io::Result<JoinHandle<()>> {
        self.order(state);
        self.begun()
    }

    /// Orders the thread to be that of a poller, without waiting for it.
    pub(crate) fn order(&self, state: Arc<PollerState>) {
        self.handover.set(Stage::Begins(state));
    }

    /// Waits until a thread that was ordered serves its poller.
    ///
    /// # Errors
    /// What the thread says.
    pub(crate) fn begun(self) -> io::Result<JoinHandle<()>> {
        let has_said = |stage: &Stage| matches!(stage, Stage::Begun(_) | Stage::Ended);
        match self.handover.wait(has_said, Stage::Ended) {
            Stage::Begun(begun) => begun.map(|()| self.thread),
            _ => Err(io::Error::from(io::ErrorKind::BrokenPipe)),
        }
    }

    /// Ends the thread.
    pub(crate) fn end(self) {
        self.handover.set(Stage::Ended);
        let _ = self.thread.join();
    }
}

impl Drop for Order {
    fn drop(&mut self) {
        if matches!(*self.0.lock(), Stage::Waits | Stage::Begins(_)) {
            self.0.set(Stage::Ended);
        }
    }
}

impl Order {
    /// Waits until the thread is wanted. `None`: it ends.
    pub(crate) fn wait(self) -> Option<(Arc<PollerState>, Begun)> {
        let is_wanted = |stage: &Stage| matches!(stage, Stage::Begins(_) | Stage::Ended);
        match self.0.wait(is_wanted, Stage::Taken) {
            Stage::Begins(state) => Some((state, Begun(Arc::clone(&self.0)))),
            _ => None,
        }
    }
}

impl Begun {
    /// Says it.
    pub(crate) fn say(self, begun: io::Result<()>) {
        self.0.set(Stage::Begun(begun));
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if matches!(*self.0.lock(), Stage::Taken) {
            self.0.set(Stage::Ended);
        }
    }
}
