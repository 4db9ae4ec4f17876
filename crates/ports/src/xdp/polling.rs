//! Has the poller do the device's receive work, as it polls everything else (VPE §4.2): a system call on the socket runs the driver's
//! poll (NAPI) on the poller's core.
//!
//! Where the device defers its interrupts (`napi_defer_hard_irqs`, `gro_flush_timeout`) and somebody polls, no interrupt takes the work
//! to another core. Otherwise the poll finds what the interrupt's core has left.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::net::{RecvFlags, recv};

/// Options of sockets (`SOL_SOCKET`), and their values: the poller rather than interrupts does the work (Linux 5.11); polling is on, with
/// a time that calls which do not wait never use; most frames of a poll.
const OPTIONS: [(libc::c_int, libc::c_int); 3] =
    [(libc::SO_PREFER_BUSY_POLL, 1), (libc::SO_BUSY_POLL, 20), (libc::SO_BUSY_POLL_BUDGET, 64)];

/// Sets a socket up for [`poll`]. Returns false if the kernel has no such polling, or does not let this user.
pub(super) fn prepare(socket: &OwnedFd) -> bool {
    OPTIONS.iter().all(|&(option, value)| set(socket, libc::SOL_SOCKET, option, value).is_ok())
}

/// Polls the device's queue.
pub(super) fn poll(socket: &OwnedFd) {
    // An error shows at the next look at the socket.
    let _ = recv(socket, &mut [0u8; 0], RecvFlags::DONTWAIT);
}

/// Sets an option that is a number.
pub(super) fn set(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel reads `value`, of this size, which outlives the call.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
