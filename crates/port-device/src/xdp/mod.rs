//! XDP ports: a network device as a port of the switch, by AF_XDP (Linux, Documentation/networking/af_xdp.rst).
//!
//! Each receive queue of the device has a socket with memory that the kernel shares. Frames from the device are forwarded from there,
//! and frames to the device are copied there, once. A poller reads the receive rings in memory, as the Virtualization Polling Engine
//! polls a NIC (VPE §4.2), and asks for a wake-up only before it sleeps.
//!
//! - `ringway_netdevice::xdp` has the sockets' rings, and the program that decides which frames come to them and which the host keeps.
//!   The program gives each frame to one receiver only: group frames go to the host, and come here from its stack, by a packet socket
//!   (`crate::packet_socket`).
//! - `queue`: the sockets of a queue. `sending`: system calls that have the kernel send. `metadata`: checksums that the
//!   device writes.
//! - `tags`: the device leaves VLAN tags in frames.

mod input;
#[cfg(test)]
mod kernel_tests;
mod metadata;
mod output;
mod queue;
#[cfg(test)]
mod ring_tests;
mod sending;
mod tags;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use input::{Held, Receiver, XdpInput};
use output::{Device, XdpOutput};
use queue::{Attachment, Queue, SendingSocket, chunk};
use ringway_netdevice::requests;
use ringway_netdevice::xdp::{Attached, Freed, Host, Place, Sockets, Transfer, help, other_program};
use ringway_runtime::{Signal, Watch};
use rustix::io::Errno;
use sending::{Sending, XdpBell};
use tags::Tags;

use crate::device_closing::ClosedApart;
use crate::device_watch::DeviceWatch;
use crate::packet_socket::{PacketSocket, Wanted};
pub use ringway_netdevice::xdp::Mode;
use ringway_port::port_io::PortIo;

/// Driver of virtual devices in pairs.
const VETH: &str = "veth";
/// Longest wait for queues of closed sockets. The kernel's thread that frees them waits for the lock of all network devices: 0.2 s were
/// seen on a busy machine. The user may ask again.
const FREED_WITHIN: Duration = Duration::from_secs(1);
/// Most queues of a device that have sockets.
pub const MAX_QUEUES: u32 = 64;

/// Settings of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of the device.
    pub device: String,
    /// How frames get from the device to the port.
    pub mode: Mode,
    /// The receive queues that the port takes, so many from the first one; `None`: all. Frames of the others stay with the host.
    pub queues: Option<u32>,
    /// The host's stack keeps frames to the device's own address and group frames.
    pub host: bool,
}

/// An open port.
pub struct XdpPort {
    /// The parts that the switch and the engine take.
    pub sides: PortIo,
    /// The mode that the device has.
    pub mode: Mode,
    /// Number of queues.
    pub queues: usize,
    /// The device writes the checksums of the frames to it.
    pub writes_checksums: bool,
}

/// Makes a port of a device in the network namespace of the calling thread.
///
/// # Errors
/// The device cannot be used. The error says why, and what would help.
pub fn open(settings: &Settings) -> io::Result<XdpPort> {
    let name = settings.device.as_str();
    let failed = |what: &str, error: &io::Error| requests::cannot(name, what, &help(error), error.kind());
    let watch = DeviceWatch::new(name, true)?;
    let told = watch.queues();
    let most = settings.queues.unwrap_or(MAX_QUEUES);
    if let Some(has) = told.filter(|&has| settings.queues.map_or(has > most, |wanted| has < wanted)) {
        let what = match settings.queues {
            None => format!("it has {has} receive queues, and a port takes {most}: use fewer (ethtool -L {name})"),
            Some(wanted) => format!(
                "it has {has} receive queues, and the port is to take {wanted}: set \"queues\" to {has} or less"
            ),
        };
        return Err(failed("use it", &io::Error::other(what)));
    }
    requests::bring_up(name, watch.requests()).map_err(|error| failed("bring it up", &error))?;
    let driver = requests::driver(name, watch.requests()).unwrap_or_default();
    // Without the driver's word the kernel says which queue is the last one. It counts those that only send, too.
    let queues = told.map_or(most, |has| has.clamp(1, most));
    let (device, address, host) = (watch.index(), watch.address(), settings.host);
    let target = Target { name, device, driver: &driver, address, queues, host };
    let mut last = io::Error::from(io::ErrorKind::Unsupported);
    for &(mode, place, transfer) in settings.mode.tries() {
        match open_mode(&target, place, transfer) {
            Ok(opened) => {
                watch.forget_queue_events();
                if watch.queues() != told {
                    return Err(failed("use it", &io::Error::other("the number of its queues has just changed")));
                }
                watch.join(&opened.ready)?;
                let queues = opened.queues.len();
                let writes_checksums = opened.queues.first().is_some_and(|queue| queue.before > 0);
                let sides = sides(opened, watch);
                return Ok(XdpPort { sides, mode, queues, writes_checksums });
            }
            Err(error) => last = error,
        }
        // Another mode would be refused, too. It may need less memory.
        if matches!(Errno::from_io_error(&last), None | Some(Errno::PERM)) {
            break;
        }
    }
    Err(failed("attach to it", &last))
}

/// What a port is attached to.
struct Target<'a> {
    name: &'a str,
    /// The device's number.
    device: u32,
    driver: &'a str,
    address: [u8; 6],
    /// It has no more queues than these.
    queues: u32,
    /// The host keeps its frames.
    host: bool,
}

/// The parts of a port that is attached to its device.
struct Opened {
    queues: Vec<Queue>,
    sender: SendingSocket,
    packets: PacketSocket,
    held: Held,
    ready: Watch,
    is_local: bool,
}

/// Opens sockets for all queues of a device, and attaches the program that gives them frames.
fn open_mode(target: &Target<'_>, place: Place, transfer: Transfer) -> io::Result<Opened> {
    let &Target { name, device, driver, address, queues: most, host } = target;
    let attachment = Attachment { device, transfer, metadata: transfer == Transfer::Copy && driver == VETH };
    let mut queues = Vec::new();
    let freed = Freed::within(FREED_WITHIN);
    for queue in 0..most {
        match freed.open(queue, || Queue::open(attachment, queue)) {
            Ok(opened) => queues.push(opened),
            // The device has no more queues.
            Err(error) if queue > 0 && Errno::from_io_error(&error) == Some(Errno::INVAL) => break,
            Err(error) => return Err(error),
        }
    }
    let sender = queues[0].sender(device, 0, transfer)?;
    let sockets = Sockets::new(queues.len() as u32)?;
    let ready = Watch::new();
    for opened in &queues {
        ready.add(Arc::new(ClosedApart::new(opened.socket.as_fd().try_clone_to_owned()?)))?;
    }
    let packets = PacketSocket::open(device, if host { Wanted::Group } else { Wanted::Nothing })?;
    ready.add(Arc::new(ClosedApart::new(packets.as_fd().try_clone_to_owned()?)))?;
    let host = if host { Host::Keeps(address) } else { Host::Nothing };
    let attached = Attached::new(device, &sockets, host, place).map_err(|error| other_program(name, error))?;
    let held = Held { _attached: attached, _tags: Tags::keep(device)? };
    // Last: the host has the frames until they keep their tags.
    for (queue, opened) in (0..).zip(&queues) {
        sockets.set(queue, opened.socket.as_fd())?;
    }
    // Other devices give complete frames in their drivers.
    let is_local = place == Place::Stack || matches!(driver, VETH | "tun");
    Ok(Opened { queues, sender, packets, held, ready, is_local })
}

/// Makes the sides of a port.
fn sides(opened: Opened, watch: DeviceWatch) -> PortIo {
    let Opened { queues, sender, packets, held, ready, is_local } = opened;
    let chunk = chunk(sender.transfer);
    let (sending, transmit) = Sending::new(sender);
    let sending = Arc::new(sending);
    let mut output = None;
    let mut receivers = Vec::new();
    for queue in queues {
        let Queue { socket, memory, receive, fill, completion, takes_pieces, before } = queue;
        // The first queue sends.
        output.get_or_insert_with(|| {
            let device = Device { longest: watch.longest(), is_running: watch.is_running(), takes_pieces, before };
            (Arc::clone(&memory), completion, device)
        });
        receivers.push(Receiver::new(socket, memory, receive, fill, chunk, is_local));
    }
    let (memory, completion, device) = output.expect("a device has a queue");
    let output = XdpOutput::new(Arc::clone(&sending), memory, transmit, completion, device);
    let bell = XdpBell(sending);
    let input = Box::new(XdpInput::new(receivers, watch, packets, held));
    PortIo { input, output: Box::new(output), bell: Box::new(bell), signal: Signal::Watched(ready) }
}
