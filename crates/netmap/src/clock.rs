//! The time, by libc: rustix would look for the kernel's clock in memory that valgrind takes away.

use std::mem::MaybeUninit;

use libc::{clockid_t, timespec};
use rustix::time::Timespec;

const SECOND: i64 = 1_000_000_000;

/// Returns the time of one of the kernel's clocks that every kernel has.
pub(crate) fn now(clock: clockid_t) -> timespec {
    let mut time = MaybeUninit::<timespec>::zeroed();
    // SAFETY: the address is that of a `timespec`. Zeroes are one, too.
    unsafe {
        libc::clock_gettime(clock, time.as_mut_ptr());
        time.assume_init()
    }
}

/// The end of everything that one call does, however often it is interrupted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(i64);

/// Returns the time of the monotonic clock, in nanoseconds.
pub(crate) fn monotonic() -> i64 {
    let now = now(libc::CLOCK_MONOTONIC);
    now.tv_sec.saturating_mul(SECOND).saturating_add(now.tv_nsec)
}

impl Deadline {
    /// The end after so many seconds.
    pub(crate) fn after(seconds: i64) -> Self {
        Self(monotonic().saturating_add(seconds * SECOND))
    }

    /// Returns the time that is left, or `None` if it is over.
    pub(crate) fn left(self) -> Option<Timespec> {
        let left = self.0 - monotonic();
        (left > 0).then_some(Timespec { tv_sec: left / SECOND, tv_nsec: left % SECOND })
    }
}
