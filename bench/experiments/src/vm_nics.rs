//! The common part of the experiments with guests' NICs of several models: one guest, and a thread of this program at the other
//! port of its switch.
//!
//! Nothing is pinned, as in [`vm`](crate::vm). Guests and switches are stopped while others are measured.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringway_guests::{Builder, Error, Guest, Nic};
use ringway_traffic::{Endpoint, Mac, ProcessEndpoint, Tap};
use serde_json::{Value, json};

use crate::daemon::{Daemon, LONG, Settings};
use crate::network::Network as _;
use crate::patience::PATIENCE;
use crate::peers::vm_bridge::VmBridge;
use crate::placement::{Cores, unpin};
use crate::session::Session;
use crate::vm_switch::VmSwitch as _;

/// Address that guests' frames go to.
pub(crate) const SINK: u32 = 7;
/// Address of a guest whose NIC has none of its own.
const ADDRESS: &str = "52:54:00:77:00:01";
/// Interval at which waits for the guest look again.
const NAP: Duration = Duration::from_millis(50);
/// Interval at which the thread at the other port takes frames. If each frame woke the thread, it would take a tenth of the guest's
/// processor, and more the sooner frames come.
const TAKE_EVERY: Duration = Duration::from_micros(500);
/// Time for which frames flow before they count.
const WARM_UP: Duration = Duration::from_millis(300);

/// Shell command by which a guest counts the interrupts of every CPU, of all lines of eth0 or its virtio device.
pub(crate) const INTERRUPTS: &str = "awk -v device=$(basename $(readlink /sys/class/net/eth0/device)) \
    '$0 ~ \"eth0|\" device { for (i = 2; i <= NF; i++) if ($i ~ /^[0-9]+$/) sum += $i; else break } END { print sum + 0 }' \
    /proc/interrupts";
/// Shell command that directs these interrupts to the processor that sends ([`Station::transmit`]). Linux by itself chooses by the
/// numbers of the lines: with two processors, interrupts of Ringway's e1000 went to the other one, and those of QEMU's did not.
const TAKE_INTERRUPTS: &str = "for line in $(awk -v device=$(basename $(readlink /sys/class/net/eth0/device)) \
    '$0 ~ \"eth0|\" device { print int($1) }' /proc/interrupts); do echo 1 >/proc/irq/$line/smp_affinity || exit 1; done";

/// Model of a guest's NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An 82540EM of Ringway's with the driver of the guest's kernel.
    E1000,
    /// An 82540EM of Ringway's with our own driver (`guest/linux`), and parameters of that.
    Own(&'static str),
    /// An 82574L of Ringway's with mapped ring registers.
    Mapped,
    /// An 82574L of Ringway's. Every register access is a message.
    Trapped,
    /// virtio-net on a vhost-user port of Ringway's, with options of QEMU's.
    Vhost(&'static str),
    /// virtio-net on a vhost-user port of Ringway's with at most as many calls as a moderated e1000 has interrupts.
    VhostModerated,
    /// A model of QEMU's, with options, on TAP and a Linux bridge.
    Qemu(&'static str, &'static str),
    /// QEMU's 82540EM with our own driver, and parameters of that, on TAP and a Linux bridge.
    OwnOnQemu(&'static str),
}

/// Our own driver with the status block.
pub const BLOCK: Kind = Kind::Own("csb=auto");
/// Our own driver with registers: without send combining, with it, and above a rate of frames.
pub const REGISTERS: Kind = Kind::Own("csb=off combine=off");
pub const COMBINING: Kind = Kind::Own("csb=off combine=on");
pub const AUTO: Kind = Kind::Own("csb=off combine=auto");
/// Our own driver with send combining on a device that knows nothing of it.
pub const COMBINING_ON_QEMU: Kind = Kind::OwnOnQemu("combine=on");
/// virtio-net on a vhost-user port.
pub const VIRTIO: Kind = Kind::Vhost("");
/// QEMU's own NICs.
pub const QEMU_E1000: Kind = Kind::Qemu("e1000", "");
pub const QEMU_VIRTIO: Kind = Kind::Qemu("virtio-net-pci", "");

impl Kind {
    /// Name of the driver, if it moderates interrupts by a register.
    fn module(self) -> Option<&'static str> {
        match self {
            Kind::E1000 => Some("e1000"),
            Kind::Mapped | Kind::Trapped => Some("e1000e"),
            Kind::Qemu(model, _) => Some(model).filter(|model| model.starts_with("e1000")),
            Kind::Own(_) | Kind::OwnOnQemu(_) | Kind::Vhost(_) | Kind::VhostModerated => None,
        }
    }

    /// Returns true if the guest has our own driver.
    #[must_use]
    pub fn is_own(self) -> bool {
        matches!(self, Kind::Own(_) | Kind::OwnOnQemu(_))
    }

    /// QEMU's model, if the NIC is one of QEMU's.
    pub(crate) fn model(self) -> Option<&'static str> {
        match self {
            Kind::Qemu(model, _) => Some(model),
            Kind::OwnOnQemu(_) => Some("e1000"),
            _ => None,
        }
    }

    /// Gives a guest the driver.
    pub(crate) fn drivers(self, guest: Builder) -> Builder {
        match self {
            Kind::Own(parameters) => guest.own_driver(parameters),
            Kind::OwnOnQemu(parameters) => guest.own_driver_for_all(parameters),
            _ => guest,
        }
    }

    /// Limits the interrupts per second of a guest; 0 sets no limit, and `None` leaves it to the driver. Returns true if it has loaded a
    /// driver anew, so that eth0 is down and has no address.
    pub(crate) fn set_throttle(self, guest: &Guest, most: Option<u32>) -> Result<bool, Error> {
        if self.is_own() {
            let how = most.map_or(String::from("on"), |most| format!("off rx-usecs {}", interval(most)));
            return guest.ok(&format!("ethtool -C eth0 adaptive-rx {how}")).map(|_| false);
        }
        let Some(module) = self.module() else { return Ok(false) };
        // The driver's own delays would blur the effect of the interval (Maffione, section 3.2).
        let delays = "TxIntDelay=0 TxAbsIntDelay=0 RxIntDelay=0 RxAbsIntDelay=0";
        let options = most.map_or(String::new(), |most| format!("InterruptThrottleRate={most} {delays}"));
        guest.ok(&format!("rmmod {module}; insmod /modules/{module}.ko {options}")).map(|_| true)
    }

    /// Value of the device's key that goes with such a limit: its own moderation follows the driver's.
    pub(crate) fn delay(most: Option<u32>) -> &'static str {
        if most == Some(0) { "completion_delay=0s" } else { "completion_delay=2ms" }
    }

    /// Settings of a daemon whose guests have such NICs, at most two; `None`: it is one of QEMU's.
    pub(crate) fn settings(self, usual: Settings, guests: usize) -> Option<Settings> {
        let usual = Settings { core: None, idle: "adaptive", e1000: self.keys(), ..usual };
        match self {
            Kind::Vhost(_) => Some(Settings { vhost_user: guests, ..usual }),
            Kind::VhostModerated => {
                let keys = vec![String::from("call_interval = \"250us\""); guests];
                Some(Settings { vhost_user: guests, keys, ..usual })
            }
            _ => self.keys().map(|_| usual),
        }
    }

    /// Sets the options of its NIC.
    pub(crate) fn options(self, nic: Nic) -> Nic {
        match self {
            Kind::Vhost(options) | Kind::Qemu(_, options) if !options.is_empty() => nic.option(options),
            _ => nic,
        }
    }

    fn keys(self) -> Option<&'static str> {
        match self {
            Kind::E1000 => Some("csb = false"),
            Kind::Own(_) => Some("csb = true"),
            Kind::Mapped => Some("model = \"e1000e\"\nregisters = \"mapped\""),
            Kind::Trapped => Some("model = \"e1000e\"\nregisters = \"trapped\""),
            _ => None,
        }
    }
}

/// The port of a switch that this program serves.
pub(crate) enum FarEnd {
    Process(ProcessEndpoint),
    Tap(Tap),
}

/// A guest on a switch.
pub struct Station {
    // The guest is dropped before its switch.
    pub(crate) guest: Guest,
    pub(crate) far: FarEnd,
    pub(crate) daemon: Option<Daemon>,
    kind: Kind,
    /// Most interrupts per second that the driver was last set to; `None`: what it does by itself.
    throttle: Option<u32>,
    /// The guest's address.
    pub(crate) mac: Mac,
    pub(crate) cores: Cores,
}

/// Guests that several contestants use by turns.
pub type Shared = Rc<RefCell<Station>>;

/// Rates in a window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Frames that arrived, per second.
    pub frames: f64,
    /// Interrupts, per second, as the guest counts them.
    pub interrupts: f64,
    /// Register accesses by message, if the device counts them.
    pub accesses: Option<Accesses>,
}

/// Register accesses per second that left the guest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Accesses {
    /// Registers read.
    pub reads: f64,
    /// Registers written.
    pub writes: f64,
    /// Writes of ring tails among them.
    pub tails: f64,
    /// Messages for all accesses.
    pub messages: f64,
}

impl Station {
    /// Boots a guest with `cpus` processors for one of these curves. The guest is stopped when this returns.
    ///
    /// # Errors
    /// The run measures none of the curves, the switch cannot be started, or something that guests need is missing. The message
    /// names it.
    pub fn boot(session: &Session, curves: &[&str], kind: Kind, cpus: usize) -> io::Result<Shared> {
        Station::boot_with(session, curves, kind, cpus, &[])
    }

    /// As [`Station::boot`], with further arguments of QEMU.
    ///
    /// # Errors
    /// As of [`Station::boot`].
    pub fn boot_with(
        session: &Session,
        curves: &[&str],
        kind: Kind,
        cpus: usize,
        arguments: &[String],
    ) -> io::Result<Shared> {
        if !curves.iter().any(|series| session.options.wants(series)) {
            return Err(io::Error::other("not asked for"));
        }
        let cores = session.cores;
        unpin(cores)?;
        let (mut daemon, mut end, mut kept) = (None, None, None);
        let nic = if let Some(model) = kind.model() {
            let (bridge, tap) = VmBridge::with_end()?;
            end = Some(tap);
            kept.insert(bridge.model(model)).nic(0, ADDRESS)?
        } else {
            let usual = Settings { shape: LONG, ..session.settings() };
            let settings = kind.settings(usual, 1).ok_or_else(|| io::Error::other("no switch"))?;
            daemon.insert(Daemon::start(cores, &settings)?).nic(0, ADDRESS)?
        };
        let builder = Guest::builder("nic").cpus(cpus as u16).nic(kind.options(nic)).vfio_user_qemu();
        let builder = arguments.iter().fold(builder, Builder::arg);
        let guest = kind.drivers(builder).start().map_err(io::Error::other)?;
        // QEMU has inherited its device.
        drop(kept);
        let far = match (&mut daemon, end) {
            (Some(daemon), _) => FarEnd::Process(daemon.attach(1)?.pop().ok_or_else(|| io::Error::other("no port"))?),
            (None, Some(tap)) => FarEnd::Tap(tap),
            (None, None) => return Err(io::Error::other("no switch")),
        };
        let mut station = Station { guest, far, daemon, kind, throttle: None, mac: Mac::local(0), cores };
        station.prepare().map_err(io::Error::other)?;
        station.hold()?;
        Ok(Rc::new(RefCell::new(station)))
    }

    fn prepare(&mut self) -> Result<(), Error> {
        let guest = &self.guest;
        guest.ok("for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$f; done")?;
        guest.ok("insmod /modules/pktgen.ko")?;
        connect(guest)?;
        let mac = self.guest.ok("cat /sys/class/net/eth0/address")?;
        self.mac = mac.trim().parse().map_err(|_| Error::Altered { guest: "eth0".to_owned(), what: mac })?;
        Ok(())
    }

    /// Limits the interrupts per second; 0 sets no limit, and `None` leaves it to the driver. Loads a driver of the kernel anew.
    ///
    /// # Errors
    /// The guest does not run the command.
    pub fn set_throttle(&mut self, most: Option<u32>) -> io::Result<()> {
        if self.throttle == most {
            return Ok(());
        }
        if self.kind.set_throttle(&self.guest, most).map_err(io::Error::other)? {
            connect(&self.guest).map_err(io::Error::other)?;
        }
        if let Some(daemon) = &self.daemon {
            daemon.set_nics(Kind::delay(most))?;
        }
        self.throttle = most;
        Ok(())
    }

    /// Lets the guest and the switch go on.
    pub fn resume(&mut self) -> io::Result<()> {
        if let Some(daemon) = &mut self.daemon {
            crate::network::Network::resume(daemon)?;
        }
        self.guest.qmp("cont", json!({})).map_err(io::Error::other).map(drop)
    }

    /// Stops the guest and the switch.
    pub fn hold(&mut self) -> io::Result<()> {
        // The guest's clock stops, too: in guests whose time leapt by some seconds, pktgen began ten seconds late.
        self.guest.qmp("stop", json!({})).map_err(io::Error::other)?;
        match &mut self.daemon {
            Some(daemon) => crate::network::Network::hold(daemon),
            None => Ok(()),
        }
    }

    /// The guest's kernel sends frames of `size` bytes, one at a time and as many as it can, for `span`.
    pub fn transmit(&mut self, size: usize, span: Duration) -> io::Result<Counted> {
        unpin(self.cores)?;
        let sink = Mac::local(SINK);
        let setup = format!(
            "cd /proc/net/pktgen; [ -e eth0 ] || echo add_device eth0 >kpktgend_0; echo pkt_size {size} >eth0; \
             echo count 0 >eth0; echo dst_mac {sink} >eth0; (echo start >pgctrl &)"
        );
        let Station { guest, far, daemon, .. } = self;
        guest.ok(&setup).map_err(io::Error::other)?;
        let (over, arrived) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let (over, arrived) = (&over, &arrived);
            let ends = scope.spawn(move || match far {
                FarEnd::Process(port) => drain(port, arrived, over),
                FarEnd::Tap(tap) => drain(tap, arrived, over),
            });
            let counted = watched(guest, daemon.as_ref(), arrived, span);
            let stopped = guest.ok("echo stop >/proc/net/pktgen/pgctrl").map_err(io::Error::other);
            over.store(true, Ordering::Relaxed);
            ends.join().map_err(|_| io::Error::other("the receiving thread panicked"))??;
            stopped?;
            counted
        })
    }
}

/// Waits for the link, and directs interrupts to the same processor in all guests.
pub(crate) fn connect(guest: &Guest) -> Result<(), Error> {
    guest.until("[ -e /sys/class/net/eth0 ]", PATIENCE)?;
    guest.ok("ip link set eth0 up")?;
    guest.until("[ $(cat /sys/class/net/eth0/carrier) = 1 ]", PATIENCE)?;
    guest.ok(&format!("({TAKE_INTERRUPTS})")).map(drop)
}

/// Returns the least time between two interrupts, in microseconds, for at most `most` interrupts per second.
fn interval(most: u32) -> u32 {
    1_000_000_u32.checked_div(most).unwrap_or(0)
}

/// Takes and counts frames at intervals, until the window is over.
fn drain<E: Endpoint>(port: &mut E, arrived: &AtomicU64, over: &AtomicBool) -> io::Result<()> {
    while !over.load(Ordering::Relaxed) {
        thread::sleep(TAKE_EVERY);
        arrived.fetch_add(port.rx_batch(LONG.rx_slots as usize, |_| ()) as u64, Ordering::Relaxed);
    }
    // An error of the device ends the thread with its message.
    port.wait(true, Duration::ZERO)
}

/// Readings of one moment.
struct Reading {
    at: Instant,
    frames: f64,
    interrupts: f64,
    accesses: Option<[f64; 4]>,
}

/// Reads the frames, the guest's count of eth0's interrupts, and the device's counts of accesses.
fn read(guest: &Guest, daemon: Option<&Daemon>, arrived: &AtomicU64) -> io::Result<Reading> {
    let accesses = daemon.map(|daemon| daemon.status()).transpose()?.as_ref().and_then(accesses);
    let interrupts = guest.ok(INTERRUPTS).map_err(io::Error::other)?.trim().parse().unwrap_or(0.0);
    let frames = arrived.load(Ordering::Relaxed) as f64;
    Ok(Reading { at: Instant::now(), frames, interrupts, accesses })
}

/// Returns reads, writes, tail writes and messages of the first e1000 port.
pub(crate) fn accesses(status: &Value) -> Option<[f64; 4]> {
    let port = status["ports"].as_array()?.iter().find(|port| port["e1000"].is_object())?;
    let number = |key: &str| port["e1000"][key].as_f64();
    Some([number("register_reads")?, number("register_writes")?, number("tail_writes")?, number("messages")?])
}

impl Accesses {
    /// Rates between two readings `seconds` apart.
    pub(crate) fn between(before: [f64; 4], after: [f64; 4], seconds: f64) -> Accesses {
        let [reads, writes, tails, messages] = [0, 1, 2, 3].map(|index| (after[index] - before[index]) / seconds);
        Accesses { reads, writes, tails, messages }
    }
}

/// Returns the rates in `span`, after a warm-up.
fn watched(guest: &Guest, daemon: Option<&Daemon>, arrived: &AtomicU64, span: Duration) -> io::Result<Counted> {
    // A guest of one processor may take seconds until its kernel begins.
    let (begun, had) = (Instant::now(), arrived.load(Ordering::Relaxed));
    while arrived.load(Ordering::Relaxed) == had && begun.elapsed() < PATIENCE {
        thread::sleep(NAP);
    }
    thread::sleep(WARM_UP.min(span));
    let before = read(guest, daemon, arrived)?;
    thread::sleep(span);
    let after = read(guest, daemon, arrived)?;
    let seconds = (after.at - before.at).as_secs_f64();
    let accesses = before.accesses.zip(after.accesses).map(|(b, a)| Accesses::between(b, a, seconds));
    let frames = (after.frames - before.frames) / seconds;
    if frames <= 0.0 {
        return Err(io::Error::other("no frame got through"));
    }
    Ok(Counted { frames, interrupts: (after.interrupts - before.interrupts) / seconds, accesses })
}
