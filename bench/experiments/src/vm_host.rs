//! Guests and their host at one switch, with sockets' traffic and pktgen's between them.
//!
//! Nothing is pinned, as in [`vm`](crate::vm). Guests, the switch and the host's programs are stopped while others are measured.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use ringway_guests::{Error, Guest, bulk};
use ringway_traffic::Mac;
use serde_json::{Value, json};

use crate::child::Program;
use crate::daemon::{Daemon, Settings, TAPS};
use crate::patience::PATIENCE;
use crate::peers::netns;
use crate::peers::vm_bridge::{BRIDGE, VmBridge};
use crate::placement::unpin;
use crate::session::Session;
use crate::vm_nics::{INTERRUPTS, Kind, connect};
use crate::vm_switch::VmSwitch as _;

/// Addresses of the guests and of the host.
const GUESTS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 79, 0, 1), Ipv4Addr::new(10, 79, 0, 2)];
const HOST: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 3);
const MACS: [&str; 2] = ["52:54:00:7a:00:01", "52:54:00:7a:00:02"];
/// Port of `sockets`.
const PORT: &str = "7000";
const NAP: Duration = Duration::from_millis(20);
/// Time for which pktgen sends before its frames count.
const WARM_UP: Duration = Duration::from_millis(300);

/// Ends of the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From a guest to the host.
    ToHost,
    /// From the host to a guest.
    FromHost,
    /// From a guest to another.
    Guests,
}

/// What travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Datagrams with so many bytes of data, one in each call: thousands per second that arrive.
    Udp(usize),
    /// A TCP stream, written by so many bytes, in Mbit/s.
    Tcp(usize),
    /// Requests and answers of one byte by TCP, one at a time: thousands per second, by the median.
    RoundTrips,
    /// Frames of 60 bytes of the guest's kernel, one at a time: thousands per second that arrive.
    Pktgen,
}

/// What guests' drivers and devices did in a window, for each frame that their NICs sent or received.
#[derive(Clone, Copy, Debug, Default)]
pub struct PerFrame {
    /// Interrupts.
    pub interrupts: f64,
    /// Register accesses by message: tail writes, all, and their messages; `None`: the device does not count them.
    pub accesses: Option<[f64; 3]>,
}

/// Two guests, and their host.
pub struct Group {
    // Guests are dropped before their switch.
    guests: [Guest; 2],
    daemon: Option<Daemon>,
    /// Servers of the host.
    servers: Vec<Program>,
    namespace: File,
    /// The host's device in it.
    device: &'static str,
    sockets: std::path::PathBuf,
    kind: Kind,
    /// Most interrupts per second that the drivers were last set to; `None`: what they do by themselves.
    throttle: Option<u32>,
    segments: bool,
}

/// Guests that several contestants use by turns.
pub type Shared = Rc<RefCell<Group>>;

impl Group {
    /// Boots two guests with `cpus` processors. They are stopped when this returns. `sockets` is the compiled program.
    ///
    /// # Errors
    /// The switch cannot be started, or something that guests need is missing. The message names it.
    pub fn boot(session: &Session, sockets: &Path, kind: Kind, cpus: usize) -> io::Result<Shared> {
        unpin(session.cores)?;
        let namespace = netns::inside_new(netns::current)?;
        let (mut daemon, mut bridge) = (None, None);
        if let Some(model) = kind.model() {
            bridge = Some(VmBridge::inside(&namespace)?.model(model));
        } else {
            let tap = format!("netns = \"{}\"", netns::path(&namespace).display());
            let usual = Settings { taps: vec![tap], ..session.settings() };
            let settings = kind.settings(usual, GUESTS.len()).ok_or_else(|| io::Error::other("no switch"))?;
            daemon = Some(Daemon::start(session.cores, &settings)?);
        }
        let device = if daemon.is_some() { TAPS[0] } else { BRIDGE };
        netns::inside(&namespace, || {
            netns::run("ip", &format!("link set {device} up"))?;
            netns::run("ip", &format!("addr add {HOST}/24 dev {device}"))?;
            // What the host sends has one segment in a frame, as what guests send.
            netns::run("ethtool", &format!("-K {device} tso off gso off"))
        })?;
        let start = |number: usize| {
            let nic = match (&daemon, &bridge) {
                (Some(daemon), _) => daemon.nic(number, MACS[number])?,
                (None, Some(bridge)) => bridge.nic(number, MACS[number])?,
                (None, None) => return Err(io::Error::other("no switch")),
            };
            let guest = Guest::builder(&format!("vm{number}")).cpus(cpus as u16).nic(kind.options(nic));
            kind.drivers(guest).program(sockets).vfio_user_qemu().start().map_err(io::Error::other)
        };
        let guests = [start(0)?, start(1)?];
        // QEMU has inherited its devices.
        drop(bridge);
        let (servers, throttle, sockets) = (Vec::new(), None, sockets.to_owned());
        let mut group = Group { guests, daemon, servers, namespace, device, sockets, kind, throttle, segments: false };
        group.prepare().map_err(io::Error::other)?;
        let serve = [group.on_host(&["iperf3", "-s"]), group.host_sockets(&["serve", PORT])];
        for mut command in serve {
            group.servers.push(Program::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?);
        }
        group.hold()?;
        Ok(Rc::new(RefCell::new(group)))
    }

    fn prepare(&self) -> Result<(), Error> {
        for (guest, address) in self.guests.iter().zip(GUESTS) {
            // Without IPv6 a guest sends nothing by itself.
            guest.ok("for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$f; done")?;
            guest.ok("insmod /modules/pktgen.ko")?;
            self.introduce(guest, address)?;
            bulk::serve(guest)?;
            guest.ok(&format!("(sockets serve {PORT} >/dev/null 2>&1 &)"))?;
        }
        let peers = [GUESTS[1], HOST].map(|peer| format!("ping -c 1 -w 10 {peer} >/dev/null"));
        self.guests[0].ok(&peers.join(" && "))?;
        self.guests[1].ok(&format!("ping -c 1 -w 10 {HOST} >/dev/null")).map(drop)
    }

    /// Waits for the link, and sets an address and segmentation offload.
    fn introduce(&self, guest: &Guest, address: Ipv4Addr) -> Result<(), Error> {
        connect(guest)?;
        guest.ok(&format!("ip addr add {address}/24 dev eth0"))?;
        set_segments(guest, self.segments)
    }

    /// Limits the interrupts per second; 0 sets no limit, and `None` leaves it to the driver.
    ///
    /// # Errors
    /// A guest does not run the command.
    pub fn set_throttle(&mut self, most: Option<u32>) -> io::Result<()> {
        if self.throttle == most {
            return Ok(());
        }
        for (guest, address) in self.guests.iter().zip(GUESTS) {
            if self.kind.set_throttle(guest, most).map_err(io::Error::other)? {
                self.introduce(guest, address).map_err(io::Error::other)?;
            }
        }
        if let Some(daemon) = &self.daemon {
            daemon.set_nics(Kind::delay(most))?;
        }
        self.throttle = most;
        Ok(())
    }

    /// Leaves segmentation of TCP to the guests' devices, or not.
    ///
    /// # Errors
    /// A guest does not run the command.
    pub fn set_segments(&mut self, left: bool) -> io::Result<()> {
        if self.segments != left {
            self.guests.iter().try_for_each(|guest| set_segments(guest, left)).map_err(io::Error::other)?;
            self.segments = left;
        }
        Ok(())
    }

    /// Stops the guests and the switch.
    ///
    /// # Errors
    /// QEMU does not obey, or the switch has ended.
    pub fn hold(&mut self) -> io::Result<()> {
        for guest in &self.guests {
            guest.qmp("stop", json!({})).map_err(io::Error::other)?;
        }
        self.daemon.as_mut().map_or(Ok(()), crate::network::Network::hold)
    }

    /// Lets the guests and the switch go on.
    ///
    /// # Errors
    /// QEMU does not obey, or the switch has ended.
    pub fn resume(&mut self) -> io::Result<()> {
        self.daemon.as_mut().map_or(Ok(()), crate::network::Network::resume)?;
        for guest in &self.guests {
            guest.qmp("cont", json!({})).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Lets this traffic flow for about `span`. Returns its rate, and what drivers and devices did.
    ///
    /// # Errors
    /// A program fails, or nothing gets through.
    pub fn flow(&self, way: Way, load: Load, span: Duration) -> io::Result<(f64, PerFrame)> {
        let before = self.read(way)?;
        let rate = match load {
            Load::Udp(size) => self.sockets(way, &format!("udp send {} {PORT} {size}", to(way)), span)?,
            Load::RoundTrips => self.sockets(way, &format!("tcp ask {} {PORT} 1", to(way)), span)?,
            Load::Tcp(write) => self.tcp(way, write, span)?,
            Load::Pktgen => self.pktgen(way, span)?,
        };
        let after = self.read(way)?;
        if rate <= 0.0 {
            return Err(io::Error::other("no frame got through"));
        }
        Ok((rate, per_frame(&before, &after)))
    }

    /// Runs `sockets` for a time. Returns thousands of datagrams, or of requests, per second.
    fn sockets(&self, way: Way, arguments: &str, span: Duration) -> io::Result<f64> {
        let arguments = format!("{arguments} {} wait wait", span.as_millis());
        let said = if way == Way::FromHost {
            let words: Vec<&str> = arguments.split_whitespace().collect();
            run(&mut self.host_sockets(&words))?
        } else {
            self.guests[0].ok(&format!("sockets {arguments}")).map_err(io::Error::other)?
        };
        let numbers: Option<Vec<f64>> = said.split_whitespace().map(|word| word.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[nanoseconds]) => Ok(1e6 / nanoseconds),
            Some(&[messages, nanoseconds]) if nanoseconds > 0.0 => Ok(messages / nanoseconds * 1e6),
            _ => Err(io::Error::other(format!("sockets says {said:?}"))),
        }
    }

    /// Returns the rate of a TCP stream in Mbit/s.
    fn tcp(&self, way: Way, write: usize, span: Duration) -> io::Result<f64> {
        let (peer, reverse) = match way {
            Way::ToHost => (HOST, ""),
            Way::FromHost => (HOST, "-R"),
            Way::Guests => (GUESTS[1], ""),
        };
        let arguments = format!("-t {} -l {write} {reverse}", span.as_secs().max(1));
        let mut report = bulk::iperf3(&self.guests[0], &peer.to_string(), &arguments).map_err(io::Error::other)?;
        let end = report["end"].take();
        let rate = end["sum_received"]["bits_per_second"].as_f64();
        rate.map(|bits| bits / 1e6).ok_or_else(|| io::Error::other(format!("iperf3 gives no rate: {end}")))
    }

    /// Returns thousands of frames per second that arrive from the guest's kernel.
    fn pktgen(&self, way: Way, span: Duration) -> io::Result<f64> {
        let target = match way {
            Way::Guests => self.guests[1].ok("cat /sys/class/net/eth0/address").map_err(io::Error::other)?,
            _ => self.host_address()?,
        };
        let target: Mac = target.trim().parse().map_err(|_| io::Error::other(format!("{target:?} is no address")))?;
        let guest = &self.guests[0];
        let setup = format!(
            "cd /proc/net/pktgen; echo rem_device_all >kpktgend_0; echo add_device eth0 >kpktgend_0; \
             echo pkt_size 60 >eth0; echo count 0 >eth0; echo dst_mac {target} >eth0; (echo start >pgctrl &)"
        );
        guest.ok(&setup).map_err(io::Error::other)?;
        let (begun, had) = (Instant::now(), self.arrived(way)?);
        // A guest of one processor may take seconds until its kernel begins.
        while self.arrived(way)? < had + 100.0 && begun.elapsed() < PATIENCE {
            thread::sleep(NAP);
        }
        thread::sleep(WARM_UP.min(span));
        let (start, before) = (Instant::now(), self.arrived(way)?);
        thread::sleep(span);
        let rate = (self.arrived(way)? - before) / start.elapsed().as_secs_f64();
        guest.ok("echo stop >/proc/net/pktgen/pgctrl").map_err(io::Error::other)?;
        Ok(rate / 1e3)
    }

    /// Frames that the receiver has got.
    fn arrived(&self, way: Way) -> io::Result<f64> {
        if way == Way::Guests {
            let said = self.guests[1].ok("cat /sys/class/net/eth0/statistics/rx_packets");
            return Ok(said.map_err(io::Error::other)?.trim().parse().unwrap_or(0.0));
        }
        let table = netns::inside(&self.namespace, || fs::read_to_string("/proc/thread-self/net/dev"))?;
        let line = table.lines().find_map(|line| line.trim().strip_prefix(self.device)?.strip_prefix(':'));
        // Bytes and frames received are the first columns.
        let frames = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        frames.ok_or_else(|| io::Error::other(format!("no {} in {table}", self.device)))
    }

    /// The host's hardware address.
    fn host_address(&self) -> io::Result<String> {
        let said = run(&mut self.on_host(&["ip", "-o", "link", "show", "dev", self.device]))?;
        let address = said.split_whitespace().skip_while(|word| *word != "link/ether").nth(1).map(str::to_owned);
        address.ok_or_else(|| io::Error::other(format!("no address in {said}")))
    }

    fn on_host(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", netns::path(&self.namespace).display())).args(words).stdin(Stdio::null());
        command
    }

    fn host_sockets(&self, words: &[&str]) -> Command {
        let mut command = self.on_host(&[]);
        command.arg(&self.sockets).args(words);
        command
    }

    /// Reads frames and interrupts of the guests that take part, and the devices' counts.
    fn read(&self, way: Way) -> io::Result<Reading> {
        let parts = if way == Way::Guests { &self.guests[..] } else { &self.guests[..1] };
        let mut reading = Reading::default();
        for guest in parts {
            let command = format!("cd /sys/class/net/eth0/statistics; cat rx_packets tx_packets; {INTERRUPTS}");
            let said = guest.ok(&command).map_err(io::Error::other)?;
            let numbers: Option<Vec<f64>> = said.split_whitespace().map(|word| word.parse().ok()).collect();
            let Some(&[received, sent, interrupts]) = numbers.as_deref() else {
                return Err(io::Error::other(format!("the guest counts {said:?}")));
            };
            reading.frames += received + sent;
            reading.interrupts += interrupts;
        }
        if let Some(daemon) = &self.daemon {
            reading.accesses = accesses(&daemon.status()?);
        }
        Ok(reading)
    }
}

/// Where `sockets` sends to.
fn to(way: Way) -> Ipv4Addr {
    match way {
        Way::ToHost => HOST,
        Way::FromHost => GUESTS[0],
        Way::Guests => GUESTS[1],
    }
}

fn set_segments(guest: &Guest, left: bool) -> Result<(), Error> {
    guest.ok(&format!("ethtool -K eth0 tso {}", if left { "on" } else { "off" })).map(drop)
}

/// Runs a program of the host to its end. Returns what it wrote.
fn run(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// Counts of one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    frames: f64,
    interrupts: f64,
    accesses: Option<[f64; 3]>,
}

/// Returns tail writes, accesses and messages of all e1000 ports; `None` without such ports.
fn accesses(status: &Value) -> Option<[f64; 3]> {
    let ports = status["ports"].as_array()?.iter().map(|port| &port["e1000"]).filter(|port| port.is_object());
    let numbers = ports.map(|port| {
        let number = |key: &str| port[key].as_f64().unwrap_or(0.0);
        [number("tail_writes"), number("register_reads") + number("register_writes"), number("messages")]
    });
    numbers.reduce(|sum, one| [0, 1, 2].map(|index| sum[index] + one[index]))
}

fn per_frame(before: &Reading, after: &Reading) -> PerFrame {
    let frames = (after.frames - before.frames).max(1.0);
    let accesses = before.accesses.zip(after.accesses);
    PerFrame {
        interrupts: (after.interrupts - before.interrupts) / frames,
        accesses: accesses.map(|(b, a)| [0, 1, 2].map(|index| (a[index] - b[index]) / frames)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_ports_count_is_shared_out_among_the_frames() {
        let port = |tails: u32| json!({ "e1000": { "tail_writes": tails, "register_reads": 1, "register_writes": 2 * tails, "messages": 50 } });
        let status = json!({ "ports": [port(10), { "e1000": null }, port(30)] });
        assert_eq!(accesses(&status), Some([40.0, 82.0, 100.0]));
        assert_eq!(accesses(&json!({ "ports": [{}] })), None);
        let before = Reading::default();
        let after = Reading { frames: 200.0, interrupts: 2.0, accesses: accesses(&status) };
        let shared = per_frame(&before, &Reading { accesses: None, ..after });
        assert_eq!((shared.interrupts, shared.accesses), (0.01, None));
        let shared = per_frame(&Reading { accesses: Some([0.0; 3]), ..before }, &after);
        assert_eq!(shared.accesses, Some([0.2, 0.41, 0.5]));
    }
}
