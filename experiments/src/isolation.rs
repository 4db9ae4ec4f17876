//! What a neighbour that floods costs a victim: the 99.9th percentile of a round trip between two ports, alone, while a
//! third port floods a fourth, and while that one is limited.
//!
//! One thread sends the victim's frame, fills the neighbour's ring and looks for the answer, so that the neighbour takes
//! the same time of the generator in every case but "alone".

use std::io;
use std::time::{Duration, Instant};

use ringway_traffic::{Endpoint, FrameSpec, Frames, Mac, ProcessEndpoint};

use crate::daemon::{Daemon, Settings};
use crate::network::Network;
use crate::placement::{Cores, pin};
use crate::report::{Axis, Figure, Heading, TIME};
use crate::session::{RINGWAY, Session};
use crate::trial::Contestant;

const SIZES: [usize; 2] = [60, 1514];
/// Most frames that the neighbour adds between two looks for the victim's.
const BURST: usize = 16;
/// Windows are longer than those of other experiments, for the sake of the percentile.
const LONGER: u32 = 10;

/// Two pairs of ports: the victim's and the neighbour's.
struct Neighbours {
    // Ports go before their network.
    ports: Vec<ProcessEndpoint>,
    frames: Vec<Frames>,
    daemon: Daemon,
    floods: bool,
    cores: Cores,
}

impl Neighbours {
    fn new(mut daemon: Daemon, cores: Cores, size: usize, floods: bool) -> io::Result<Neighbours> {
        let mut ports = daemon.attach(4)?;
        let frames = |number: u32| {
            let (source, destinations) = (Mac::local(number), vec![Mac::local(number ^ 1)]);
            Frames::new(&FrameSpec { size, source, destinations, ..FrameSpec::default() }).map_err(io::Error::other)
        };
        // Each of a pair is told of the other by a frame.
        let mut frames = (2..6).map(frames).collect::<io::Result<Vec<_>>>()?;
        for (port, frames) in ports.iter_mut().zip(&mut frames) {
            port.tx_push(size, |place| frames.write(place));
            port.tx_flush();
            port.wait(true, Duration::from_millis(20))?;
        }
        daemon.hold()?;
        Ok(Neighbours { ports, frames, daemon, floods, cores })
    }

    fn send(&mut self, number: usize) {
        let (port, frames) = (&mut self.ports[number], &mut self.frames[number]);
        let size = frames.size();
        port.tx_push(size, |place| frames.write(place));
        port.tx_flush();
    }

    /// Nanoseconds of each round trip within `span`.
    fn trips(&mut self, span: Duration) -> Vec<u64> {
        let mut trips = Vec::new();
        let start = Instant::now();
        self.ports.iter_mut().for_each(|port| while port.rx_batch(64, |_| {}) > 0 {});
        while start.elapsed() < span {
            let sent = Instant::now();
            for (from, to) in [(0, 1), (1, 0)] {
                self.send(from);
                while self.ports[to].rx_batch(1, |_| {}) == 0 {
                    if self.floods {
                        for _ in 0..self.ports[2].tx_room().min(BURST) {
                            self.send(2);
                        }
                        self.ports[3].rx_batch(4 * BURST, |_| {});
                    }
                    if sent.elapsed() > Duration::from_secs(1) {
                        return trips;
                    }
                }
            }
            trips.push(sent.elapsed().as_nanos() as u64);
        }
        trips
    }
}

impl Contestant for Neighbours {
    fn resume(&mut self) -> io::Result<()> {
        self.daemon.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.daemon.hold()
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        pin(self.cores.generator)?;
        self.trips(span);
        let mut trips = self.trips(span * LONGER);
        trips.sort_unstable();
        let place = (trips.len() * 999).div_ceil(1000).saturating_sub(1);
        trips.get(place).map(|&trip| trip as f64).ok_or_else(|| io::Error::other("no frame came back"))
    }
}

/// Measures the figure.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let cores = session.cores;
    let limit = |excess: &str| format!("ingress = {{ rate = \"50Mbit\", on_excess = \"{excess}\" }}");
    let mut lineup = session.lineup();
    for size in SIZES {
        lineup.anchor(size, size);
        for (series, keys, floods) in [
            ("alone", String::new(), false),
            ("flooded without limit", String::new(), true),
            (RINGWAY, limit("drop"), true),
            ("ringway, waits", limit("wait"), true),
        ] {
            let keys = vec![String::new(), String::new(), keys];
            let daemon = Daemon::start(cores, &Settings { keys, ..session.settings() });
            lineup.add(series, size, daemon.and_then(|daemon| Neighbours::new(daemon, cores, size, floods)));
        }
    }
    let heading = Heading {
        name: "isolation".into(),
        title: "99.9th percentile of a round trip while a neighbour floods, held to 50 Mbit/s".into(),
        source: "fairness paper, section 6.2",
        x: Axis { label: "frame size", unit: "bytes", logarithmic: false },
        y: Axis { label: "round trip", ..TIME },
    };
    Ok(vec![session.measure("isolation", heading, lineup)?])
}
