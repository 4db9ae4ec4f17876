//! The common part of the experiments with guests: two small virtual machines on a switch, with iperf3 between them.
//!
//! Nothing is pinned: guests, QEMU and the switch share the cores as they do for a user without cores to spare. Guests are stopped
//! while other contestants are measured.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ringway_guests::{Error, Guest, bulk};
use serde_json::Value;

use crate::daemon::Daemon;
use crate::peers::vm_bridge::VmBridge;
use crate::placement::{Cores, unpin};
use crate::trial::Contestant;
use crate::vm_switch::{KeyedSwitch, VmSwitch};

/// Addresses of the guests.
const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
/// Factor by which windows are longer than those of other experiments: iperf3 counts whole seconds.
const STRETCH: u32 = 25;

/// Approximate number of frames per second that pktgen in a guest sends.
const PKTGEN_RATE: f64 = 150_000.0;
/// Approximate number of pings per second that a guest has answered.
const PING_RATE: f64 = 1000.0;

/// Two guests on a switch. Several contestants use them by turns.
pub struct Machines<S: VmSwitch> {
    // Guests are dropped before their switch.
    guests: [Guest; 2],
    switch: S,
    segments: Option<bool>,
}

/// Guests that several contestants use by turns.
pub type Shared<S> = Rc<RefCell<Machines<S>>>;

/// Guests that are booting.
pub struct Booting<S: VmSwitch>(Machines<S>);

impl<S: VmSwitch> Booting<S> {
    /// Starts two guests, which boot while the caller goes on.
    ///
    /// # Errors
    /// The switch did not start, or something that guests need is missing. The message names it.
    pub fn start(switch: io::Result<S>, cores: Cores) -> io::Result<Booting<S>> {
        let switch = switch?;
        unpin(cores)?;
        let guest = |number: usize| {
            let nic = switch.nic(number, &format!("52:54:00:77:00:0{}", number + 1))?;
            let builder = Guest::builder(&format!("vm{number}")).nic(nic);
            let builder = if switch.has_vfio_user_qemu() { builder.vfio_user_qemu() } else { builder };
            builder.start().map_err(io::Error::other)
        };
        let guests = [guest(0)?, guest(1)?];
        Ok(Booting(Machines { guests, switch, segments: None }))
    }

    /// Waits for the guests and gives them addresses. They are stopped when this returns.
    ///
    /// # Errors
    /// They do not boot, or do not reach each other.
    pub fn ready(self) -> io::Result<Shared<S>> {
        let mut machines = self.0;
        machines.introduce().map_err(io::Error::other)?;
        machines.hold()?;
        Ok(Rc::new(RefCell::new(machines)))
    }
}

impl<S: VmSwitch> Machines<S> {
    fn introduce(&mut self) -> Result<(), Error> {
        for (guest, address) in self.guests.iter().zip(ADDRESSES) {
            // Without IPv6 a guest sends nothing by itself.
            guest.ok("for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$f; done")?;
            guest.ok(&format!("ip link set eth0 up; ip addr add {address}/24 dev eth0"))?;
            bulk::serve(guest)?;
        }
        self.guests[0].ok(&format!("ping -c 1 -w 10 {}", ADDRESSES[1])).map(drop)
    }

    /// The switch.
    pub fn switch(&self) -> &S {
        &self.switch
    }

    /// Returns the interrupts of the guests' NICs and the bytes that the guests received, so far.
    ///
    /// # Errors
    /// A guest does not answer.
    pub fn taken(&self) -> io::Result<Taken> {
        let mut taken = Taken::default();
        for guest in &self.guests {
            let text = guest.ok(TAKEN).map_err(io::Error::other)?;
            let mut lines = text.lines();
            taken.bytes += lines.next().and_then(|line| line.trim().parse().ok()).unwrap_or(0.0);
            // Of a line of /proc/interrupts: its number, the count of the guest's only processor, and its names.
            let counts = lines.filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<f64>().ok());
            taken.interrupts += counts.sum::<f64>();
        }
        Ok(taken)
    }

    fn hold(&mut self) -> io::Result<()> {
        self.guests.iter().for_each(Guest::freeze);
        self.switch.hold()
    }

    fn resume(&mut self) -> io::Result<()> {
        self.switch.resume()?;
        self.guests.iter().for_each(Guest::thaw);
        Ok(())
    }

    /// Switches TCP segmentation offload on or off.
    fn set_segments(&mut self, left: bool) -> Result<(), Error> {
        if self.segments != Some(left) {
            let to = if left { "on" } else { "off" };
            for guest in &self.guests {
                guest.ok(&format!("ethtool -K eth0 tso {to}"))?;
            }
            self.segments = Some(left);
        }
        Ok(())
    }

    /// Returns the frames per second that arrive while the kernel of guest number `from` sends as many as it can.
    fn pktgen(&self, from: usize, span: Duration) -> Result<f64, Error> {
        let (from, to) = (&self.guests[from], &self.guests[1 - from]);
        let target = to.ok("cat /sys/class/net/eth0/address")?;
        let frames = ((span * STRETCH).as_secs_f64() * PKTGEN_RATE) as u64;
        from.ok(&format!("{PKTGEN}; echo count {frames} >eth0; echo dst_mac {} >eth0", target.trim()))?;
        let received = || -> Result<f64, Error> {
            Ok(to.ok("cat /sys/class/net/eth0/statistics/rx_packets")?.trim().parse().unwrap_or(0.0))
        };
        let (start, before) = (Instant::now(), received()?);
        from.ok("echo start >/proc/net/pktgen/pgctrl")?;
        Ok((received()? - before) / start.elapsed().as_secs_f64())
    }

    /// Returns the pings per second of guest number `from` that are answered, one under way at a time.
    fn ping_pong(&self, from: usize, span: Duration) -> Result<f64, Error> {
        let pings = ((span * STRETCH).as_secs_f64() * PING_RATE) as u64 + 10;
        let start = Instant::now();
        self.guests[from].ok(&format!("ping -A -q -c {pings} {}", ADDRESSES[1 - from]))?;
        Ok(pings as f64 / start.elapsed().as_secs_f64())
    }

    /// Runs iperf3 from guest number `from` to the other.
    fn iperf3(&self, from: usize, span: Duration, arguments: &str) -> Result<Value, Error> {
        let seconds = (span * STRETCH).as_secs().max(1);
        bulk::iperf3(&self.guests[from], ADDRESSES[1 - from], &format!("-t {seconds} {arguments}"))
    }
}

/// What guests took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taken {
    /// Interrupts of their NICs.
    pub interrupts: f64,
    /// Bytes of frames.
    pub bytes: f64,
}

/// Tells what a guest took.
const TAKEN: &str = "cat /sys/class/net/eth0/statistics/rx_bytes; \
                     grep -E \"$(basename $(readlink /sys/class/net/eth0/device))(-|$)\" /proc/interrupts";

/// Makes pktgen ready, once (Linux, Documentation/networking/pktgen.rst).
const PKTGEN: &str = "[ -e /proc/net/pktgen ] || insmod /modules/pktgen.ko; cd /proc/net/pktgen; \
                      [ -e eth0 ] || echo add_device eth0 >kpktgend_0; echo pkt_size 60 >eth0; echo burst 32 >eth0";

/// What a contestant measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// TCP one way, in Gbit/s.
    Tcp {
        /// True if the guests leave segmentation to the device.
        segments: bool,
    },
    /// TCP both ways at once, in Gbit/s, the sum of both.
    TcpBothWays,
    /// TCP one way, in Gbit/s, with writes of 1,460 bytes instead of the program's usual 128 KiB.
    TcpShortWrites,
    /// UDP datagrams from a program, as many as it can send: thousands per second that arrive.
    Udp {
        /// Bytes of data; 18 make frames of 60 bytes.
        data: usize,
    },
    /// Frames of 60 bytes from the guest's kernel (pktgen): thousands per second that arrive.
    Pktgen,
    /// One ping after the other, each when the answer to the last came: thousands per second.
    PingPong,
}

/// Traffic between two guests, in both directions by turns.
pub struct Stream<S: VmSwitch> {
    machines: Shared<S>,
    traffic: Traffic,
    /// Number of the guest that sends next. Each contestant has its own: those that share guests measure both directions, too.
    from: usize,
}

impl<S: VmSwitch> Stream<S> {
    /// Makes traffic between these guests.
    pub fn new(machines: Shared<S>, traffic: Traffic) -> Stream<S> {
        Stream { machines, traffic, from: 0 }
    }
}

impl<S: VmSwitch> Contestant for Stream<S> {
    fn resume(&mut self) -> io::Result<()> {
        self.machines.borrow_mut().resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.machines.borrow_mut().hold()
    }

    fn needs_its_core(&self) -> bool {
        false
    }

    fn depends_on_distance(&self) -> bool {
        false
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        let mut machines = self.machines.borrow_mut();
        let from = self.from;
        self.from = 1 - from;
        let mut iperf3 = |segments, arguments: &str| {
            machines.set_segments(segments)?;
            machines.iperf3(from, span, arguments)
        };
        let report = match self.traffic {
            Traffic::Tcp { segments } => iperf3(segments, ""),
            Traffic::TcpBothWays => iperf3(true, "--bidir"),
            Traffic::TcpShortWrites => iperf3(true, "-l 1460"),
            Traffic::Udp { data } => iperf3(true, &format!("-u -b 0 -l {data}")),
            Traffic::Pktgen => return Ok(machines.pktgen(from, span).map_err(io::Error::other)? / 1e3),
            Traffic::PingPong => return Ok(machines.ping_pong(from, span).map_err(io::Error::other)? / 1e3),
        };
        let end = report.map_err(io::Error::other)?["end"].take();
        let rate = |sum: &str| end[sum]["bits_per_second"].as_f64().map(|rate| rate / 1e9);
        let figure = match self.traffic {
            Traffic::Tcp { .. } | Traffic::TcpShortWrites => rate("sum_received"),
            Traffic::TcpBothWays => rate("sum_received").zip(rate("sum_received_bidir_reverse")).map(|(a, b)| a + b),
            Traffic::Udp { .. } | Traffic::Pktgen | Traffic::PingPong => arrived(&end["sum"]).map(|rate| rate / 1e3),
        };
        figure.ok_or_else(|| io::Error::other(format!("iperf3 gives no rate: {end}")))
    }
}

/// Traffic between two guests of Ringway's, whose ports have a key.
pub struct Keyed<S: KeyedSwitch> {
    /// The traffic.
    pub stream: Stream<S>,
    /// The key and its value, as `ringway port set` takes them.
    pub key: String,
}

impl<S: KeyedSwitch> Contestant for Keyed<S> {
    fn resume(&mut self) -> io::Result<()> {
        self.stream.resume()?;
        self.stream.machines.borrow().switch().set_ports(&self.key)
    }

    fn hold(&mut self) -> io::Result<()> {
        self.stream.hold()
    }

    fn needs_its_core(&self) -> bool {
        self.stream.needs_its_core()
    }

    fn depends_on_distance(&self) -> bool {
        self.stream.depends_on_distance()
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        self.stream.window(span)
    }
}

/// Packets per second that arrived.
fn arrived(sum: &Value) -> Option<f64> {
    let number = |key: &str| sum[key].as_f64();
    Some((number("packets")? - number("lost_packets")?) / number("seconds")?)
}

/// Share of its time that the poller is busy while the guests are silent, in percent.
pub struct IdlePoller {
    /// The guests.
    pub machines: Shared<Daemon>,
}

impl Contestant for IdlePoller {
    fn resume(&mut self) -> io::Result<()> {
        self.machines.borrow_mut().resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.machines.borrow_mut().hold()
    }

    fn depends_on_distance(&self) -> bool {
        false
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        let machines = self.machines.borrow();
        let times = || machines.switch().times();
        let (busy, all) = times()?;
        std::thread::sleep(span * STRETCH);
        let (busy_then, all_then) = times()?;
        Ok((busy_then - busy) / (all_then - all) * 100.0)
    }
}

/// Ringway and QEMU's own way.
pub struct Switches<S: VmSwitch> {
    /// One daemon, or several.
    pub ringway: io::Result<Shared<S>>,
    /// TAP devices on Linux bridges.
    pub bridge: io::Result<Shared<VmBridge>>,
}

impl<S: VmSwitch> Switches<S> {
    /// Boots the guests of both switches at once.
    #[must_use]
    pub fn start(ringway: io::Result<S>, bridge: io::Result<VmBridge>, cores: Cores) -> Switches<S> {
        let (ours, theirs) = (Booting::start(ringway, cores), Booting::start(bridge, cores));
        Switches { ringway: ours.and_then(Booting::ready), bridge: theirs.and_then(Booting::ready) }
    }
}
