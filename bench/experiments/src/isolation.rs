//! What a flooding neighbour costs a victim: the victim's round trips per second and their 99.9th percentile, alone and while a third
//! port sends to a fourth, within its limit, above it, and without one.
//!
//! One thread on the generator's core serves all four ports; the switch has the other core. The victim sends a frame at a fixed
//! interval, whether the last has come back or not, and the other end sends each frame back. A round trip starts when the frame is in
//! its ring, so that the generator's delay does not count. The neighbour's frames were written into its buffers once, and one visit
//! to its rings handles a bounded number of frames, so that a flood takes little of the generator's time. A window is cut into
//! slices. Slices in which the generator or the switch lost its core do not count: on a small machine that happens every few
//! milliseconds.

use std::io;
use std::time::{Duration, Instant};

use ringway_traffic::{Endpoint, FrameSpec, Frames, Mac};

use crate::daemon::{Daemon, RingwayNetwork, Settings, VhostUser};
use crate::extra_counts::ExtraCounts;
use crate::machine::ContextSwitches;
use crate::network::SENDER;
use crate::placement::{Cores, pin};
use crate::report::{Axis, Figure, Heading, RATE, TIME};
use crate::series::RINGWAY;
use crate::session::Session;
use crate::trial::Contestant;

const SIZES: [usize; 2] = [60, 1514];
/// Interval between two frames of the victim.
const EVERY: Duration = Duration::from_micros(2);
/// Most frames of the victim under way.
const MOST: u64 = 128;
/// Frames that the neighbour adds, and takes, between two polls of the victim's ports.
const BURST: usize = 32;
/// Bits per second that the neighbour offers within its limit of 1 Gbit/s.
const WITHIN: f64 = 0.9e9;
const SLICE: Duration = Duration::from_millis(1);
/// Time after a slice within which frames under way come back; later ones count as lost.
const PATIENCE: Duration = Duration::from_millis(2);
/// Most time of a window, in multiples of its length, to find slices that count.
const TRIES: u32 = 10;
/// Windows are longer than those of other experiments by this factor, for the sake of the percentile.
const LONGER: u32 = 2;

/// What the neighbour offers.
#[derive(Clone, Copy, PartialEq)]
enum Offer {
    Nothing,
    /// Frames per second.
    Rate(f64),
    Flood,
}

/// Two pairs of ports: the victim's and the neighbour's.
struct Neighbours<N: RingwayNetwork> {
    // Ports are dropped before their network.
    ports: Vec<N::Port>,
    /// The victim's frames, there and back.
    frames: [Vec<u8>; 2],
    /// A frame of the neighbour's.
    flood: Vec<u8>,
    offer: Offer,
    /// Number of the victim's next frame.
    next: u64,
    network: N,
    cores: Cores,
    series: &'static str,
    rates: ExtraCounts,
}

/// Result of a window's slices.
#[derive(Default)]
struct Trips {
    /// Nanoseconds of each round trip.
    times: Vec<u32>,
    /// Time in which they were sent.
    sending: Duration,
}

impl<N: RingwayNetwork> Neighbours<N> {
    fn new(
        mut network: N,
        cores: Cores,
        size: usize,
        (series, offer): (&'static str, Offer),
        rates: ExtraCounts,
    ) -> io::Result<Neighbours<N>> {
        let mut ports = network.attach(4)?;
        let frames = |number: u32| {
            let (source, destinations) = (Mac::local(number), vec![Mac::local(((number - SENDER) ^ 1) + SENDER)]);
            let mut frames = Frames::new(&FrameSpec { size, source, destinations, ..FrameSpec::default() })
                .map_err(io::Error::other)?;
            Ok(frames.next_frame())
        };
        let all = (SENDER..SENDER + 4).map(frames).collect::<io::Result<Vec<_>>>()?;
        // Every buffer of a ring holds its port's frame, and the switch has learned each address.
        for (port, frame) in ports.iter_mut().zip(&all) {
            let mut left = 4 * port.tx_room();
            let start = Instant::now();
            while left > 0 && start.elapsed() < crate::patience::PATIENCE {
                left -= usize::from(port.tx_push(size, |place| place.copy_from_slice(frame)));
                port.tx_flush();
            }
        }
        network.hold()?;
        let [there, back, flood, _] = <[Vec<u8>; 4]>::try_from(all).unwrap_or_default();
        Ok(Neighbours { ports, frames: [there, back], flood, offer, next: 0, network, cores, series, rates })
    }

    /// Sends one of the victim's frames from `port` to the other.
    fn send(&mut self, port: usize, number: u64) -> bool {
        let frame = &mut self.frames[port];
        frame[14..22].copy_from_slice(&number.to_ne_bytes());
        let sent = self.ports[port].tx_push(frame.len(), |place| place.copy_from_slice(frame));
        self.ports[port].tx_flush();
        sent
    }

    /// The neighbour adds up to `most` frames and takes what came.
    fn disturb(&mut self, most: usize) -> usize {
        let [_, _, from, to] = self.ports.as_mut_slice() else { return 0 };
        let count = from.tx_room().min(most).min(BURST);
        for _ in 0..count {
            from.tx_repeat(&self.flood);
        }
        if count > 0 {
            from.tx_flush();
        }
        to.rx_batch(2 * BURST, |_| {});
        count
    }

    /// Runs one slice. Returns the time for which it sent.
    fn slice(&mut self, times: &mut Vec<u32>) -> Duration {
        let start = Instant::now();
        let mut sent_at = [start; MOST as usize];
        let (mut sent, mut back, mut disturbed, mut now) = (0, 0, 0, start);
        let first = self.next;
        let mut numbers = [0; 8];
        while now - start < SLICE + PATIENCE && (now - start < SLICE || back < sent) {
            if now - start < SLICE && now - start >= EVERY * sent as u32 && sent - back < MOST {
                sent_at[(sent % MOST) as usize] = now;
                sent += u64::from(self.send(0, first + sent));
            }
            let mut count = 0;
            self.ports[1].rx_batch(numbers.len(), |frame| count += note(frame, &mut numbers, count));
            for number in &numbers[..count] {
                self.send(1, *number);
            }
            let mut count = 0;
            self.ports[0].rx_batch(numbers.len(), |frame| count += note(frame, &mut numbers, count));
            now = Instant::now();
            for number in &numbers[..count] {
                // One of an earlier slice is late, and lost.
                let number = number.wrapping_sub(first);
                if number < sent {
                    times.push((now - sent_at[(number % MOST) as usize]).as_nanos() as u32);
                    back += 1;
                }
            }
            match self.offer {
                Offer::Nothing => {}
                Offer::Flood => disturbed += self.disturb(BURST),
                Offer::Rate(rate) => {
                    let due = ((now - start).as_secs_f64() * rate) as usize;
                    disturbed += self.disturb(due.saturating_sub(disturbed));
                }
            }
        }
        self.next += sent;
        SLICE.min(now - start)
    }

    /// Collects the round trips of slices of `span` in all, or of as many as count.
    fn trips(&mut self, span: Duration) -> io::Result<Trips> {
        let mut trips = Trips::default();
        let mut threads = [ContextSwitches::of_this_thread()?, self.network.daemon().poller_switches()?];
        let mut switches = || threads.iter_mut().map(ContextSwitches::count).sum::<u64>();
        let (start, mut before) = (Instant::now(), switches());
        while trips.sending < span && start.elapsed() < span * TRIES {
            let count = trips.times.len();
            let sending = self.slice(&mut trips.times);
            let after = switches();
            // With no frame back, the switch had no core at all.
            if after == before && trips.times.len() > count {
                trips.sending += sending;
            } else {
                trips.times.truncate(count);
            }
            before = after;
        }
        Ok(trips)
    }
}

/// Writes the number that is in `frame` to place `at` of `numbers`. Returns how many numbers that were: 0 or 1.
fn note(frame: &[u8], numbers: &mut [u64], at: usize) -> usize {
    let number = frame.get(14..22).and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes);
    match (number, numbers.get_mut(at)) {
        (Some(number), Some(place)) => {
            *place = number;
            1
        }
        _ => 0,
    }
}

impl<N: RingwayNetwork> Contestant for Neighbours<N> {
    fn resume(&mut self) -> io::Result<()> {
        self.network.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.network.hold()
    }

    /// Slices in which the generator or the switch lost its core are left out.
    fn needs_its_core(&self) -> bool {
        false
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        pin(self.cores.generator)?;
        self.trips(span / 4)?;
        let Trips { mut times, sending } = self.trips(span * LONGER)?;
        times.sort_unstable();
        let place = (times.len() * 999).div_ceil(1000).saturating_sub(1);
        let Some(&time) = times.get(place) else { return Err(io::Error::other("no frame came back")) };
        let size = self.flood.len();
        self.rates.note(0, self.series, size as f64, times.len() as f64 / sending.as_secs_f64() / 1e6);
        Ok(f64::from(time))
    }
}

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    Ok([figures::<Daemon>(session)?, figures::<VhostUser>(session)?].into_iter().flatten().collect())
}

fn figures<N: RingwayNetwork>(session: &mut Session) -> io::Result<[Figure; 2]> {
    let cores = session.cores;
    let limit = |excess: &str| format!("ingress = {{ rate = \"1Gbit\", on_excess = \"{excess}\" }}");
    let rates = ExtraCounts::default();
    let mut lineup = session.lineup();
    for size in SIZES {
        lineup.anchor(size, size);
        let within = Offer::Rate(WITHIN / 8.0 / size as f64);
        for (series, keys, offer) in [
            ("alone", String::new(), Offer::Nothing),
            ("neighbour within its limit", limit("drop"), within),
            (RINGWAY, limit("drop"), Offer::Flood),
            ("ringway, waits", limit("wait"), Offer::Flood),
            ("flooded without limit", String::new(), Offer::Flood),
        ] {
            let keys = vec![String::new(), String::new(), keys];
            let network = N::with_ports(cores, &Settings { keys, ..session.settings() }, 4);
            let rates = rates.clone();
            let neighbours = |network| Neighbours::new(network, cores, size, (series, offer), rates);
            lineup.add(series, size, network.and_then(neighbours));
        }
    }
    let heading = |name: &str, title: &str, y| Heading {
        name: format!("{name}{}", N::SUFFIX),
        title: format!("{title}, {}", N::PORTS),
        source: "fairness paper, section 6.2",
        x: Axis { label: "frame size", unit: "bytes", logarithmic: false },
        y,
    };
    let time = heading(
        "isolation",
        "99.9th percentile of a round trip while a neighbour floods, held to 1 Gbit/s",
        Axis { label: "round trip", ..TIME },
    );
    let rate =
        heading("isolation-rate", "Round trips while a neighbour floods, held to 1 Gbit/s; 0.5 million offered", RATE);
    let times = session.measure("isolation", time, lineup)?;
    let rate = rates.figure(0, rate, &times);
    Ok([times, rate])
}
