//! Programs that are being loaded, side by side, on threads of their own.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ringway_engine::contain;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

#[cfg(not(feature = "programs"))]
use super::absent as loaded;
#[cfg(feature = "programs")]
use super::loaded;
use super::ready::{CannotLoad, ReadyProgram, WantedProgram};
use super::wanted::Wanted;
use crate::config::Name;
use loaded::{Runtime, load_one};

/// Programs that are loaded at the same time: as many as are compiled.
const THREADS: usize = 2;

type Loaded = Result<ReadyProgram, CannotLoad>;

/// Programs that are being loaded. Dropping this ends their compilers.
#[derive(Debug)]
pub struct Loading {
    shared: Arc<Shared>,
    loaded: UnboundedReceiver<Loaded>,
    /// The switches whose programs [`Loading::next`] has yet to return.
    left: Vec<Name>,
}

/// What the threads share.
#[derive(Debug)]
struct Shared {
    wanted: Mutex<VecDeque<WantedProgram>>,
    runtime: Mutex<Option<Arc<Runtime>>>,
    /// Nobody waits any more.
    stop: AtomicBool,
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

impl Loading {
    /// Begins to load programs.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn begin(wanted: Vec<WantedProgram>) -> Result<Self, CannotLoad> {
        let left: Vec<Name> = wanted.iter().map(|wanted| wanted.switch.clone()).collect();
        let first = wanted.first().map(|first| (first.switch.clone(), first.keys.clone()));
        let runtime = wanted.iter().find_map(|wanted| wanted.runtime.clone());
        let (threads, stop) = (wanted.len().min(THREADS), AtomicBool::new(false));
        let shared = Arc::new(Shared { wanted: Mutex::new(wanted.into()), runtime: Mutex::new(runtime), stop });
        let (done, loaded) = unbounded_channel();
        let loading = Self { shared, loaded, left };
        for number in 0..threads {
            let (shared, done) = (Arc::clone(&loading.shared), done.clone());
            let thread = std::thread::Builder::new().name("load-program".to_owned());
            // The first one loads all of them, if need be.
            if let (Err(error), 0, Some((switch, keys))) = (thread.spawn(move || shared.load(&done)), number, &first) {
                let what = format!("cannot start a thread: {error}");
                return Err(CannotLoad::new(switch.clone(), keys.clone(), what));
            }
        }
        Ok(loading)
    }

    /// Returns the next program that was loaded, or could not be. `None`: these were all.
    pub async fn next(&mut self) -> Option<Loaded> {
        let loaded = self.loaded.recv().await?;
        let (Ok(ReadyProgram { switch, .. }) | Err(CannotLoad { switch, .. })) = &loaded;
        self.left.retain(|left| left != switch);
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

    /// Returns the switches whose programs [`Loading::next`] has yet to return.
    pub fn switches(&self) -> impl Iterator<Item = &Name> {
        self.left.iter()
    }

    /// Returns the runtime of these programs, if it was started.
    pub fn runtime(&self) -> Option<Arc<Runtime>> {
        self.shared.runtime.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Shared {
    /// Loads one program after the other. Takes long.
    fn load(&self, done: &UnboundedSender<Loaded>) {
        // Pollers on the same processor go first. The compiler inherits it.
        let _ = rustix::process::nice(10);
        while !self.stop.load(Ordering::Relaxed) {
            let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(wanted) = wanted else { return };
            let loaded = contain(|| load_one(&wanted, &self.runtime, &self.stop))
                .unwrap_or_else(|place| Err(format!("a defect of Ringway, please report it: it failed at {place}")));
            let Wanted { switch, keys, pollers, before, .. } = wanted;
            let loaded = match loaded {
                Ok((program, runtime)) => Ok(ReadyProgram { switch, keys, pollers, before, program, runtime }),
                Err(what) => Err(CannotLoad::new(switch, keys, what)),
            };
            // Nobody waits for it after an error of another one.
            let _ = done.send(loaded);
        }
    }
}
