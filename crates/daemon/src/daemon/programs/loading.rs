//! Programs that are being loaded, side by side, on threads of their own.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringway_runtime::contain;
use rustix::process::{getpriority_process, setpriority_process};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

#[cfg(not(feature = "programs"))]
use super::absent as loaded;
#[cfg(feature = "programs")]
use super::loaded;
use super::ready::{CannotLoad, ReadyProgram, WantedProgram};
use super::seen::Seen;
use super::wanted::{NotLoaded, Wanted};
use loaded::{can_load, load_one};

/// Programs that are loaded at the same time: as many as are compiled.
const THREADS: usize = 2;

type Loaded = Result<ReadyProgram, CannotLoad>;

/// Programs that are being loaded. Dropping this ends their compilers.
#[derive(Debug)]
pub struct Loading {
    shared: Arc<Shared>,
    loaded: UnboundedReceiver<Loaded>,
    /// How many [`Loading::next`] has yet to return.
    left: usize,
}

/// What the threads share.
#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    done: UnboundedSender<Loaded>,
    /// Nobody waits any more.
    stop: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    wanted: VecDeque<WantedProgram>,
    /// The threads that have not found it empty.
    threads: usize,
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

impl Loading {
    /// Begins to load programs.
    pub fn begin(wanted: Vec<WantedProgram>) -> Self {
        let (done, loaded) = unbounded_channel();
        let shared = Arc::new(Shared { queue: Mutex::default(), done, stop: AtomicBool::new(false) });
        let mut loading = Self { shared, loaded, left: 0 };
        loading.add(wanted);
        loading
    }

    /// Begins to load further programs. Those that are slow keep a thread each.
    pub fn add(&mut self, wanted: Vec<WantedProgram>) {
        self.left += wanted.len();
        let mut queue = self.shared.queue();
        queue.wanted.extend(wanted);
        for _ in 0..queue.wanted.len().min(THREADS - queue.threads) {
            let shared = Arc::clone(&self.shared);
            match std::thread::Builder::new().name("load-program".to_owned()).spawn(move || shared.load()) {
                Ok(_) => queue.threads += 1,
                Err(error) if queue.threads == 0 => {
                    for Wanted { switch, keys, .. } in std::mem::take(&mut queue.wanted) {
                        // Not looked at: this thread serves others.
                        let (seen, why) = (Seen::nothing(), format!("cannot start a thread: {error}"));
                        let _ = self.shared.done.send(Err(CannotLoad::new(switch, keys, seen, why.into())));
                    }
                    return;
                }
                // The threads there are load all of them.
                Err(_) => return,
            }
        }
    }

    /// Returns the next program that was loaded, or could not be. `None`: these were all.
    pub async fn next(&mut self) -> Option<Loaded> {
        if self.left == 0 {
            return None;
        }
        let loaded = self.loaded.recv().await?;
        self.left -= 1;
        Some(loaded)
    }

    /// Returns all programs.
    ///
    /// # Errors
    /// One cannot be loaded.
    pub async fn all(mut self) -> Result<Vec<ReadyProgram>, CannotLoad> {
        let mut ready = Vec::new();
        while let Some(loaded) = self.next().await {
            ready.push(loaded?);
        }
        Ok(ready)
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next program to load. The thread ends if there is none.
    fn next(&self) -> Option<WantedProgram> {
        let mut queue = self.queue();
        let next = queue.wanted.pop_front().filter(|_| !self.stop.load(Ordering::Relaxed));
        queue.threads -= usize::from(next.is_none());
        next
    }

    /// Loads one program after the other. Takes long.
    fn load(&self) {
        // Pollers on the same processor go first. The compiler inherits it.
        let own = getpriority_process(None).unwrap_or(0).max(0);
        let _ = setpriority_process(None, own + 10);
        while let Some(wanted) = self.next() {
            // Before they are read: what changes later is seen.
            let seen = Seen::now(&wanted.keys, can_load().is_ok());
            if wanted.unless_seen.as_deref() == Some(&seen) {
                let Wanted { switch, keys, .. } = wanted;
                let _ = self.done.send(Err(CannotLoad::unchanged(switch, keys, seen)));
                continue;
            }
            let loaded = contain(|| load_one(&wanted, &self.stop)).unwrap_or_else(|place| {
                let what = format!("a defect of Ringway, please report it: it failed at {place}");
                Err(NotLoaded { what, is_final: false })
            });
            let Wanted { switch, keys, pollers, before, .. } = wanted;
            let loaded = match loaded {
                Ok(program) => Ok(ReadyProgram { switch, keys, pollers, before, program }),
                Err(why) => Err(CannotLoad::new(switch, keys, seen, why)),
            };
            // Nobody waits for it after an error of another one.
            let _ = self.done.send(loaded);
        }
    }
}
