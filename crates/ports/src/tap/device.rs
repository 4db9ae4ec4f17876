//! Making and setting up a device (Linux, Documentation/networking/tuntap.rst; netdevice(7)).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::Settings;

const CONTROL: &str = "/dev/net/tun";

/// Opens the device, non-blocking, and sets it up.
pub(super) fn open(settings: &Settings) -> io::Result<OwnedFd> {
    let name = settings.device.as_str();
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let tap = rustix::fs::open(CONTROL, flags, Mode::empty()).map_err(|error| no_control(name, error.into()))?;
    let mut request = request(name)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    ioctl(tap.as_fd(), libc::TUNSETIFF, &mut request).map_err(|error| no_device(name, &error))?;
    // Whoever used a persistent device before may have promised to take frames without checksum, or unsegmented.
    // SAFETY: TUNSETOFFLOAD takes a number, not a pointer.
    if unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETOFFLOAD as _, 0) } == -1 {
        return Err(failed(name, "switch its offloads off", &io::Error::last_os_error()));
    }
    set_up(settings)?;
    Ok(tap)
}

fn set_up(settings: &Settings) -> io::Result<()> {
    let name = settings.device.as_str();
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    if let Some(mtu) = settings.mtu {
        let mut request = request(name)?;
        request.ifr_ifru.ifru_mtu =
            i32::try_from(mtu).map_err(|_| io::Error::other(format!("TAP device \"{name}\": no MTU of {mtu}")))?;
        ioctl(socket.as_fd(), libc::SIOCSIFMTU, &mut request)
            .map_err(|error| failed(name, &format!("set its MTU to {mtu}"), &error))?;
    }
    if settings.up {
        let mut request = request(name)?;
        ioctl(socket.as_fd(), libc::SIOCGIFFLAGS, &mut request).map_err(|error| failed(name, "look at it", &error))?;
        // SAFETY: the kernel has just written this member; every bit pattern is a number.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        if i32::from(flags) & libc::IFF_UP != 0 {
            return Ok(());
        }
        request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
        match ioctl(socket.as_fd(), libc::SIOCSIFFLAGS, &mut request) {
            // A user may use a persistent device of theirs without being allowed to bring it up: somebody else will.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {}
            other => other.map_err(|error| failed(name, "bring it up", &error))?,
        }
    }
    Ok(())
}

/// A request about the device called `name`.
fn request(name: &str) -> io::Result<libc::ifreq> {
    // `%d` in a name would make the kernel choose a number.
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['/', '%', '\0']) {
        let what = format!("{name:?} is not a network device's name: write 1 to 15 bytes without \"/\" and \"%\"");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    // SAFETY: all zeroes is a valid ifreq: numbers, arrays of numbers, and pointers that nobody follows.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn ioctl<N>(fd: BorrowedFd<'_>, number: N, request: &mut libc::ifreq) -> io::Result<()>
where
    libc::Ioctl: TryFrom<N>,
{
    let number = libc::Ioctl::try_from(number).map_err(|_| io::Error::other("not a number of an ioctl"))?;
    // SAFETY: every number used here (TUNSETIFF and those of netdevice(7)) takes one ifreq, which outlives the call.
    match unsafe { libc::ioctl(fd.as_raw_fd(), number, &raw mut *request) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
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
            "a device of this name exists and is not a TAP device with one queue: choose another name, or delete it: \
             ip link del {name}"
        ),
        _ => error.to_string(),
    };
    io::Error::new(error.kind(), format!("cannot open TAP device \"{name}\": {help}"))
}

fn failed(name: &str, what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("TAP device \"{name}\": cannot {what}: {error}"))
}
