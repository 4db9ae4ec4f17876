//! The time, by libc: rustix would look for the kernel's clock in memory that valgrind takes away.

use std::mem::MaybeUninit;

use libc::{clockid_t, timespec};

/// Returns the time of one of the kernel's clocks that every kernel has.
pub(crate) fn now(clock: clockid_t) -> timespec {
    let mut time = MaybeUninit::<timespec>::zeroed();
    // SAFETY: the address is that of a `timespec`. Zeroes are one, too.
    unsafe {
        libc::clock_gettime(clock, time.as_mut_ptr());
        time.assume_init()
    }
}
