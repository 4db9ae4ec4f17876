//! The client's side of the attach dialogue.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use ringway_abi::attach::{MEMORY, REPLY_BYTES, REPLY_FDS, Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, send, sendmsg, socket_with,
};

use crate::error::AttachError;

/// Time limit for the answer of the switch.
pub(crate) const REPLY_WITHIN: Duration = Duration::from_secs(10);

/// The contents of a granting reply.
pub(crate) struct Granted {
    pub(crate) connection: OwnedFd,
    pub(crate) memory: OwnedFd,
    pub(crate) kick: OwnedFd,
    pub(crate) call: OwnedFd,
    pub(crate) colour: u32,
    pub(crate) bytes: u64,
    pub(crate) mac: [u8; 6],
}

/// Memory that a request speaks of.
pub(crate) struct OfferedMemory<'a> {
    pub(crate) file: BorrowedFd<'a>,
    /// The switch may have it, and may use it whatever the request's end.
    pub(crate) is_sent: bool,
}

/// Requests a port from the switch at `socket`.
pub(crate) fn request_port(
    socket: &Path,
    request: &Request,
    memory: Option<&mut OfferedMemory<'_>>,
) -> Result<Granted, AttachError> {
    let unreachable = |error: Errno| AttachError::Unreachable { path: socket.to_owned(), source: error.into() };
    let address = SocketAddrUnix::new(socket).map_err(unreachable)?;
    let connection =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).map_err(unreachable)?;
    // A switch that hangs makes no room in its queue of connections.
    set_socket_timeout(&connection, Timeout::Send, Some(REPLY_WITHIN)).map_err(unreachable)?;
    connect(&connection, &address).map_err(|error| match error {
        Errno::AGAIN => unreachable(Errno::TIMEDOUT),
        error => unreachable(error),
    })?;
    send(&connection, &request.encode(), SendFlags::NOSIGNAL).map_err(|e| AttachError::Dialogue(e.into()))?;
    let (mut reply, mut descriptors) = next_reply(&connection)?;
    if let (Reply::SendMemory, Some(memory)) = (&reply, memory) {
        memory.is_sent = true;
        send_memory(&connection, memory.file).map_err(|e| AttachError::Dialogue(e.into()))?;
        (reply, descriptors) = next_reply(&connection)?;
    }
    match reply {
        Reply::Refused(reason) => Err(AttachError::Refused(reason)),
        Reply::SendMemory => Err(AttachError::Dialogue(io::Error::other("the switch asks for memory"))),
        Reply::Granted { colour, bytes, mac } => {
            let [memory, kick, call] = <[OwnedFd; REPLY_FDS]>::try_from(descriptors).map_err(|got| {
                let message = format!("{} descriptors came with the reply, expected {REPLY_FDS}", got.len());
                AttachError::Dialogue(io::Error::other(message))
            })?;
            Ok(Granted { connection, memory, kick, call, colour, bytes, mac })
        }
    }
}

/// Sends the memory that a request speaks of.
fn send_memory(connection: &OwnedFd, memory: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [memory];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(connection, &[io::IoSlice::new(&MEMORY)], &mut ancillary, SendFlags::NOSIGNAL).map(|_| ())
}

/// Waits for the next reply. Returns it with its descriptors.
fn next_reply(connection: &OwnedFd) -> Result<(Reply, Vec<OwnedFd>), AttachError> {
    if !wait_readable(connection, REPLY_WITHIN)? {
        return Err(AttachError::Dialogue(io::ErrorKind::TimedOut.into()));
    }
    let mut message = [0; REPLY_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(REPLY_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut into = [io::IoSliceMut::new(&mut message)];
    let received = recvmsg(connection, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        .map_err(|e| AttachError::Dialogue(e.into()))?;
    let mut descriptors = Vec::new();
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    if received.bytes == 0 {
        return Err(AttachError::Dialogue(io::ErrorKind::ConnectionReset.into()));
    }
    let reply = Reply::decode(&message[..received.bytes]).map_err(|e| AttachError::Dialogue(io::Error::other(e)))?;
    Ok((reply, descriptors))
}

pub(crate) fn wait_readable(socket: &OwnedFd, within: Duration) -> Result<bool, AttachError> {
    let deadline = Instant::now() + within;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(AttachError::Dialogue(error.into())),
        }
    }
}
