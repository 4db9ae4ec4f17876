//! The reaper thread: releases topologies that no poller uses any more.
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

use crate::contain::{run_or_exit, warn_limited};
use crate::poller_state::PollerState;
use crate::shared::Shared;
use crate::topology::Topology;

/// The first pause before the thread checks the pollers again. Each pause is twice as long as the one before.
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Time without a topology to release after which the allocator returns its free memory to the system.
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
        let (old, queue) = channel();
        let left = Arc::new(AtomicUsize::new(0));
        let (shared, left_to_release) = (Arc::clone(shared), Arc::clone(&left));
        let thread = std::thread::Builder::new().name("reaper".into()).spawn(move || {
            run_or_exit("reaper", || run(&shared, &queue, &left_to_release));
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

    /// Returns true if every topology passed to [`Reaper::take`] is released.
    pub(crate) fn is_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Releases the remaining topologies and joins the thread. To be called after all pollers have ended.
    pub(crate) fn end(&mut self) {
        self.old = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, queue: &Receiver<Old>, left: &AtomicUsize) {
    while let Some((mut version, topology)) = next(queue) {
        let mut batch = vec![topology];
        // The topologies of a burst of changes are released together.
        for (newer, topology) in queue.try_iter() {
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
            // The ports are removed already: a panic while they are dropped retires no port.
            if let Err(place) = contain(|| drop(topology)) {
                warn_limited(&format!("a defect of Ringway, please report it: a removed port failed at {place}"));
            }
            left.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Waits for the next topology. Returns `None` if no further one will come.
fn next(queue: &Receiver<Old>) -> Option<Old> {
    match queue.recv_timeout(QUIET) {
        Err(RecvTimeoutError::Timeout) => {
            trim_heap();
            queue.recv().ok()
        }
        old => old.ok(),
    }
}

/// Returns the allocator's free memory to the system. Without this the allocator keeps the memory of removed ports,
/// which is fragmented.
fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: may be called at any time; takes the allocator's own locks (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
}
