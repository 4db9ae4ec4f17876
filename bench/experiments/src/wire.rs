//! Rate between a process port and a network device: to the wire and from it, by an XDP port, beside testpmd and a Linux bridge.
//!
//! The device is the near end of a veth pair. What is sent counts when the far end has received it, and the source is no
//! bound for what comes from it.

use std::io;
use std::time::{Duration, Instant};

use ringway_traffic::{
    Checker, Endpoint, Fill, FrameSpec, Frames, Level, Mac, Origin, Pump, PumpOptions, Split, Station, VirtioOptions,
    Watch,
};

use crate::daemon::{Daemon, Settings};
use crate::network::{Network, SENDER};
use crate::patience::PATIENCE;
use crate::peers::cable::{Cable, Received, Receiving, WIRE};
use crate::peers::linux_bridge::LinuxBridge;
use crate::peers::netns;
use crate::peers::ovs_dpdk::OvsDpdk;
use crate::peers::testpmd_xdp::{TestpmdXdp, Work};
use crate::peers::vhost::{Vhost, VhostSwitch};
use crate::peers::wire_end::WireEnd;
use crate::placement::{Cores, pin};
use crate::report::{Axis, Figure, Heading, RATE};
use crate::series::{LINUX_BRIDGE, OVS_XDP, RINGWAY, TESTPMD_XDP, TESTPMD_XDP_IO};
use crate::session::{Lineup, Session};
use crate::trial::Contestant;

const SIZES: [usize; 2] = [60, 1514];
/// Ringway's ways to the device, and the keys of the port.
const WAYS: [(&str, &str); 3] = [
    (RINGWAY, "kind = \"xdp\"\nmode = \"copy\""),
    ("ringway, generic mode", "kind = \"xdp\"\nmode = \"generic\""),
    ("ringway, packet port", "kind = \"packet\""),
];
/// Address of the port's client, and of the far end.
const CLIENT: Mac = Mac::local(SENDER);
const BEYOND: Mac = Mac::local(SENDER + 1);

/// Direction of the frames.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToWire,
    FromWire,
}

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (direction, name, title) in [
        (Direction::ToWire, "wire-out", "From a process port to the wire"),
        (Direction::FromWire, "wire-in", "From the wire to a process port"),
    ] {
        let mut lineup = session.lineup();
        for frame_len in SIZES {
            lineup.anchor(frame_len, frame_len);
            contestants(&mut lineup, session, direction, frame_len);
        }
        let heading = Heading {
            name: name.into(),
            title: title.into(),
            source: "VALE, section 4.1; VPE, section 4.2",
            x: Axis { label: "frame size", unit: "bytes", logarithmic: false },
            y: RATE,
        };
        figures.push(session.measure("wire", heading, lineup)?);
    }
    Ok(figures)
}

fn contestants(lineup: &mut Lineup, session: &Session, direction: Direction, frame_len: usize) {
    let (cores, x, load) = (session.cores, frame_len as f64, (direction, frame_len));
    let cable = |by| {
        let cable = Cable::start()?;
        cable.receive(cores, by)?;
        Ok::<Cable, io::Error>(cable)
    };
    for (series, keys) in WAYS {
        lineup.add_with(series, x, || {
            let cable = cable(Receiving::Source)?;
            let [near, _] = cable.hosts();
            let uplink = format!("{keys}\ndevice = \"{WIRE}\"\nnetns = \"{}\"", netns::path(near).display());
            let settings = Settings { uplink: Some(uplink), ..session.settings() };
            Switched::new(Daemon::start(cores, &settings)?, cable, cores, load)
        });
    }
    lineup.add_with(TESTPMD_XDP, x, || Unswitched::new(cable(Receiving::Source)?, cores, load));
    lineup.add_with(TESTPMD_XDP_IO, x, || {
        let cable = cable(Receiving::Source)?;
        let testpmd = TestpmdXdp::start(cores, &cable, Work::Forwards)?;
        Switched::new(with_driver(testpmd), cable, cores, load)
    });
    lineup.add_with(OVS_XDP, x, || {
        let cable = cable(Receiving::Source)?;
        Switched::new(with_driver(OvsDpdk::on_cable(cores, &cable)?), cable, cores, load)
    });
    lineup.add_with(LINUX_BRIDGE, x, || {
        let cable = cable(Receiving::Thread)?;
        Switched::new(LinuxBridge::on_cable(cores, &cable)?, cable, cores, load)
    });
}

/// Returns a switch with our virtio-net driver at its vhost-user port.
fn with_driver<S: VhostSwitch>(switch: S) -> Vhost<S, Split> {
    Vhost::new(switch, VirtioOptions::default())
}

fn frames(size: usize, source: Mac, destination: Mac) -> io::Result<Frames> {
    let spec = FrameSpec { size, source, destinations: vec![destination], ..FrameSpec::default() };
    Frames::new(&spec).map_err(io::Error::other)
}

fn pump<E: Endpoint>(stations: Vec<Station<E>>) -> Pump<E> {
    Pump::new(stations, PumpOptions { tx_batch: 128, rx_batch: 128, fill: Fill::Once, frames: None })
}

/// One side of a switch on the wire.
enum Side<P> {
    Port(P),
    Wire(WireEnd),
}

impl<P: Endpoint> Endpoint for Side<P> {
    fn tx_room(&mut self) -> usize {
        match self {
            Side::Port(port) => port.tx_room(),
            Side::Wire(end) => end.tx_room(),
        }
    }

    fn tx_push(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        match self {
            Side::Port(port) => port.tx_push(len, fill),
            Side::Wire(end) => end.tx_push(len, fill),
        }
    }

    fn tx_repeat(&mut self, template: &[u8]) -> bool {
        match self {
            Side::Port(port) => port.tx_repeat(template),
            Side::Wire(end) => end.tx_repeat(template),
        }
    }

    fn tx_repeat_many(&mut self, template: &[u8], most: usize) -> usize {
        match self {
            Side::Port(port) => port.tx_repeat_many(template, most),
            Side::Wire(end) => end.tx_repeat_many(template, most),
        }
    }

    fn tx_flush(&mut self) {
        match self {
            Side::Port(port) => port.tx_flush(),
            Side::Wire(end) => end.tx_flush(),
        }
    }

    fn rx_batch(&mut self, max: usize, take: impl FnMut(&[u8])) -> usize {
        match self {
            Side::Port(port) => port.rx_batch(max, take),
            Side::Wire(end) => end.rx_batch(max, take),
        }
    }

    fn wait(&mut self, for_rx: bool, timeout: Duration) -> io::Result<()> {
        match self {
            Side::Port(port) => port.wait(for_rx, timeout),
            Side::Wire(end) => end.wait(for_rx, timeout),
        }
    }
}

/// A switch with a port for this program and the near end of a cable.
struct Switched<N: Network> {
    // Ports are dropped before their network, and the network before the cable.
    pump: Pump<Side<N::Port>>,
    network: N,
    _cable: Cable,
    /// Counts what arrives beyond the wire; `None`: the port's frames count.
    beyond: Option<Received>,
    cores: Cores,
}

impl<N: Network> Switched<N> {
    /// Attaches the port and makes the switch learn both addresses. The network is stopped when this returns.
    fn new(mut network: N, cable: Cable, cores: Cores, load: (Direction, usize)) -> io::Result<Switched<N>> {
        let (direction, frame_len) = load;
        let mut port = network.attach(1)?.pop().ok_or_else(|| io::Error::other("the network attached no port"))?;
        let (mut end, received) = (WireEnd::open(&cable)?, cable.received()?);
        meet(&mut port, &mut end, &received)?;
        let (stations, beyond) = match direction {
            Direction::ToWire => {
                (vec![Station::source(Side::Port(port), frames(frame_len, CLIENT, BEYOND)?)], Some(received))
            }
            Direction::FromWire => {
                let source = Station::source(Side::Wire(end), frames(frame_len, BEYOND, CLIENT)?);
                (vec![source, Station::sink(Side::Port(port), Checker::new(Level::Count, Origin::Zero))], None)
            }
        };
        network.hold()?;
        Ok(Switched { pump: pump(stations), network, _cable: cable, beyond, cores })
    }
}

/// Either side hears a broadcast of the other.
fn meet<E: Endpoint>(port: &mut E, end: &mut WireEnd, received: &Received) -> io::Result<()> {
    let (mut there, mut back) = (frames(60, CLIENT, Mac::BROADCAST)?, frames(60, BEYOND, Mac::BROADCAST)?);
    let before = received.frames()?;
    let (start, mut has_come) = (Instant::now(), false);
    while start.elapsed() < PATIENCE {
        port.tx_push(60, |frame| there.write(frame));
        port.tx_flush();
        end.tx_push(60, |frame| back.write(frame));
        end.tx_flush();
        port.wait(true, Duration::from_millis(25))?;
        port.rx_batch(64, |frame| has_come |= frame.get(6..12) == Some(&BEYOND.0[..]));
        if has_come && received.frames()? > before {
            return Ok(());
        }
    }
    Err(io::Error::other(if has_come { "no frame gets to the wire" } else { "no frame comes from the wire" }))
}

impl<N: Network> Contestant for Switched<N> {
    fn needs_its_core(&self) -> bool {
        // The kernel's work for the source is on this thread's core, and takes turns with it.
        self.beyond.is_some()
    }

    fn resume(&mut self) -> io::Result<()> {
        self.network.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.network.hold()
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        pin(self.cores.generator)?;
        self.pump.run(span / 8, &mut Watch::none())?;
        let start = Instant::now();
        // On a busy machine the switch may not have run at all in a short window.
        while start.elapsed() < PATIENCE {
            let rate = match &self.beyond {
                None => self.pump.run(span, &mut Watch::none())?.received.frames_per_second,
                Some(beyond) => {
                    let (since, before) = (Instant::now(), beyond.frames()?);
                    self.pump.run(span, &mut Watch::none())?;
                    (beyond.frames()? - before) as f64 / since.elapsed().as_secs_f64()
                }
            };
            if rate > 0.0 {
                return Ok(rate / 1e6);
            }
        }
        Err(io::Error::other("no frame got through"))
    }
}

/// testpmd, which makes or takes the frames itself.
struct Unswitched {
    testpmd: TestpmdXdp,
    /// Sends from beyond the wire; `None`: testpmd sends.
    source: Option<Pump<WireEnd>>,
    received: Received,
    _cable: Cable,
    cores: Cores,
}

impl Unswitched {
    fn new(cable: Cable, cores: Cores, (direction, frame_len): (Direction, usize)) -> io::Result<Unswitched> {
        let (work, source) = match direction {
            Direction::ToWire => (Work::Sends(frame_len), None),
            Direction::FromWire => {
                let source = Station::source(WireEnd::open(&cable)?, frames(frame_len, BEYOND, CLIENT)?);
                (Work::Receives, Some(pump(vec![source])))
            }
        };
        let mut testpmd = TestpmdXdp::start(cores, &cable, work)?;
        testpmd.hold()?;
        let received = cable.received()?;
        Ok(Unswitched { testpmd, source, received, _cable: cable, cores })
    }

    /// Returns the frames that have arrived, and the seconds that they took.
    fn measure(&mut self, span: Duration) -> io::Result<(u64, f64)> {
        let Some(source) = &mut self.source else {
            let (since, before) = (Instant::now(), self.received.frames()?);
            std::thread::sleep(span);
            return Ok((self.received.frames()? - before, since.elapsed().as_secs_f64()));
        };
        let before = self.testpmd.received()?;
        let since = Instant::now();
        source.run(span, &mut Watch::none())?;
        let seconds = since.elapsed().as_secs_f64();
        Ok((self.testpmd.received()? - before, seconds))
    }
}

impl Contestant for Unswitched {
    fn resume(&mut self) -> io::Result<()> {
        self.testpmd.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.testpmd.hold()
    }

    fn needs_its_core(&self) -> bool {
        // This thread sleeps while testpmd sends, and testpmd answers on its core.
        false
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        pin(self.cores.generator)?;
        self.measure(span / 8)?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let (frames, seconds) = self.measure(span)?;
            if frames > 0 {
                return Ok(frames as f64 / seconds / 1e6);
            }
        }
        Err(io::Error::other("no frame got through"))
    }
}
