//! The process at the other end of a socket, and its user.

use std::mem::size_of;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd};

/// Returns the number of the process that connected a Unix socket, or `None` if it has none in this process's PID namespace.
pub(crate) fn peer_process(socket: impl AsFd) -> Option<NonZeroU32> {
    NonZeroU32::new(u32::try_from(credentials(socket)?.pid).ok()?)
}

/// Returns the user of that process, in this process's user namespace.
pub(crate) fn peer_user(socket: impl AsFd) -> Option<u32> {
    Some(credentials(socket)?.uid)
}

fn credentials(socket: impl AsFd) -> Option<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the option is a ucred, and `peer` and `len` are writable and outlive the call.
    let got = unsafe {
        let into = (&raw mut peer).cast();
        libc::getsockopt(socket.as_fd().as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, into, &raw mut len)
    };
    (got == 0).then_some(peer)
}
