//! A client's sleep until a call comes.
//!
//! A sleep is one system call: the eventfd's edges need no reading, and a timer that stays set from sleep to sleep ends a
//! long sleep. A time limit given to each sleep costs as much as a third of the sleep to set up and take down
//! (`docs/decisions/sleeping.md`).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

/// Identifies the source of an event.
const CALLED: u64 = 0;
const ENDED: u64 = 1;
const TIMER: u64 = 2;
/// Sleeps shorter than this use the timeout of epoll instead of the timer.
const LONG: Duration = Duration::from_millis(10);

/// Sleeps of a port.
#[derive(Debug)]
pub(crate) struct Sleep {
    epoll: OwnedFd,
    timer: OwnedFd,
    /// When the timer expires; `None` if it has expired or was never set.
    goes: Option<Instant>,
}

impl Sleep {
    /// For sleeps between calls on `call`, until `connection` ends.
    pub(crate) fn new(connection: BorrowedFd<'_>, call: BorrowedFd<'_>) -> io::Result<Sleep> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        epoll::add(&epoll, connection, EventData::new_u64(ENDED), EventFlags::IN)?;
        // Edge-triggered, so that nothing has to be read: each write to the eventfd and each expiry of the timer is an
        // edge.
        epoll::add(&epoll, call, EventData::new_u64(CALLED), EventFlags::IN | EventFlags::ET)?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN | EventFlags::ET)?;
        Ok(Sleep { epoll, timer, goes: None })
    }

    /// Sleeps until a call arrives, for at most `longest`. May return early without a reason. Returns true when the
    /// connection has ended.
    ///
    /// # Errors
    /// `Interrupted` after a signal; otherwise the kernel refuses.
    pub(crate) fn until_called(&mut self, longest: Duration, now: Instant) -> io::Result<bool> {
        let time = timespec(longest);
        let own = if longest < LONG {
            Some(&time)
        } else {
            self.wake_at(now.checked_add(longest), &time)?;
            None
        };
        let mut events = [const { epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) } }; 3];
        let count = epoll::wait(&self.epoll, &mut events[..], own)?;
        let is = |token| events[..count].iter().any(|event| event.data.u64() == token);
        if is(TIMER) {
            self.goes = None;
        }
        Ok(is(ENDED))
    }

    /// Makes the timer expire at `end` or earlier.
    fn wake_at(&mut self, end: Option<Instant>, left: &Timespec) -> io::Result<()> {
        let Some(end) = end.filter(|end| self.goes.is_none_or(|goes| goes > *end)) else { return Ok(()) };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let time = Itimerspec { it_interval, it_value: *left };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time)?;
        self.goes = Some(end);
        Ok(())
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: time.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    /// Returns a sleep, the eventfd, and both ends of the connection.
    fn sleep() -> (Sleep, OwnedFd, [OwnedFd; 2]) {
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let call = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        (Sleep::new(near.as_fd(), call.as_fd()).unwrap(), call, [near, far])
    }

    #[test]
    fn a_sleep_is_as_long_as_asked_for_also_after_calls() {
        let (mut sleep, call, _ends) = sleep();
        for long in [Duration::from_millis(2), Duration::from_millis(20), Duration::from_millis(15)] {
            rustix::io::write(&call, &1u64.to_ne_bytes()).unwrap();
            assert!(!sleep.until_called(Duration::MAX, Instant::now()).unwrap(), "called");
            let (began, mut wakes) = (Instant::now(), 0);
            while let Some(left) = long.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
                assert!(!sleep.until_called(left, Instant::now()).unwrap());
                wakes += 1;
            }
            // The timer may expire for an earlier sleep, which a call ended.
            assert!(wakes <= 3, "{wakes} in {long:?}");
        }
    }

    #[test]
    fn the_timer_is_set_once_for_many_sleeps() {
        let (mut sleep, call, _ends) = sleep();
        let mut set = None;
        for _ in 0..100 {
            rustix::io::write(&call, &1u64.to_ne_bytes()).unwrap();
            assert!(!sleep.until_called(Duration::from_secs(3600), Instant::now()).unwrap());
            assert_eq!(*set.get_or_insert(sleep.goes), sleep.goes);
        }
        assert!(set.flatten().is_some());
    }

    #[test]
    fn an_end_is_told_in_every_sleep() {
        let (mut sleep, _call, [_near, far]) = sleep();
        drop(far);
        for long in [Duration::ZERO, Duration::from_millis(1), Duration::MAX] {
            assert!(sleep.until_called(long, Instant::now()).unwrap());
        }
    }
}
