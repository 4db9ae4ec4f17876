//! Releases what pollers serve no more.
//!
//! The last owner of a port unmaps its client's memory and closes its eventfds, which takes as long as the client likes: the kernel frees
//! each page, and removes each epoll item of an eventfd (350 ms for a million). Neither a poller nor the control thread is to do
//! that, so that this thread keeps each topology until no poller has it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use ringway_switch::contain;

use crate::contain::{run_or_die, say_rarely};
use crate::engine::{PollerState, Shared, Topology};

/// The first pause between two looks at whether pollers have let go, and the longest.
const LOOK_AFTER: Duration = Duration::from_micros(50);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The allocator's free memory goes back to the system when nothing was released for so long.
const QUIET: Duration = Duration::from_secs(1);

/// A topology that was replaced, and the version that replaced it.
type Old = (u64, Arc<Topology>);

/// The running thread.
#[derive(Debug)]
pub(crate) struct Reaper {
    old: Option<Sender<Old>>,
    /// Topologies that are not released yet.
    left: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Reaper {
    /// # Errors
    /// The kernel refuses a thread.
    pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<Reaper> {
        let (old, olds) = channel();
        let left = Arc::new(AtomicUsize::new(0));
        let (shared, told) = (Arc::clone(shared), Arc::clone(&left));
        let thread = std::thread::Builder::new().name("reaper".into()).spawn(move || {
            run_or_die("reaper", || run(&shared, &olds, &told));
        })?;
        Ok(Reaper { old: Some(old), left, thread: Some(thread) })
    }

    /// Releases `topology` when all pollers have version `replaced_by`.
    pub(crate) fn take(&self, replaced_by: u64, topology: Arc<Topology>) {
        if let Some(old) = &self.old {
            self.left.fetch_add(1, Ordering::Relaxed);
            let _ = old.send((replaced_by, topology));
        }
    }

    /// Whether all that it was given is released.
    pub(crate) fn is_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Releases what is left. No poller runs any more.
    pub(crate) fn end(&mut self) {
        self.old = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, olds: &Receiver<Old>, left: &AtomicUsize) {
    while let Some((mut version, topology)) = next(olds) {
        let mut batch = vec![topology];
        // Several at a time, so that a burst of changes does not pile up.
        for (newer, topology) in olds.try_iter() {
            version = newer;
            batch.push(topology);
        }
        let has_let_go = |poller: &Arc<PollerState>| poller.account.adopted.load(Ordering::Acquire) >= version;
        let mut pause = LOOK_AFTER;
        while !shared.states.iter().all(has_let_go) && !shared.stop.load(Ordering::Relaxed) {
            std::thread::sleep(pause);
            pause = (2 * pause).min(LOOK_EVERY);
        }
        for topology in batch {
            // What it held has gone: a panic of its end is nobody's.
            if let Err(place) = contain(|| drop(topology)) {
                say_rarely(&format!("a defect of Ringway, please report it: what is served no more failed at {place}"));
            }
            left.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Waits for the next topology; none comes any more: `None`.
fn next(olds: &Receiver<Old>) -> Option<Old> {
    match olds.recv_timeout(QUIET) {
        Err(RecvTimeoutError::Timeout) => {
            give_back_free_memory();
            olds.recv().ok()
        }
        old => old.ok(),
    }
}

/// What two thousand ports left lies in pieces between what is in use, and the allocator would keep it.
fn give_back_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: may be called at any time; takes the allocator's own locks (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
}
