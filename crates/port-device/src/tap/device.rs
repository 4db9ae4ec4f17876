//! Creation and setup of a TAP device (Linux, Documentation/networking/tuntap.rst; netdevice(7)).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ringway_keeper::Guard;
use ringway_netdevice::requests::{bring_up, ioctl, lengthen_queue, request, set_address, set_mtu, socket};
use ringway_port::port_io::PortIo;
use ringway_runtime::{Signal, Watch};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};

use crate::device_closing::ClosedApart;
use crate::kept::{OpenDevice, numbers, unreadable};
use crate::socket_output::{NoBell, SocketOutput};
use crate::tap_file::{DeviceFile, Offloads, TapInput, set_offloads};

const CONTROL: &str = "/dev/net/tun";

/// Settings of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of the device: 1 to 15 bytes.
    pub device: String,
    /// The Ethernet address that a device gets that is made for the port.
    pub address: Option<[u8; 6]>,
    /// The MTU that the device gets.
    pub mtu: Option<u16>,
}

/// An open device.
pub(super) struct OpenTap {
    file: OwnedFd,
    offloads: Offloads,
}

/// Opens the device in non-blocking mode and configures it: a header precedes every frame, and frames from the device
/// may request offloads.
pub(super) fn open(settings: &Settings) -> io::Result<OpenTap> {
    let name = settings.device.as_str();
    let (file, mut request) = attach(name)?;
    let offloads = set_offloads(file.as_fd()).map_err(|error| failed(name, "set its offloads", &error))?;
    ioctl(file.as_fd(), libc::TUNGETIFF, &mut request).map_err(|error| failed(name, "look at it", &error))?;
    // SAFETY: the kernel has just written this member of the union; every bit pattern is a valid number.
    let persistent = i32::from(unsafe { request.ifr_ifru.ifru_flags }) & libc::IFF_PERSIST != 0;
    let socket = socket()?;
    if !persistent {
        if let Some(address) = settings.address {
            let set = set_address(name, socket.as_fd(), address);
            set.map_err(|error| failed(name, "set its address", &error))?;
        }
        lengthen_queue(name, socket.as_fd()).map_err(|error| failed(name, "set its queue's length", &error))?;
    }
    if let Some(mtu) = settings.mtu {
        set_mtu(name, socket.as_fd(), mtu).map_err(|error| failed(name, &format!("set its MTU to {mtu}"), &error))?;
    }
    bring_up(name, socket.as_fd()).map_err(|error| failed(name, "bring it up", &error))?;
    Ok(OpenTap { file, offloads })
}

/// Others may have changed, renamed or moved a device that was left: the file is the device, whatever its name. Nothing is set at it.
impl OpenDevice for OpenTap {
    type Port = PortIo;

    fn left(files: Vec<OwnedFd>, note: &str) -> io::Result<Self> {
        let [file] = <[OwnedFd; 1]>::try_from(files).map_err(|_| unreadable())?;
        let [offloads] = numbers(note)?;
        // Requests would wait for the kernel's lock of network devices.
        if is_deleted(&file)? {
            return Err(io::Error::other("it was deleted"));
        }
        Ok(Self { file, offloads: Offloads::numbered(offloads)? })
    }

    fn files(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.file.as_fd()]
    }

    fn note(&self) -> String {
        self.offloads.number().to_string()
    }

    fn port(self, kept: &Arc<Guard>) -> io::Result<PortIo> {
        let device = Arc::new(ClosedApart::new(DeviceFile::new(self.file, kept)));
        let ready = Watch::new();
        ready.add(device.clone())?;
        let input = TapInput::new(Arc::clone(&device), self.offloads.header())?;
        let output = SocketOutput::new(device, self.offloads);
        Ok(PortIo {
            input: Box::new(input),
            output: Box::new(output),
            bell: Box::new(NoBell),
            signal: Signal::Device(ready),
        })
    }
}

/// Returns true if there is no device behind the file any more (`tun_chr_poll` of Linux).
fn is_deleted(file: &OwnedFd) -> io::Result<bool> {
    let mut polled = [PollFd::new(file, PollFlags::empty())];
    poll(&mut polled, Some(&Timespec::default()))?;
    Ok(polled[0].revents().contains(PollFlags::ERR))
}

/// Attaches to the device, which is made if it is not there. Returns it, and a request with its name.
fn attach(name: &str) -> io::Result<(OwnedFd, libc::ifreq)> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let tap = rustix::fs::open(CONTROL, flags, Mode::empty()).map_err(|error| no_control(name, error.into()))?;
    let mut request = request(name)?;
    const KIND: libc::c_int = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    let mut attach = |flags: libc::c_int| {
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        ioctl(tap.as_fd(), libc::TUNSETIFF, &mut request)
    };
    match attach(KIND) {
        // A persistent device that was made for several queues: this is one of them.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            attach(KIND | libc::IFF_MULTI_QUEUE).map_err(|error| no_device(name, &error))?;
        }
        other => other.map_err(|error| no_device(name, &error))?,
    }
    Ok((tap, request))
}

fn no_control(name: &str, error: io::Error) -> io::Error {
    let help = match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => ": this kernel offers no TUN/TAP; load it: modprobe tun",
        Some(libc::EACCES | libc::EPERM) => ": this user may not open it; allow it: chmod a+rw /dev/net/tun",
        _ => "",
    };
    io::Error::new(error.kind(), format!("cannot open TAP device \"{name}\": {CONTROL}: {error}{help}"))
}

fn no_device(name: &str, error: &io::Error) -> io::Error {
    let help = match error.raw_os_error() {
        Some(libc::EBUSY) => "another program uses it: end that, or choose another name".to_owned(),
        Some(libc::EPERM | libc::EACCES) => format!(
            "making a device needs CAP_NET_ADMIN; without it, have an administrator make one for this user: \
             ip tuntap add {name} mode tap user USER"
        ),
        Some(libc::EINVAL) => format!(
            "a device of this name exists and is no TAP device: choose another name, or delete it: \
             ip link del {name}"
        ),
        _ => error.to_string(),
    };
    io::Error::new(error.kind(), format!("cannot open TAP device \"{name}\": {help}"))
}

fn failed(name: &str, what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("TAP device \"{name}\": cannot {what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_port::testing::{program, with_pair};

    #[test]
    fn a_device_that_was_deleted_is_none_that_a_successor_goes_on_with() {
        with_pair(|| {
            let settings = Settings { device: "t0".to_owned(), address: None, mtu: None };
            program("ip", "tuntap add dev t0 mode tap");
            let opened = open(&settings).expect("a device");
            let left = || OpenTap::left(vec![opened.file.try_clone().expect("a descriptor")], &opened.note());
            assert!(left().is_ok());
            program("ip", "link set t0 down");
            assert!(left().is_ok(), "it is there");
            program("ip", "link del t0");
            assert!(left().is_err());
        });
    }

    #[test]
    fn who_may_not_make_a_device_is_told_how_to_get_one() {
        let error = no_device("tap0", &io::Error::from_raw_os_error(libc::EPERM)).to_string();
        assert!(error.contains("CAP_NET_ADMIN") && error.contains("ip tuntap add tap0 mode tap user USER"), "{error}");
    }
}
