//! Requests to network devices (netdevice(7)), in the network namespace of the calling thread.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Returns a socket for requests.
pub(crate) fn socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

/// Returns the number of a device.
pub(crate) fn index(name: &str, socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut request = request(name)?;
    ioctl(socket, libc::SIOCGIFINDEX, &mut request)?;
    // SAFETY: the kernel has just written this member of the union; every bit pattern is a valid number.
    Ok(unsafe { request.ifr_ifru.ifru_ifindex } as u32)
}

/// Returns the Ethernet address of a device, or `None` if it has another kind of address.
pub(crate) fn address(name: &str, socket: BorrowedFd<'_>) -> io::Result<Option<[u8; 6]>> {
    let mut request = request(name)?;
    ioctl(socket, libc::SIOCGIFHWADDR, &mut request)?;
    // SAFETY: the kernel has just written this member of the union; every bit pattern is valid numbers.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    let bytes = std::array::from_fn(|at| address.sa_data[at].cast_unsigned());
    Ok((address.sa_family == libc::ARPHRD_ETHER).then_some(bytes))
}

/// The structure of a command of ethtool.
///
/// # Safety
/// The structure is that of `include/uapi/linux/ethtool.h` for the commands that its first word has: the kernel reads and writes no byte
/// beyond it. Any bytes are a value of it.
unsafe trait Command {}

/// `struct ethtool_drvinfo`, for `ETHTOOL_GDRVINFO`.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    others: [u8; 160],
}

// SAFETY: it has the 196 bytes of `struct ethtool_drvinfo`, and `driver` gives it that command.
unsafe impl Command for DriverInfo {}

/// `struct ethtool_value`, for `ETHTOOL_GFLAGS` and `ETHTOOL_SFLAGS`.
#[repr(C)]
struct Flags {
    command: u32,
    flags: u32,
}

// SAFETY: it has the two words of `struct ethtool_value`, and `set_tag_removal` gives it those commands.
unsafe impl Command for Flags {}

/// Makes a request of ethtool.
fn ethtool<C: Command>(name: &str, socket: BorrowedFd<'_>, command: &mut C) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = std::ptr::from_mut(command).cast();
    ioctl(socket, libc::SIOCETHTOOL, &mut request)
}

/// Returns the name of a device's driver.
pub(crate) fn driver(name: &str, socket: BorrowedFd<'_>) -> io::Result<String> {
    const GET_DRIVER_INFO: u32 = 3;
    let mut info = DriverInfo { command: GET_DRIVER_INFO, driver: [0; 32], others: [0; 160] };
    ethtool(name, socket, &mut info)?;
    let name = info.driver.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Sets whether a device takes the VLAN tags out of received frames. Returns the former setting.
pub(crate) fn set_tag_removal(name: &str, socket: BorrowedFd<'_>, on: bool) -> io::Result<bool> {
    const GET_FLAGS: u32 = 0x25;
    const SET_FLAGS: u32 = 0x26;
    const RECEIVE_VLAN: u32 = 1 << 8;
    let mut value = Flags { command: GET_FLAGS, flags: 0 };
    ethtool(name, socket, &mut value)?;
    let before = value.flags & RECEIVE_VLAN != 0;
    if before != on {
        let flags = if on { value.flags | RECEIVE_VLAN } else { value.flags & !RECEIVE_VLAN };
        ethtool(name, socket, &mut Flags { command: SET_FLAGS, flags })?;
    }
    Ok(before)
}

/// Brings a device up. Leaves it down if this user may not.
pub(crate) fn bring_up(name: &str, socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut request = request(name)?;
    ioctl(socket, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the kernel has just written this member of the union; every bit pattern is a valid number.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    if i32::from(flags) & libc::IFF_UP != 0 {
        return Ok(());
    }
    request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
    match ioctl(socket, libc::SIOCSIFFLAGS, &mut request) {
        // The owner of a persistent device may use it without the right to bring it up. An administrator has to do so.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(()),
        other => other,
    }
}

/// Returns a request about the device `name`.
///
/// # Errors
/// No device can have this name.
pub(crate) fn request(name: &str) -> io::Result<libc::ifreq> {
    // With `%d` in a name, the kernel would choose a number.
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['/', '%', '\0']) {
        let what = format!("{name:?} is not a network device's name: write 1 to 15 bytes without \"/\" and \"%\"");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    // SAFETY: all zeroes is a valid ifreq: numbers, arrays of numbers, and null pointers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// Makes a request by any socket, or by a TAP device.
pub(crate) fn ioctl<N>(fd: BorrowedFd<'_>, number: N, request: &mut libc::ifreq) -> io::Result<()>
where
    libc::Ioctl: TryFrom<N>,
{
    let number = libc::Ioctl::try_from(number).map_err(|_| io::Error::other("not a number of an ioctl"))?;
    // SAFETY: every request number used in this crate (TUNSETIFF, TUNGETIFF and those of netdevice(7)) takes one ifreq,
    // and `request` outlives the call. Of its addresses the kernel follows only that of SIOCETHTOOL, which is a `Command`.
    match unsafe { libc::ioctl(fd.as_raw_fd(), number, &raw mut *request) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_kernel_would_change_or_cut_off_are_refused() {
        for name in ["", "tap%d", "a/b", "a\0b", "sixteen-letters!"] {
            let Err(error) = request(name) else { panic!("{name:?} should be refused") };
            assert!(error.to_string().contains("write 1 to 15 bytes"), "{error}");
        }
        assert!(request("fifteen-letters").is_ok());
    }
}
