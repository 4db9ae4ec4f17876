//! The reaper thread: releases topologies that no poller uses any more.
//!
//! Removing a port publishes a topology without it. The last owner of a port unmaps its client's memory and closes its
//! eventfds. The client decides how long that takes: the kernel frees each page, and removes each epoll item of an eventfd
//! (350 ms for a million). Neither a poller nor the control thread may do that, so this thread keeps each topology until it is
//! the only one that refers to it. A poller refers to the topologies that it uses parts of, and to no other: one that stands still keeps
//! the ports that it served, and none that came later. A poller that is the last owner of a port, because it made a pending call
//! when the topology was released, gives it to this thread, too.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use ringway_runtime::contain::{run_or_exit, warn_limited};
use ringway_switch::contain;

use crate::shared::{Released, Shared};

/// The first pause before the thread checks the pollers again. Each pause is twice as long as the one before.
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Time without a topology to release after which the allocator returns its free memory to the system.
const QUIET: Duration = Duration::from_secs(1);

/// The running thread.
#[derive(Debug)]
pub(crate) struct Reaper {
    thread: Option<JoinHandle<()>>,
}

impl Reaper {
    /// Starts the thread.
    ///
    /// # Errors
    /// The kernel refuses a thread.
    pub(crate) fn start(shared: &Arc<Shared>, queue: Receiver<Released>) -> io::Result<Reaper> {
        let shared = Arc::clone(shared);
        let thread = std::thread::Builder::new().name("reaper".into()).spawn(move || {
            run_or_exit("reaper", || run(&shared, &queue));
        })?;
        Ok(Reaper { thread: Some(thread) })
    }

    /// Joins the thread, which releases what remains. To be called after all pollers have ended and [`Old::close`](crate::shared::Old::close).
    pub(crate) fn end(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, queue: &Receiver<Released>) {
    let mut kept = Vec::new();
    let mut pause = SHORTEST_PAUSE;
    while let Some(next) = next(queue, if kept.is_empty() { None } else { Some(pause) }) {
        pause = if next.is_some() { SHORTEST_PAUSE } else { (2 * pause).min(LONGEST_PAUSE) };
        // The topologies of a burst of changes are released together.
        for old in next.into_iter().chain(queue.try_iter()) {
            match old {
                Released::Topology(topology) => kept.push(topology),
                Released::Port(port) => release(shared, port),
                Released::Source(source) => release(shared, source),
            }
        }
        let stops = shared.stop.load(Ordering::Relaxed);
        // Nobody gets a reference anew: the topology is not published any more.
        for topology in kept.extract_if(.., |topology| stops || Arc::strong_count(topology) == 1) {
            // Whatever the others did with it happened before.
            fence(Ordering::Acquire);
            release(shared, topology);
        }
    }
    // The engine ends. Its pollers have ended before.
    kept.into_iter().for_each(|topology| release(shared, topology));
}

fn release<T>(shared: &Shared, old: T) {
    // The ports are removed already: a panic while they are dropped retires no port.
    if let Err(place) = contain(|| drop(old)) {
        warn_limited(&format!("a defect of Ringway, please report it: a removed port failed at {place}"));
    }
    shared.old.note_released();
}

/// Waits for the next topology: for so long, or without end. Returns `None` if no further one will come and none is waited for otherwise.
fn next(queue: &Receiver<Released>, most: Option<Duration>) -> Option<Option<Released>> {
    match queue.recv_timeout(most.unwrap_or(QUIET)) {
        Ok(old) => Some(Some(old)),
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
