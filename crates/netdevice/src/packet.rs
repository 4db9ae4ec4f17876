//! Options of packet sockets (packet(7)).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// The socket sees no frames that this host sends (Linux 4.20).
pub const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// The structure of an option of a socket.
///
/// # Safety
/// The kernel reads this structure, and no memory that it refers to.
pub unsafe trait Plain {}

// SAFETY: a number.
unsafe impl Plain for libc::c_int {}
// SAFETY: a number, `PACKET_VERSION`.
unsafe impl Plain for libc::tpacket_versions {}
// SAFETY: numbers.
unsafe impl Plain for libc::tpacket_req {}
// SAFETY: numbers.
unsafe impl Plain for libc::packet_mreq {}

/// Sets an option of a socket. `value` has the type that the option is documented with.
///
/// # Errors
/// The kernel refuses the option.
pub fn set<T: Plain>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: a `Plain` refers to nothing.
    unsafe { set_option(socket, level, option, value) }
}

/// Has the socket take only frames that the filter lets pass (Linux, Documentation/networking/filter.rst).
///
/// # Errors
/// The filter is not valid.
pub fn filter(socket: &OwnedFd, instructions: &[libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(instructions.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let program = libc::sock_fprog { len, filter: instructions.as_ptr().cast_mut() };
    // SAFETY: the kernel reads the instructions, which outlive the call.
    unsafe { set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program) }
}

/// Sets an option of a socket.
///
/// # Safety
/// What `value` refers to is there while the call lasts.
unsafe fn set_option<T>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of `value`, and what it refers to: by the caller's word these outlive the call.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), length) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Has the socket take frames of a protocol of a device: of an EtherType, or `ETH_P_ALL`.
///
/// # Errors
/// The device is gone or down.
pub fn bind(socket: &OwnedFd, device: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: all zeroes is a valid address: numbers and an array of numbers.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = device as libc::c_int;
    // SAFETY: the kernel reads this many bytes of `address`, which outlives the call.
    let result = unsafe {
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length)
    };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns how many frames the socket has lost since this was last called: those for which it had no room.
pub fn take_lost(socket: &OwnedFd) -> u64 {
    let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: the kernel writes up to `length` bytes to `statistics`, and both outlive the call.
    let result = unsafe {
        let to = (&raw mut statistics).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, to, &raw mut length)
    };
    if result == -1 { 0 } else { statistics.tp_drops.into() }
}
