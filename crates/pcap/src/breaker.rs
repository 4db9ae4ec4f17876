//! `pcap_breakloop`: may be called by a signal handler and by another thread while the handle is in use.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// Requests to end what waits. A request ends the present loop, or the next one, which takes it; and the sends that wait at that time.
#[derive(Debug)]
pub struct Breaker {
    /// Number of requests.
    asked: AtomicU64,
    /// Number of requests when a loop last took them.
    taken: AtomicU64,
    /// Each request writes it, and nothing reads it: see [`crate::wait`]. Absent if the process has no free descriptor: then only a
    /// signal ends a sleep.
    wake: Option<OwnedFd>,
}

impl Breaker {
    pub fn new() -> Self {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
        Self { asked: AtomicU64::new(0), taken: AtomicU64::new(0), wake }
    }

    /// Requests the end: [`Breaker::wake`] has to follow. Async-signal-safe.
    pub fn ask(&self) {
        self.asked.fetch_add(1, Ordering::SeqCst);
    }

    /// Wakes the threads that sleep in epoll, which look again at what they wait for. Async-signal-safe.
    pub fn wake(&self) {
        if let Some(wake) = &self.wake {
            let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
        }
    }

    /// Returns the number of requests up to now.
    #[inline]
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Acquire)
    }

    /// Returns true if there is a request that no loop has taken.
    pub fn is_asked(&self) -> bool {
        self.asked() != self.taken.load(Ordering::Relaxed)
    }

    /// Returns true, and takes the requests, if there are any. For the thread that receives.
    pub fn take(&self) -> bool {
        let asked = self.asked();
        self.taken.swap(asked, Ordering::Relaxed) != asked
    }

    /// The descriptor that each request writes.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.wake.as_ref().map(AsFd::as_fd)
    }
}
