//! An endpoint with a clock, and ways to wait and to stop.

use std::io::{self, IsTerminal};
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ringway_api::patience;
use ringway_link::Link;
use ringway_lwep::{Endpoint, Nanos};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::r#gen::{GenError, Stop};

/// Longest sleep: a signal does not end it.
const NAP: Duration = Duration::from_millis(100);
/// How often a spinning loop checks that the link has not ended.
const CHECK: Duration = Duration::from_millis(20);
/// How often progress is told.
const TELL: Duration = Duration::from_secs(1);
/// Longest wait until the device has taken the last frames.
const SETTLE: Duration = Duration::from_secs(1);

/// What to do while there is nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Wait {
    /// Try again at once: needs a CPU of its own
    Spin,
    /// Sleep until something arrives
    Sleep,
}

/// An endpoint of this process.
pub struct Station<'s, L> {
    /// The link, for messages.
    name: String,
    /// The endpoint.
    pub endpoint: Endpoint<L>,
    wait: Wait,
    stop: &'s Stop,
    began: Instant,
    checked: Nanos,
    told: Nanos,
    room: usize,
}

impl<'s, L: Link> Station<'s, L> {
    /// Returns a station that ends when `stop` is set.
    pub fn new(name: &str, mut endpoint: Endpoint<L>, wait: Wait, stop: &'s Stop) -> Self {
        let room = endpoint.link().room();
        Self { name: name.to_owned(), endpoint, wait, stop, began: Instant::now(), checked: 0, told: 0, room }
    }

    /// Returns the time since the station was made, in nanoseconds.
    pub fn now(&self) -> Nanos {
        self.began.elapsed().as_nanos() as Nanos
    }

    /// Returns true if a signal asks for the end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits until there is something to do, for `longest` at most. `now` is the time of the poll that has found nothing to do: where the
    /// clock is a device, as in emulated guests, each look at it is a system call.
    ///
    /// # Errors
    /// The link has ended.
    pub fn pause(&mut self, now: Nanos, longest: Duration) -> Result<(), GenError> {
        match self.wait {
            Wait::Sleep => self.endpoint.sleep(now, longest.min(NAP)).map_err(|error| self.failed(&error)),
            Wait::Spin => {
                std::hint::spin_loop();
                self.check(now)
            }
        }
    }

    /// Waits like [`Station::pause`], also until `other` is readable.
    ///
    /// # Errors
    /// The link has ended.
    pub fn pause_with(&mut self, now: Nanos, other: BorrowedFd<'_>) -> Result<(), GenError> {
        if self.wait == Wait::Spin {
            return self.pause(now, NAP);
        }
        let until = self.endpoint.next_deadline().map_or(NAP, |at| Duration::from_nanos(at.saturating_sub(now)));
        let is_quiet = self.endpoint.prepare_sleep(now);
        let link = self.endpoint.link();
        if is_quiet {
            let wanted = [link.descriptor(), other];
            let mut descriptors = wanted.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
            // A signal ends it, too.
            let _ = poll(&mut descriptors, Timespec::try_from(until.min(NAP)).ok().as_ref());
        }
        link.awake();
        // The end of the link wakes, too. A system call finds it.
        let checked = if link.peek().is_none() { link.check() } else { Ok(()) };
        checked.map_err(|error| self.failed(&error))
    }

    /// Finds out from time to time whether the link has ended, in a loop that does not pause.
    ///
    /// # Errors
    /// The link has ended.
    pub fn check(&mut self, now: Nanos) -> Result<(), GenError> {
        if now - self.checked < CHECK.as_nanos() as Nanos {
            return Ok(());
        }
        self.checked = now;
        self.endpoint.link().check().map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &io::Error) -> GenError {
        GenError::Failed(format!("{}: {error}", self.name))
    }

    /// Says how it stands, once a second, if somebody sees it.
    pub fn tell(&mut self, now: Nanos, line: impl FnOnce() -> String) {
        if now - self.told >= TELL.as_nanos() as Nanos {
            self.told = now;
            if io::stderr().is_terminal() {
                eprintln!("{}", line());
            }
        }
    }

    /// Sends what is owed, and waits until the device has taken all frames: what it has not taken is lost with the link.
    pub fn settle(&mut self) {
        let deadline = Instant::now() + patience(SETTLE);
        let now = self.now();
        self.endpoint.prepare_sleep(now);
        self.endpoint.link().awake();
        while self.endpoint.link().room() < self.room && Instant::now() < deadline {
            std::thread::yield_now();
        }
    }
}
