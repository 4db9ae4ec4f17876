//! The port of a run.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringway_client::{AttachError, MAX_SLOTS, Port, Shape};
use ringway_control::api::types::PortStatus;
use ringway_control::config::{Name, units};
use ringway_control::runtime_dir::ATTACH_SOCKET;
use ringway_traffic::{E1000Options, Endpoint, MAX_RING, Mac, Patience, ProcessEndpoint, VirtioOptions};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::Trouble;
use super::attached::{AnyPort, Attached};
use super::e1000::E1000Args;
use super::virtio::VirtioArgs;
use crate::commands::Context;

/// Most slots that one frame may take.
const SLOTS_PER_FRAME: usize = 64;

/// Longest wait until the switch has taken the last frames.
const SETTLE: Duration = Duration::from_secs(1);

/// Options of every form of `gen` for its port.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Port options")]
pub struct PortArgs {
    /// Slots of each ring: 4 to 32768; descriptors, a power of two, of a driver [default: 512, of a driver 256]
    #[arg(long, value_name = "N", visible_alias = "ring")]
    slots: Option<u32>,
    /// Bytes of each buffer, a multiple of 64; with --e1000 a power of two [default: 2112, with --vhost-user 2304, with --e1000
    /// 2048]
    #[arg(long, value_name = "BYTES")]
    buffer_size: Option<u32>,
    /// Stay on this CPU
    #[arg(long, value_name = "CPU")]
    core: Option<usize>,
    /// Poll instead of sleeping while there is nothing to do
    #[arg(long)]
    spin: bool,
    /// JSON, for programs
    #[arg(long, help_heading = None)]
    pub json: bool,
    #[command(flatten)]
    pub virtio: VirtioArgs,
    #[command(flatten)]
    pub e1000: E1000Args,
}

/// A port or a socket on the command line.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// `SWITCH:PORT`.
    Port(&'a str),
    /// The socket of a vhost-user back end.
    VhostUser(&'a Path),
    /// The socket of a vfio-user server.
    E1000(&'a Path),
}

impl Target<'_> {
    /// Its name as written on the command line.
    pub fn name(&self) -> String {
        match self {
            Target::Port(name) => (*name).to_owned(),
            Target::VhostUser(path) | Target::E1000(path) => path.display().to_string(),
        }
    }
}

impl PortArgs {
    /// How to wait.
    pub fn patience(&self) -> Patience {
        if self.spin { Patience::Spin } else { Patience::Wait }
    }

    /// The one port or socket that was named.
    pub fn target<'a>(&'a self, port: Option<&'a str>) -> Result<Target<'a>, Trouble> {
        match self.targets(port.into_iter())[..] {
            [target] => Ok(target),
            _ => Err(Trouble::Usage("give one SWITCH:PORT, or one --vhost-user or --e1000 SOCKET".to_owned())),
        }
    }

    /// All that were named, ports first.
    pub fn targets<'a>(&'a self, ports: impl Iterator<Item = &'a str>) -> Vec<Target<'a>> {
        let vhost_user = self.virtio.vhost_user.iter().map(|path| Target::VhostUser(path));
        let e1000 = self.e1000.e1000.iter().map(|path| Target::E1000(path));
        ports.map(Target::Port).chain(vhost_user).chain(e1000).collect()
    }

    /// Attaches, and moves this thread to its CPU.
    pub fn attach(&self, target: Target<'_>, context: &Context) -> Result<AnyPort, Trouble> {
        self.attach_with(target, context, self.ring_of(target))
    }

    /// Attaches a port to which this thread also sends from `sender`, and moves this thread to its CPU. Its receive ring is twice as
    /// long as `sender`'s transmit ring: the frames that one turn of the thread can have under way. So no frame is lost while the
    /// thread has to wait for its CPU.
    pub fn attach_lossless(
        &self,
        target: Target<'_>,
        sender: Target<'_>,
        context: &Context,
    ) -> Result<AnyPort, Trouble> {
        self.attach_with(target, context, self.ring_of(sender).saturating_mul(2))
    }

    fn attach_with(&self, target: Target<'_>, context: &Context, rx_ring: u32) -> Result<AnyPort, Trouble> {
        self.core.map_or(Ok(()), stay_on)?;
        let ring = self.ring_of(target);
        match target {
            Target::Port(name) => {
                let rx_slots = rx_ring.min(MAX_SLOTS.max(ring));
                attach(name, context, Shape { rx_slots, ..self.shape() }).map(AnyPort::Process)
            }
            Target::VhostUser(path) => {
                let rx_ring = rx_ring.min(MAX_RING.max(ring));
                self.virtio.attach(path, ring, rx_ring, self.buffer_of(target))
            }
            Target::E1000(path) => {
                let rx_ring = rx_ring.min(MAX_RING.max(ring));
                self.e1000.attach(path, ring, rx_ring, self.buffer_of(target))
            }
        }
    }

    /// Places of a target's transmit ring.
    fn ring_of(&self, target: Target<'_>) -> u32 {
        self.slots.unwrap_or(match target {
            Target::Port(_) => Shape::default().tx_slots,
            Target::VhostUser(_) => VirtioOptions::default().tx_ring,
            Target::E1000(_) => E1000Options::default().tx_ring,
        })
    }

    /// Bytes of a target's buffers.
    fn buffer_of(&self, target: Target<'_>) -> u32 {
        self.buffer_size.unwrap_or(match target {
            Target::Port(_) => Shape::default().buffer_size,
            Target::VhostUser(_) => VirtioOptions::default().buffer_size,
            Target::E1000(_) => E1000Options::default().buffer_size,
        })
    }

    fn shape(&self) -> Shape {
        let port = Target::Port("");
        let slots = self.ring_of(port);
        Shape { tx_slots: slots, rx_slots: slots, buffer_size: self.buffer_of(port), ..Shape::default() }
    }

    /// Refuses frames that are too long for the rings of a target.
    pub fn holds(&self, targets: &[Target<'_>], frame: usize) -> Result<(), Trouble> {
        targets.iter().try_for_each(|target| match target {
            Target::Port(_) => self.slots_hold(frame),
            Target::VhostUser(_) | Target::E1000(_) => {
                let size = self.buffer_of(*target);
                let what = format!("a frame of {frame} bytes, a buffer of {size}: raise --buffer-size");
                if frame <= size as usize { Ok(()) } else { Err(Trouble::Usage(what)) }
            }
        })
    }

    fn slots_hold(&self, frame: usize) -> Result<(), Trouble> {
        let shape = self.shape();
        let needed = frame.div_ceil(shape.buffer_size.max(1) as usize);
        let most = SLOTS_PER_FRAME.min((shape.tx_slots as usize).saturating_sub(1));
        if needed <= most {
            return Ok(());
        }
        Err(Trouble::Usage(format!(
            "a frame of {frame} bytes takes {needed} slots of {} bytes, and can have {most}: raise --buffer-size or --slots",
            shape.buffer_size
        )))
    }
}

/// Returns `shape` with receive rings twice as long as its transmit rings: the frames that one turn of a thread can have under way. So
/// no frame is lost while the thread has to wait for its CPU.
#[cfg(feature = "lab")]
pub fn lossless(shape: Shape) -> Shape {
    Shape { rx_slots: (shape.tx_slots * 2).min(MAX_SLOTS), ..shape }
}

/// Attaches as `SWITCH:PORT`.
pub fn attach(name: &str, context: &Context, shape: Shape) -> Result<ProcessEndpoint, Trouble> {
    match Port::attach(context.runtime_dir.join(ATTACH_SOCKET), name, shape) {
        Ok(port) => Ok(ProcessEndpoint::new(port)),
        Err(error @ (AttachError::Name(_) | AttachError::Refused(_))) => Err(Trouble::Usage(error.to_string())),
        Err(error) => Err(Trouble::Failed(error.to_string())),
    }
}

/// The address to send from: the one given, or the one bound to the port, or one made from its name.
pub fn address(given: Option<Mac>, endpoint: &mut impl Attached, name: &str, context: &Context) -> Mac {
    given.or_else(|| endpoint.bound()).unwrap_or_else(|| address_of(name, context))
}

/// The address that `gen` uses at a port, or behind a socket, of this name: the one that is bound there, or one made from the name.
fn address_of(name: &str, context: &Context) -> Mac {
    // Without a daemon no address is bound: the socket may belong to another switch.
    let ports = context.client().ports().unwrap_or_default();
    bound_at(name, &ports, &context.runtime_dir).unwrap_or_else(|| named(name))
}

/// The address that is bound to the port, or to the one with the socket, of this name.
fn bound_at(name: &str, ports: &[PortStatus], runtime_dir: &Path) -> Option<Mac> {
    let runtime_dir = absolute(runtime_dir);
    let is_meant = |port: &PortStatus| {
        let nic = port.e1000.as_ref().map(|nic| &nic.socket);
        let socket = nic.or(port.vhost_user.as_ref().map(|vhost_user| &vhost_user.socket));
        match name.contains('/') {
            true => socket.is_some_and(|socket| absolute(&runtime_dir.join(socket)) == absolute(Path::new(name))),
            false => name.split_once(':') == Some((port.switch.as_str(), port.name.as_str())),
        }
    };
    let port = ports.iter().find(|port| is_meant(port))?;
    let own = port.e1000.as_ref().map(|nic| &nic.address).or(port.mac.first())?;
    own.parse().ok()
}

/// Returns the absolute form of a path: the canonical one if the path exists.
fn absolute(path: &Path) -> PathBuf {
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

/// Returns a locally administered address for this name, always the same.
fn named(name: &str) -> Mac {
    // FNV-1a: short, and stable over versions.
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    Mac::local(hash)
}

/// Destination of frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To this address.
    Address(Mac),
    /// To the one that `gen` uses at `SWITCH:PORT`, or behind a socket's path.
    Named(String),
}

impl Destination {
    /// Returns its address.
    pub fn resolve(&self, context: &Context) -> Mac {
        match self {
            Self::Address(mac) => *mac,
            Self::Named(name) => address_of(name, context),
        }
    }
}

/// Reads an address: itself, `broadcast`, or `SWITCH:PORT` or a socket's path for the one that `gen` uses there.
pub fn destination(text: &str) -> Result<Destination, String> {
    let is_name = |part: &str| part.parse::<Name>().is_ok();
    match text.split_once(':') {
        Some((switch, port)) if is_name(switch) && is_name(port) => Ok(Destination::Named(text.to_owned())),
        _ if text.contains('/') => Ok(Destination::Named(text.to_owned())),
        _ => text.parse().map(Destination::Address).map_err(|error| format!("{error}, or SWITCH:PORT")),
    }
}

/// Reads a time above zero.
pub fn positive(text: &str) -> Result<Duration, String> {
    match units::duration(text)? {
        Duration::ZERO => Err("must be more than nothing".to_owned()),
        some => Ok(some),
    }
}

/// Reads a count above zero: `1000`, `10k`, `1M`, `2G`.
pub fn count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.char_indices().last() {
        Some((end, 'k')) => (&text[..end], 1_000),
        Some((end, 'M')) => (&text[..end], 1_000_000),
        Some((end, 'G')) => (&text[..end], 1_000_000_000),
        _ => (text, 1),
    };
    let plain = !digits.starts_with('+');
    let value = digits.parse::<u64>().ok().filter(|_| plain).and_then(|number| number.checked_mul(factor));
    value.filter(|&value| value > 0).ok_or_else(|| "write a number above 0, like 1000, 10k, 1M".to_owned())
}

/// Waits until the switch has taken all sent frames: frames that are left in the ring are lost with the port. `room` is the room of
/// the empty ring.
pub fn settle(endpoint: &mut impl Endpoint, room: usize) -> Result<(), Trouble> {
    let deadline = Instant::now() + SETTLE;
    loop {
        let left = room - endpoint.tx_room().min(room);
        if left == 0 {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let what = format!("the switch has not taken the last {left} slots of frames within {SETTLE:?}");
            return Err(Trouble::Failed(what));
        }
        std::thread::yield_now();
    }
}

fn stay_on(core: usize) -> Result<(), Trouble> {
    let allowed = sched_getaffinity(None).map_err(|error| Trouble::Failed(format!("cannot read CPUs: {error}")))?;
    if core >= CpuSet::MAX_CPU || !allowed.is_set(core) {
        let cores: Vec<String> =
            (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).map(|core| core.to_string()).collect();
        let what = format!("--core {core}: this process may use CPU {}", cores.join(", "));
        return Err(Trouble::Usage(what));
    }
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only).map_err(|error| Trouble::Failed(format!("cannot stay on CPU {core}: {error}")))
}

#[cfg(test)]
mod tests {
    use ringway_control::api::types::E1000Status;

    use super::*;

    #[test]
    fn a_port_name_stands_for_the_address_gen_uses_there() {
        let dir = tempfile::tempdir().unwrap();
        let nobody = Context { runtime_dir: dir.path().to_owned() };
        let resolve = |text| destination(text).map(|destination| destination.resolve(&nobody));
        assert_eq!(resolve("lan0:b"), Ok(named("lan0:b")));
        assert_ne!(named("lan0:a"), named("lan0:b"));
        assert!(!named("lan0:b").is_group());
        assert_eq!(resolve("/run/vm1.sock"), Ok(named("/run/vm1.sock")));
        assert_eq!(resolve("52:54:00:00:00:01"), Ok(Mac([0x52, 0x54, 0, 0, 0, 1])));
        assert_eq!(resolve("broadcast"), Ok(Mac::BROADCAST));
        for wrong in ["lan0", "52:54:00:00:00", "a:b:c", ""] {
            let error = destination(wrong).unwrap_err();
            assert!(error.contains("SWITCH:PORT"), "{wrong}: {error}");
        }
    }

    #[test]
    fn an_address_that_is_bound_to_a_port_or_is_its_nics_goes_before_one_made_of_the_name() {
        let port = |name: &str, mac: &[&str]| PortStatus {
            name: name.into(),
            switch: "lan0".into(),
            mac: mac.iter().map(|mac| (*mac).to_owned()).collect(),
            ..PortStatus::default()
        };
        let (address, socket) = ("02:00:00:00:00:02".to_owned(), "nic.sock".to_owned());
        let nic = E1000Status { address, socket, ..E1000Status::default() };
        let ports = [
            port("free", &[]),
            port("bound", &["02:00:00:00:00:01", "02:00:00:00:00:09"]),
            PortStatus { e1000: Some(nic), ..port("nic", &[]) },
        ];
        let bound = |name: &str| bound_at(name, &ports, Path::new("/no-such/run")).map(|mac| mac.0[5]);
        let names = ["lan0:free", "lan0:bound", "lan1:bound", "lan0:nic", "/no-such/run/nic.sock", "/no-such/nic.sock"];
        assert_eq!(names.map(bound), [None, Some(1), None, Some(2), Some(2), None]);
    }

    #[test]
    fn counts_read_with_their_prefix() {
        assert_eq!(count("1000"), Ok(1000));
        assert_eq!(count("10k"), Ok(10_000));
        assert_eq!(count("2G"), Ok(2_000_000_000));
        for wrong in ["", "0", "-1", "+1", "1.5M", "k", "99999999999999999999", "9999999999999G"] {
            assert!(count(wrong).is_err(), "{wrong:?}");
        }
    }
}
