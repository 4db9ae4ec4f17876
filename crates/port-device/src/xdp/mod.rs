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
//!
//! A port outlives the switch (`crate::kept`): its sockets, its program and its memory stay. Where a switch has come to, its successor finds in the kernel's
//! rings, and in a few words beside them (`crate::positions`).

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
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use input::{Held, Receiver, XdpInput};
use output::{Device, XdpOutput};
use queue::{Attachment, Queue, Rings, SendingSocket, chunk};
use ringway_keeper::{Guard, Link};
use ringway_netdevice::requests;
use ringway_netdevice::xdp::{Attached, Freed, Host, METADATA, Place, Sockets, Transfer, help, other_program};
use ringway_runtime::{Signal, Watch};
use rustix::io::Errno;
use sending::{Sending, XdpBell};
use tags::Tags;
pub use tags::answer_about_tags;

use crate::device_closing::ClosedApart;
use crate::device_watch::{DeviceWatch, OpenWatch};
use crate::kept::{self, Found, OpenDevice, unreadable};
use crate::packet_socket::{PacketSocket, Wanted};
use crate::positions::Positions;
pub use ringway_netdevice::xdp::Mode;
use ringway_port::port_io::PortIo;

/// The beginning of the names of what is kept.
const KIND: &str = "xdp";
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

impl Settings {
    fn kept(&self) -> kept::Device<'_> {
        kept::Device { kind: KIND, name: &self.device, port: "" }
    }
}

/// Has the keeper close devices of this kind that a predecessor left and nobody has taken, but for those that `stay` by the name of what is kept. They take VLAN tags out of
/// frames again as before. Does not wait for that.
pub fn let_go_of_left(keeper: &Link, stays: impl Fn(&str) -> bool) {
    let prefix = format!("{KIND}/");
    kept::let_go_of_left::<OpenXdp>(keeper, |name| name.starts_with(&prefix) && !stays(name));
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

/// Makes a port of a device in the network namespace of the calling thread. With a keeper, what is open of the device outlives the switch (from Linux 6.4
/// on): the kernel goes on filling the rings, and the device keeps its program.
///
/// # Errors
/// The device cannot be used. The error says why, and what would help.
pub fn open(settings: &Settings, keeper: &Link) -> io::Result<XdpPort> {
    kept::port(keeper, settings.kept(), settings, || OpenXdp::open(settings))
}

/// Opens the device as [`open`] does, for a process without privileges. A device at one of the places in `left` was left by a predecessor.
///
/// # Errors
/// As above.
pub fn find(settings: &Settings, left: &[String]) -> io::Result<Found> {
    kept::find(settings.kept(), left, || OpenXdp::open(settings))
}

/// Makes a port of a device that was found (from Linux 6.4 on). `None`: it has to be opened anew.
///
/// # Errors
/// The kernel refuses.
pub fn made(settings: &Settings, keeper: &Link, found: Found) -> io::Result<Option<XdpPort>> {
    kept::made::<OpenXdp>(keeper, settings.kept(), settings, found)
}

/// An open device.
struct OpenXdp {
    // Dropped first, as by an input.
    opened: Opened,
    watch: OpenWatch,
    /// The host keeps group frames.
    host: bool,
}

/// What is open of a device in one mode.
struct Opened {
    held: Held,
    queues: Vec<Queue>,
    sender: SendingSocket,
    packets: OwnedFd,
    positions: Positions,
    /// The number of the mode in [`all`].
    mode: usize,
    /// Frames may come from the local kernel, with incomplete checksums.
    is_local: bool,
}

/// All modes, in an order that does not change.
fn all() -> &'static [(Mode, Place, Transfer)] {
    Mode::Auto.tries()
}

impl OpenXdp {
    fn open(settings: &Settings) -> io::Result<Self> {
        let name = settings.device.as_str();
        let failed = |what: &str, error: &io::Error| requests::cannot(name, what, &help(error), error.kind());
        let watch = OpenWatch::open(name, true)?;
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
        let target = Target { watch: &watch, driver: &driver, queues, host: settings.host };
        let mut last = io::Error::from(io::ErrorKind::Unsupported);
        for &tried in settings.mode.tries() {
            match open_mode(&target, tried) {
                Ok(opened) => {
                    watch.forget_queue_events();
                    if watch.queues() != told {
                        return Err(failed("use it", &io::Error::other("the number of its queues has just changed")));
                    }
                    return Ok(Self { opened, watch, host: settings.host });
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
}

/// What a port is attached to.
struct Target<'a> {
    watch: &'a OpenWatch,
    driver: &'a str,
    /// It has no more queues than these.
    queues: u32,
    /// The host keeps its frames.
    host: bool,
}

/// Opens sockets for all queues of a device, and attaches the program that gives them frames.
fn open_mode(target: &Target<'_>, tried: (Mode, Place, Transfer)) -> io::Result<Opened> {
    let &Target { watch, driver, queues: most, host } = target;
    let ((_, place, transfer), device) = (tried, watch.index());
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
    let packets = PacketSocket::open(device, wanted(host))?;
    let host = if host { Host::Keeps(watch.address()) } else { Host::Nothing };
    let attached = Attached::new(device, &sockets, host, place).map_err(|error| other_program(watch.name(), error))?;
    let held = Held { attached, tags: Tags::keep(device, watch.requests().try_clone_to_owned()?)? };
    let positions = Positions::new()?;
    // Last: the host has the frames until they keep their tags.
    for (queue, opened) in (0..).zip(&queues) {
        sockets.set(queue, opened.socket.as_fd())?;
    }
    // Other devices give complete frames in their drivers.
    let is_local = place == Place::Stack || matches!(driver, VETH | "tun");
    let mode = all().iter().position(|mode| *mode == tried).unwrap_or_default();
    Ok(Opened { held, queues, sender, packets, positions, mode, is_local })
}

/// The group frames of a device come by a packet socket, if the host keeps them, too.
fn wanted(host: bool) -> Wanted {
    if host { Wanted::Group } else { Wanted::Nothing }
}

/// What a predecessor left, but for its sockets.
struct First {
    /// Those of the note, but for the tags.
    numbers: [u128; 6],
    // Dropped first.
    held: Held,
    others: [OwnedFd; 3],
    watch: OpenWatch,
}

impl First {
    fn left(files: &mut impl Iterator<Item = OwnedFd>, note: &str) -> io::Result<Self> {
        let (numbers, watched) = note.split_once('\n').ok_or_else(unreadable)?;
        let [numbers @ .., tags] = kept::numbers::<7>(numbers)?;
        let mut next = || files.next().ok_or_else(unreadable);
        let (link, others) = (next()?, [next()?, next()?, next()?]);
        let watch = OpenWatch::left(files, true, watched)?;
        let tags = Tags::left(watch.index(), watch.requests().try_clone_to_owned()?, tags);
        Ok(Self { numbers, held: Held { attached: link.into(), tags }, others, watch })
    }
}

impl OpenDevice for OpenXdp {
    type Port = XdpPort;

    fn left(files: Vec<OwnedFd>, note: &str) -> io::Result<Self> {
        let mut files = files.into_iter();
        // From here on the tags are as before, if the predecessor's port cannot go on.
        let First { numbers, held, others: [packets, positions, sending], watch } = First::left(&mut files, note)?;
        let [mode, host, is_local, takes_pieces, before, frames_of_a_call] = numbers;
        let narrow = |number: u128| u32::try_from(number).map_err(|_| unreadable());
        let (mode, before) = (narrow(mode)? as usize, narrow(before)? as usize);
        let transfer = all().get(mode).filter(|_| matches!(before, 0 | METADATA)).ok_or_else(unreadable)?.2;
        watch.check()?;
        let sender = SendingSocket::left(sending, transfer, narrow(frames_of_a_call)?)?;
        let mut queues = Vec::new();
        while let Some(socket) = files.next() {
            let pair = [socket, files.next().ok_or_else(unreadable)?];
            queues.push(Queue::left(pair, queues.len() as u32, transfer, takes_pieces != 0, before)?);
        }
        let positions = Positions::left(positions)?;
        let (host, is_local) = (host != 0, is_local != 0);
        let opened = Opened { held, queues, sender, packets, positions, mode, is_local };
        Ok(Self { opened, watch, host })
    }

    /// The link is closed first: the host has its frames again. The sockets are closed last.
    fn files(&self) -> Vec<BorrowedFd<'_>> {
        let Opened { held, queues, sender, packets, positions, .. } = &self.opened;
        let first = [held.attached.as_fd(), packets.as_fd(), positions.file(), sender.socket.as_fd()];
        first.into_iter().chain(self.watch.files()).chain(queues.iter().flat_map(Queue::files)).collect()
    }

    fn note(&self) -> String {
        let Opened { held, queues, sender, mode, is_local, .. } = &self.opened;
        let (takes_pieces, before) = queues.first().map_or((false, 0), |queue| (queue.takes_pieces, queue.before));
        let [host, is_local, takes_pieces] = [self.host, *is_local, takes_pieces].map(u8::from);
        let (frames_of_a_call, tags, watched) = (sender.frames_of_a_call, held.tags.before(), self.watch.note());
        format!("{mode} {host} {is_local} {takes_pieces} {before} {frames_of_a_call} {tags}\n{watched}")
    }

    fn let_go(mut self) {
        self.opened.held.tags.let_go();
    }

    fn undo(files: Vec<OwnedFd>, note: &str) {
        drop(First::left(&mut files.into_iter(), note));
    }

    fn port(self, kept: &Arc<Guard>) -> io::Result<XdpPort> {
        let OpenXdp { opened, watch, host } = self;
        let Opened { held, queues, sender, packets, positions, mode, is_local } = opened;
        let (mode, count, chunk) = (all()[mode].0, queues.len(), chunk(sender.transfer));
        let watch = DeviceWatch::new(watch)?;
        let packets = PacketSocket::new(packets, wanted(host), &positions)?;
        let (sending, transmit) = Sending::new(sender);
        if sending.is_stuck() {
            return Err(io::Error::other("frames were cancelled"));
        }
        let ready = Watch::new();
        ready.add(Arc::new(ClosedApart::new(packets.as_fd().try_clone_to_owned()?)))?;
        let mut first = None;
        let mut receivers = Vec::new();
        for (number, queue) in queues.into_iter().enumerate() {
            let Queue { socket, memory, rings: Rings { receive, fill, completion }, takes_pieces, before } = queue;
            ready.add(Arc::new(ClosedApart::new(socket.try_clone()?)))?;
            let memory = Arc::clone(memory.mapping());
            // The first queue sends.
            first.get_or_insert_with(|| (Arc::clone(&memory), completion, takes_pieces, before));
            let receiver = Receiver::new(socket, memory, (receive, fill), chunk, positions.queue(number)?);
            let mut receiver = receiver.with_local_frames(is_local);
            receiver.go_on()?;
            receivers.push(receiver);
        }
        watch.join(&ready)?;
        let (memory, completion, takes_pieces, before) = first.ok_or_else(unreadable)?;
        let device = Device { longest: watch.longest(), is_running: watch.is_running(), takes_pieces, before };
        let sending = Arc::new(sending);
        let output = XdpOutput::new(Arc::clone(&sending), memory, (transmit, completion), positions.chunks()?, device);
        // What a predecessor had queued.
        sending.send();
        let bell = XdpBell(sending);
        let input = Box::new(XdpInput::new(receivers, watch, packets, held, kept));
        let sides = PortIo { input, output: Box::new(output), bell: Box::new(bell), signal: Signal::Watched(ready) };
        Ok(XdpPort { sides, mode, queues: count, writes_checksums: before > 0 })
    }
}
