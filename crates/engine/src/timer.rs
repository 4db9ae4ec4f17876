//! A poller's alarm clock: exact to what the kernel's high-resolution timers give, without their slack.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// A timer whose descriptor becomes readable.
#[derive(Debug)]
pub(crate) struct Timer {
    fd: OwnedFd,
    /// When it goes, in nanoseconds of the pollers' clock; it may have gone.
    set_to: Option<u64>,
}

impl Timer {
    pub(crate) fn new() -> io::Result<Timer> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        Ok(Timer { fd, set_to: None })
    }

    /// Readable from the set time on. Report its edges: it is not read.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Sets it to `due`, as seen from `now`. Without a `due` it may go when there is no reason.
    pub(crate) fn wake_at(&mut self, due: Option<u64>, now: u64) {
        let Some(due) = due.filter(|&due| self.set_to != Some(due)) else { return };
        // Zero would switch it off.
        let left = due.saturating_sub(now).max(1);
        let (tv_sec, tv_nsec) = ((left / 1_000_000_000) as i64, (left % 1_000_000_000) as i64);
        let time =
            Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: Timespec { tv_sec, tv_nsec } };
        if timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &time).is_ok() {
            self.set_to = Some(due);
        }
    }
}
