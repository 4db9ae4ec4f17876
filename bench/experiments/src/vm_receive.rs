//! A guest that receives frames at an offered rate, and the number that its kernel takes.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use ringway_guests::Guest;
use ringway_traffic::{Endpoint, FrameSpec, Frames, Mac, Pacer, Rate, Source as _};

use crate::placement::unpin;
use crate::vm_nics::{Accesses, Counted, FarEnd, INTERRUPTS, SINK, Station, accesses};

/// Most credit of the generator: after a time without a processor it sends at once what this time brings.
const BURST: Duration = Duration::from_micros(500);
/// Most frames between two flushes of the ring.
const BATCH: usize = 32;
/// Longest sleep of the generator.
const NAP: Duration = Duration::from_micros(100);

/// Result of an offered rate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offer {
    /// Frames sent to it, per second.
    pub sent: f64,
    /// Rates that the guest and the device counted.
    pub counted: Counted,
}

impl Offer {
    /// Returns true if at least 99 of 100 frames arrived.
    #[must_use]
    pub fn arrived(&self) -> bool {
        self.counted.frames >= 0.99 * self.sent
    }
}

impl Station {
    /// Sends the guest `rate` frames of `size` bytes per second for `span`: UDP to an address that it does not have.
    ///
    /// The guest is asked before and after the window only: during the load it may have no time to answer.
    pub fn receive(&mut self, size: usize, rate: u64, span: Duration) -> io::Result<Offer> {
        unpin(self.cores)?;
        let spec = FrameSpec { size, source: Mac::local(SINK), destinations: vec![self.mac], ..FrameSpec::default() };
        let mut frames = Frames::new(&spec).map_err(io::Error::other)?;
        let Station { guest, far, daemon, .. } = self;
        let status = || daemon.as_ref().map(|daemon| daemon.status()).transpose();
        // A question to a driver reads registers, so the device's own counts are read between the questions.
        let before = (ask(guest)?, status()?);
        let start = Instant::now();
        let sent = match far {
            FarEnd::Process(port) => offer(port, &mut frames, rate, span)?,
            FarEnd::Tap(tap) => offer(tap, &mut frames, rate, span)?,
        };
        let seconds = start.elapsed().as_secs_f64();
        guest.ok(SETTLED).map_err(io::Error::other)?;
        let after = (status()?, ask(guest)?);
        let [frames, interrupts] = [0, 1].map(|index| (after.1[index] - before.0[index]) / seconds);
        let counts = before.1.as_ref().and_then(accesses).zip(after.0.as_ref().and_then(accesses));
        let accesses = counts.map(|(before, after)| Accesses::between(before, after, seconds));
        Ok(Offer { sent: sent as f64 / seconds, counted: Counted { frames, interrupts, accesses } })
    }
}

/// Waits until the guest's kernel has taken all frames that arrived.
const SETTLED: &str =
    "while now=$(cat /proc/net/softnet_stat); [ \"$now\" != \"$then\" ]; do then=$now; usleep 20000; done";

/// Returns frames and interrupts of eth0, as the guest counts them.
fn ask(guest: &Guest) -> io::Result<[f64; 2]> {
    let said = guest.ok(&format!("cat /sys/class/net/eth0/statistics/rx_packets; {INTERRUPTS}"));
    let said = said.map_err(io::Error::other)?;
    let mut numbers = said.split_whitespace().map_while(|word| word.parse().ok());
    let both = numbers.next().zip(numbers.next()).map(|(frames, interrupts)| [frames, interrupts]);
    both.ok_or_else(|| io::Error::other(format!("the guest counts {said:?}")))
}

/// Sends at this rate. Returns the number of frames sent. Frames that find no room are not sent later.
fn offer<E: Endpoint>(port: &mut E, frames: &mut Frames, rate: u64, span: Duration) -> io::Result<u64> {
    let mut pacer = Pacer::with_burst(Rate::Frames(rate), BURST);
    let len = frames.size();
    let (mut sent, start) = (0, Instant::now());
    loop {
        let now = start.elapsed();
        if now >= span {
            return Ok(sent);
        }
        pacer.refill(now);
        let mut pushed = 0;
        while pushed < BATCH && pacer.ready(len) && port.tx_push(len, |frame| frames.fill(frame)) {
            pacer.spend(len);
            pushed += 1;
        }
        sent += pushed as u64;
        if pushed > 0 {
            port.tx_flush();
        } else if pacer.ready(len) {
            port.wait(false, NAP)?;
        } else {
            thread::sleep(pacer.delay(len).min(NAP));
        }
        // Frames of the other direction must not fill the ring.
        port.rx_batch(BATCH, |_| ());
    }
}
