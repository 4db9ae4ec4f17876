//! Messages between two ends in one thread: LWEP and what programs use without it.

mod bare;
mod long_frames;
mod lwep;
mod messenger;
mod sockets;

pub use bare::Bare;
pub use long_frames::{LONG, LongFrames};
pub use lwep::{LinkNetwork, Lwep, Way, address};
pub use messenger::Messenger;
pub use sockets::{Route, Sockets};

use std::io;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use self::messenger::is_patient;
use crate::patience::PATIENCE;
use crate::placement::{Cores, pin, unpin};
use crate::trial::Contestant;

/// Looks for an answer between two readings of the clock.
const LOOKS: usize = 64;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Median round trip in nanoseconds, one message at a time.
    RoundTrip,
    /// Million messages per second in one direction.
    Rate,
    /// CPU time of everybody for a round trip, in nanoseconds.
    CpuOfRoundTrip,
    /// CPU time of everybody for a message in one direction, in nanoseconds.
    CpuOfMessage,
    /// Time that the pollers are busy for a message in one direction, in nanoseconds.
    PollerOfMessage,
}

/// A messenger as a contestant: it has messages of one size and is measured in one way.
pub struct Messages<M> {
    /// The two ends.
    pub messenger: M,
    /// Bytes of a message.
    pub size: usize,
    /// What is measured.
    pub measure: Measure,
    /// The two cores.
    pub cores: Cores,
    /// The ends stay on the generator's core.
    pub is_bound: bool,
}

impl<M: Messenger> Messages<M> {
    /// Returns the duration of each round trip, in nanoseconds.
    fn round_trips(&mut self, span: Duration) -> io::Result<Vec<u64>> {
        let message = vec![0x55; self.size];
        let mut trips = Vec::new();
        let began = Instant::now();
        let mut sent = began;
        while sent - began < span {
            let mut now = sent;
            while !self.messenger.ask(&message, now)? {
                is_patient(sent)?;
                now = Instant::now();
            }
            let mut looks = 0usize;
            loop {
                self.messenger.answer(&message, now)?;
                if self.messenger.is_answered(self.size, now)? {
                    break;
                }
                looks += 1;
                if self.messenger.sleeps() || looks.is_multiple_of(LOOKS) {
                    now = Instant::now();
                    is_patient(sent)?;
                }
            }
            let arrived = Instant::now();
            trips.push((arrived - sent).as_nanos() as u64);
            sent = arrived;
        }
        Ok(trips)
    }

    fn round_trip(&mut self, span: Duration) -> io::Result<f64> {
        let mut trips = self.round_trips(span)?;
        let middle = trips.len() / 2;
        if trips.is_empty() {
            return Err(io::Error::other("no message came back"));
        }
        let (_, median, _) = trips.select_nth_unstable(middle);
        Ok(*median as f64)
    }

    /// Returns the messages and the time that they took.
    pub(crate) fn messages(&mut self, span: Duration) -> io::Result<(u64, Duration)> {
        let began = Instant::now();
        let (mut now, mut messages) = (began, 0);
        // A short window may end before the kernel has delivered anything.
        while now - began < span || messages == 0 && now - began < PATIENCE {
            messages += self.messenger.pass(self.size, now)?;
            now = Instant::now();
        }
        if messages == 0 {
            return Err(io::Error::other("no message arrived"));
        }
        Ok((messages, now - began))
    }

    /// Returns the CPU time that this thread and the switch use for each of what `count` does.
    fn cpu_time(&mut self, count: impl FnOnce(&mut Self) -> io::Result<u64>) -> io::Result<f64> {
        // What a program uses while it runs is known for certain once it is stopped.
        let so_far = |messages: &mut Self| {
            messages.messenger.hold()?;
            Ok::<_, io::Error>(messages.messenger.cpu_time_of_others()? + cpu_time_of_this_thread())
        };
        let before = so_far(self)?;
        self.messenger.resume()?;
        let count = count(self)?;
        Ok((so_far(self)? - before).as_nanos() as f64 / count as f64)
    }

    fn measure(&mut self, span: Duration) -> io::Result<f64> {
        match self.measure {
            Measure::RoundTrip => self.round_trip(span),
            Measure::Rate => {
                let (messages, took) = self.messages(span)?;
                Ok(messages as f64 / took.as_secs_f64() / 1e6)
            }
            Measure::CpuOfRoundTrip => {
                self.cpu_time(|messages| messages.round_trips(span).map(|trips| trips.len() as u64))
            }
            Measure::PollerOfMessage => {
                let before = self.messenger.busy_time()?;
                let (messages, _) = self.messages(span)?;
                Ok((self.messenger.busy_time()? - before) * 1e9 / messages as f64)
            }
            Measure::CpuOfMessage => self.cpu_time(|messages| messages.messages(span).map(|(messages, _)| messages)),
        }
    }
}

fn cpu_time_of_this_thread() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl<M: Messenger> Contestant for Messages<M> {
    fn resume(&mut self) -> io::Result<()> {
        self.messenger.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.messenger.hold()
    }

    fn needs_its_core(&self) -> bool {
        // A switch that is asked for its pollers' times answers on this core, too.
        self.is_bound && !self.messenger.sleeps() && self.measure != Measure::PollerOfMessage
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        if self.is_bound {
            pin(self.cores.generator)?
        } else {
            unpin(self.cores)?
        }
        match self.measure {
            Measure::RoundTrip | Measure::CpuOfRoundTrip => drop(self.round_trips(span / 8)?),
            Measure::Rate | Measure::CpuOfMessage | Measure::PollerOfMessage => drop(self.messages(span / 8)?),
        }
        let value = self.measure(span)?;
        unpin(self.cores)?;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use ringway_link::memory::{MemoryLink, MemoryOptions, pair};

    use super::*;

    const SPAN: Duration = Duration::from_millis(8);
    const MEASURES: [Measure; 4] = [Measure::RoundTrip, Measure::Rate, Measure::CpuOfRoundTrip, Measure::CpuOfMessage];

    /// Two links without a switch.
    struct Memory([Option<MemoryLink>; 2]);

    impl Memory {
        fn new() -> Memory {
            let (near, far) = pair(&MemoryOptions::default()).unwrap();
            Memory([Some(near), Some(far)])
        }
    }

    impl LinkNetwork for Memory {
        type Link = MemoryLink;

        fn link(&mut self, number: usize, _: &Way) -> io::Result<MemoryLink> {
            self.0[number].take().ok_or_else(|| io::ErrorKind::NotFound.into())
        }
    }

    /// Every measure of messages of every size has a value.
    fn all_measures<M: Messenger>(cores: Cores, make: impl Fn() -> io::Result<M>) {
        for measure in MEASURES {
            for size in [8, 1400] {
                let mut messages = Messages { messenger: make().unwrap(), size, measure, cores, is_bound: true };
                let value = messages.window(SPAN).unwrap();
                assert!(value > 0.0, "{measure:?} of {size} bytes: {value}");
            }
        }
    }

    /// Runs on a thread of its own, which is pinned to a core.
    fn on_cores(test: fn(Cores)) {
        let Ok(cores) = Cores::choose() else { ringway_testing::skip!("needs two processors") };
        thread::spawn(move || test(cores)).join().unwrap();
    }

    #[test]
    fn lwep_has_every_measure_in_every_way() {
        on_cores(|cores| {
            let many = Way { connections: 100, active: 100, ..Way::PLAIN };
            for way in [Way::PLAIN, Way::COPIED, Way { checksums: true, ..Way::PLAIN }, many] {
                all_measures(cores, || Lwep::start(Memory::new(), way));
            }
        });
    }

    #[test]
    fn bare_frames_have_every_measure() {
        on_cores(|cores| all_measures(cores, || Bare::start(Memory::new())));
    }

    #[test]
    fn sockets_have_every_measure() {
        on_cores(|cores| {
            all_measures(cores, Sockets::unix);
            all_measures(cores, || Sockets::unix().map(Sockets::sleeping));
            all_measures(cores, Sockets::loopback);
        });
    }
}
