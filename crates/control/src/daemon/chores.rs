//! What a client can make last: the end of a front end, the end of pollers, the settings of a front end. Each is done by a thread of its own,
//! so that neither the daemon nor another client waits. Whoever asked for it waits for it, within bounds and without the daemon's
//! lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ringway_engine::contain;
use ringway_switch::Place;

use super::Daemon;
use super::front_end::FrontEnd;
use crate::inject;

/// Work that a thread of its own does.
#[derive(Debug, Default)]
pub struct Chore(Arc<Done>);

/// Whether it is done. True also when its thread could not be started, or has failed.
type Done = AtomicBool;

/// Work that was begun and may not be done yet.
#[derive(Debug, Default)]
pub struct Chores(Vec<Arc<Done>>);

impl Chores {
    /// One more.
    pub(super) fn begin(&mut self) -> Chore {
        self.0.retain(|done| !done.load(Ordering::Acquire));
        let done = Arc::new(Done::new(false));
        self.0.push(Arc::clone(&done));
        Chore(done)
    }

    /// Whether all are done.
    pub fn are_done(&self) -> bool {
        self.0.iter().all(|done| done.load(Ordering::Acquire))
    }
}

impl Chore {
    /// Has a thread do the work. Without threads left it is done here. A panic in it is told to `failed`, and ends neither the
    /// thread nor the process.
    pub fn spawn(
        self,
        name: &'static str,
        work: impl FnOnce() + Send + 'static,
        failed: impl FnOnce(Place) + Send + 'static,
    ) {
        // A thread that cannot be started drops what it was given: the work stays here as well.
        let here = Arc::new(Mutex::new(Some((work, failed, SayDone(self)))));
        let there = Arc::clone(&here);
        if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(move || run(name, &there)) {
            tracing::warn!("cannot start a thread: {error}");
            run(name, &here);
        }
    }
}

/// Tells when it is dropped.
struct SayDone(Chore);

impl Drop for SayDone {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Release);
    }
}

fn run(name: &str, work: &Mutex<Option<(impl FnOnce(), impl FnOnce(Place), SayDone)>>) {
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

/// Its port is gone already: there is nothing to retire.
pub(super) fn not_closed(label: &str, place: Place) {
    tracing::error!(
        "a defect of Ringway, please report it: it failed at {place} when it closed the front end of port {label}"
    );
}

impl Daemon {
    /// What was begun since this was asked last, for whoever waits for it.
    pub fn take_chores(&mut self) -> Chores {
        std::mem::take(&mut self.chores)
    }

    pub(super) fn begin(&mut self) -> Chore {
        self.chores.begin()
    }

    /// Ends a front end whose port is gone.
    pub(super) fn retire(&mut self, front_end: Arc<FrontEnd>) {
        let label = front_end.label().to_owned();
        self.begin().spawn("close", move || front_end.close(), move |place| not_closed(&label, place));
    }
}
