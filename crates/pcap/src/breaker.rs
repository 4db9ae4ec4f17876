//! `pcap_breakloop`: may be called by a signal handler and by another thread while the handle is in use.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// A request to end the present or the next loop.
#[derive(Debug)]
pub struct Breaker {
    asked: AtomicBool,
    /// Ends a sleep. Absent if the process has no free descriptor: then only a signal ends a sleep.
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
        if !self.is_asked() {
            return false;
        }
        self.clear();
        self.asked.swap(false, Ordering::AcqRel)
    }

    /// Makes the descriptor unreadable. A request stays.
    pub fn clear(&self) {
        if let Some(wake) = &self.wake {
            let _ = rustix::io::read(wake, &mut [0; 8]);
        }
    }

    /// The descriptor that a request makes readable.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.wake.as_ref().map(AsFd::as_fd)
    }
}
