//! Threads and processes that sleep for a registration's calls.
//!
//! The switch calls by one eventfd, and every waiter has to wake up. So nobody reads the eventfd: its reader would take the call away from
//! the others. Each waiter has an epoll descriptor of its own, which reports each call once (edge-triggered).

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use crate::private::Private;

/// Most threads of a process that wait for one file at the same time.
const PLACES: usize = 64;

/// The waiters of a file, or of a set.
pub(crate) struct Waiters([Waiter; PLACES]);

struct Waiter {
    /// [`FREE`], [`CALLED`], or [`USED`] with the lower bits of the generation of the file or set that the thread waits for.
    user: AtomicU32,
    /// Made for the first wait, and kept for later ones.
    epoll: Private,
}

const FREE: u32 = 0;
/// Free. The descriptor may be readable for a call that the last wait has had.
const CALLED: u32 = 1;
const USED: u32 = 1 << 31;

/// A place that a thread has among the waiters, of this generation of the file or set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    at: usize,
    generation: u32,
}

impl Place {
    fn user(self) -> u32 {
        USED | self.generation
    }
}

impl Waiters {
    pub(crate) const fn none() -> Self {
        Self([const { Waiter { user: AtomicU32::new(FREE), epoll: Private::none() } }; PLACES])
    }

    /// Takes a place. Returns it with the number of a descriptor that becomes readable with each call. It may be readable already. The
    /// caller ends the wait. `None`: all places are in use, or no descriptor is left.
    pub(crate) fn begin(&self, call: BorrowedFd<'_>, generation: u32) -> Option<(c_int, Place)> {
        for (at, waiter) in self.0.iter().enumerate() {
            let place = Place { at, generation };
            let before = waiter.user.load(Ordering::Relaxed);
            if before <= CALLED && waiter.replace(before, place.user()) {
                let number = waiter.number(call, before == CALLED);
                if number.is_none() {
                    waiter.replace(place.user(), FREE);
                }
                return Some((number?, place));
            }
        }
        None
    }

    /// Ends a wait. `is_called`: the descriptor has become readable. What has taken the place of the file or set meanwhile is left alone.
    pub(crate) fn end(&self, place: Place, is_called: bool) {
        self.0[place.at].replace(place.user(), if is_called { CALLED } else { FREE });
    }

    /// Closes the descriptors: at the end of the file, and in the child of a fork, where they would share their events with the parent's.
    pub(crate) fn close(&self) {
        for waiter in &self.0 {
            waiter.epoll.close();
            waiter.user.store(FREE, Ordering::Relaxed);
        }
    }

    /// Moves the descriptors away from the number `fd`.
    pub(crate) fn leave(&self, fd: c_int) {
        self.0.iter().for_each(|waiter| waiter.epoll.leave(fd));
    }
}

impl Waiter {
    fn replace(&self, before: u32, after: u32) -> bool {
        self.user.compare_exchange(before, after, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Returns the number of the descriptor. `is_called`: it is readable for an old call. The caller looks for what a call is for afterwards.
    fn number(&self, call: BorrowedFd<'_>, is_called: bool) -> Option<c_int> {
        match self.epoll.get() {
            Some(epoll) if is_called => {
                let mut event = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }];
                let _ = epoll::wait(epoll, &mut event[..], Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
            }
            Some(_) => {}
            None => {
                let made = epoll::create(CreateFlags::CLOEXEC).ok()?;
                epoll::add(&made, call, EventData::new_u64(0), EventFlags::IN | EventFlags::ET).ok()?;
                self.epoll.put(made);
            }
        }
        Some(self.epoll.raw())
    }
}
