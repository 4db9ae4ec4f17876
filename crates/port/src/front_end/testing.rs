//! Descriptors as front ends have them.

use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::MemfdFlags;

pub fn memfd(bytes: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).expect("a memfd");
    rustix::fs::ftruncate(&file, bytes).expect("a length");
    file
}

pub fn new_eventfd() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd")
}

/// Returns how often the eventfd was written since the last call, and resets the count.
#[cfg(any(test, feature = "testing"))]
pub fn count(eventfd: &OwnedFd) -> u64 {
    let mut count = [0; 8];
    rustix::io::read(eventfd, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
}

/// Returns a TCP socket and its peer. The last close of the socket waits for the peer, for up to an hour (SO_LINGER).
#[cfg(any(test, feature = "testing"))]
pub fn lingering() -> (OwnedFd, std::net::TcpStream) {
    use rustix::net::SendFlags;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    let socket = std::net::TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let (peer, _) = listener.accept().expect("a connection");
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    while rustix::net::send(&socket, &[0; 65_536], flags).is_ok() {}
    let hour = Some(std::time::Duration::from_secs(3600));
    rustix::net::sockopt::set_socket_linger(&socket, hour).expect("an option");
    (socket.into(), peer)
}

/// Sends bytes and files. The files are closed here afterwards.
#[cfg(any(test, feature = "testing"))]
pub fn send_files(socket: &OwnedFd, bytes: &[u8], files: Vec<OwnedFd>) -> rustix::io::Result<usize> {
    use std::os::fd::AsFd;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    let mut space = vec![std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    assert!(borrowed.is_empty() || beside.push(SendAncillaryMessage::ScmRights(&borrowed)));
    sendmsg(socket, &[std::io::IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL)
}
