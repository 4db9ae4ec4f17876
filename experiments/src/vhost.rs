//! What the experiments with virtual machines' ports have in common: two virtio-net drivers of our own in one thread, on a
//! switch with two vhost-user ports.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ringway_traffic::{Endpoint, FrameSpec, Frames, Mac, Ring, VirtioOptions};

use crate::network::{Network, SENDER, introduce};
use crate::peers::vhost::{Vhost, VhostSwitch};
use crate::placement::{Cores, pin};
use crate::session::Lineup;
use crate::trial::Contestant;

/// Frame sizes that every table of switches has.
pub const SIZES: [usize; 6] = [64, 128, 256, 512, 1024, 1514];
/// The simple IMIX: of twelve frames seven are short, four middling and one is long. 366 bytes on average.
pub const IMIX: [usize; 12] = [64, 590, 64, 64, 590, 64, 1514, 64, 590, 64, 64, 590];
/// Most frames sent or taken in one turn.
const BATCH: usize = 64;
/// Turns between two looks at the clock.
const TURNS_PER_LOOK: u32 = 16;
/// No frame for so long: the switch does not work.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the drivers send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Bytes of the frames, in turn.
    pub sizes: Vec<usize>,
    /// Whether both send, or one.
    pub both: bool,
}

/// One driver, and what it sends and got.
struct Lane<P> {
    port: P,
    /// A frame for each place of the transmit ring, written there on the first lap and sent as it is on later ones.
    frames: Vec<Vec<u8>>,
    place: usize,
    to_write: usize,
    received: u64,
}

impl<P: Endpoint> Lane<P> {
    fn send(&mut self) {
        let room = self.port.tx_room().min(BATCH);
        for _ in 0..room {
            let frame = &self.frames[self.place];
            let sent = if self.to_write == 0 {
                self.port.tx_repeat(frame)
            } else {
                self.port.tx_push(frame.len(), |place| place.copy_from_slice(frame))
            };
            if !sent {
                break;
            }
            self.to_write = self.to_write.saturating_sub(1);
            self.place = (self.place + 1) % self.frames.len();
        }
        if room > 0 {
            self.port.tx_flush();
        }
    }

    fn receive(&mut self) {
        let mut first_bytes = 0;
        self.received += self.port.rx_batch(BATCH, |frame| first_bytes ^= frame.first().copied().unwrap_or(0)) as u64;
        std::hint::black_box(first_bytes);
    }
}

/// A switch and the two drivers at its ports, for several contestants in turn.
pub struct Pair<N: Network> {
    // Drivers go before their switch.
    lanes: Vec<Lane<N::Port>>,
    network: N,
    ring: usize,
    load: Load,
    cores: Cores,
}

/// A pair that several contestants use in turn.
pub type Shared<N> = Rc<RefCell<Pair<N>>>;

impl<N: Network> Pair<N> {
    /// Attaches two drivers with transmit rings of `ring` descriptors and lets the switch learn their addresses. It is held
    /// when this returns.
    ///
    /// # Errors
    /// The switch refuses a driver, or no frame gets through.
    pub fn new(mut network: N, cores: Cores, ring: usize) -> io::Result<Shared<N>> {
        let mut ports = network.attach(2)?;
        introduce(&mut ports)?;
        network.hold()?;
        let lane = |port| Lane { port, frames: Vec::new(), place: 0, to_write: 0, received: 0 };
        let lanes = ports.into_iter().map(lane).collect();
        Ok(Rc::new(RefCell::new(Pair { lanes, network, ring, load: Load { sizes: Vec::new(), both: false }, cores })))
    }

    /// What is under test.
    pub fn network(&mut self) -> &mut N {
        &mut self.network
    }

    /// Prepares the frames of `load`.
    fn prepare(&mut self, load: &Load) -> io::Result<()> {
        if self.load == *load {
            return Ok(());
        }
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            let (own, other) = (SENDER + number as u32, SENDER + 1 - number as u32);
            let mut makers = Vec::with_capacity(load.sizes.len());
            for &size in &load.sizes {
                let (source, destinations) = (Mac::local(own), vec![Mac::local(other)]);
                let spec = FrameSpec { size, source, destinations, ..FrameSpec::default() };
                makers.push(Frames::new(&spec).map_err(io::Error::other)?);
            }
            lane.frames = (0..self.ring).map(|place| makers[place % load.sizes.len()].next_frame()).collect();
            (lane.place, lane.to_write) = (0, self.ring);
        }
        self.load = load.clone();
        Ok(())
    }

    /// Runs for `span`; returns the frames received and the seconds it took.
    fn run(&mut self, span: Duration) -> (u64, f64) {
        let received = |pair: &Pair<N>| pair.lanes.iter().map(|lane| lane.received).sum::<u64>();
        let (start, before) = (Instant::now(), received(self));
        while start.elapsed() < span {
            for _ in 0..TURNS_PER_LOOK {
                for (number, lane) in self.lanes.iter_mut().enumerate() {
                    if number == 0 || self.load.both {
                        lane.send();
                    }
                    lane.receive();
                }
            }
        }
        (received(self) - before, start.elapsed().as_secs_f64())
    }
}

/// As many frames as the switch takes, in million frames delivered per second.
pub struct Saturation<N: Network> {
    /// What is loaded.
    pub pair: Shared<N>,
    /// With what.
    pub load: Load,
}

impl<N: Network> Contestant for Saturation<N> {
    fn resume(&mut self) -> io::Result<()> {
        self.pair.borrow_mut().network.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.pair.borrow_mut().network.hold()
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        let pair = &mut *self.pair.borrow_mut();
        pin(pair.cores.generator)?;
        pair.prepare(&self.load)?;
        pair.run(span / 8);
        let start = Instant::now();
        // On a machine busy with something else the switch may not have run at all in a short window.
        while start.elapsed() < PATIENCE {
            let (frames, seconds) = pair.run(span);
            if frames > 0 {
                return Ok(frames as f64 / seconds / 1e6);
            }
            for lane in &mut pair.lanes {
                lane.port.wait(true, Duration::ZERO)?;
            }
        }
        Err(io::Error::other("no frame got through"))
    }
}

/// Starts two drivers with rings of kind `R` at a switch, if the switch could be started.
///
/// # Errors
/// As [`Pair::new`]; or the switch's own.
pub fn pair<S: VhostSwitch, R: Ring + Send + 'static>(
    switch: io::Result<S>,
    cores: Cores,
    options: &VirtioOptions,
) -> io::Result<Shared<Vhost<S, R>>> {
    Pair::new(Vhost::new(switch?, options.clone()), cores, options.tx_ring as usize)
}

/// Adds a contestant that loads `pair` as far as it goes, or notes why there is none.
pub fn saturate<N: Network + 'static>(
    lineup: &mut Lineup,
    series: &str,
    x: usize,
    pair: &io::Result<Shared<N>>,
    load: &Load,
) {
    let contestant = match pair {
        Ok(pair) => Ok(Saturation { pair: Rc::clone(pair), load: load.clone() }),
        Err(error) => Err(io::Error::other(error.to_string())),
    };
    lineup.add(series, x, contestant);
}
