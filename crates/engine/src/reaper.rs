//! The reaper thread: releases topologies that no poller has any more.
//!
//! Removing a port publishes a topology without it. The last owner of a port unmaps its client's memory and closes its
//! eventfds. The client decides how long that takes: the kernel frees each page, and removes each epoll item of an eventfd
//! (350 ms for a million). Neither a poller nor the control thread may do that, so this thread keeps each topology until no
//! poller has it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use ringway_switch::contain;

use crate::contain::{run_or_die, say_rarely};
use crate::poller_state::PollerState;
use crate::shared::Shared;
use crate::topology::Topology;

/// The first pause before the thread checks again whether the pollers have let go. Each pause is twice as long as the one before.
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// After so long without a topology to release, the allocator returns its free memory to the system.
const QUIET: Duration = Duration::from_secs(1);

/// A topology that was replaced, and the version that replaced it.
type Old = (u64, Arc<Topology>);

/// The running thread.
#[derive(Debug)]
pub(crate) struct Reaper {
    old: Option<Sender<Old>>,
    /// The number of topologies that are not released yet.
    left: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Reaper {
    /// Starts the thread.
    ///
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

    /// Whether every topology that [`Reaper::take`] was given is released.
    pub(crate) fn is_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Releases the topologies that are left, and joins the thread. For when no poller runs any more.
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
        // Those of a burst of changes are released together.
        for (newer, topology) in olds.try_iter() {
            version = newer;
            batch.push(topology);
        }
        let has_let_go = |poller: &Arc<PollerState>| poller.has_adopted(version);
        let mut pause = SHORTEST_PAUSE;
        while !shared.states.iter().all(has_let_go) && !shared.stop.load(Ordering::Relaxed) {
            std::thread::sleep(pause);
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
        for topology in batch {
            // The ports have gone: a panic while they are dropped costs no port its place.
            if let Err(place) = contain(|| drop(topology)) {
                say_rarely(&format!("a defect of Ringway, please report it: what is served no more failed at {place}"));
            }
            left.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Waits for the next topology. `None`: no further one comes.
fn next(olds: &Receiver<Old>) -> Option<Old> {
    match olds.recv_timeout(QUIET) {
        Err(RecvTimeoutError::Timeout) => {
            trim_heap();
            olds.recv().ok()
        }
        old => old.ok(),
    }
}

/// Returns the allocator's free memory to the system. What two thousand ports leave lies in pieces between memory in use, so that the
/// allocator would keep it.
fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: may be called at any time; takes the allocator's own locks (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
}
