//! Limits beyond the rates that can be copied here: a `map` switch that knows no port for the frames drops those that pass
//! the limit unread. The limit's own counters, by the daemon's clock, tell what passed.

use std::io;
use std::time::{Duration, Instant};

use ringway_traffic::{Endpoint as _, FrameSpec, Frames, Mac, ProcessEndpoint};

use crate::beside::Beside;
use crate::daemon::{BUSY, Daemon, Settings};
use crate::network::{Network as _, SENDER};
use crate::placement::{Cores, pin};
use crate::trial::Contestant;

/// Bytes of a frame: as long as segments that are left to the NIC, in one buffer.
pub const FRAME: usize = 65_226;
const BUFFER: u32 = 65_472;
/// Of a buffer, what is ever read.
const HEAD: usize = 128;
/// Frames that are added between two looks at the clock.
const TURN: usize = 64;
/// Windows are longer than those of other experiments by this factor.
const SECOND: u32 = 25;
const WARM_UP: Duration = Duration::from_millis(100);
/// What was saved up is spent once frames were taken for as long as a burst is saved up without such a pause; so many tries.
const PAUSE: Duration = Duration::from_millis(1);
const TRIES: usize = 20;
/// Counters and clock are one moment's if asking for them took no longer.
const LONGEST_READING: Duration = Duration::from_micros(500);

/// A sender that floods its limit with frames to nobody.
pub struct Counted {
    // Goes before its network.
    sender: ProcessEndpoint,
    network: Daemon,
    cores: Cores,
    frame: Vec<u8>,
    /// Bits per second.
    rate: f64,
    /// How long it takes until a whole burst has been saved up.
    refill: Duration,
    /// The last window was none.
    held_up: bool,
    series: &'static str,
    offered: Beside,
}

/// The counters at one moment.
struct Reading {
    /// By the daemon's clock.
    seconds: f64,
    /// Bytes that passed the limit.
    passed: u64,
    /// Bytes that the switch took from the sender.
    offered: u64,
    /// How long asking took.
    took: Duration,
}

impl Counted {
    /// Starts a daemon whose only port is limited by `limit` to `rate` bits per second, a burst being what comes in `refill`.
    ///
    /// # Errors
    /// The daemon does not start, or takes no frames.
    pub fn new(
        cores: Cores,
        settings: Settings,
        limit: String,
        (rate, refill): (f64, Duration),
        (series, offered): (&'static str, Beside),
    ) -> io::Result<Counted> {
        let shape = ringway_client::Shape { rx_slots: 4, buffer_size: BUFFER, ..BUSY };
        let mut network = Daemon::start(cores, &Settings { keys: vec![limit], forwarding: "map", shape, ..settings })?;
        let Some(mut sender) = network.attach(1)?.pop() else { return Err(io::Error::other("no port was attached")) };
        let (source, destinations) = (Mac::local(SENDER), vec![Mac::local(u32::MAX)]);
        let frame = Frames::new(&FrameSpec { size: FRAME, source, destinations, ..FrameSpec::default() });
        let frame = frame.map_err(io::Error::other)?.next_frame();
        // Every buffer of the ring holds the beginning of the frame.
        let mut left = 2 * sender.tx_room();
        let start = Instant::now();
        while left > 0 && start.elapsed() < Duration::from_secs(5) {
            left -= usize::from(sender.tx_push(FRAME, |place| place[..HEAD].copy_from_slice(&frame[..HEAD])));
            sender.tx_flush();
        }
        network.hold()?;
        Ok(Counted { sender, network, cores, frame, rate, refill, held_up: false, series, offered })
    }

    /// Offers as much as is taken, for `span`: the longest time in which nothing was.
    fn flood(&mut self, span: Duration) -> Duration {
        let start = Instant::now();
        let (mut now, mut last, mut quiet) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        while now < span {
            if self.sender.tx_repeat_many(&self.frame, TURN) > 0 {
                self.sender.tx_flush();
                last = now;
            }
            now = start.elapsed();
            quiet = quiet.max(now - last);
        }
        quiet
    }

    /// Goes on until nothing is left of what was saved up while the switch or the generator had no core: the longest pause until
    /// then, `None` if that never came true.
    fn settle(&mut self) -> Option<Duration> {
        let mut longest = Duration::ZERO;
        for _ in 0..TRIES {
            let pause = self.flood(self.refill);
            longest = longest.max(pause);
            if pause < PAUSE {
                return Some(longest);
            }
        }
        None
    }

    fn read(&self) -> io::Result<Reading> {
        let start = Instant::now();
        let status = self.network.status()?;
        let took = start.elapsed();
        let number = |place: &str| {
            let number = status.pointer(place).and_then(serde_json::Value::as_u64);
            number.ok_or_else(|| io::Error::other(format!("the daemon's status has no {place}")))
        };
        let (passed, offered) = (number("/ports/0/ingress/passed/bytes")?, number("/ports/0/in/bytes")?);
        Ok(Reading { seconds: status["uptime"].as_f64().unwrap_or_default(), passed, offered, took })
    }
}

impl Contestant for Counted {
    fn resume(&mut self) -> io::Result<()> {
        self.network.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.network.hold()
    }

    fn needs_its_core(&self) -> bool {
        false
    }

    fn was_held_up(&self) -> bool {
        self.held_up
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        pin(self.cores.generator)?;
        let span = span * SECOND;
        self.flood(span.min(WARM_UP));
        let is_settled = self.settle().is_some();
        let before = self.read()?;
        let quiet = self.flood(span);
        let quiet = self.settle().map(|pause| pause.max(quiet));
        let after = self.read()?;
        let is_counted = is_settled && quiet.is_some_and(|quiet| quiet < self.refill);
        self.held_up = !is_counted || before.took.max(after.took) > LONGEST_READING;
        let seconds = after.seconds - before.seconds;
        let bits = |bytes: u64| bytes as f64 * 8.0 / seconds;
        self.offered.note(0, self.series, self.rate / 1e9, bits(after.offered - before.offered) / 1e9);
        Ok((bits(after.passed - before.passed) / self.rate - 1.0) * 100.0)
    }
}
