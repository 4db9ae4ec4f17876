//! Limits at rates that no core here can copy. A `map` switch knows no port for the frames that pass the limit and drops them
//! unread. The limit's own counters give what passed, by the daemon's clock.

use std::io;
use std::time::{Duration, Instant};

use ringway_traffic::{Endpoint as _, FrameSpec, Frames, Mac, ProcessEndpoint};

use crate::daemon::{BUSY, Daemon, Settings};
use crate::extra_counts::ExtraCounts;
use crate::network::{Network as _, SENDER};
use crate::patience::PATIENCE;
use crate::placement::{Cores, pin};
use crate::trial::Contestant;

/// Bytes of a frame, in one buffer: as long as a TCP segment whose segmentation is left to the NIC.
pub const FRAME: usize = 65_226;
const BUFFER: u32 = 65_472;
/// Bytes at the beginning of a buffer that the switch reads.
const HEAD: usize = 128;
/// Frames that the sender adds between two readings of the clock.
const TURN: usize = 64;
/// Windows are longer than those of other experiments by this factor.
const SECOND: u32 = 25;
const WARM_UP: Duration = Duration::from_millis(100);
/// A window starts once the switch took frames for the time that refills a whole burst, without a pause of this length: then the
/// bucket has spent what it saved.
const PAUSE: Duration = Duration::from_millis(1);
/// How often a window waits for that.
const TRIES: usize = 20;
/// Longest request for the status whose counters and clock count as read at one moment.
const LONGEST_READING: Duration = Duration::from_micros(500);

/// A sender that floods its limit with frames to an unknown address.
pub struct Counted {
    // Dropped before its network.
    sender: ProcessEndpoint,
    network: Daemon,
    cores: Cores,
    frame: Vec<u8>,
    /// Bits per second.
    rate: f64,
    /// Time in which the bucket refills a whole burst.
    refill: Duration,
    /// The last window does not count.
    held_up: bool,
    series: &'static str,
    offered: ExtraCounts,
}

/// The counters at one moment.
struct Reading {
    /// Time by the daemon's clock.
    seconds: f64,
    /// Bytes that passed the limit.
    passed: u64,
    /// Bytes that the switch took from the sender.
    offered: u64,
    /// Duration of the request.
    took: Duration,
}

impl Counted {
    /// Starts a daemon whose only port is limited by `limit` to `rate` bits per second. A burst is what the rate brings in `refill`.
    ///
    /// # Errors
    /// The daemon does not start, or takes no frames.
    pub fn new(
        cores: Cores,
        settings: Settings,
        limit: String,
        (rate, refill): (f64, Duration),
        (series, offered): (&'static str, ExtraCounts),
    ) -> io::Result<Counted> {
        let shape = ringway_client::Shape { rx_slots: 4, buffer_size: BUFFER, ..BUSY };
        let forwarding = String::from("\"map\"");
        let mut network = Daemon::start(cores, &Settings { keys: vec![limit], forwarding, shape, ..settings })?;
        let Some(mut sender) = network.attach(1)?.pop() else { return Err(io::Error::other("no port was attached")) };
        let (source, destinations) = (Mac::local(SENDER), vec![Mac::local(u32::MAX)]);
        let frame = Frames::new(&FrameSpec { size: FRAME, source, destinations, ..FrameSpec::default() });
        let frame = frame.map_err(io::Error::other)?.next_frame();
        // Every buffer of the ring holds the beginning of the frame.
        let mut left = 2 * sender.tx_room();
        let start = Instant::now();
        while left > 0 && start.elapsed() < PATIENCE {
            left -= usize::from(sender.tx_push(FRAME, |place| place[..HEAD].copy_from_slice(&frame[..HEAD])));
            sender.tx_flush();
        }
        network.hold()?;
        Ok(Counted { sender, network, cores, frame, rate, refill, held_up: false, series, offered })
    }

    /// Offers as much as the switch takes, for `span`. Returns the longest time in which it took nothing.
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

    /// Offers frames until the bucket has spent what it saved while the switch or the generator had no core. Returns the longest
    /// pause, or `None` if the bucket never got there in [`TRIES`] tries.
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
