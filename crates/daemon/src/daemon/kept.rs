//! Writes the state file, without the daemon's lock: a disk can take any time. The newest state wins, and one thread at a time writes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringway_config::changes::Changes;
use ringway_switch::PanicLocation;

use super::background::BackgroundTask;
use crate::inject;
use crate::state_file::StateFile;

/// The state file, for the daemon.
#[derive(Debug)]
pub struct StateWriter {
    shared: Arc<Shared>,
    /// The state that was given last, or that the file had; none: what it had is not known.
    given: Option<Changes>,
    /// The number of the state that was given last.
    number: u64,
}

/// What commands had changed at one time.
#[derive(Debug, Default)]
struct State {
    /// Counts states, from 1.
    number: u64,
    changes: Changes,
}

#[derive(Debug)]
struct Shared {
    file: StateFile,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// The state that the thread writes next.
    next: Option<Arc<State>>,
    /// What is being written.
    writing: Option<Arc<State>>,
    /// The number of the newest state in the file.
    written: u64,
    /// Tasks that are done once all is written.
    waiting: Vec<BackgroundTask>,
    /// What could not be written, and why.
    failed: Option<(Arc<State>, String)>,
}

impl StateWriter {
    /// A writer of this file. It has these changes; none: the first ones that are given are written in any case.
    pub fn new(file: StateFile, given: Option<Changes>) -> Self {
        Self { shared: Arc::new(Shared { file, queue: Mutex::default() }), given, number: 0 }
    }

    /// Begins to write these changes, unless they were given last. `begin` makes the task that is done once they are written, or could
    /// not be. Returns the number of the state that is written.
    pub fn keep(&mut self, changes: Changes, begin: impl FnOnce() -> BackgroundTask) -> Option<u64> {
        if self.given.as_ref() == Some(&changes) {
            return None;
        }
        self.number += 1;
        self.given = Some(changes.clone());
        self.shared.write(Arc::new(State { number: self.number, changes }), begin());
        Some(self.number)
    }

    /// Tries again what could not be written.
    pub fn try_again(&self, begin: impl FnOnce() -> BackgroundTask) {
        let state = {
            let mut queue = self.shared.queue();
            if queue.writing.is_some() {
                return;
            }
            let failed = queue.failed.as_ref().map(|(state, _)| Arc::clone(state));
            queue.next.take().or(failed)
        };
        if let Some(state) = state {
            self.shared.write(state, begin());
        }
    }

    /// Returns why the file has neither this state nor a newer one.
    pub fn unwritten(&self, number: u64) -> Option<String> {
        if self.shared.queue().written >= number {
            return None;
        }
        Some(self.failure().unwrap_or_else(|| format!("{} is still being written", self.shared.file.path().display())))
    }

    /// Returns why the file does not have the changes.
    pub fn failure(&self) -> Option<String> {
        self.shared.queue().failed.as_ref().map(|(_, why)| why.clone())
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(self: &Arc<Self>, state: Arc<State>, task: BackgroundTask) {
        {
            let mut queue = self.queue();
            queue.next = Some(Arc::clone(&state));
            if queue.writing.is_some() {
                queue.waiting.push(task);
                return;
            }
            queue.writing = Some(state);
        }
        let (here, there) = (Arc::clone(self), Arc::clone(self));
        task.spawn("write-state", move || here.write_all(), move |place| there.note_defect(place));
    }

    /// Writes until nothing is left to write.
    fn write_all(&self) {
        loop {
            let state = {
                let mut queue = self.queue();
                let Some(state) = queue.next.take() else {
                    queue.writing = None;
                    let waiting = std::mem::take(&mut queue.waiting);
                    drop(queue);
                    waiting.into_iter().for_each(BackgroundTask::finish);
                    return;
                };
                queue.writing = Some(Arc::clone(&state));
                state
            };
            inject::at("state-file");
            let written = self.replace(&state.changes);
            let mut queue = self.queue();
            let before = queue.failed.take();
            match written {
                Ok(()) => {
                    queue.written = state.number;
                    if before.is_some() {
                        tracing::info!("{} is written again", self.file.path().display());
                    }
                }
                Err(why) => {
                    if before.is_none_or(|(_, before)| before != why) {
                        tracing::error!(
                            "what commands changed is lost if the switch ends now: {why}; tried again every second"
                        );
                    }
                    queue.failed = Some((state, why));
                }
            }
        }
    }

    fn replace(&self, changes: &Changes) -> Result<(), String> {
        self.file.write(changes)
    }

    fn note_defect(&self, place: PanicLocation) {
        tracing::error!("a defect of Ringway, please report it: it failed at {place} when it wrote the state file");
        let waiting = {
            let mut queue = self.queue();
            queue.failed = queue.writing.take().map(|state| (state, format!("a defect of Ringway at {place}")));
            std::mem::take(&mut queue.waiting)
        };
        waiting.into_iter().for_each(BackgroundTask::finish);
    }
}
