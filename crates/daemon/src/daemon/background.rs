//! Background tasks: work whose length a client controls, for example closing a front end, ending pollers, or changing the settings
//! of a front end. Each task has a thread of its own, so that neither the daemon nor another client waits. The thread that began a
//! task waits for it within bounds and without the daemon's lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ringway_runtime::contain;
use ringway_switch::PanicLocation;

use crate::inject;

/// A task, for the thread that runs it.
#[derive(Debug, Default)]
pub struct BackgroundTask(Arc<Done>);

/// True once the task has ended, has failed, or could not be started.
type Done = AtomicBool;

/// The tasks that were begun and may not have ended.
#[derive(Debug, Default)]
pub struct BackgroundTasks(Vec<Arc<Done>>);

impl BackgroundTasks {
    /// Registers a task.
    pub(super) fn begin(&mut self) -> BackgroundTask {
        self.0.retain(|done| !done.load(Ordering::Acquire));
        let done = Arc::new(Done::new(false));
        self.0.push(Arc::clone(&done));
        BackgroundTask(done)
    }

    /// Returns true if all tasks have ended.
    pub fn are_done(&self) -> bool {
        self.0.iter().all(|done| done.load(Ordering::Acquire))
    }
}

impl BackgroundTask {
    /// Ends the task, whose work another one has done.
    pub(super) fn finish(self) {
        self.0.store(true, Ordering::Release);
    }

    /// Runs `work` on a thread of its own, or here if no thread can be started. A panic of `work` calls `failed`; it ends neither
    /// the thread nor the process.
    pub fn spawn(
        self,
        name: &'static str,
        work: impl FnOnce() + Send + 'static,
        failed: impl FnOnce(PanicLocation) + Send + 'static,
    ) {
        // A thread that cannot be started drops its closure: this side keeps the work, too.
        let here = Arc::new(Mutex::new(Some((work, failed, SetDone(self)))));
        let there = Arc::clone(&here);
        if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(move || run(name, &there)) {
            tracing::warn!("cannot start a thread: {error}");
            run(name, &here);
        }
    }
}

/// Marks a task as done when it is dropped.
struct SetDone(BackgroundTask);

impl Drop for SetDone {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Release);
    }
}

fn run(name: &str, work: &Mutex<Option<(impl FnOnce(), impl FnOnce(PanicLocation), SetDone)>>) {
    let work = work.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((work, failed, done)) = work {
        let work = || {
            inject::at(name);
            work();
        };
        if let Err(place) = contain(work) {
            failed(place);
        }
        drop(done);
    }
}

/// Logs that closing a front end has failed. The port is already gone, so no port is retired.
pub(super) fn log_failed_close(label: &str, place: PanicLocation) {
    tracing::error!(
        "a defect of Ringway, please report it: it failed at {place} when it closed the front end of port {label}"
    );
}
