//! Events of the network devices of a namespace (rtnetlink(7)): a socket of a device that goes reports nothing by itself.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

/// The group of events of devices (`RTMGRP_LINK`).
const DEVICES: u32 = 1;
/// Most messages that one look takes. The others are taken by the next look.
const MOST: usize = 64;

/// A socket that is readable after an event of any device.
pub(super) struct DeviceEvents(OwnedFd);

impl DeviceEvents {
    pub(super) fn new() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Protocol 0 is `NETLINK_ROUTE`.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, DEVICES))?;
        Ok(DeviceEvents(socket))
    }

    /// Returns true if there were events, and forgets them: who asks looks at the device itself.
    pub(super) fn take(&self) -> bool {
        let mut any = false;
        for _ in 0..MOST {
            match recv(&self.0, &mut [0u8; 16], RecvFlags::TRUNC) {
                Err(Errno::AGAIN) => break,
                // An error says that events were lost.
                _ => any = true,
            }
        }
        any
    }
}

impl AsFd for DeviceEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
