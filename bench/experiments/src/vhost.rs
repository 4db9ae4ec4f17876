//! The common part of the experiments with virtual machines' ports: two of our virtio-net drivers in one thread, on a switch with two
//! vhost-user ports.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ringway_traffic::{Endpoint, FrameSpec, Frames, Mac, Ring, VirtioOptions};

use crate::daemon::Daemon;
use crate::network::{Network, SENDER, introduce};
use crate::patience::PATIENCE;
use crate::peers::ovs_dpdk::OvsDpdk;
use crate::peers::testpmd::Testpmd;
use crate::peers::vhost::{Vhost, VhostSwitch};
use crate::placement::{Cores, pin};
use crate::series::{OVS_DPDK, RINGWAY, TESTPMD};
use crate::session::{Lineup, Session};
use crate::trial::Contestant;

/// Frame sizes that tables of switches usually have.
pub const SIZES: [usize; 6] = [64, 128, 256, 512, 1024, 1514];
/// The simple IMIX: of twelve frames seven are short, four are of middle length and one is long. 366 bytes on average.
pub const IMIX: [usize; 12] = [64, 590, 64, 64, 590, 64, 1514, 64, 590, 64, 64, 590];
/// Most frames sent or taken in one turn.
const BATCH: usize = 64;
/// Turns between two readings of the clock.
const TURNS_PER_LOOK: u32 = 16;

/// The drivers' traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Bytes of the frames, by turns.
    pub sizes: Vec<usize>,
    /// True if both drivers send; otherwise one does.
    pub both: bool,
    /// TCP rather than UDP.
    pub tcp: bool,
    /// True if one frame of sixteen is a broadcast.
    pub broadcasts: bool,
}

/// One driver, its frames, and the number of frames that it received.
struct Driver<P> {
    port: P,
    /// A frame for each place of the transmit ring. The first lap writes it there; later laps send it unchanged.
    frames: Vec<Vec<u8>>,
    place: usize,
    to_write: usize,
    received: u64,
}

impl<P: Endpoint> Driver<P> {
    /// Sends up to `most` frames; returns how many.
    fn send(&mut self, most: usize) -> usize {
        let room = self.port.tx_room().min(most);
        for done in 0..room {
            let frame = &self.frames[self.place];
            let sent = if self.to_write == 0 {
                self.port.tx_repeat(frame)
            } else {
                self.port.tx_push(frame.len(), |place| place.copy_from_slice(frame))
            };
            if !sent {
                self.port.tx_flush();
                return done;
            }
            self.to_write = self.to_write.saturating_sub(1);
            self.place += 1;
            if self.place == self.frames.len() {
                self.place = 0;
            }
        }
        if room > 0 {
            self.port.tx_flush();
        }
        room
    }

    fn receive(&mut self) {
        let mut first_bytes = 0;
        self.received += self.port.rx_batch(BATCH, |frame| first_bytes ^= frame.first().copied().unwrap_or(0)) as u64;
        std::hint::black_box(first_bytes);
    }
}

/// Replaces a UDP frame's headers by those of TCP. The payload stays.
pub fn make_tcp(frame: &mut [u8]) {
    const PROTOCOL: usize = 23;
    const TCP: std::ops::Range<usize> = 34..54;
    // Ports stay; numbers, window and checksum 0, a header of five words, ACK.
    frame[PROTOCOL] = 6;
    frame[TCP.start + 4..TCP.end].fill(0);
    frame[TCP.start + 12..TCP.start + 14].copy_from_slice(&[5 << 4, 1 << 4]);
}

/// A switch and the two drivers at its ports, for several contestants by turns.
pub struct Pair<N: Network> {
    // Drivers are dropped before their switch.
    drivers: [Driver<N::Port>; 2],
    network: N,
    ring: usize,
    load: Load,
    cores: Cores,
}

/// A pair that several contestants use by turns.
pub type Shared<N> = Rc<RefCell<Pair<N>>>;

impl<N: Network> Pair<N> {
    /// Attaches two drivers with transmit rings of `ring` descriptors. Makes the switch learn their addresses, unless `met` says that
    /// it will learn them otherwise. The switch is stopped when this returns.
    ///
    /// # Errors
    /// The switch refuses a driver, or no frame gets through.
    pub fn new(mut network: N, cores: Cores, ring: usize, met: bool) -> io::Result<Shared<N>> {
        let mut ports = network.attach(2)?;
        if !met {
            introduce(&mut ports)?;
        }
        network.hold()?;
        let driver = |port| Driver { port, frames: Vec::new(), place: 0, to_write: 0, received: 0 };
        let (Some(far), Some(near)) = (ports.pop(), ports.pop()) else {
            return Err(io::Error::other("the switch has fewer than two ports"));
        };
        let drivers = [driver(near), driver(far)];
        Ok(Rc::new(RefCell::new(Pair {
            drivers,
            network,
            ring,
            load: Load { sizes: Vec::new(), both: false, tcp: false, broadcasts: false },
            cores,
        })))
    }

    /// The network under test.
    pub fn network(&mut self) -> &mut N {
        &mut self.network
    }

    /// The drivers, for loads of another kind. Afterwards this type's own loads write the transmit buffers anew.
    pub fn ports(&mut self) -> [&mut N::Port; 2] {
        self.load.sizes.clear();
        self.looked_at()
    }

    /// The drivers, for their counters.
    pub fn looked_at(&mut self) -> [&mut N::Port; 2] {
        let [near, far] = &mut self.drivers;
        [&mut near.port, &mut far.port]
    }

    /// Prepares the frames of `load`.
    fn prepare(&mut self, load: &Load) -> io::Result<()> {
        if self.load == *load {
            return Ok(());
        }
        for (number, driver) in self.drivers.iter_mut().enumerate() {
            let (own, other) = (SENDER + number as u32, SENDER + 1 - number as u32);
            let mut makers = Vec::with_capacity(load.sizes.len());
            for &size in &load.sizes {
                let (source, mut destinations) = (Mac::local(own), vec![Mac::local(other)]);
                if load.broadcasts {
                    destinations.resize(15, Mac::local(other));
                    destinations.push(Mac::BROADCAST);
                }
                let spec = FrameSpec { size, source, destinations, ..FrameSpec::default() };
                makers.push(Frames::new(&spec).map_err(io::Error::other)?);
            }
            driver.frames = (0..self.ring).map(|place| makers[place % load.sizes.len()].next_frame()).collect();
            if load.tcp {
                driver.frames.iter_mut().for_each(|frame| make_tcp(frame));
            }
            (driver.place, driver.to_write) = (0, self.ring);
        }
        self.load = load.clone();
        Ok(())
    }

    /// Sends as many frames as the switch takes for about `span`. Returns million frames delivered per second.
    ///
    /// # Errors
    /// A driver is broken, or no frame gets through.
    pub fn saturate(&mut self, load: &Load, span: Duration) -> io::Result<f64> {
        pin(self.cores.generator)?;
        self.prepare(load)?;
        self.run(span / 8);
        let start = Instant::now();
        // On a busy machine the switch may not have run at all in a short window.
        while start.elapsed() < PATIENCE {
            let (frames, seconds) = self.run(span);
            if frames > 0 {
                return Ok(frames as f64 / seconds / 1e6);
            }
            for driver in &mut self.drivers {
                driver.port.wait(true, Duration::ZERO)?;
            }
        }
        Err(io::Error::other("no frame got through"))
    }

    /// Sends `rate` frames per second for `span`, or as many as the switch takes. The caller pins the thread. Returns the duration in
    /// seconds.
    ///
    /// # Errors
    /// The load cannot be made.
    pub fn offer(&mut self, load: &Load, rate: f64, span: Duration) -> io::Result<f64> {
        self.prepare(load)?;
        // One frame the other way, so that the switch learns the destination's port.
        self.drivers[1].send(1);
        self.drivers[0].receive();
        let (start, mut sent) = (Instant::now(), 0.0);
        while start.elapsed() < span {
            let due = (start.elapsed().as_secs_f64() * rate - sent).clamp(0.0, BATCH as f64);
            sent += self.drivers[0].send(due as usize) as f64;
            self.drivers[1].receive();
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// Runs for `span`. Returns the frames received and the duration in seconds.
    fn run(&mut self, span: Duration) -> (u64, f64) {
        let received = |pair: &Pair<N>| pair.drivers.iter().map(|driver| driver.received).sum::<u64>();
        let (start, before) = (Instant::now(), received(self));
        while start.elapsed() < span {
            for _ in 0..TURNS_PER_LOOK {
                for (number, driver) in self.drivers.iter_mut().enumerate() {
                    if number == 0 || self.load.both {
                        driver.send(BATCH);
                    }
                    driver.receive();
                }
            }
        }
        (received(self) - before, start.elapsed().as_secs_f64())
    }
}

/// As many frames as the switch takes, in million frames delivered per second.
pub struct Saturation<N: Network> {
    /// The switch and its drivers.
    pub pair: Shared<N>,
    /// The load.
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
        self.pair.borrow_mut().saturate(&self.load, span)
    }
}

/// Ringway and the peers, each started once, with drivers whose rings are of kind `R`.
pub struct Switches<R: Ring + Send + 'static> {
    /// The daemon.
    pub ringway: io::Result<Shared<Vhost<Daemon, R>>>,
    /// DPDK's cross-connect.
    pub testpmd: io::Result<Shared<Vhost<Testpmd, R>>>,
    /// Open vSwitch.
    pub ovs: io::Result<Shared<Vhost<OvsDpdk, R>>>,
}

impl<R: Ring + Send + 'static> Switches<R> {
    /// Starts all of them. A missing one is noted where its contestants are added.
    #[must_use]
    pub fn start(session: &Session, options: &VirtioOptions) -> Self {
        let cores = session.cores;
        Switches {
            ringway: pair(Daemon::start(cores, &session.vhost_settings()), cores, options),
            testpmd: pair(Testpmd::start(cores), cores, options),
            ovs: pair(OvsDpdk::start(cores), cores, options),
        }
    }

    /// Adds all of them, forwarding as much of `load` as they can.
    pub fn saturate(&self, lineup: &mut Lineup, x: usize, load: &Load) {
        lineup.add(RINGWAY, x, with(&self.ringway, |pair| Saturation { pair, load: load.clone() }));
        lineup.add(TESTPMD, x, with(&self.testpmd, |pair| Saturation { pair, load: load.clone() }));
        lineup.add(OVS_DPDK, x, with(&self.ovs, |pair| Saturation { pair, load: load.clone() }));
    }
}

/// Starts two drivers at a switch, if the switch could be started.
///
/// # Errors
/// The switch did not start or refuses a driver, or no frame gets through.
pub fn pair<S: VhostSwitch, R: Ring + Send + 'static>(
    switch: io::Result<S>,
    cores: Cores,
    options: &VirtioOptions,
) -> io::Result<Shared<Vhost<S, R>>> {
    // Open vSwitch takes a second to look at its sockets, and much more on a busy machine.
    let options = VirtioOptions { within: crate::patience::PATIENCE, ..options.clone() };
    let ring = options.tx_ring as usize;
    // Drivers whose frames are all to be cut into TCP segments cannot send the short ones of an introduction.
    let met = options.segments.is_some();
    Pair::new(Vhost::new(switch?, options), cores, ring, met)
}

/// A contestant made of a pair, or why there is no pair.
///
/// # Errors
/// There is none.
pub fn with<N: Network, C>(pair: &io::Result<Shared<N>>, make: impl FnOnce(Shared<N>) -> C) -> io::Result<C> {
    with_any(pair, make)
}

/// A contestant made of anything that contestants share, or why there is none.
///
/// # Errors
/// There is none.
pub fn with_any<T, C>(shared: &io::Result<Rc<T>>, make: impl FnOnce(Rc<T>) -> C) -> io::Result<C> {
    match shared {
        Ok(shared) => Ok(make(Rc::clone(shared))),
        Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
    }
}
