//! The port of a run.

use std::path::Path;
use std::time::{Duration, Instant};

use ringway_api::paths::ATTACH_SOCKET;
use ringway_api::patience;
use ringway_client::{AttachError, MAX_SLOTS, Port, Shape};
use ringway_traffic::{E1000Options, Endpoint, MAX_RING, ProcessEndpoint, VirtioOptions, WaitMode};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::attached::AnyPort;
use super::e1000::E1000Args;
use super::pci::PciArgs;
use super::report::GenError;
use super::virtio::VirtioArgs;
use crate::context::Context;

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
    #[command(flatten)]
    pub pci: PciArgs,
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
    /// The PCI address of a NIC.
    Pci(&'a str),
}

impl Target<'_> {
    /// Its name as written on the command line.
    pub fn name(&self) -> String {
        match self {
            Target::Port(name) | Target::Pci(name) => (*name).to_owned(),
            Target::VhostUser(path) | Target::E1000(path) => path.display().to_string(),
        }
    }
}

impl PortArgs {
    /// How to wait.
    pub fn wait_mode(&self) -> WaitMode {
        if self.spin { WaitMode::Spin } else { WaitMode::Wait }
    }

    /// The one port or socket that was named.
    pub fn target<'a>(&'a self, port: Option<&'a str>) -> Result<Target<'a>, GenError> {
        match self.targets(port.into_iter())[..] {
            [target] => Ok(target),
            _ => Err(GenError::Usage(
                "give one SWITCH:PORT, one --vhost-user or --e1000 SOCKET, or one --pci ADDRESS".to_owned(),
            )),
        }
    }

    /// All that were named, ports first.
    pub fn targets<'a>(&'a self, ports: impl Iterator<Item = &'a str>) -> Vec<Target<'a>> {
        let vhost_user = self.virtio.vhost_user.iter().map(|path| Target::VhostUser(path));
        let e1000 = self.e1000.e1000.iter().map(|path| Target::E1000(path));
        let pci = self.pci.pci.iter().map(|address| Target::Pci(address));
        ports.map(Target::Port).chain(vhost_user).chain(e1000).chain(pci).collect()
    }

    /// Attaches, and moves this thread to its CPU.
    pub fn attach(&self, target: Target<'_>, context: &Context) -> Result<AnyPort, GenError> {
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
    ) -> Result<AnyPort, GenError> {
        self.attach_with(target, context, self.ring_of(sender).saturating_mul(2))
    }

    fn attach_with(&self, target: Target<'_>, context: &Context, rx_ring: u32) -> Result<AnyPort, GenError> {
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
            // A device decides on its rings. Its receive ring cannot be the longer one.
            Target::Pci(address) => self.pci.attach(address, ring, self.buffer_of(target)),
        }
    }

    /// Places of a target's transmit ring.
    fn ring_of(&self, target: Target<'_>) -> u32 {
        self.slots.unwrap_or(match target {
            Target::Port(_) => Shape::default().tx_slots,
            Target::VhostUser(_) | Target::Pci(_) => VirtioOptions::default().tx_ring,
            Target::E1000(_) => E1000Options::default().tx_ring,
        })
    }

    /// Bytes of a target's buffers.
    fn buffer_of(&self, target: Target<'_>) -> u32 {
        self.buffer_size.unwrap_or(match target {
            Target::Port(_) | Target::Pci(_) => Shape::default().buffer_size,
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
    pub fn holds(&self, targets: &[Target<'_>], frame: usize) -> Result<(), GenError> {
        targets.iter().try_for_each(|target| match target {
            Target::Port(_) => self.slots_hold(frame),
            Target::VhostUser(_) | Target::E1000(_) | Target::Pci(_) => {
                let size = self.buffer_of(*target);
                let front = if let Target::Pci(_) = target { 12 } else { 0 };
                let what = format!("a frame of {frame} bytes, a buffer of {size}: raise --buffer-size");
                if frame + front <= size as usize { Ok(()) } else { Err(GenError::Usage(what)) }
            }
        })
    }

    fn slots_hold(&self, frame: usize) -> Result<(), GenError> {
        let shape = self.shape();
        let needed = frame.div_ceil(shape.buffer_size.max(1) as usize);
        let most = SLOTS_PER_FRAME.min((shape.tx_slots as usize).saturating_sub(1));
        if needed <= most {
            return Ok(());
        }
        Err(GenError::Usage(format!(
            "a frame of {frame} bytes takes {needed} slots of {} bytes, and can have {most}: raise --buffer-size or --slots",
            shape.buffer_size
        )))
    }
}

/// Returns `shape` with receive rings twice as long as its transmit rings: the frames that one turn of a thread can have under way. So
/// no frame is lost while the thread has to wait for its CPU.
#[cfg(feature = "demo")]
pub fn lossless(shape: Shape) -> Shape {
    Shape { rx_slots: (shape.tx_slots * 2).min(MAX_SLOTS), ..shape }
}

/// Attaches as `SWITCH:PORT`.
pub fn attach(name: &str, context: &Context, shape: Shape) -> Result<ProcessEndpoint, GenError> {
    match Port::attach(context.runtime_dir.join(ATTACH_SOCKET), name, shape) {
        Ok(port) => Ok(ProcessEndpoint::new(port)),
        Err(error @ (AttachError::Name(_) | AttachError::Refused(_))) => Err(GenError::Usage(error.to_string())),
        Err(error) => Err(GenError::Failed(error.to_string())),
    }
}

/// Waits until the switch has taken all sent frames: frames that are left in the ring are lost with the port. `room` is the room of
/// the empty ring.
pub fn settle(endpoint: &mut impl Endpoint, room: usize) -> Result<(), GenError> {
    let longest = patience(SETTLE);
    let deadline = Instant::now() + longest;
    loop {
        let left = room - endpoint.tx_room().min(room);
        if left == 0 {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let what = format!("the switch has not taken the last {left} slots of frames within {longest:?}");
            return Err(GenError::Failed(what));
        }
        std::thread::yield_now();
    }
}

/// Moves this thread to a CPU.
pub fn stay_on(core: usize) -> Result<(), GenError> {
    let allowed = sched_getaffinity(None).map_err(|error| GenError::Failed(format!("cannot read CPUs: {error}")))?;
    if core >= CpuSet::MAX_CPU || !allowed.is_set(core) {
        let cores: Vec<String> =
            (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).map(|core| core.to_string()).collect();
        let what = format!("--core {core}: this process may use CPU {}", cores.join(", "));
        return Err(GenError::Usage(what));
    }
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only).map_err(|error| GenError::Failed(format!("cannot stay on CPU {core}: {error}")))
}
