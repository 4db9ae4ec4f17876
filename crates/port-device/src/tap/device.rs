//! Creation and setup of a TAP device (Linux, Documentation/networking/tuntap.rst; netdevice(7)).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use ringway_keeper::{Guard, Inherited, Link};
use ringway_netdevice::requests::{bring_up, ioctl, lengthen_queue, request, set_address, set_mtu, socket};
use ringway_switch::Accepts;
use rustix::fs::{Mode, OFlags};

use crate::tap_file::{DeviceFile, Header, set_offloads};

/// Longest wait for the keeper to close a device, which waits for the kernel's lock of network devices.
const CLOSED_WITHIN: Duration = Duration::from_secs(5);

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

/// Opens the device in non-blocking mode and configures it: a header precedes every frame, and frames from the device
/// may request offloads. Returns the offloads that the device accepts in the other direction, and the header.
pub(super) fn open(label: &str, settings: &Settings, keeper: &Link) -> io::Result<(DeviceFile, Accepts, Header)> {
    let name = settings.device.as_str();
    let kept = format!("tap/{label}");
    let place = place(name);
    let left = inherit(keeper, &kept, &place, name);
    let (tap, mut request, guard) = match left {
        Some((tap, request, guard)) => (tap, request, Some(guard)),
        None => attach(name).map(|(tap, request)| (tap, request, None))?,
    };
    let is_left = guard.is_some();
    let (accepts, header) = set_offloads(tap.as_fd()).map_err(|error| failed(name, "set its offloads", &error))?;
    ioctl(tap.as_fd(), libc::TUNGETIFF, &mut request).map_err(|error| failed(name, "look at it", &error))?;
    // SAFETY: the kernel has just written this member of the union; every bit pattern is a valid number.
    let persistent = i32::from(unsafe { request.ifr_ifru.ifru_flags }) & libc::IFF_PERSIST != 0;
    let socket = socket()?;
    if !persistent && !is_left {
        if let Some(address) = settings.address {
            let set = set_address(name, socket.as_fd(), address);
            set.map_err(|error| failed(name, "set its address", &error))?;
        }
        lengthen_queue(name, socket.as_fd()).map_err(|error| failed(name, "set its queue's length", &error))?;
    }
    // Others may have changed, renamed or moved it since: the file is the device, whatever its name.
    if let Some(mtu) = settings.mtu.filter(|_| !is_left) {
        set_mtu(name, socket.as_fd(), mtu).map_err(|error| failed(name, &format!("set its MTU to {mtu}"), &error))?;
    }
    // An administrator who has set the device down since wants it down.
    if !is_left {
        bring_up(name, socket.as_fd()).map_err(|error| failed(name, "bring it up", &error))?;
    }
    let guard = match guard {
        Some(guard) => guard,
        None => Guard::new(keeper, &kept, place.as_bytes(), &[tap.as_fd()], Some(CLOSED_WITHIN))
            .map_err(|error| failed(name, "have it kept", &error))?,
    };
    Ok((DeviceFile::new(tap, Some(guard)), accepts, header))
}

/// Where a device is, in words that are compared only: its name, and the network namespace of the calling thread.
fn place(name: &str) -> String {
    let namespace = std::fs::metadata("/proc/thread-self/ns/net");
    let namespace = namespace.map_or((0, 0), |namespace| (namespace.dev(), namespace.ino()));
    format!("{name} {namespace:?}")
}

/// Returns the open device that a predecessor left for the port, and a request with its name. What cannot be used is closed.
fn inherit(keeper: &Link, kept: &str, place: &str, name: &str) -> Option<(OwnedFd, libc::ifreq, Guard)> {
    let Inherited { name: whole, note, files } = keeper.inherit(kept)?;
    let guard = Guard::of(keeper, whole, Some(CLOSED_WITHIN));
    let tap = files.into_iter().next().filter(|_| note == place.as_bytes());
    let mut request = request(name).ok()?;
    let used = tap.filter(|tap| {
        // A device that was deleted answers no more.
        ioctl(tap.as_fd(), libc::TUNGETIFF, &mut request).is_ok()
    });
    Some((used?, request, guard))
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

    #[test]
    fn who_may_not_make_a_device_is_told_how_to_get_one() {
        let error = no_device("tap0", &io::Error::from_raw_os_error(libc::EPERM)).to_string();
        assert!(error.contains("CAP_NET_ADMIN") && error.contains("ip tuntap add tap0 mode tap user USER"), "{error}");
    }
}
