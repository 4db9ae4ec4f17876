//! LWEP and TCP flows from one host to another by a limited port: what each gets of it beside the other.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringway_link::{AnyLink, AnyOptions, ProcessOptions};

use crate::daemon::{Daemon, RingwayNetwork as _, Settings, TAPS};
use crate::messages::{LinkNetwork, Lwep, Measure, Messages, Way, address};
use crate::peers::cable::{Cable, WIRE};
use crate::peers::netns;
use crate::placement::{Cores, unpin};
use crate::report::{Axis, Figure, Heading};
use crate::series::RINGWAY;
use crate::session::Session;
use crate::trial::Contestant;

const FLOWS: [usize; 3] = [1, 4, 16];
/// Bytes of a message.
const SIZE: usize = 1400;
/// Keys of a port that is shared and limited.
const LIMIT: &str = "egress = { rate = \"500Mbit\" }";
/// Addresses of the two hosts.
const HOSTS: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const PORT: u16 = 7;
/// Length of a window in ordinary windows: TCP finds its rate in a part of a second.
const STRETCH: u32 = 25;

/// A host at a switch, whose uplink leads to another host.
struct SharedPort {
    daemon: Daemon,
    cable: Cable,
    source: File,
    /// LWEP has the TAP device of the host, not a port of its own.
    same_device: bool,
}

impl SharedPort {
    fn start(session: &Session, limit: &str, same_device: bool) -> io::Result<SharedPort> {
        let cable = Cable::start()?;
        let source = netns::inside_new(|| {
            // A kernel without IPv6 needs nothing.
            let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            netns::current()
        })?;
        let [near, far] = cable.hosts();
        let in_host = |host| format!("netns = \"{}\"", netns::path(host).display());
        let uplink = format!("kind = \"xdp\"\ndevice = \"{WIRE}\"\n{}\n{limit}", in_host(near));
        let (uplink, taps) = (Some(uplink), vec![in_host(&source)]);
        let settings = Settings { core: None, idle: "sleep", uplink, taps, ..session.settings() };
        let daemon = Daemon::start(session.cores, &settings)?;
        for (host, device, address) in [(&source, TAPS[0], HOSTS[0]), (far, WIRE, HOSTS[1])] {
            netns::inside(host, || {
                netns::run("ip", &format!("address add {address}/24 dev {device}"))?;
                netns::run("ip", &format!("link set dev {device} up"))
            })?;
        }
        Ok(SharedPort { daemon, cable, source, same_device })
    }
}

impl LinkNetwork for SharedPort {
    type Link = AnyLink;

    fn link(&mut self, number: usize, _: &Way) -> io::Result<AnyLink> {
        let (host, device) = match number {
            0 if !self.same_device => {
                let options = ProcessOptions { mac: Some(address(number).0.0), ..ProcessOptions::default() };
                let link = self.daemon.attach_link(&Daemon::port_name(number), &options)?;
                return Ok(AnyLink::Process(Box::new(link)));
            }
            0 => (&self.source, TAPS[0]),
            _ => (&self.cable.hosts()[1], WIRE),
        };
        netns::inside(host, || AnyLink::open(&format!("dev:{device}"), "".as_ref(), &AnyOptions::default()))
    }

    fn hold(&mut self) -> io::Result<()> {
        self.daemon.hold()
    }

    fn resume(&mut self) -> io::Result<()> {
        self.daemon.resume()
    }
}

/// Whose data counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Messages,
    Flows,
}

/// LWEP and TCP flows, or one of both.
struct Beside {
    messages: Messages<Lwep<SharedPort>>,
    hosts: [File; 2],
    has_messages: bool,
    flows: usize,
    counted: Counted,
}

impl Beside {
    /// `traffic`: whether there are messages, and the number of flows.
    fn start(port: SharedPort, cores: Cores, traffic: (bool, usize), counted: Counted) -> io::Result<Beside> {
        let hosts = [port.source.try_clone()?, port.cable.hosts()[1].try_clone()?];
        let messenger = Lwep::start(port, Way { sleeps: true, ..Way::COPIED })?;
        let messages = Messages { messenger, size: SIZE, measure: Measure::Rate, cores, is_bound: false };
        Ok(Beside { messages, hosts, has_messages: traffic.0, flows: traffic.1, counted })
    }

    /// Returns the bytes that messages and flows have brought within `span`.
    fn run(&mut self, span: Duration) -> io::Result<[f64; 2]> {
        let listener = netns::inside(&self.hosts[1], || TcpListener::bind((HOSTS[1], PORT)))?;
        let mut ends = Vec::new();
        for _ in 0..self.flows {
            let near = netns::inside(&self.hosts[0], || TcpStream::connect((HOSTS[1], PORT)))?;
            ends.push((near, listener.accept()?.0));
        }
        let received = AtomicU64::new(0);
        let messages = &mut self.messages;
        let has_messages = self.has_messages;
        thread::scope(|scope| {
            for (near, far) in &ends {
                scope.spawn(move || {
                    let (mut near, bytes) = (near, vec![0x55; 64 << 10]);
                    // Fails when the flow is shut down.
                    while near.write_all(&bytes).is_ok() {}
                });
                let received = &received;
                scope.spawn(move || {
                    let (mut far, mut bytes) = (far, vec![0; 256 << 10]);
                    while let Ok(len @ 1..) = far.read(&mut bytes) {
                        received.fetch_add(len as u64, Ordering::Relaxed);
                    }
                });
            }
            let mut bytes_within = |span: Duration| {
                let (began, before) = (Instant::now(), received.load(Ordering::Relaxed));
                let count = if has_messages { messages.messages(span)?.0 } else { 0 };
                thread::sleep(span.saturating_sub(began.elapsed()));
                Ok([(count * SIZE as u64) as f64, (received.load(Ordering::Relaxed) - before) as f64])
            };
            let bytes = bytes_within(span / 4).and_then(|_: [f64; 2]| bytes_within(span));
            for (near, far) in &ends {
                // An end that the peer has shut down needs nothing.
                let _ = near.shutdown(Shutdown::Both);
                let _ = far.shutdown(Shutdown::Both);
            }
            bytes
        })
    }
}

impl Contestant for Beside {
    fn resume(&mut self) -> io::Result<()> {
        self.messages.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.messages.hold()
    }

    fn depends_on_distance(&self) -> bool {
        false
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        unpin(self.messages.cores)?;
        let span = span * STRETCH;
        let [messages, flows] = self.run(span)?;
        let bytes = if self.counted == Counted::Messages { messages } else { flows };
        Ok(bytes * 8.0 / 1e6 / span.as_secs_f64())
    }
}

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let figures = [
        ("", "Data in LWEP's messages beside TCP flows, at a port of 500 Mbit/s", Counted::Messages, LIMIT),
        ("-tcp", "Data of TCP flows beside LWEP's messages, at a port of 500 Mbit/s", Counted::Flows, LIMIT),
        ("-open", "Data in LWEP's messages beside TCP flows, at a port without a limit", Counted::Messages, ""),
        ("-open-tcp", "Data of TCP flows beside LWEP's messages, at a port without a limit", Counted::Flows, ""),
    ];
    let mut done = Vec::new();
    for (name, title, counted, limit) in figures {
        let mut lineup = session.lineup();
        for flows in session.places(&FLOWS) {
            let alone = if counted == Counted::Messages { (true, 0) } else { (false, flows) };
            for (series, traffic, same_device) in [
                (RINGWAY, (true, flows), false),
                ("ringway, same device", (true, flows), true),
                ("alone", alone, false),
            ] {
                lineup.add_with(series, flows as f64, || {
                    let port = SharedPort::start(session, limit, same_device)?;
                    Beside::start(port, session.cores, traffic, counted)
                });
            }
        }
        let x = Axis { label: "flows", unit: "flows", logarithmic: true };
        let y = Axis { label: "data", unit: "Mbit/s", logarithmic: false };
        let (name, source) = (format!("lwep-fairness{name}"), "fairness paper, figures 6 and 7");
        let heading = Heading { name, title: title.into(), source, x, y };
        done.push(session.measure("lwep-fairness", heading, lineup)?);
    }
    Ok(done)
}
