//! `pcap_breakloop`: may be called by a signal handler and by another thread while the handle is in use.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// A request to end the present or the next loop.
#[derive(Debug)]
pub struct Breaker {
    asked: AtomicBool,
    /// Each request writes it, and nothing reads it: see [`crate::wait`]. Absent if the process has no free descriptor: then only a
    /// signal ends a sleep.
    wake: Option<OwnedFd>,
}

impl Breaker {
    pub fn new() -> Self {
        Self { asked: AtomicBool::new(false), wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok() }
    }

    /// Requests the end. Async-signal-safe: a store and a write.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        if let Some(wake) = &self.wake {
            let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
        }
    }

    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Returns true, and forgets the request, if there is one.
    pub fn take(&self) -> bool {
        self.is_asked() && self.asked.swap(false, Ordering::AcqRel)
    }

    /// The descriptor that each request writes.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.wake.as_ref().map(AsFd::as_fd)
    }
}
