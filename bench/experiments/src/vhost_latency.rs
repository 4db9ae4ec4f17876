//! Round trips between two vhost-user ports: median and high percentiles, without and with other load.
//!
//! One thread is both drivers. Every [`INTERVAL`] the first driver sends a frame of 64 bytes that the second sends back, whether or not
//! the last one is back. The first driver also sends other frames of 64 bytes at a steady rate. Half load is half of what testpmd
//! forwards at most, or Ringway where testpmd is missing, for all switches alike.

use std::io;
use std::time::{Duration, Instant};

use ringway_traffic::{Endpoint, Mac, Split, VirtioOptions};

use crate::network::{Network, SENDER};
use crate::placement::{Cores, pin};
use crate::report::{Axis, Figure, Heading, TIME};
use crate::series::{OVS_DPDK, RINGWAY, TESTPMD};
use crate::session::Session;
use crate::trial::Contestant;
use crate::vhost::{Load, Shared, Switches, with};

/// Interval between two probes.
const INTERVAL: Duration = Duration::from_micros(20);
/// Length of a window in ordinary windows, so that several probes are among the slowest in a thousand.
const STRETCH: u32 = 5;
/// Longest wait for the last probes.
const PATIENCE: Duration = Duration::from_millis(100);
const FRAME: usize = 64;
/// Offset of a probe's time of sending, in nanoseconds; 0 in other frames.
const STAMP: std::ops::Range<usize> = 14..22;
/// Ethernet type of these frames: the local experimental one.
const TYPE: [u8; 2] = [0x88, 0xb5];
/// Most frames sent or taken in one turn.
const BATCH: usize = 64;

/// Percentiles.
const PERCENTILES: [f64; 3] = [50.0, 99.0, 99.9];

/// One percentile of round trips through one switch.
struct Probes<N: Network> {
    pair: Shared<N>,
    cores: Cores,
    /// Frames beside the probes, per second.
    background: f64,
    percentile: f64,
}

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let switches = Switches::<Split>::start(session, &VirtioOptions::default());
    let testpmd = with(&switches.testpmd, |pair| half_of(&pair)).and_then(|rate| rate);
    let own = with(&switches.ringway, |pair| half_of(&pair)).and_then(|rate| rate);
    let rates = match (testpmd, own) {
        (Ok(half), own) => vec![(RINGWAY, half), ("ringway, half of its own", own.unwrap_or(half))],
        (Err(_), Ok(half)) => vec![(RINGWAY, half)],
        (Err(_), Err(_)) => vec![(RINGWAY, 0.0)],
    };
    let mut figures = Vec::new();
    for loaded in [false, true] {
        let mut lineup = session.lineup();
        for percentile in PERCENTILES {
            let rates = if loaded { &rates[..] } else { &[(RINGWAY, 0.0)] };
            let cores = session.cores;
            let background = rates[0].1;
            for &(series, background) in rates {
                let ringway = with(&switches.ringway, |pair| Probes { pair, cores, background, percentile });
                lineup.add_at(series, percentile, ringway);
            }
            let testpmd = with(&switches.testpmd, |pair| Probes { pair, cores, background, percentile });
            lineup.add_at(TESTPMD, percentile, testpmd);
            let ovs = with(&switches.ovs, |pair| Probes { pair, cores, background, percentile });
            lineup.add_at(OVS_DPDK, percentile, ovs);
        }
        let (name, beside) = if loaded { ("loaded", "under half load") } else { ("unloaded", "unloaded") };
        let heading = Heading {
            name: format!("vhost-latency-{name}"),
            title: format!("Percentiles of the round trip between two vhost-user ports, {beside}"),
            source: "VPE, section 5.1, figure 5",
            x: Axis { label: "percentile", unit: "%", logarithmic: false },
            y: Axis { label: "round trip", ..TIME },
        };
        figures.push(session.measure("vhost-latency", heading, lineup)?);
    }
    Ok(figures)
}

/// Returns half of the frames per second that a switch forwards at most.
fn half_of<N: Network>(pair: &Shared<N>) -> io::Result<f64> {
    let mut pair = pair.borrow_mut();
    pair.network().resume()?;
    let rate = pair
        .saturate(&Load { sizes: vec![FRAME], both: false, tcp: false, broadcasts: false }, Duration::from_millis(100));
    pair.network().hold()?;
    Ok(rate? * 1e6 / 2.0)
}

impl<N: Network> Contestant for Probes<N> {
    fn resume(&mut self) -> io::Result<()> {
        self.pair.borrow_mut().network().resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.pair.borrow_mut().network().hold()
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        pin(self.cores.generator)?;
        let mut pair = self.pair.borrow_mut();
        let [near, far] = pair.ports();
        measure(near, far, self.background, span / 8)?;
        let mut trips = measure(near, far, self.background, span * STRETCH)?;
        trips.sort_unstable();
        let rank = (trips.len() as f64 * self.percentile / 100.0).ceil() as usize;
        match trips.get(rank.saturating_sub(1)) {
            Some(&nanos) => Ok(nanos as f64),
            None => Err(io::Error::other("no frame came back")),
        }
    }
}

/// A frame from one driver to the other, stamped with `nanos`.
fn write(frame: &mut [u8], to: u32, from: u32, nanos: u64) {
    frame[..6].copy_from_slice(&Mac::local(to).0);
    frame[6..12].copy_from_slice(&Mac::local(from).0);
    frame[12..14].copy_from_slice(&TYPE);
    frame[STAMP].copy_from_slice(&nanos.to_ne_bytes());
    frame[STAMP.end..].fill(0);
}

/// The stamp of a probe; 0 for all other frames.
fn stamp(frame: &[u8]) -> u64 {
    let ours = frame.get(12..14) == Some(&TYPE);
    frame.get(STAMP).filter(|_| ours).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

/// Probes for `span`, and waits for the last probes. Returns the nanoseconds of each round trip.
fn measure<E: Endpoint>(near: &mut E, far: &mut E, background: f64, span: Duration) -> io::Result<Vec<u64>> {
    let start = Instant::now();
    let mut trips = Vec::with_capacity((span.as_nanos() / INTERVAL.as_nanos()) as usize + 1);
    let (mut probes, mut beside) = (0, 0);
    let mut turned = Vec::with_capacity(BATCH);
    loop {
        let now = start.elapsed();
        if now < span {
            let due = (now.as_nanos() / INTERVAL.as_nanos()) as usize + 1;
            let mut sent = 0;
            while probes < due
                && near.tx_push(FRAME, |frame| write(frame, SENDER + 1, SENDER, now.as_nanos() as u64 | 1))
            {
                (probes, sent) = (probes + 1, sent + 1);
            }
            let due = (now.as_secs_f64() * background) as u64;
            while beside < due && sent < BATCH && near.tx_push(FRAME, |frame| write(frame, SENDER + 1, SENDER, 0)) {
                (beside, sent) = (beside + 1, sent + 1);
            }
            if sent > 0 {
                near.tx_flush();
            }
        } else if trips.len() >= probes || now > span + PATIENCE {
            return Ok(trips);
        }
        far.rx_batch(BATCH, |frame| turned.extend(Some(stamp(frame)).filter(|&nanos| nanos != 0)));
        if !turned.is_empty() {
            for nanos in turned.drain(..) {
                // A probe without room in the ring is lost.
                far.tx_push(FRAME, |frame| write(frame, SENDER, SENDER + 1, nanos));
            }
            far.tx_flush();
        }
        near.rx_batch(BATCH, |frame| {
            let nanos = stamp(frame);
            if nanos != 0 {
                trips.push((start.elapsed().as_nanos() as u64).saturating_sub(nanos));
            }
        });
    }
}
