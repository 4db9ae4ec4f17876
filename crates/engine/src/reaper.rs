//! The reaper thread: releases topologies that no poller uses any more.
//!
//! Removing a port publishes a topology without it. The last owner of a port unmaps its client's memory and closes its
//! eventfds. The client decides how long that takes: the kernel frees each page, and removes each epoll item of an eventfd
//! (350 ms for a million). Neither a poller nor the control thread may do that, so this thread keeps each topology until it is
//! the only one that refers to it. A poller refers to the topologies that it uses parts of, and to no other: one that stands still keeps
//! the ports that it served, and none that came later.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use ringway_switch::contain;

use crate::contain::{run_or_exit, warn_limited};
use crate::shared::Shared;
use crate::topology::Topology;

/// The first pause before the thread checks the pollers again. Each pause is twice as long as the one before.
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Time without a topology to release after which the allocator returns its free memory to the system.
const QUIET: Duration = Duration::from_secs(1);

/// The running thread.
#[derive(Debug)]
pub(crate) struct Reaper {
    old: Option<Sender<Arc<Topology>>>,
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

    /// Releases `topology`, which was replaced, when no poller has it.
    pub(crate) fn take(&self, topology: Arc<Topology>) {
        if let Some(old) = &self.old {
            self.left.fetch_add(1, Ordering::Relaxed);
            let _ = old.send(topology);
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

fn run(shared: &Shared, queue: &Receiver<Arc<Topology>>, left: &AtomicUsize) {
    let mut kept = Vec::new();
    let mut pause = SHORTEST_PAUSE;
    while let Some(topology) = next(queue, if kept.is_empty() { None } else { Some(pause) }) {
        pause = if topology.is_some() { SHORTEST_PAUSE } else { (2 * pause).min(LONGEST_PAUSE) };
        // The topologies of a burst of changes are released together.
        kept.extend(topology);
        kept.extend(queue.try_iter());
        let stops = shared.stop.load(Ordering::Relaxed);
        // Nobody gets a reference anew: the topology is not published any more.
        for topology in kept.extract_if(.., |topology| stops || Arc::strong_count(topology) == 1) {
            // Whatever the others did with it happened before.
            fence(Ordering::Acquire);
            release(topology, left);
        }
    }
    // The engine ends. Its pollers have ended before.
    kept.into_iter().for_each(|topology| release(topology, left));
}

fn release(topology: Arc<Topology>, left: &AtomicUsize) {
    // The ports are removed already: a panic while they are dropped retires no port.
    if let Err(place) = contain(|| drop(topology)) {
        warn_limited(&format!("a defect of Ringway, please report it: a removed port failed at {place}"));
    }
    left.fetch_sub(1, Ordering::Release);
}

/// Waits for the next topology: for so long, or without end. Returns `None` if no further one will come and none is waited for otherwise.
fn next(queue: &Receiver<Arc<Topology>>, most: Option<Duration>) -> Option<Option<Arc<Topology>>> {
    match queue.recv_timeout(most.unwrap_or(QUIET)) {
        Ok(topology) => Some(Some(topology)),
        Err(RecvTimeoutError::Timeout) if most.is_some() => Some(None),
        Err(RecvTimeoutError::Timeout) => {
            trim_heap();
            queue.recv().ok().map(Some)
        }
        Err(RecvTimeoutError::Disconnected) => None,
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
