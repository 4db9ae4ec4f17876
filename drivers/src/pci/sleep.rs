//! Sleeps until a device interrupts.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

/// How much later than asked for the timer may end a sleep: as much as the kernel takes for itself when a system call has a time limit.
const SLACK: Duration = Duration::from_micros(50);
/// The longest sleep.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Sleeps that a timer ends, which stays set from sleep to sleep. In an emulated guest, a time limit for each sleep would also wake the
/// emulator's own thread for timers each time (`docs/decisions/guests-asleep.md`).
#[derive(Debug)]
pub struct Sleep {
    timer: OwnedFd,
    /// When the timer goes; `None` if it has gone or was never set.
    goes: Option<Instant>,
}

impl Sleep {
    /// Makes the timer.
    pub fn new() -> io::Result<Sleep> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        Ok(Sleep { timer, goes: None })
    }

    /// Sleeps until the descriptor is readable, a signal comes, or `longest` or a day has passed. Returns false in the last case.
    pub fn until_readable(&mut self, descriptor: BorrowedFd<'_>, longest: Duration) -> io::Result<bool> {
        let mut now = Instant::now();
        let end = now + longest.min(LONGEST);
        loop {
            self.go_by(end, now)?;
            let mut waits =
                [PollFd::from_borrowed_fd(descriptor, PollFlags::IN), PollFd::new(&self.timer, PollFlags::IN)];
            match poll(&mut waits, None) {
                Ok(_) => {}
                Err(Errno::INTR) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
            let [is_readable, has_gone] = waits.each_ref().map(|wait| !wait.revents().is_empty());
            if has_gone {
                self.goes = None;
            }
            if is_readable {
                return Ok(true);
            }
            // The timer may have been set for an earlier sleep: then it goes once more.
            now = Instant::now();
            if now >= end {
                return Ok(false);
            }
        }
    }

    /// Makes the timer go at `end`, or earlier.
    fn go_by(&mut self, end: Instant, now: Instant) -> io::Result<()> {
        if self.goes.is_some_and(|goes| goes <= end + SLACK) {
            return Ok(());
        }
        // No time at all would take the timer down.
        let left = end.saturating_duration_since(now).max(Duration::from_nanos(1));
        let it_value = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
        let time = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time)?;
        self.goes = Some(end);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    #[test]
    fn a_sleep_is_as_long_as_asked_for_also_after_interrupts() {
        let mut sleep = Sleep::new().unwrap();
        for long in [2, 20, 15].map(Duration::from_millis) {
            let interrupt = eventfd(1, EventfdFlags::NONBLOCK).unwrap();
            assert!(sleep.until_readable(interrupt.as_fd(), Duration::MAX).unwrap(), "an interrupt has come");
            let quiet = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
            let began = Instant::now();
            // The timer may be set for an earlier sleep, which an interrupt has ended.
            assert!(!sleep.until_readable(quiet.as_fd(), long).unwrap());
            assert!(began.elapsed() >= long);
            assert!(sleep.until_readable(interrupt.as_fd(), Duration::from_millis(1)).unwrap());
        }
    }

    #[test]
    fn the_timer_is_set_once_for_many_sleeps() {
        let mut sleep = Sleep::new().unwrap();
        let interrupt = eventfd(1, EventfdFlags::NONBLOCK).unwrap();
        let mut set = None;
        for _ in 0..100 {
            assert!(sleep.until_readable(interrupt.as_fd(), Duration::from_secs(3600)).unwrap());
            assert_eq!(*set.get_or_insert(sleep.goes), sleep.goes);
        }
        assert!(set.flatten().is_some());
        // A shorter sleep has its end.
        assert!(sleep.until_readable(interrupt.as_fd(), Duration::from_secs(1800)).unwrap());
        assert!(sleep.goes < set.flatten());
    }
}
