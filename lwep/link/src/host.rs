//! Interfaces of the host, which goes on using them.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use ringway_lwep::link::Link;
use ringway_netdevice::requests;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// What an interface is.
pub(crate) struct Found {
    pub(crate) index: u32,
    pub(crate) mac: [u8; 6],
    pub(crate) mtu: usize,
}

/// Finds an interface that is up and has Ethernet addresses.
pub(crate) fn find(interface: &str, socket: BorrowedFd<'_>) -> io::Result<Found> {
    let failed = |what: &str, why: &str, kind| requests::cannot(interface, what, why, kind);
    let refused = |error: io::Error| failed("look at it", &help(&error), error.kind());
    let index = requests::index(interface, socket).map_err(|error| failed("find it", &help(&error), error.kind()))?;
    let mac = requests::address(interface, socket).map_err(refused)?;
    let other = "it is not an Ethernet interface: use one with an Ethernet address (ip -br link)";
    let mac = mac.ok_or_else(|| failed("use it", other, io::ErrorKind::Unsupported))?;
    if !requests::is_up(interface, socket).map_err(refused)? {
        let down = format!("it is down: bring it up (ip link set {interface} up)");
        return Err(failed("use it", &down, io::ErrorKind::NetworkDown));
    }
    Ok(Found { index, mac, mtu: requests::mtu(interface, socket).map_err(refused)? })
}

/// Says why a link at the interface of this number has ended, if it has.
pub(crate) fn why_ended(index: u32, socket: BorrowedFd<'_>) -> Option<&'static str> {
    match requests::name_of(index, socket).and_then(|name| requests::is_up(&name, socket)) {
        Ok(true) => None,
        Ok(false) => Some("it is down: bring it up (ip link set NAME up) and open it again"),
        Err(_) => Some("it is gone, or in another network namespace: open it again when it is back"),
    }
}

/// Sleeps as [`Link::wait`] says. Looks for the end of the link only if no frame is there: that takes system calls.
pub(crate) fn wait(link: &mut impl Link, room: bool, timeout: Duration) -> io::Result<()> {
    if !link.want(room) {
        let timeout = Timespec::try_from(timeout).ok();
        match poll(&mut [PollFd::from_borrowed_fd(link.descriptor(), PollFlags::IN)], timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        link.awake();
    }
    if link.peek().is_some() { Ok(()) } else { link.check() }
}

/// The error of a link that has ended.
pub(crate) fn ended(interface: &str, why: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::NetworkDown,
        format!("network interface \"{interface}\": {}", why.replace("NAME", interface)),
    )
}

/// Checks that an address can be a link's own.
pub(crate) fn check_address(address: Ipv4Addr) -> io::Result<()> {
    let wrong = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    if address.is_unspecified() || address.is_loopback() || address.is_multicast() || address.is_broadcast() {
        return wrong(format!("{address} is not an address of a station: give the link one of its own"));
    }
    // With `net.ipv4.ip_nonlocal_bind` every address can be bound, also one that is for documents.
    let is_bound = |address| UdpSocket::bind((address, 0)).is_ok();
    if is_bound(address) && !is_bound(Ipv4Addr::new(192, 0, 2, 1)) {
        return wrong(format!("{address} is an address of this host, whose TCP it has: give the link one of its own"));
    }
    Ok(())
}

/// Says what to do about an error of the kernel.
fn help(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::NODEV) => "this network namespace has none of this name (ip -br link)".to_owned(),
        _ => error.to_string(),
    }
}
