//! Sleeps until a device interrupts.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

/// How much later than asked for the timer may end a sleep: as much as the kernel takes for itself when a system call has a time limit.
const SLACK: Duration = Duration::from_micros(50);

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

    /// Sleeps until the descriptor is readable or a signal comes, for at most `longest`. May also return early without a reason. Returns
    /// false if the descriptor is not readable and no signal has come.
    pub fn until_readable(&mut self, descriptor: BorrowedFd<'_>, longest: Duration) -> io::Result<bool> {
        self.go_within(longest)?;
        let mut waits = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN), PollFd::new(&self.timer, PollFlags::IN)];
        let count = match poll(&mut waits, None) {
            Ok(count) => count,
            Err(Errno::INTR) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        let has_gone = !waits[1].revents().is_empty();
        if has_gone {
            self.goes = None;
        }
        Ok(count > usize::from(has_gone))
    }

    /// Makes the timer go when so much time has passed, or earlier.
    fn go_within(&mut self, longest: Duration) -> io::Result<()> {
        let Some(end) = Instant::now().checked_add(longest) else { return Ok(()) };
        if self.goes.is_some_and(|goes| goes <= end + SLACK) {
            return Ok(());
        }
        // No time at all would take the timer down.
        let it_value = Timespec::try_from(longest.max(Duration::from_nanos(1))).map_err(|_| Errno::INVAL)?;
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
            let (began, mut wakes) = (Instant::now(), 0);
            while let Some(left) = long.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
                assert!(!sleep.until_readable(quiet.as_fd(), left).unwrap());
                wakes += 1;
            }
            // The timer may go for an earlier sleep, which an interrupt ended.
            assert!(wakes <= 3, "{wakes} in {long:?}");
        }
    }

    #[test]
    fn the_timer_is_set_once_for_many_sleeps() {
        let mut sleep = Sleep::new().unwrap();
        let interrupt = eventfd(1, EventfdFlags::NONBLOCK).unwrap();
        let mut set = None;
        for _ in 0..100 {
            assert!(sleep.until_readable(interrupt.as_fd(), Duration::from_secs(60)).unwrap());
            assert_eq!(*set.get_or_insert(sleep.goes), sleep.goes);
        }
        assert!(set.flatten().is_some());
        // A shorter sleep has its end.
        assert!(sleep.until_readable(interrupt.as_fd(), Duration::from_secs(30)).unwrap());
        assert!(sleep.goes < set.flatten());
    }
}
