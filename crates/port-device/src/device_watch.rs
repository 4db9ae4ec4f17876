//! Watches a port's network device. A socket of a device that goes need not report that: the events of all devices of the namespace
//! say when to look (rtnetlink(7)). Changes of the number of queues are events of their own (uevents).
//!
//! Events of other devices cost no more than reading them: requests about a device can wait for locks of the kernel that all devices
//! share, and have it load modules.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ringway_netdevice::requests;
use ringway_runtime::Watch;
use ringway_switch::{Batch, DropReason, PortFault};
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};

use crate::kept::{self, unreadable};

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
/// Bytes of an event of a device that are read, and of a uevent: its path is shorter.
const EVENT_BYTES: usize = 32;
const UEVENT_BYTES: usize = 512;
/// Bytes of a frame beyond the device's MTU: the Ethernet header and a VLAN tag.
const HEADER: usize = 14 + 4;

/// A device that is to be watched, as it was when it was opened.
pub(crate) struct OpenWatch {
    events: OwnedFd,
    queue_events: Option<OwnedFd>,
    /// For requests in the device's namespace.
    requests: OwnedFd,
    name: String,
    index: u32,
    address: [u8; 6],
}

impl OpenWatch {
    /// Begins to watch the device of this name, in the network namespace of the calling thread. `queues`: also the number of its queues.
    pub(crate) fn open(name: &str, queues: bool) -> io::Result<Self> {
        let failed = |what: &str, error: &io::Error| requests::cannot(name, what, &error.to_string(), error.kind());
        // The events come first, so that no change after the first look is missed.
        let events = events(None)?;
        let queue_events = if queues { Some(self::events(Some(netlink::KOBJECT_UEVENT))?) } else { None };
        let requests = requests::socket()?;
        let index = requests::index(name, requests.as_fd()).map_err(|error| failed("find it", &error))?;
        let address = requests::address(name, requests.as_fd()).map_err(|error| failed("look at it", &error))?;
        let address = address.ok_or_else(|| failed("use it", &io::Error::other("it is not an Ethernet device")))?;
        Ok(OpenWatch { events, queue_events, requests, name: name.to_owned(), index, address })
    }

    /// The device that a predecessor has watched: the first of these descriptors, which are taken from there, and this note. It may be gone.
    ///
    /// # Errors
    /// A descriptor is missing, or the note is another one.
    pub(crate) fn left(files: &mut impl Iterator<Item = OwnedFd>, queues: bool, note: &str) -> io::Result<Self> {
        let (numbers, name) = note.split_once('\n').ok_or_else(unreadable)?;
        let [index, address] = kept::numbers(numbers)?;
        let index = u32::try_from(index).map_err(|_| unreadable())?;
        let [_, _, address @ ..] = u64::try_from(address).map_err(|_| unreadable())?.to_be_bytes();
        let mut next = || files.next().ok_or_else(unreadable);
        let (events, requests) = (next()?, next()?);
        let queue_events = if queues { Some(next()?) } else { None };
        Ok(OpenWatch { events, queue_events, requests, name: name.to_owned(), index, address })
    }

    /// Checks that the device is there as it was.
    ///
    /// # Errors
    /// It is gone, or has another name or address.
    pub(crate) fn check(&self) -> io::Result<()> {
        let socket = self.requests.as_fd();
        let is_same = requests::name_of(self.index, socket)? == self.name
            && requests::address(&self.name, socket)? == Some(self.address);
        if is_same { Ok(()) } else { Err(io::Error::other("it has changed")) }
    }

    /// The descriptors.
    pub(crate) fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [Some(&self.events), Some(&self.requests), self.queue_events.as_ref()].into_iter().flatten().map(AsFd::as_fd)
    }

    /// What the descriptors do not say.
    pub(crate) fn note(&self) -> String {
        let [a, b, c, d, e, f] = self.address;
        format!("{} {}\n{}", self.index, u64::from_be_bytes([0, 0, a, b, c, d, e, f]), self.name)
    }

    /// Returns the device's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the device's number.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Returns the device's address.
    pub(crate) fn address(&self) -> [u8; 6] {
        self.address
    }

    /// A socket for requests in the device's namespace.
    pub(crate) fn requests(&self) -> BorrowedFd<'_> {
        self.requests.as_fd()
    }

    /// Returns the number of the device's receive queues, if its driver tells it. Waits for other requests about devices.
    pub(crate) fn queues(&self) -> Option<u32> {
        requests::receive_queues(&self.name, self.requests.as_fd())
    }

    /// Forgets the events of queues. Attaching a program gives some drivers more queues for sending, with events like those of others.
    pub(crate) fn forget_queue_events(&self) {
        if let Some(events) = &self.queue_events {
            let _ = queues_have_changed(events, &self.name);
        }
    }
}

/// The device of a port.
pub(crate) struct DeviceWatch {
    events: Arc<OwnedFd>,
    queue_events: Option<Arc<OwnedFd>>,
    tick: Arc<OwnedFd>,
    requests: OwnedFd,
    name: String,
    index: u32,
    address: [u8; 6],
    longest: Arc<AtomicUsize>,
    is_running: Arc<AtomicBool>,
    fault: Option<PortFault>,
    /// Frames that were lost, and that no batch has counted yet.
    lost: u64,
    /// Looks into the rings since the device was looked at.
    unlooked: u32,
    /// The last look did not take all events. No event tells of those that are left.
    may_have_more: bool,
}

impl DeviceWatch {
    /// Watches an open device.
    ///
    /// # Errors
    /// It is gone, or no descriptors are left.
    pub(crate) fn new(open: OpenWatch) -> io::Result<Self> {
        let OpenWatch { events, queue_events, requests, name, index, address } = open;
        let tick = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        // On whole seconds: a poller sleeps until the ticks of all its ports.
        let first = Timespec { tv_sec: clock_gettime(ClockId::Monotonic).tv_sec + 1, tv_nsec: 0 };
        timerfd_settime(&tick, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval: TICK, it_value: first })?;
        let watch = DeviceWatch {
            events: Arc::new(events),
            queue_events: queue_events.map(Arc::new),
            tick: Arc::new(tick),
            requests,
            name,
            index,
            address,
            longest: Arc::new(AtomicUsize::new(HEADER)),
            is_running: Arc::new(AtomicBool::new(true)),
            fault: None,
            lost: 0,
            unlooked: 0,
            may_have_more: false,
        };
        let failed = |error: &io::Error| requests::cannot(&watch.name, "look at it", &error.to_string(), error.kind());
        watch.measure().map_err(|error| failed(&error))?;
        Ok(watch)
    }

    /// Adds the descriptors that say when to look.
    pub(crate) fn join(&self, ready: &Watch) -> io::Result<()> {
        for descriptor in [Some(&self.events), self.queue_events.as_ref(), Some(&self.tick)].into_iter().flatten() {
            ready.add(descriptor.clone())?;
        }
        Ok(())
    }

    /// Returns the length of the longest frame that the device sends, which changes with its MTU.
    pub(crate) fn longest(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.longest)
    }

    /// Returns whether the device is up and has a carrier, which changes.
    pub(crate) fn is_running(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_running)
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
        self.unlooked > LOOK_AFTER || self.may_have_more
    }

    /// Looks at the device. The kernel has lost so many frames since the last look.
    pub(crate) fn look(&mut self, lost: u64) {
        self.unlooked = 0;
        self.lost += lost;
        let _ = rustix::io::read(&self.tick, &mut [0; 8]);
        let (queues_have_changed, more_of_queues) =
            self.queue_events.as_ref().map_or((false, false), |events| queues_have_changed(events, &self.name));
        let (seen, more) = self.take_events();
        self.may_have_more = more || more_of_queues;
        let change = match seen {
            Seen::Nothing => None,
            Seen::Change => self.change(),
            Seen::Removal => Some(PortFault::DeviceLost),
        };
        if self.fault.is_none() {
            self.fault = change.or(queues_have_changed.then_some(PortFault::DeviceChanged));
        }
    }

    /// The port has to end for this reason.
    pub(crate) fn fail(&mut self, fault: PortFault) {
        self.fault.get_or_insert(fault);
    }

    /// Returns true if [`DeviceWatch::report`] has something to report, or the next look may have.
    #[inline]
    pub(crate) fn has_report(&self) -> bool {
        self.fault.is_some() || self.lost > 0 || self.may_have_more
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

    /// Returns what has changed, if the port cannot go on with it.
    fn change(&self) -> Option<PortFault> {
        let socket = self.requests.as_fd();
        if requests::name_of(self.index, socket).ok().as_ref() != Some(&self.name) {
            return Some(PortFault::DeviceLost);
        }
        let (Ok(address), Ok(())) = (requests::address(&self.name, socket), self.measure()) else {
            return Some(PortFault::DeviceLost);
        };
        (address != Some(self.address)).then_some(PortFault::DeviceChanged)
    }

    /// Takes the events of devices. Also returns true if there may be more.
    fn take_events(&self) -> (Seen, bool) {
        let mut seen = Seen::Nothing;
        for _ in 0..MOST {
            let mut event = [0u8; EVENT_BYTES];
            seen = seen.max(match recv(&self.events, &mut event, RecvFlags::empty()) {
                Err(Errno::AGAIN) => return (seen, false),
                Ok(_) => seen_in(&event, self.index),
                // Events were lost.
                Err(_) => Seen::Change,
            });
        }
        (seen, true)
    }

    /// Notes the longest frame, and whether the device sends.
    fn measure(&self) -> io::Result<()> {
        let mtu = requests::mtu(&self.name, self.requests.as_fd())?;
        self.longest.store(mtu + HEADER, Ordering::Relaxed);
        self.is_running.store(requests::is_running(&self.name, self.requests.as_fd())?, Ordering::Relaxed);
        Ok(())
    }
}

/// What events say of the device. Of several, the last of these counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    Nothing,
    /// Something has changed, or may have.
    Change,
    /// The device is gone, or in another namespace.
    Removal,
}

/// Returns what an event says of this device (`struct nlmsghdr` and `struct ifinfomsg`).
fn seen_in(event: &[u8; EVENT_BYTES], index: u32) -> Seen {
    let kind = u16::from_ne_bytes([event[4], event[5]]);
    let family = libc::c_int::from(event[16]);
    if event[20..24] != index.to_ne_bytes() {
        Seen::Nothing
    } else if kind == libc::RTM_DELLINK && family == libc::AF_UNSPEC {
        Seen::Removal
    } else {
        Seen::Change
    }
}

/// Takes uevents. Returns true if there was one of the receive queues of the device of this name, and true if there may be more.
fn queues_have_changed(events: &OwnedFd, name: &str) -> (bool, bool) {
    let queues = format!("/net/{name}/queues/rx-");
    let mut any = false;
    for _ in 0..MOST {
        let mut event = [0u8; UEVENT_BYTES];
        any |= match recv(events, &mut event, RecvFlags::empty()) {
            Err(Errno::AGAIN) => return (any, false),
            Ok((len, _)) => is_of(&event[..len.min(UEVENT_BYTES)], queues.as_bytes()),
            // Events were lost.
            Err(_) => true,
        };
    }
    (any, true)
}

/// Returns true if the path of a uevent (`ACTION@PATH`, and a zero byte) has this part.
fn is_of(event: &[u8], part: &[u8]) -> bool {
    let path = event.split(|&byte| byte == 0).next().unwrap_or_default();
    path.windows(part.len()).any(|window| window == part)
}

/// Returns a socket that receives events. Without a protocol these are the events of devices (`NETLINK_ROUTE`).
fn events(of: Option<Protocol>) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let events = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, of)?;
    bind(&events, &SocketAddrNetlink::new(0, EVENTS))?;
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_port::testing::{program, with_pair};

    #[test]
    fn only_events_of_the_device_are_followed_and_leaving_a_bridge_is_not_its_end() {
        let seen = |kind: u16, family: i32, index: u32| {
            let mut event = [0; EVENT_BYTES];
            event[4..6].copy_from_slice(&kind.to_ne_bytes());
            event[16] = family as u8;
            event[20..24].copy_from_slice(&index.to_ne_bytes());
            seen_in(&event, 7)
        };
        assert_eq!(seen(libc::RTM_NEWLINK, libc::AF_UNSPEC, 7), Seen::Change);
        assert_eq!(seen(libc::RTM_DELLINK, libc::AF_UNSPEC, 7), Seen::Removal);
        assert_eq!(seen(libc::RTM_DELLINK, libc::AF_BRIDGE, 7), Seen::Change);
        assert_eq!(seen(libc::RTM_NEWLINK, libc::AF_UNSPEC, 8), Seen::Nothing);
        assert_eq!(seen(libc::RTM_DELLINK, libc::AF_UNSPEC, 8), Seen::Nothing);
    }

    #[test]
    fn a_device_with_more_events_than_one_look_takes_is_looked_at_again() {
        with_pair(|| {
            let mut watch = DeviceWatch::new(OpenWatch::open("x0", false).expect("a device")).expect("a device");
            watch.look(0);
            for number in 0..2 * MOST {
                program("ip", &format!("link set x0 alias number{number}"));
            }
            watch.look(0);
            assert!(watch.has_report() && watch.is_due(1), "no event tells of the events that are left");
            while watch.has_report() {
                watch.look(0);
            }
            assert!(watch.unlooked == 0 && watch.fault.is_none());
        });
    }

    #[test]
    fn only_uevents_of_the_devices_receive_queues_are_of_its_queues() {
        let is = |event: &str| is_of(event.as_bytes(), b"/net/x0/queues/rx-");
        assert!(is("add@/devices/virtual/net/x0/queues/rx-1\0ACTION=add\0"));
        assert!(!is("add@/devices/virtual/net/x0/queues/tx-1\0ACTION=add\0"));
        assert!(!is("add@/devices/virtual/net/x01/queues/rx-1\0ACTION=add\0"));
        assert!(!is("change@/devices/other\0DEVPATH=/net/x0/queues/rx-1\0"));
        assert!(!is(""));
    }
}
