//! Watches a port's network device. A socket of a device that goes need not report that: the events of all devices of the namespace
//! say when to look (rtnetlink(7)). Changes of the number of queues are events of their own (uevents).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringway_switch::{Batch, DropReason, PortFault};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::netdevice;

/// The group of events of devices (`RTMGRP_LINK`), and that of the kernel's uevents.
const EVENTS: u32 = 1;
/// Most messages that one look takes. The others are taken by the next look.
const MOST: usize = 64;
/// The device is looked at after so many looks into its rings, and before a poller sleeps: a poller that never sleeps never arms a port.
const LOOK_AFTER: u32 = 1 << 17;
/// A collect counts as so many of them.
pub(crate) const COLLECT: u32 = 32;
/// Seconds after which a poller that sleeps looks at the device: no event tells that the kernel has lost a frame.
const TICK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Bytes of a frame beyond the device's MTU: the Ethernet header and a VLAN tag.
const HEADER: usize = 14 + 4;

/// What must stay the same while a port is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    index: u32,
    address: [u8; 6],
    /// Its receive queues, if they are watched, and its driver tells.
    queues: Option<u32>,
}

/// The device, as it was when the port was opened.
pub(crate) struct DeviceWatch {
    events: OwnedFd,
    queue_events: Option<OwnedFd>,
    tick: OwnedFd,
    /// For requests in the device's namespace.
    requests: OwnedFd,
    name: String,
    identity: Identity,
    longest: Arc<AtomicUsize>,
    fault: Option<PortFault>,
    /// Frames that were lost, and that no batch has counted yet.
    lost: u64,
    /// Looks into the rings since the device was looked at.
    unlooked: u32,
}

impl DeviceWatch {
    /// Watches the device of this name, in the network namespace of the calling thread. `queues`: also the number of its queues.
    pub(crate) fn new(name: &str, queues: bool) -> io::Result<Self> {
        let failed = |what: &str, error: &io::Error| netdevice::cannot(name, what, &error.to_string(), error.kind());
        // The events come first, so that no change after the first look is missed.
        let events = events(None)?;
        let queue_events = if queues { Some(self::events(Some(netlink::KOBJECT_UEVENT))?) } else { None };
        let tick = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        timerfd_settime(&tick, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: TICK, it_value: TICK })?;
        let requests = netdevice::socket()?;
        let index = netdevice::index(name, requests.as_fd()).map_err(|error| failed("find it", &error))?;
        let address = netdevice::address(name, requests.as_fd()).map_err(|error| failed("look at it", &error))?;
        let address = address.ok_or_else(|| failed("use it", &io::Error::other("it is not an Ethernet device")))?;
        let queues = if queues { netdevice::receive_queues(name, requests.as_fd()) } else { None };
        let watch = DeviceWatch {
            events,
            queue_events,
            tick,
            requests,
            name: name.to_owned(),
            identity: Identity { index, address, queues },
            longest: Arc::new(AtomicUsize::new(HEADER)),
            fault: None,
            lost: 0,
            unlooked: 0,
        };
        watch.measure().map_err(|error| failed("look at it", &error))?;
        Ok(watch)
    }

    /// Adds the descriptors that say when to look.
    pub(crate) fn join(&self, ready: &OwnedFd) -> io::Result<()> {
        for fd in [Some(&self.events), self.queue_events.as_ref(), Some(&self.tick)].into_iter().flatten() {
            epoll::add(ready, fd, EventData::new_u64(0), EventFlags::IN)?;
        }
        Ok(())
    }

    /// Returns the device's number.
    pub(crate) fn index(&self) -> u32 {
        self.identity.index
    }

    /// Returns the device's address.
    pub(crate) fn address(&self) -> [u8; 6] {
        self.identity.address
    }

    /// Returns the number of the device's receive queues, if they are watched and its driver tells it.
    pub(crate) fn queues(&self) -> Option<u32> {
        self.identity.queues
    }

    /// A socket for requests in the device's namespace.
    pub(crate) fn requests(&self) -> BorrowedFd<'_> {
        self.requests.as_fd()
    }

    /// Returns the length of the longest frame that the device sends, which changes with its MTU.
    pub(crate) fn longest(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.longest)
    }

    /// Returns the device's MTU.
    #[inline]
    pub(crate) fn mtu(&self) -> usize {
        self.longest.load(Ordering::Relaxed) - HEADER
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
        self.lost += lost;
        let _ = rustix::io::read(&self.tick, &mut [0; 8]);
        let of_queues = self.queue_events.as_ref().is_some_and(take_events);
        if take_events(&self.events) | of_queues && self.fault.is_none() {
            self.fault = self.change(of_queues);
        }
    }

    /// The port has to end for this reason.
    pub(crate) fn fail(&mut self, fault: PortFault) {
        self.fault.get_or_insert(fault);
    }

    /// Returns true if [`DeviceWatch::report`] has something to report.
    #[inline]
    pub(crate) fn has_report(&self) -> bool {
        self.fault.is_some() || self.lost > 0
    }

    /// Counts the lost frames in a batch.
    ///
    /// # Errors
    /// The port has to end.
    #[inline]
    pub(crate) fn report(&mut self, batch: &mut Batch<'_>) -> Result<(), PortFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if self.lost > 0 {
            let lost = u32::try_from(std::mem::take(&mut self.lost)).unwrap_or(u32::MAX);
            batch.refuse_lost(DropReason::DeviceOverrun, lost);
        }
        Ok(())
    }

    /// Returns what has changed, if the port cannot go on with it. Asks for the queues only if they can have changed: the kernel's lock
    /// of devices may be busy.
    fn change(&self, of_queues: bool) -> Option<PortFault> {
        let socket = self.requests.as_fd();
        let address = netdevice::address(&self.name, socket).ok().flatten();
        let (Ok(index), Some(address), Ok(())) = (netdevice::index(&self.name, socket), address, self.measure()) else {
            return Some(PortFault::DeviceLost);
        };
        let queues = if of_queues { netdevice::receive_queues(&self.name, socket) } else { self.identity.queues };
        let now = Identity { index, address, queues };
        if index != self.identity.index {
            Some(PortFault::DeviceLost)
        } else {
            (now != self.identity).then_some(PortFault::DeviceChanged)
        }
    }

    /// Notes the longest frame.
    fn measure(&self) -> io::Result<()> {
        let mtu = netdevice::mtu(&self.name, self.requests.as_fd())?;
        self.longest.store(mtu + HEADER, Ordering::Relaxed);
        Ok(())
    }
}

/// Returns true if there were events, and forgets them.
fn take_events(events: &OwnedFd) -> bool {
    let mut any = false;
    for _ in 0..MOST {
        match recv(events, &mut [0u8; 16], RecvFlags::TRUNC) {
            Err(Errno::AGAIN) => break,
            // An error says that events were lost.
            _ => any = true,
        }
    }
    any
}

/// Returns a socket that receives events. Without a protocol these are the events of devices (`NETLINK_ROUTE`).
fn events(of: Option<Protocol>) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let events = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, of)?;
    bind(&events, &SocketAddrNetlink::new(0, EVENTS))?;
    Ok(events)
}
