//! VPE, figures 6 and 7, in guests: messages of a program that drives the guest's NIC itself, beside TCP and UDP of the guest's kernel, to
//! a program on the host and to one in another guest, by the same switch.
//!
//! Nothing is pinned: guests, QEMU, the switch and the programs share two cores.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use ringway_guests::Nic;
use serde_json::Value;

use crate::child::Program;
use crate::daemon::{Daemon, Settings};
use crate::extra_counts::ExtraCounts;
use crate::network::Network;
use crate::owned_nics::{Machine, number, parse};
use crate::patience::PATIENCE;
use crate::peers::netns;
use crate::peers::vhost::VhostSwitch as _;
use crate::placement::unpin;
use crate::programs::{Compiled, SOCKETS};
use crate::report::{Axis, Figure, Heading};
use crate::series::RINGWAY;
use crate::session::Session;
use crate::trial::Contestant;
use crate::vhost::with_any;

/// Factor by which windows are longer than those of other experiments: programs start in the guest for each.
const STRETCH: u32 = 25;
/// Bytes of messages.
const SIZES: [usize; 2] = [64, 1024];
const SOURCE: &str = "VPE, figures 6 and 7";

/// Addresses for the kernels' sockets: of the guests, and of the host.
const GUESTS: [&str; 2] = ["10.78.0.1", "10.78.0.2"];
const HOST: &str = "10.78.0.3";
/// Addresses for LWEP's segmentation layout: of the guest, and of the host.
const OWN: [&str; 2] = ["10.99.0.1", "10.99.0.2"];
/// TCP's and UDP's port.
const PORT: &str = "7000";
/// The host's program's port at the switch.
const PROBE: &str = "bench:probe";
/// Addresses of both guests' virtio NICs: the kernel's, and the program's.
const MACS: [[&str; 2]; 2] = [["52:54:00:78:00:01", "52:54:00:78:00:02"], ["52:54:00:78:01:01", "52:54:00:78:01:02"]];

/// A NIC that a program drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Card {
    Virtio = 1,
    E1000 = 2,
}

/// How messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// LWEP by this NIC.
    Lwep(Card),
    /// LWEP by this NIC with many messages in one buffer.
    Segmented(Card),
    /// The sockets of the guest's kernel: `tcp` or `udp`.
    Sockets(&'static str),
}

/// Who tries again at once while there is nothing to do, instead of sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spinning {
    Host,
    Guest,
    Both,
    None,
}

impl Spinning {
    fn host(self) -> bool {
        matches!(self, Host | Both)
    }

    fn guest(self) -> bool {
        matches!(self, Guest | Both)
    }
}

/// A curve: its name, how its messages travel, and who spins.
type Curve = (&'static str, Way, Spinning);

/// What a window measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    /// Median round trip from a program on the host that spins.
    HostTrip,
    /// Median round trip between two guests.
    GuestTrip,
    /// Messages per second that the host gets from a guest.
    Sends,
    /// Messages per second that a guest gets from the host.
    Receives,
}

use Card::{E1000, Virtio};
use Measure::{GuestTrip, HostTrip, Receives, Sends};
use Spinning::{Both, Guest, Host};
use Way::{Lwep, Segmented, Sockets};

/// Curves of round trips from the host, and between guests.
const HOST_TRIPS: [Curve; 8] = [
    (RINGWAY, Lwep(Virtio), Host),
    ("ringway, guest spins", Lwep(Virtio), Guest),
    ("ringway, both spin", Lwep(Virtio), Both),
    ("ringway e1000", Lwep(E1000), Host),
    ("ringway e1000, guest spins", Lwep(E1000), Guest),
    ("tcp", Sockets("tcp"), Host),
    ("tcp, guest spins", Sockets("tcp"), Guest),
    ("udp", Sockets("udp"), Host),
];
const GUEST_TRIPS: [Curve; 4] = [
    (RINGWAY, Lwep(Virtio), Spinning::None),
    ("ringway e1000", Lwep(E1000), Spinning::None),
    ("tcp", Sockets("tcp"), Spinning::None),
    ("udp", Sockets("udp"), Spinning::None),
];
const RATES: [Curve; 8] = [
    (RINGWAY, Lwep(Virtio), Guest),
    ("ringway, asleep", Lwep(Virtio), Spinning::None),
    ("ringway, segmented", Segmented(Virtio), Guest),
    ("ringway e1000", Lwep(E1000), Guest),
    ("ringway e1000, asleep", Lwep(E1000), Spinning::None),
    ("ringway e1000, segmented", Segmented(E1000), Guest),
    ("tcp", Sockets("tcp"), Spinning::None),
    ("udp", Sockets("udp"), Spinning::None),
];

/// Counts beside the rates: short name, and what is counted for a hundred messages.
const COUNTS: [(&str, &str); 4] = [
    ("accesses", "register accesses of the program in the guest"),
    ("interrupts", "interrupts of the program in the guest"),
    ("kicks", "kicks (virtio) and register accesses (e1000) that the switch counts, those of the start among them"),
    ("calls", "calls that the switch counts"),
];

/// Measures round trips.
///
/// # Errors
/// The cores cannot be used.
pub fn latency(session: &mut Session) -> io::Result<Vec<Figure>> {
    let scene = Scene::start(session, "adaptive");
    let size = Axis { label: "message size", unit: "bytes", logarithmic: true };
    let mut done = Vec::new();
    let figures: [(_, _, _, &[_]); 2] = [
        ("lwep-guests", "a program on the host that spins and one in a guest", HostTrip, &HOST_TRIPS),
        (
            "lwep-guests-pair",
            "programs in two guests, all asleep while there is nothing to do",
            GuestTrip,
            &GUEST_TRIPS,
        ),
    ];
    for (name, between, measure, curves) in figures {
        let (title, y) = (
            format!("Round trip of a message between {between}"),
            Axis { label: "round trip", unit: "us", logarithmic: true },
        );
        let heading = Heading { name: name.into(), title, source: SOURCE, x: size, y };
        done.push(figure(session, "lwep-guests", &scene, (measure, curves), heading, &ExtraCounts::default())?);
    }
    Ok(done)
}

/// Measures rates.
///
/// # Errors
/// The cores cannot be used.
pub fn bandwidth(session: &mut Session) -> io::Result<Vec<Figure>> {
    let scene = Scene::start(session, "spin");
    let size = Axis { label: "message size", unit: "bytes", logarithmic: true };
    let mut done = Vec::new();
    for (name, what, measure) in [
        ("lwep-guests-send", "Messages from a guest to a program on the host", Sends),
        ("lwep-guests-receive", "Messages from a program on the host to a guest", Receives),
    ] {
        let counts = ExtraCounts::default();
        let y = Axis { label: "rate", unit: "kmessage/s", logarithmic: true };
        let heading = Heading { name: name.into(), title: what.into(), source: SOURCE, x: size, y };
        let rates = figure(session, "lwep-guests-bandwidth", &scene, (measure, &RATES), heading.clone(), &counts)?;
        let further = COUNTS.iter().enumerate().map(|(kind, (short, counted))| {
            let y = Axis { label: short, unit: "per 100 messages", logarithmic: true };
            let (name, title) = (format!("{name}-{short}"), format!("{what}: {counted}, for 100 messages"));
            counts.figure(kind, Heading { name, title, y, ..heading.clone() }, &rates)
        });
        let further: Vec<Figure> = further.collect();
        done.push(rates);
        done.extend(further);
    }
    Ok(done)
}

fn figure(
    session: &mut Session,
    experiment: &str,
    scene: &io::Result<Shared>,
    (measure, curves): (Measure, &[Curve]),
    heading: Heading,
    counts: &ExtraCounts,
) -> io::Result<Figure> {
    let mut lineup = session.lineup();
    for size in session.places(&SIZES) {
        for &(series, way, spinning) in curves {
            let counts = counts.clone();
            let run = with_any(scene, |scene| Run { scene, series, way, spinning, measure, size, counts });
            lineup.add(series, size, run);
        }
    }
    session.measure(experiment, heading, lineup)
}

/// Two guests at a switch, each with a NIC of its kernel and two that programs drive, and a TAP device of the switch for the host's
/// sockets.
struct Scene {
    // Guests are dropped before their switch.
    machines: [Machine; 2],
    daemon: Daemon,
    /// The host's namespace.
    namespace: File,
    sockets: Compiled,
}

type Shared = Rc<RefCell<Scene>>;

impl Scene {
    /// Boots the guests. They are stopped when this returns.
    fn start(session: &Session, idle: &'static str) -> io::Result<Shared> {
        let cores = session.cores;
        unpin(cores)?;
        let sockets = Compiled::of(&SOCKETS);
        let namespace = netns::inside_new(netns::current)?;
        let tap = format!("kind = \"tap\"\nnetns = \"{}\"", netns::path(&namespace).display());
        let settings = Settings {
            core: None,
            idle,
            vhost_user: 4,
            e1000: Some("csb = true"),
            uplink: Some(tap),
            ..session.settings()
        };
        let daemon = Daemon::start(cores, &settings)?;
        netns::inside(&namespace, || {
            netns::run("ip", "link set uplink up")?;
            netns::run("ip", &format!("addr add {HOST}/24 dev uplink"))
        })?;
        let (virtio, e1000) = (daemon.sockets(), daemon.nics());
        let programs = [session.options.program.as_path(), sockets.path()?];
        let machine = |guest: usize| {
            let virtio = |nic: usize| {
                let mac = MACS[guest][nic];
                (Nic::vhost_user(&virtio[2 * guest + nic]).mac(mac), Some(mac))
            };
            let nics = vec![virtio(0), virtio(1), (Nic::vfio_user(&e1000[guest]), None)];
            let machine = Machine::boot(&format!("vm{guest}"), nics, &programs)?;
            machine.share_out(Some((0, GUESTS[guest]))).map_err(io::Error::other)?;
            Ok::<_, io::Error>(machine)
        };
        let machines = [machine(0)?, machine(1)?];
        let mut scene = Scene { machines, daemon, namespace, sockets };
        scene.hold()?;
        Ok(Rc::new(RefCell::new(scene)))
    }

    fn hold(&mut self) -> io::Result<()> {
        self.machines.iter().try_for_each(Machine::hold)?;
        Network::hold(&mut self.daemon)
    }

    fn resume(&mut self) -> io::Result<()> {
        Network::resume(&mut self.daemon)?;
        self.machines.iter().try_for_each(Machine::resume)
    }

    /// `ringway lwep` on the host.
    fn lwep(&self, arguments: &str) -> Command {
        let mut command = self.daemon.ringway();
        command.arg("lwep").args(arguments.split_whitespace());
        command
    }

    /// `sockets` on the host.
    fn sockets(&self, arguments: &str) -> io::Result<Command> {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", netns::path(&self.namespace).display())).arg(self.sockets.path()?);
        command.args(arguments.split_whitespace());
        Ok(command)
    }

    /// Returns what the switch counts at the port of the first guest's NIC: kicks or register accesses, and calls.
    fn counted(&self, card: Card) -> io::Result<[f64; 2]> {
        let status = self.daemon.status()?;
        let name = if card == Virtio { "vm1" } else { "nic0" };
        let ports = status["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
        let port = ports.iter().find(|port| port["name"] == name).unwrap_or(&Value::Null);
        let accesses = match card {
            Virtio => number(port, "/kicks")?,
            E1000 => number(port, "/e1000/register_reads")? + number(port, "/e1000/register_writes")?,
        };
        Ok([accesses, number(port, "/calls")?])
    }
}

/// Runs a program of the host to its end. Returns what it wrote.
fn run(mut command: Command) -> io::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// Repeats an attempt until it succeeds, or for a while.
fn until<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let began = Instant::now();
    loop {
        match attempt() {
            Err(_) if began.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(20)),
            result => return result,
        }
    }
}

/// One curve at one place.
struct Run {
    scene: Shared,
    series: &'static str,
    way: Way,
    spinning: Spinning,
    measure: Measure,
    size: usize,
    counts: ExtraCounts,
}

impl Contestant for Run {
    fn resume(&mut self) -> io::Result<()> {
        self.scene.borrow_mut().resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.scene.borrow_mut().hold()
    }

    fn depends_on_distance(&self) -> bool {
        false
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        let scene = Rc::clone(&self.scene);
        let scene = scene.borrow();
        let span = span * STRETCH;
        match self.way {
            Lwep(card) | Segmented(card) => self.lwep(&scene, card, span),
            Sockets(protocol) => self.sockets(&scene, protocol, span),
        }
    }
}

impl Run {
    fn lwep(&self, scene: &Scene, card: Card, span: Duration) -> io::Result<f64> {
        let (size, millis, [near, far]) = (self.size, span.as_millis(), &scene.machines);
        let wait = |spins| if spins { "spin" } else { "sleep" };
        let (host, guest) = (wait(self.spinning.host()), wait(self.spinning.guest()));
        let segmented = matches!(self.way, Segmented(..));
        let address = |end: usize| if segmented { format!("--address {}", OWN[end]) } else { String::new() };
        let inside = |machine: &Machine| {
            format!("pci:{} --wait {guest} --json {}", machine.cards[card as usize].pci, address(0))
        };
        let load = format!("--size {size} --duration {millis}ms {}", if segmented { "--segmented" } else { "" });
        let server = if self.measure == GuestTrip { far } else { near };
        let to = &server.cards[card as usize].mac;
        let before = scene.counted(card)?;
        if self.measure == Sends {
            let mut server = scene.lwep(&format!("serve {PROBE} --wait {host} {}", address(1)));
            let mut server = Program::start(server.stdout(Stdio::null()).stderr(Stdio::piped()))?;
            // Its first line says that it serves.
            let said = server.child().stderr.as_mut().map(|said| BufReader::new(said).read_line(&mut String::new()));
            said.transpose()?;
            let said = near.json(&format!("ringway lwep bandwidth {} --to {PROBE} {load}", inside(near)))?;
            let rate = number(&said, "/received/messages_per_second")?;
            self.note(scene, card, before, (&said, number(&said, "/received/messages")?))?;
            return Ok(rate / 1e3);
        }
        let job = server.start(&format!("ringway lwep serve {}", inside(server)))?;
        let ping = format!("ping {PROBE} --to {to} --json --wait {host} {}", address(1));
        let measured =
            until(|| run(scene.lwep(&format!("{ping} --count 1 --timeout 300ms")))).and_then(|_| match self.measure {
                HostTrip => parse(&run(scene.lwep(&format!("{ping} --size {size} --duration {millis}ms")))?),
                GuestTrip => near
                    .json(&format!("ringway lwep ping {} --to {to} --size {size} --duration {millis}ms", inside(near))),
                _ => parse(&run(
                    scene.lwep(&format!("bandwidth {PROBE} --to {to} --json --wait {host} {load} {}", address(1)))
                )?),
            });
        let served = parse(&server.end(&job, "ringway")?);
        let said = measured?;
        if self.measure != Receives {
            return Ok(number(&said, "/round_trip_ns/p50")? / 1e3);
        }
        let served = served?;
        self.note(scene, card, before, (&served, number(&served, "/sunk/messages")?))?;
        Ok(number(&said, "/received/messages_per_second")? / 1e3)
    }

    /// Notes the counts of a program in the guest, which has sent or received so many messages, and of the switch.
    fn note(&self, scene: &Scene, card: Card, before: [f64; 2], (said, messages): (&Value, f64)) -> io::Result<()> {
        let after = scene.counted(card)?;
        let count = |name: &str| number(said, &format!("/link/{name}"));
        let counts =
            [count("kicks")? + count("accesses")?, count("calls")?, after[0] - before[0], after[1] - before[1]];
        for (kind, count) in counts.into_iter().enumerate() {
            self.counts.note(kind, self.series, self.size as f64, 100.0 * count / messages.max(1.0));
        }
        Ok(())
    }

    fn sockets(&self, scene: &Scene, protocol: &str, span: Duration) -> io::Result<f64> {
        let (size, millis, [near, far]) = (self.size, span.as_millis(), &scene.machines);
        let wait = |spins| if spins { "spin" } else { "wait" };
        let (host, guest) = (wait(self.spinning.host()), wait(self.spinning.guest()));
        let (what, ways) = match self.measure {
            HostTrip => ("ask", format!("{host} {guest}")),
            GuestTrip => ("ask", format!("{guest} {guest}")),
            Sends => ("send", format!("{guest} {host}")),
            Receives => ("send", format!("{host} {guest}")),
        };
        let client = |address: &str| format!("{protocol} {what} {address} {PORT} {size} {millis} {ways}");
        let inside = |machine: &Machine, address: &str| {
            machine.guest.ok(&format!("sockets {}", client(address))).map_err(io::Error::other)
        };
        let said = if self.measure == Sends {
            let _server = Program::start(&mut scene.sockets(&format!("serve {PORT}"))?)?;
            until(|| inside(near, HOST))?
        } else {
            let server = if self.measure == GuestTrip { far } else { near };
            let job = server.start(&format!("sockets serve {PORT}"))?;
            let said = until(|| match self.measure {
                GuestTrip => inside(near, GUESTS[1]),
                _ => run(scene.sockets(&client(GUESTS[0]))?),
            });
            server.end(&job, "sockets")?;
            said?
        };
        let mut numbers = said.split_whitespace().filter_map(|word| word.parse::<f64>().ok());
        match (what, numbers.next(), numbers.next()) {
            ("ask", Some(nanoseconds), None) => Ok(nanoseconds / 1e3),
            ("send", Some(messages), Some(nanoseconds)) => Ok(messages / nanoseconds * 1e6),
            _ => Err(io::Error::other(format!("sockets says {said}"))),
        }
    }
}
