//! The far end of a cable as a source of frames: a packet socket, which has the kernel send a batch by one system call.
//!
//! It receives nothing, so that frames to the far end cost no more than without it.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use ringway_traffic::Endpoint;
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::{
    AddressFamily, MMsgHdr, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, sendmmsg, socket_with,
};

use crate::peers::cable::{Cable, WIRE};
use crate::peers::netns;

/// Most frames of one system call.
const ROOM: usize = 128;
/// Bytes of the longest frame.
const LONGEST: usize = 1514;

/// The far end.
pub struct WireEnd {
    socket: OwnedFd,
    /// Their buffers, and the lengths that these were last written with.
    frames: Vec<([u8; LONGEST], usize)>,
    queued: usize,
    failed: Option<io::Error>,
}

impl WireEnd {
    /// Opens the far end of `cable`.
    ///
    /// # Errors
    /// Not root.
    pub fn open(cable: &Cable) -> io::Result<WireEnd> {
        let [_, far] = cable.hosts();
        let socket = netns::inside(far, || {
            let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
            prepare(&socket, name_to_index(&socket, WIRE)?)?;
            Ok(socket)
        })?;
        Ok(WireEnd { socket, frames: vec![([0; LONGEST], 0); ROOM], queued: 0, failed: None })
    }
}

/// Has the socket send to a device, past its queueing discipline. It takes frames of no protocol.
fn prepare(socket: &OwnedFd, device: u32) -> io::Result<()> {
    // SAFETY: all zeroes is a valid address: numbers and an array of numbers.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_ifindex = device as libc::c_int;
    let on: libc::c_int = 1;
    // SAFETY: the kernel reads `on` and `address`, of these sizes, which outlive the calls.
    let done = unsafe {
        let size = |bytes: usize| bytes as libc::socklen_t;
        let (fd, on, on_size) = (socket.as_raw_fd(), (&raw const on).cast(), size(size_of::<libc::c_int>()));
        libc::setsockopt(fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, on, on_size) == 0
            && libc::bind(fd, (&raw const address).cast(), size(size_of::<libc::sockaddr_ll>())) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl Endpoint for WireEnd {
    fn tx_room(&mut self) -> usize {
        ROOM - self.queued
    }

    fn tx_push(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        if self.queued == ROOM || len > LONGEST {
            return false;
        }
        let (frame, last) = &mut self.frames[self.queued];
        fill(&mut frame[..len]);
        *last = len;
        self.queued += 1;
        true
    }

    fn tx_flush(&mut self) {
        let queued = std::mem::take(&mut self.queued);
        if queued == 0 {
            return;
        }
        let parts: Vec<[IoSlice<'_>; 1]> =
            self.frames.iter().take(queued).map(|(frame, len)| [IoSlice::new(&frame[..*len])]).collect();
        let mut controls: Vec<SendAncillaryBuffer<'_, '_, '_>> =
            (0..queued).map(|_| SendAncillaryBuffer::default()).collect();
        let mut messages: Vec<MMsgHdr<'_>> =
            parts.iter().zip(&mut controls).map(|(part, control)| MMsgHdr::new(part, control)).collect();
        match sendmmsg(&self.socket, &mut messages, SendFlags::DONTWAIT) {
            // What the other end has no room for is lost, as on a wire.
            Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => {}
            Err(error) => self.failed = Some(error.into()),
        }
    }

    fn rx_batch(&mut self, _: usize, _: impl FnMut(&[u8])) -> usize {
        0
    }

    fn wait(&mut self, _: bool, _: Duration) -> io::Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }
}
