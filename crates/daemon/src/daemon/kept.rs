//! Writes the state file, without the daemon's lock: a disk can take any time. The newest state wins, and one thread at a time writes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringway_config::changes::{Changes, text};
use ringway_switch::PanicLocation;

use super::background::BackgroundTask;
use crate::inject;
use crate::state_file::StateFile;

/// The state file, for the daemon.
#[derive(Debug)]
pub struct StateWriter {
    shared: Arc<Shared>,
    /// The contents that were given last; none: no file.
    given: Option<String>,
}

#[derive(Debug)]
struct Shared {
    file: StateFile,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// What is to be written next.
    next: Option<Contents>,
    /// What is being written.
    writing: Option<Contents>,
    /// Tasks that are done once all is written.
    waiting: Vec<BackgroundTask>,
    /// What could not be written, and why.
    failed: Option<(Contents, String)>,
}

/// The contents of the file; none: no file.
type Contents = Option<Arc<str>>;

impl StateWriter {
    /// A writer of this file. `has_changes`: changes were read, which the first ones that are given replace, even if they are none.
    pub fn new(file: StateFile, has_changes: bool) -> Self {
        let given = has_changes.then(String::new);
        Self { shared: Arc::new(Shared { file, queue: Mutex::default() }), given }
    }

    /// Begins to write these changes, unless they were given last. `begin` makes the task that is done once they are written, or could
    /// not be. Returns true if there is something to write.
    pub fn keep(&mut self, changes: &Changes, begin: impl FnOnce() -> BackgroundTask) -> bool {
        let contents = (!changes.is_empty()).then(|| text::write(changes));
        if contents == self.given {
            return false;
        }
        self.given.clone_from(&contents);
        self.shared.write(contents.map(Arc::from), begin());
        true
    }

    /// Tries again what could not be written.
    pub fn try_again(&self, begin: impl FnOnce() -> BackgroundTask) {
        let contents = {
            let mut queue = self.shared.queue();
            if queue.writing.is_some() {
                return;
            }
            let failed = queue.failed.as_ref().map(|(contents, _)| contents.clone());
            queue.next.take().or(failed)
        };
        if let Some(contents) = contents {
            self.shared.write(contents, begin());
        }
    }

    /// Returns why the file does not have the changes, or that it is still being written.
    pub fn unwritten(&self) -> Option<String> {
        let path = self.shared.file.path().display();
        let is_writing = self.shared.queue().writing.is_some();
        is_writing.then(|| format!("{path} is still being written")).or_else(|| self.failure())
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

    fn write(self: &Arc<Self>, contents: Contents, task: BackgroundTask) {
        {
            let mut queue = self.queue();
            queue.next = Some(contents.clone());
            if queue.writing.is_some() {
                queue.waiting.push(task);
                return;
            }
            queue.writing = Some(contents);
        }
        let (here, there) = (Arc::clone(self), Arc::clone(self));
        task.spawn("write-state", move || here.write_all(), move |place| there.note_defect(place));
    }

    /// Writes until nothing is left to write.
    fn write_all(&self) {
        loop {
            let contents = {
                let mut queue = self.queue();
                let Some(contents) = queue.next.take() else {
                    queue.writing = None;
                    let waiting = std::mem::take(&mut queue.waiting);
                    drop(queue);
                    waiting.into_iter().for_each(BackgroundTask::finish);
                    return;
                };
                queue.writing = Some(contents.clone());
                contents
            };
            inject::at("state-file");
            let written = match &contents {
                Some(contents) if contents.len() > text::STATE_MAX => {
                    Err(format!("what commands changed is larger than {} MiB", text::STATE_MAX >> 20))
                }
                contents => self.file.write(contents.as_deref()),
            };
            let mut queue = self.queue();
            let before = queue.failed.take();
            match written {
                Ok(()) if before.is_some() => tracing::info!("{} is written again", self.file.path().display()),
                Ok(()) => {}
                Err(why) => {
                    if before.is_none_or(|(_, before)| before != why) {
                        tracing::error!(
                            "what commands changed is lost if the switch ends now: {why}; tried again every second"
                        );
                    }
                    queue.failed = Some((contents, why));
                }
            }
        }
    }

    fn note_defect(&self, place: PanicLocation) {
        tracing::error!("a defect of Ringway, please report it: it failed at {place} when it wrote the state file");
        let waiting = {
            let mut queue = self.queue();
            queue.failed = queue.writing.take().map(|contents| (contents, format!("a defect of Ringway at {place}")));
            std::mem::take(&mut queue.waiting)
        };
        waiting.into_iter().for_each(BackgroundTask::finish);
    }
}
