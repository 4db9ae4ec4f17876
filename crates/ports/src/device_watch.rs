//! Watches a port's network device. A socket of a device that goes need not report that: the events of all devices of the namespace
//! say when to look (rtnetlink(7)).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringway_switch::{Batch, DropReason, PortFault};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use crate::netdevice;

/// The group of events of devices (`RTMGRP_LINK`).
const DEVICES: u32 = 1;
/// Most messages that one look takes. The others are taken by the next look.
const MOST: usize = 64;
/// The device is looked at after so many looks into its rings, and before a poller sleeps: a poller that never sleeps never arms a port.
const LOOK_AFTER: u32 = 1 << 17;
/// A collect counts as so many of them.
pub(crate) const COLLECT: u32 = 32;

/// The device, as it was when the port was opened. Readable after an event.
pub(crate) struct DeviceWatch {
    events: OwnedFd,
    /// For requests in the device's namespace.
    requests: OwnedFd,
    name: String,
    /// Its number and address.
    identity: (u32, [u8; 6]),
    /// The device is gone, or is not the same any more.
    is_lost: bool,
    /// Frames that were lost, and that no batch has counted yet.
    lost: u64,
    /// Looks into the rings since the device was looked at.
    unlooked: u32,
}

impl DeviceWatch {
    /// Watches the device of this name, in the network namespace of the calling thread.
    pub(crate) fn new(name: &str, device: u32, address: [u8; 6]) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Protocol 0 is `NETLINK_ROUTE`.
        let events = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&events, &SocketAddrNetlink::new(0, DEVICES))?;
        Ok(DeviceWatch {
            events,
            requests: netdevice::socket()?,
            name: name.to_owned(),
            identity: (device, address),
            is_lost: false,
            lost: 0,
            unlooked: 0,
        })
    }

    /// Counts looks into the rings. Returns true if it is time for [`DeviceWatch::look`].
    #[inline]
    pub(crate) fn is_due(&mut self, looks: u32) -> bool {
        self.unlooked += looks;
        self.unlooked > LOOK_AFTER
    }

    /// Looks at the device. The kernel has lost so many frames since the last look.
    pub(crate) fn look(&mut self, lost: u64) {
        self.unlooked = 0;
        self.is_lost = self.is_lost || self.has_changed();
        self.lost += lost;
    }

    /// Returns true if [`DeviceWatch::report`] has something to report.
    #[inline]
    pub(crate) fn has_report(&self) -> bool {
        self.is_lost || self.lost > 0
    }

    /// Counts the lost frames in a batch.
    ///
    /// # Errors
    /// The device is gone.
    #[inline]
    pub(crate) fn report(&mut self, batch: &mut Batch<'_>) -> Result<(), PortFault> {
        if self.is_lost {
            return Err(PortFault::DeviceLost);
        }
        if self.lost > 0 {
            let lost = u32::try_from(std::mem::take(&mut self.lost)).unwrap_or(u32::MAX);
            batch.refuse_lost(DropReason::DeviceOverrun, lost);
        }
        Ok(())
    }

    /// Returns true if the device is gone or renamed, or has another address. Looks only after an event.
    fn has_changed(&self) -> bool {
        let socket = self.requests.as_fd();
        let identity = || {
            let address = netdevice::address(&self.name, socket).ok()??;
            Some((netdevice::index(&self.name, socket).ok()?, address))
        };
        self.take_events() && identity() != Some(self.identity)
    }

    /// Returns true if there were events, and forgets them.
    fn take_events(&self) -> bool {
        let mut any = false;
        for _ in 0..MOST {
            match recv(&self.events, &mut [0u8; 16], RecvFlags::TRUNC) {
                Err(Errno::AGAIN) => break,
                // An error says that events were lost.
                _ => any = true,
            }
        }
        any
    }
}

impl AsFd for DeviceWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
