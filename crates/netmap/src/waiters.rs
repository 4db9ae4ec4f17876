//! Threads and processes that sleep for a registration's calls.
//!
//! The switch calls by one eventfd, and every waiter has to wake up. So nobody reads the eventfd: its reader would take the call away from
//! the others. Each waiter has an epoll descriptor of its own, which reports each call once (edge-triggered).

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use crate::private::Private;

/// Most threads of a process that wait for one file at the same time.
const PLACES: usize = 64;

/// The waiters of a file.
pub(crate) struct Waiters([Waiter; PLACES]);

struct Waiter {
    is_used: AtomicBool,
    /// Made for the first wait, and kept for later ones.
    epoll: Private,
}

impl Waiters {
    pub(crate) const fn none() -> Self {
        Self([const { Waiter { is_used: AtomicBool::new(false), epoll: Private::none() } }; PLACES])
    }

    /// Returns the number of a descriptor that becomes readable with each call. It may be readable already. The caller ends the wait.
    /// `None`: all places are in use, or no descriptor is left.
    pub(crate) fn begin(&self, call: BorrowedFd<'_>) -> Option<c_int> {
        let waiter = self.0.iter().find(|waiter| !waiter.is_used.swap(true, Ordering::Acquire))?;
        if waiter.epoll.get().is_none() {
            let made = epoll::create(CreateFlags::CLOEXEC);
            let flags = EventFlags::IN | EventFlags::ET;
            let watching = made.and_then(|made| epoll::add(&made, call, EventData::new_u64(0), flags).map(|()| made));
            match watching {
                Ok(made) => waiter.epoll.put(made),
                Err(_) => {
                    waiter.is_used.store(false, Ordering::Release);
                    return None;
                }
            }
        }
        Some(waiter.epoll.raw())
    }

    /// Ends a wait for the descriptor of this number. `is_called`: it has become readable, and the call is taken.
    pub(crate) fn end(&self, number: c_int, is_called: bool) {
        let Some(waiter) = self.0.iter().find(|waiter| waiter.epoll.raw() == number) else { return };
        if is_called && let Some(epoll) = waiter.epoll.get() {
            let mut event = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }];
            let _ = epoll::wait(epoll, &mut event[..], Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        }
        waiter.is_used.store(false, Ordering::Release);
    }

    /// Closes the descriptors: at the end of the file, and in the child of a fork, where they would share their events with the parent's.
    pub(crate) fn close(&self) {
        for waiter in &self.0 {
            waiter.epoll.close();
            waiter.is_used.store(false, Ordering::Relaxed);
        }
    }

    /// Moves the descriptors away from the number `fd`.
    pub(crate) fn leave(&self, fd: c_int) {
        self.0.iter().for_each(|waiter| waiter.epoll.leave(fd));
    }
}
