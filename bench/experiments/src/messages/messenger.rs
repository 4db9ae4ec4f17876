//! Two ends of a connection in one thread.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::Timespec;

use crate::patience::PATIENCE;

/// Longest sleep of an end, after which it looks whether its message is lost.
pub const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Two ends of a connection. `now` is a time that the caller has read anyway, so that a message costs no reading of the clock more.
pub trait Messenger {
    /// Sends one message from the near end, if there is room. Returns false if there is not.
    ///
    /// # Errors
    /// The connection is broken.
    fn ask(&mut self, message: &[u8], now: Instant) -> io::Result<bool>;

    /// The far end answers the message that has arrived, if one has, with one of the same length.
    ///
    /// # Errors
    /// The connection is broken.
    fn answer(&mut self, message: &[u8], now: Instant) -> io::Result<()>;

    /// Returns true if the near end has received the whole answer of `size` bytes.
    ///
    /// # Errors
    /// The connection is broken.
    fn is_answered(&mut self, size: usize, now: Instant) -> io::Result<bool>;

    /// The near end sends what there is room for, within bounds; the far end takes what has arrived. Returns the messages that it took.
    ///
    /// # Errors
    /// The connection is broken.
    fn pass(&mut self, size: usize, now: Instant) -> io::Result<u64>;

    /// Returns true if an end that has nothing to do sleeps.
    fn sleeps(&self) -> bool {
        false
    }

    /// Returns the CPU time that other programs have used for the messages so far. They are stopped.
    ///
    /// # Errors
    /// One has ended.
    fn cpu_time_of_others(&mut self) -> io::Result<Duration> {
        Ok(Duration::ZERO)
    }

    /// Returns the seconds that pollers have been busy so far. They run.
    ///
    /// # Errors
    /// A switch does not answer.
    fn busy_time(&mut self) -> io::Result<f64> {
        Ok(0.0)
    }

    /// Lets the switch run, if there is one.
    ///
    /// # Errors
    /// It has ended.
    fn resume(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Stops the switch.
    ///
    /// # Errors
    /// It has ended.
    fn hold(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Fails if a message that was sent then has been under way for too long.
pub fn is_patient(sent: Instant) -> io::Result<()> {
    if sent.elapsed() < PATIENCE { Ok(()) } else { Err(io::Error::other("a message or its answer is lost")) }
}
