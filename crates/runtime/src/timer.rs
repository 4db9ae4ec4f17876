//! A poller's timer: a high-resolution timer of the kernel, without timer slack.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// A timer whose descriptor becomes readable.
#[derive(Debug)]
pub struct Timer {
    fd: OwnedFd,
    /// The time it is set to, in nanoseconds of the pollers' clock. It may have expired.
    set_to: Option<u64>,
}

impl Timer {
    /// A timer that is not set.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> io::Result<Timer> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        Ok(Timer { fd, set_to: None })
    }

    /// The descriptor, readable from the set time on. It is never read: wait for its edge (EPOLLET).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Notes that the timer expired: the next [`Timer::wake_at`] sets it even to the same time.
    pub fn expired(&mut self) {
        self.set_to = None;
    }

    /// Sets the timer to `due`; `now` is the present time. Without a `due` the timer stays set, and may expire without
    /// need.
    pub fn wake_at(&mut self, due: Option<u64>, now: u64) {
        let Some(due) = due.filter(|&due| self.set_to != Some(due)) else { return };
        // Zero would stop the timer.
        let left = due.saturating_sub(now).max(1);
        let (tv_sec, tv_nsec) = ((left / 1_000_000_000) as i64, (left % 1_000_000_000) as i64);
        let time =
            Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: Timespec { tv_sec, tv_nsec } };
        if timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &time).is_ok() {
            self.set_to = Some(due);
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

    use super::*;

    #[test]
    fn a_timer_that_expired_unnoticed_expires_again_for_the_same_time() {
        let epoll = epoll::create(CreateFlags::CLOEXEC).expect("an epoll descriptor");
        let mut timer = Timer::new().expect("a timer");
        epoll::add(&epoll, timer.fd(), EventData::new_u64(0), EventFlags::IN | EventFlags::ET).expect("a place");
        let expires = |most: Timespec| {
            let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }];
            epoll::wait(&epoll, &mut events[..], Some(&most)).expect("a wait") == 1
        };
        let (long, at_once) = (Timespec { tv_sec: 60, tv_nsec: 0 }, Timespec { tv_sec: 0, tv_nsec: 0 });
        timer.wake_at(Some(1_000), 0);
        assert!(expires(long) && !expires(at_once));
        timer.expired();
        timer.wake_at(Some(1_000), 0);
        assert!(expires(long));
    }
}
