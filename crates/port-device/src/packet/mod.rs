//! Packet ports: a network device that the host goes on using, by a packet socket (packet(7)). Every wired device has this: bonds,
//! VLAN devices, macvlan.
//!
//! What arrives for other addresses than the device's own, and group frames, come to the switch. The host keeps everything, too. Frames
//! may have checksums and segmentation left to do, in both directions, as TAP devices have (`crate::tap`).
//!
//! A macvtap is read and written like a TAP device instead (`macvtap`).

mod input;
mod macvtap;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use input::PacketInput;
use macvtap::OpenMacvtap;
use ringway_keeper::{Guard, Link};
use ringway_netdevice::requests;
use ringway_port::port_io::PortIo;
use ringway_runtime::{Signal, Watch};
use rustix::io::Errno;

use crate::device_closing::ClosedApart;
use crate::device_watch::{DeviceWatch, OpenWatch};
use crate::kept::{self, Device, Found, OpenDevice, unreadable};
use crate::packet_socket::{PacketSocket, Wanted};
use crate::positions::Positions;
use crate::socket_output::{NoBell, SocketOutput};
use crate::tap_file::{DeviceFile, Offloads};

/// Settings of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of the device, or the path of a macvtap: `/dev/tapN`.
    pub device: String,
    /// Name of the port: several can have one device.
    pub port: String,
}

impl Settings {
    fn kept(&self) -> Device<'_> {
        Device { kind: "packet", name: &self.device, port: &self.port }
    }
}

/// Makes a port of a device in the network namespace of the calling thread. With a keeper, the port's socket outlives the switch.
///
/// # Errors
/// The device cannot be used. The error says why, and what would help.
pub fn open(settings: &Settings, keeper: &Link) -> io::Result<PortIo> {
    let name = settings.device.as_str();
    if name.starts_with('/') {
        return kept::port(keeper, settings.kept(), &(), || OpenMacvtap::open(name));
    }
    kept::port(keeper, settings.kept(), &(), || OpenPacket::open(name))
}

/// Opens the device as [`open`] does, for a process without privileges. A device at one of the places in `left` was left by a predecessor.
///
/// # Errors
/// As above.
pub fn find(settings: &Settings, left: &[String]) -> io::Result<Found> {
    let name = settings.device.as_str();
    if name.starts_with('/') {
        return kept::find(settings.kept(), left, || OpenMacvtap::open(name));
    }
    kept::find(settings.kept(), left, || OpenPacket::open(name))
}

/// Makes a port of a device that was found. `None`: it has to be opened anew.
///
/// # Errors
/// The kernel refuses.
pub fn made(settings: &Settings, keeper: &Link, found: Found) -> io::Result<Option<PortIo>> {
    if settings.device.starts_with('/') {
        return kept::made::<OpenMacvtap>(keeper, settings.kept(), &(), found);
    }
    kept::made::<OpenPacket>(keeper, settings.kept(), &(), found)
}

/// An open device.
struct OpenPacket {
    packets: OwnedFd,
    positions: Positions,
    watch: OpenWatch,
}

impl OpenPacket {
    fn open(name: &str) -> io::Result<Self> {
        let failed = |what: &str, error: &io::Error| requests::cannot(name, what, &help(error), error.kind());
        let watch = OpenWatch::open(name, false)?;
        requests::bring_up(name, watch.requests()).map_err(|error| failed("bring it up", &error))?;
        let packets = PacketSocket::open(watch.index(), Wanted::NotOurs);
        let packets = packets.map_err(|error| failed("open a packet socket for it", &error))?;
        Ok(Self { packets, positions: Positions::new()?, watch })
    }
}

impl OpenDevice for OpenPacket {
    type Port = PortIo;

    fn left(files: Vec<OwnedFd>, note: &str) -> io::Result<Self> {
        let mut files = files.into_iter();
        let [packets, positions] = [files.next(), files.next()].map(|file| file.ok_or_else(unreadable));
        let (packets, positions) = (packets?, Positions::left(positions?)?);
        let watch = OpenWatch::left(&mut files, false, note)?;
        watch.check()?;
        Ok(Self { packets, positions, watch })
    }

    fn files(&self) -> Vec<BorrowedFd<'_>> {
        [self.packets.as_fd(), self.positions.file()].into_iter().chain(self.watch.files()).collect()
    }

    fn note(&self) -> String {
        self.watch.note()
    }

    fn port(self, kept: &Arc<Guard>) -> io::Result<PortIo> {
        let watch = DeviceWatch::new(self.watch)?;
        let packets = PacketSocket::new(self.packets, Wanted::NotOurs, &self.positions)?;
        let socket = Arc::new(ClosedApart::new(DeviceFile::new(packets.as_fd().try_clone_to_owned()?, kept)));
        let ready = Watch::new();
        ready.add(socket.clone())?;
        watch.join(&ready)?;
        let output = SocketOutput::new(socket, Offloads::OF_PACKET_SOCKETS);
        let input = PacketInput::new(packets, watch, kept);
        let signal = Signal::Watched(ready);
        Ok(PortIo { input: Box::new(input), output: Box::new(output), bell: Box::new(NoBell), signal })
    }
}

/// Says what to do about an error of the kernel.
fn help(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::PERM | Errno::ACCESS) => "this user may not: packet sockets need CAP_NET_RAW".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_port::testing::{send_from_far_end, visit_until_asleep_in_memory, with_pair};

    #[test]
    fn a_device_with_frames_is_pending_until_all_are_taken() {
        with_pair(|| {
            let port =
                open(&Settings { device: "x0".to_owned(), port: "nic".to_owned() }, &Link::default()).expect("a port");
            let mut input = port.input;
            send_from_far_end(5);
            visit_until_asleep_in_memory(&mut *input, 5);
        });
    }
}
