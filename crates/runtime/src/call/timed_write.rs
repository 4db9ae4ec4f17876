//! A write to an eventfd that a timer interrupts, for kernels and sandboxes without io_submit(2).

use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use super::interrupt::make_interruptible;

/// How long a write may last, in nanoseconds. The signal repeats, because the first may arrive before the write begins.
const LONGEST_NS: libc::c_long = 2_000_000;

/// A timer that sends SIGURG to the thread that made it.
#[derive(Debug)]
pub(super) struct TimedWriter {
    timer: libc::timer_t,
}

impl TimedWriter {
    /// A timer of the calling thread. `None`: the kernel has none left.
    pub(super) fn new() -> Option<TimedWriter> {
        make_interruptible();
        let mut timer = MaybeUninit::uninit();
        // SAFETY: all zeroes is a valid sigevent.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGURG;
        event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
        // SAFETY: both pointers are valid during the call; the signal's handler does nothing.
        let made = unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, timer.as_mut_ptr()) };
        // SAFETY: timer_create writes the timer where it succeeds.
        (made == 0).then(|| TimedWriter { timer: unsafe { timer.assume_init() } })
    }

    fn set(&self, nanoseconds: libc::c_long) -> bool {
        let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
        let every = libc::itimerspec { it_interval: time, it_value: time };
        // SAFETY: the timer exists until it is dropped; the times outlive the call.
        unsafe { libc::timer_settime(self.timer, 0, &every, std::ptr::null_mut()) == 0 }
    }

    /// Adds one to the eventfd's counter. Returns false if the write was interrupted, and `None` if it could not be timed. For the
    /// thread that made the timer.
    pub(super) fn write(&mut self, eventfd: BorrowedFd<'_>) -> Option<bool> {
        if !self.set(LONGEST_NS) {
            return None;
        }
        let written = rustix::io::write(eventfd, &1u64.to_ne_bytes());
        self.set(0);
        Some(written != Err(rustix::io::Errno::INTR))
    }
}

impl Drop for TimedWriter {
    fn drop(&mut self) {
        // SAFETY: timer_create made the timer, and no other code uses it.
        unsafe { libc::timer_delete(self.timer) };
    }
}
