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
use std::os::fd::AsFd;
use std::sync::Arc;

use input::PacketInput;
use ringway_netdevice::requests;
use ringway_port::port_io::PortIo;
use ringway_runtime::{Signal, Watch};
use ringway_switch::Accepts;
use rustix::io::Errno;

use crate::device_closing::ClosedApart;
use crate::device_watch::DeviceWatch;
use crate::packet_socket::{PacketSocket, Wanted};
use crate::socket_output::{NoBell, SocketOutput};
use crate::tap_file::{DeviceFile, Header};

/// Settings of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of the device, or the path of a macvtap: `/dev/tapN`.
    pub device: String,
}

/// Makes a port of a device in the network namespace of the calling thread.
///
/// # Errors
/// The device cannot be used. The error says why, and what would help.
pub fn open(settings: &Settings) -> io::Result<PortIo> {
    let name = settings.device.as_str();
    if name.starts_with('/') {
        return macvtap::open(name);
    }
    let failed = |what: &str, error: &io::Error| requests::cannot(name, what, &help(error), error.kind());
    let watch = DeviceWatch::new(name, false)?;
    requests::bring_up(name, watch.requests()).map_err(|error| failed("bring it up", &error))?;
    let packets = PacketSocket::open(watch.index(), Wanted::NotOurs);
    let packets = packets.map_err(|error| failed("open a packet socket for it", &error))?;
    let socket = Arc::new(ClosedApart::new(DeviceFile::new(packets.as_fd().try_clone_to_owned()?, None)));
    let ready = Watch::new();
    ready.add(socket.clone())?;
    watch.join(&ready)?;
    // Kernels before 6.2 refuse USO.
    let output = SocketOutput::new(socket, Accepts::UNTUNNELLED.without(Accepts::USO), Header::Plain);
    let input = PacketInput::new(packets, watch);
    let signal = Signal::Watched(ready);
    Ok(PortIo { input: Box::new(input), output: Box::new(output), bell: Box::new(NoBell), signal })
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
            let port = open(&Settings { device: "x0".to_owned() }).expect("a port");
            let mut input = port.input;
            send_from_far_end(5);
            visit_until_asleep_in_memory(&mut *input, 5);
        });
    }
}
