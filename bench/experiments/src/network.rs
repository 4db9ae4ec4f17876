//! A network under test, of any kind, and what can be measured on it.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringway_traffic::{
    Checker, Endpoint, Fill, FrameSpec, Frames, Level, Limits, Mac, Origin, PingOptions, PongOptions, Pump,
    PumpOptions, Station, WaitMode, Watch, ping, ping_pair, pong,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::patience::PATIENCE;
use crate::placement::{Cores, pin, unpin};
use crate::trial::Contestant;

/// A switch, Ringway or a peer, with ports for this program.
pub trait Network {
    /// Its ports.
    type Port: Endpoint + Send + 'static;

    /// Attaches `count` more ports. Leaves the network running.
    ///
    /// # Errors
    /// The network refuses a port.
    fn attach(&mut self, count: usize) -> io::Result<Vec<Self::Port>>;

    /// Stops the network, if it is a program.
    ///
    /// # Errors
    /// The program has ended.
    fn hold(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Lets the network go on.
    ///
    /// # Errors
    /// The program has ended.
    fn resume(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One sender's frames and their receivers.
#[derive(Clone, Debug)]
pub struct Load {
    /// Bytes of a frame.
    pub frame_len: usize,
    /// Number of the other ports.
    pub receivers: usize,
    /// Destination of the frames.
    pub to: Destination,
    /// Most frames sent at once.
    pub tx_batch: usize,
    /// Most frames taken at once.
    pub rx_batch: usize,
    /// How buffers are filled: each frame is written, or buffers are prepared once and sent again (as VALE's `pkt-gen` does).
    pub fill: Fill,
    /// Number of flows: a multiple of `addresses`.
    pub flows: usize,
    /// Number of IP destination addresses of the flows.
    pub addresses: usize,
    /// Their Ethernet type; `None`: IPv4.
    pub ethernet_type: Option<[u8; 2]>,
}

/// Destination of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The first receiver. The switch has learned its address, or has it from the configuration.
    Learned,
    /// Every port.
    Broadcast,
    /// The first receiver, whose address is bound to it by the configuration.
    Bound,
    /// An address that no port has.
    Unknown,
}

/// Frames sent by one port and delivered to others; source and sink share the generator's core.
pub struct Forwarding<N: Network> {
    // Ports are dropped before their network.
    pump: Pump<N::Port>,
    network: N,
    load: Load,
    /// True if frames that the switch took count, instead of those that it delivered.
    count_sent: bool,
    /// True if threads of the switch itself use the generator's core now and then.
    shares_core: bool,
    cores: Cores,
}

/// Address of the sender; receivers have the following ones.
pub const SENDER: u32 = 1;

impl<N: Network> Forwarding<N> {
    /// Attaches the ports and makes the switch learn the receivers' addresses. The network is stopped when this returns.
    ///
    /// # Errors
    /// The network refuses a port, or no frame gets through.
    pub fn new(mut network: N, cores: Cores, load: Load) -> io::Result<Forwarding<N>> {
        let mut ports = network.attach(1 + load.receivers)?;
        if load.to == Destination::Learned {
            introduce(&mut ports)?;
        }
        let destination = match load.to {
            Destination::Learned | Destination::Bound => Mac::local(SENDER + 1),
            Destination::Broadcast => Mac::BROADCAST,
            Destination::Unknown => Mac::local(u32::MAX),
        };
        let spec = FrameSpec {
            size: load.frame_len,
            source: Mac::local(SENDER),
            // Each has an IP address of its own.
            destinations: vec![destination; load.addresses],
            flows: load.flows / load.addresses,
            ethernet_type: load.ethernet_type,
            ..FrameSpec::default()
        };
        let frames = Frames::new(&spec).map_err(io::Error::other)?;
        let mut stations = Vec::with_capacity(ports.len());
        let mut ports = ports.into_iter();
        stations.extend(ports.next().map(|sender| Station::source(sender, frames)));
        stations.extend(ports.map(|port| Station::sink(port, Checker::new(Level::Count, Origin::Zero))));
        let options = PumpOptions { tx_batch: load.tx_batch, rx_batch: load.rx_batch, fill: load.fill, frames: None };
        let pump = Pump::new(stations, options);
        network.hold()?;
        Ok(Forwarding { pump, network, load, count_sent: false, shares_core: false, cores })
    }

    /// Counts the frames that the switch takes: for loads that it drops.
    #[must_use]
    pub fn counting_sent(mut self) -> Self {
        self.count_sent = true;
        self
    }

    /// Windows count although threads of the switch itself use the generator's core now and then: what they take is the switch's cost.
    #[must_use]
    pub fn sharing_its_core(mut self) -> Self {
        self.shares_core = true;
        self
    }
}

/// Every receiver sends broadcasts, until the first port has one of each.
pub(crate) fn introduce<E: Endpoint>(ports: &mut [E]) -> io::Result<()> {
    let Some((sender, receivers)) = ports.split_first_mut() else { return Ok(()) };
    for (number, receiver) in receivers.iter_mut().enumerate() {
        let source = Mac::local(SENDER + 1 + number as u32);
        let spec = FrameSpec { source, destinations: vec![Mac::BROADCAST], ..FrameSpec::default() };
        let mut frames = Frames::new(&spec).map_err(io::Error::other)?;
        let mut arrived = false;
        // A network that has just come up may lose the first frames.
        let start = Instant::now();
        while !arrived && start.elapsed() < PATIENCE {
            receiver.tx_push(60, |frame| frames.write(frame));
            receiver.tx_flush();
            sender.wait(true, Duration::from_millis(25))?;
            sender.rx_batch(64, |frame| arrived |= frame.get(6..12) == Some(&source.0[..]));
        }
        if !arrived {
            return Err(io::Error::other(format!("no frame from port {number} arrives")));
        }
    }
    Ok(())
}

impl<N: Network> Contestant for Forwarding<N> {
    fn resume(&mut self) -> io::Result<()> {
        self.network.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.network.hold()
    }

    fn needs_its_core(&self) -> bool {
        !self.shares_core
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        pin(self.cores.generator)?;
        self.pump.run(span / 8, &mut Watch::none())?;
        let start = Instant::now();
        // On a busy machine the switch may not have run at all in a short window.
        while start.elapsed() < PATIENCE {
            let report = self.pump.run(span, &mut Watch::none())?;
            let rate = if self.count_sent {
                report.sent.frames_per_second
            } else {
                report.received.frames_per_second / self.load.receivers as f64
            };
            if rate > 0.0 {
                return Ok(rate / 1e6);
            }
        }
        Err(io::Error::other("no frame got through"))
    }
}

/// How both ports of a round trip wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// One thread polls both ports.
    Spinning,
    /// Two threads, each asleep until a frame comes. The scheduler places them and the network.
    Sleeping,
    /// Two threads, each asleep until a frame comes. They and the network share the generator's core.
    SleepingOnOne,
}

impl Waiting {
    /// What the ports do.
    #[must_use]
    pub fn name(self) -> &'static str {
        if self == Waiting::Spinning { "spinning" } else { "sleeping" }
    }
}

/// One frame at a time, there and back.
pub struct RoundTrip<N: Network> {
    near: N::Port,
    far: N::Port,
    network: N,
    spec: FrameSpec,
    waiting: Waiting,
    /// Spinning ports time each round trip.
    times_each: bool,
    cores: Cores,
}

impl<N: Network> RoundTrip<N> {
    /// Attaches two ports. The network is stopped when this returns.
    ///
    /// # Errors
    /// The network refuses a port, or no frame gets through.
    pub fn new(mut network: N, cores: Cores, frame_len: usize, waiting: Waiting) -> io::Result<RoundTrip<N>> {
        let mut ports = network.attach(2)?;
        introduce(&mut ports)?;
        network.hold()?;
        let (Some(far), Some(near)) = (ports.pop(), ports.pop()) else {
            return Err(io::Error::other("the network attached fewer ports than asked for"));
        };
        let (source, destinations) = (Mac::local(SENDER), vec![Mac::local(SENDER + 1)]);
        let spec = FrameSpec { size: frame_len, source, destinations, ..FrameSpec::default() };
        Ok(RoundTrip { near, far, network, spec, waiting, times_each: false, cores })
    }

    /// Times each round trip, and checks each frame, as `ringway gen ping` does: the figure is the median.
    #[must_use]
    pub fn timing_each(mut self) -> Self {
        self.times_each = true;
        self
    }
}

impl<N: Network> Contestant for RoundTrip<N> {
    fn resume(&mut self) -> io::Result<()> {
        self.network.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.network.hold()
    }

    fn needs_its_core(&self) -> bool {
        self.waiting == Waiting::Spinning
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        let options = |span, wait_mode| PingOptions {
            limits: Limits { frames: None, duration: Some(span) },
            wait_mode,
            ..PingOptions::default()
        };
        let RoundTrip { near, far, spec, .. } = self;
        let start = Instant::now();
        // On a busy machine a short window may be over before the first answer.
        while start.elapsed() < PATIENCE {
            let report = match self.waiting {
                Waiting::Spinning if self.times_each => {
                    pin(self.cores.generator)?;
                    let mut ping =
                        |span| ping_pair(near, far, spec, &options(span, WaitMode::Spin), &mut Watch::none());
                    ping(span / 8).and_then(|_| ping(span))?
                }
                Waiting::Spinning => {
                    pin(self.cores.generator)?;
                    bounce(near, far, spec.size, span / 8)?;
                    return bounce(near, far, spec.size, span);
                }
                Waiting::Sleeping | Waiting::SleepingOnOne => {
                    if self.waiting == Waiting::Sleeping {
                        unpin(self.cores)?
                    } else {
                        pin(self.cores.generator)?
                    }
                    let over = AtomicBool::new(false);
                    thread::scope(|scope| {
                        let pong =
                            scope.spawn(|| pong(far, &PongOptions::default(), &mut Watch::none().stop_by(&over)));
                        let report = ping(near, spec, &options(span / 8, WaitMode::Wait), &mut Watch::none())
                            .and_then(|_| ping(near, spec, &options(span, WaitMode::Wait), &mut Watch::none()));
                        over.store(true, Ordering::Relaxed);
                        pong.join().map_err(|_| io::Error::other("the answering thread panicked"))??;
                        report
                    })?
                }
            };
            if report.received > 0 {
                return Ok(report.median_ns as f64);
            }
        }
        Err(io::Error::other("no frame came back"))
    }
}

/// Bounces one frame between two ports for `span`. Returns nanoseconds per round trip. Either port copies the frame from private
/// memory, with a new number, and reads only the number of what arrives, so that little but the network is timed.
fn bounce<E: Endpoint>(near: &mut E, far: &mut E, len: usize, span: Duration) -> io::Result<f64> {
    let (one, other) = (Mac::local(SENDER), Mac::local(SENDER + 1));
    let frame = |to: Mac, from: Mac| {
        let mut frame = vec![0; len];
        frame[..6].copy_from_slice(&to.0);
        frame[6..12].copy_from_slice(&from.0);
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        frame
    };
    let (mut there, mut back) = (frame(other, one), frame(one, other));
    let (start, mut trips) = (Instant::now(), 0u64);
    while start.elapsed() < span {
        for _ in 0..TRIPS_PER_LOOK {
            trips += 1;
            hop(near, far, &mut there, trips)?;
            hop(far, near, &mut back, trips)?;
        }
    }
    Ok(start.elapsed().as_nanos() as f64 / trips as f64)
}

/// Round trips between two readings of the clock.
const TRIPS_PER_LOOK: u64 = 64;

/// Sends one frame from one port to the other.
fn hop<E: Endpoint>(from: &mut E, to: &mut E, frame: &mut [u8], number: u64) -> io::Result<()> {
    let number = number.to_ne_bytes();
    frame[14..22].copy_from_slice(&number);
    if !from.tx_push(frame.len(), |place| place.copy_from_slice(frame)) {
        return Err(io::Error::other("no room for one frame"));
    }
    from.tx_flush();
    let mut arrived = false;
    let mut looks = 0u32;
    let mut since = None;
    loop {
        to.rx_batch(1, |frame| arrived |= frame.get(14..22) == Some(&number[..]));
        if arrived {
            return Ok(());
        }
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(1 << 20) && since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return Err(io::Error::other("no frame came back"));
        }
    }
}

/// Sleeps until `fd` can be read (`for_rx`) or written, or until `timeout` has passed.
///
/// # Errors
/// The descriptor is broken.
pub fn wait_for_fd(fd: BorrowedFd, for_rx: bool, timeout: Duration) -> io::Result<()> {
    let flags = if for_rx { PollFlags::IN } else { PollFlags::OUT };
    let mut fds = [PollFd::from_borrowed_fd(fd, flags)];
    let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
