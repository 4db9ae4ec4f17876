//! Messages between two ends in one thread, neither of which sleeps: LWEP and what programs use without it.

mod lwep;
mod messenger;
mod sockets;

pub use lwep::Lwep;
pub use messenger::Messenger;
pub use sockets::Sockets;

use std::io;
use std::time::{Duration, Instant};

use self::messenger::{PATIENCE, is_patient};
use crate::placement::{Cores, pin, unpin};
use crate::trial::Contestant;

/// Turns between two readings of the clock.
const TURNS: usize = 16;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Median round trip in nanoseconds, one message at a time.
    RoundTrip,
    /// Million messages per second in one direction.
    Rate,
}

/// A messenger as a contestant.
pub struct Messages<M> {
    /// The two ends.
    pub messenger: M,
    /// Bytes of a message.
    pub size: usize,
    /// What is measured.
    pub measure: Measure,
    /// The two cores.
    pub cores: Cores,
}

impl<M: Messenger> Messages<M> {
    fn round_trip(&mut self, span: Duration) -> io::Result<f64> {
        let message = vec![0x55; self.size];
        let mut trips = Vec::new();
        let began = Instant::now();
        while began.elapsed() < span {
            let sent = Instant::now();
            while !self.messenger.ask(&message)? {
                is_patient(sent)?;
            }
            let mut looks = 0usize;
            loop {
                self.messenger.answer(&message)?;
                if self.messenger.is_answered(self.size)? {
                    break;
                }
                looks += 1;
                if looks.is_multiple_of(1024) {
                    is_patient(sent)?;
                }
            }
            trips.push(sent.elapsed().as_nanos() as u64);
        }
        let middle = trips.len() / 2;
        if trips.is_empty() {
            return Err(io::Error::other("no message came back"));
        }
        let (_, median, _) = trips.select_nth_unstable(middle);
        Ok(*median as f64)
    }

    fn rate(&mut self, span: Duration) -> io::Result<f64> {
        let began = Instant::now();
        let mut messages = 0;
        // A short window may end before the kernel has delivered anything.
        while began.elapsed() < span || messages == 0 && began.elapsed() < PATIENCE {
            for _ in 0..TURNS {
                messages += self.messenger.pass(self.size)?;
            }
        }
        if messages == 0 {
            return Err(io::Error::other("no message arrived"));
        }
        Ok(messages as f64 / began.elapsed().as_secs_f64() / 1e6)
    }
}

impl<M: Messenger> Contestant for Messages<M> {
    fn resume(&mut self) -> io::Result<()> {
        self.messenger.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.messenger.hold()
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        pin(self.cores.generator)?;
        let measure = match self.measure {
            Measure::RoundTrip => Messages::round_trip,
            Measure::Rate => Messages::rate,
        };
        let value = measure(self, span / 8).and_then(|_| measure(self, span));
        unpin(self.cores)?;
        value
    }
}
