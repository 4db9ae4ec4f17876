//! The socket: listening, connecting, and messages whole.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, recvmsg,
    sendmsg, socket_with,
};

use super::message::{HEADER_BYTES, Header, MOST_BODY_BYTES, MOST_FDS, MessageError};
use super::reply::Reply;

/// Time for a message from its first byte to its last.
pub const MESSAGE_WITHIN: Duration = Duration::from_secs(5);
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

fn new_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?)
}

/// Connects to whoever listens at `path`, without waiting for a busy one.
///
/// # Errors
/// Nobody listens, or the kernel refuses.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let socket = new_socket()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// A socket that front ends connect to. Its path goes when it does.
pub struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode, to know it by.
    identity: Option<(u64, u64)>,
}

impl Listener {
    /// Listens at `path`, for the owner alone. A socket that a dead process left there is replaced.
    ///
    /// # Errors
    /// Somebody listens there, something else is there, or the kernel refuses.
    pub fn bind(path: &Path) -> io::Result<Listener> {
        let (socket, address) = (new_socket()?, SocketAddrUnix::new(path)?);
        // A socket gets its mode when it is bound: there is no moment in which others may connect (unix(7) is silent; net/unix).
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        match bind(&socket, &address) {
            Err(Errno::ADDRINUSE) => {
                remove_dead(path)?;
                bind(&socket, &address)?;
            }
            result => result?,
        }
        listen(&socket, 8)?;
        let identity = identity(path);
        Ok(Listener { socket, path: path.to_owned(), identity })
    }

    /// The next front end that waits.
    ///
    /// # Errors
    /// There is none after all, or no descriptors are left.
    pub fn accept(&self) -> io::Result<OwnedFd> {
        Ok(accept_with(&self.socket, FLAGS)?)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Removes a socket behind which nobody listens.
fn remove_dead(path: &Path) -> io::Result<()> {
    let here = path.display();
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::new(ErrorKind::AlreadyExists, format!("{here} exists and is not a socket")));
    }
    match connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        _ => Err(io::Error::new(ErrorKind::AddrInUse, format!("somebody listens at {here} already"))),
    }
}

/// What came of trying to receive.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// A message is whole ([`Receiver::take`]).
    Message(Header),
    /// There is no more for now.
    Nothing,
    /// The front end has gone.
    Gone,
}

/// Why a connection is of no use any more.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Not a message.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// Descriptors that do not fit.
    #[error("more than {MOST_FDS} file descriptors came with a message, or none are left for it here (ulimit -n)")]
    Descriptors,
}

/// A message on its way in. Its descriptors are owned from the moment they arrive.
pub struct Receiver {
    bytes: Box<[u8]>,
    have: usize,
    header: Option<Header>,
    fds: Vec<OwnedFd>,
    begun: Option<Instant>,
}

impl Receiver {
    /// For the beginning of a connection.
    pub fn new() -> Receiver {
        let bytes = vec![0; HEADER_BYTES + MOST_BODY_BYTES].into();
        Receiver { bytes, have: 0, header: None, fds: Vec::new(), begun: None }
    }

    /// When the message that has begun must be whole.
    pub fn deadline(&self) -> Option<Instant> {
        self.begun.map(|begun| begun + MESSAGE_WITHIN)
    }

    /// Receives until a message is whole, or as far as there is something to receive.
    ///
    /// # Errors
    /// What comes cannot be a message.
    pub fn receive(&mut self, socket: &OwnedFd) -> Result<Received, SocketError> {
        loop {
            let wanted = match self.header {
                Some(header) if self.have == HEADER_BYTES + header.size => return Ok(Received::Message(header)),
                Some(header) => HEADER_BYTES + header.size,
                None => match self.bytes[..self.have].first_chunk() {
                    Some(header) => {
                        self.header = Some(Header::decode(header)?);
                        continue;
                    }
                    None => HEADER_BYTES,
                },
            };
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
            let mut beside = RecvAncillaryBuffer::new(&mut space);
            let mut into = [IoSliceMut::new(&mut self.bytes[self.have..wanted])];
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let (count, truncated) = match recvmsg(socket, &mut into, &mut beside, flags) {
                Ok(received) => (received.bytes, received.flags.contains(ReturnFlags::CTRUNC)),
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(Errno::INTR) => continue,
                Err(_) => return Ok(Received::Gone),
            };
            for message in beside.drain() {
                if let RecvAncillaryMessage::ScmRights(files) = message {
                    self.fds.extend(files);
                }
            }
            if truncated || self.fds.len() > MOST_FDS {
                return Err(SocketError::Descriptors);
            }
            if count == 0 {
                return Ok(Received::Gone);
            }
            self.begun.get_or_insert_with(Instant::now);
            self.have += count;
        }
    }

    /// The body and the descriptors of the message that is whole; the next may begin.
    pub fn take(&mut self) -> (&[u8], Vec<OwnedFd>) {
        let end = std::mem::take(&mut self.have).max(HEADER_BYTES);
        (self.header, self.begun) = (None, None);
        (&self.bytes[HEADER_BYTES..end], std::mem::take(&mut self.fds))
    }
}

/// What came of an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is on its way.
    Done,
    /// There is no room for it now.
    Full,
    /// The front end has gone.
    Gone,
}

/// Sends an answer.
pub fn send(socket: &OwnedFd, request: u32, reply: &Reply) -> Sent {
    let (bytes, file) = reply.encode(request);
    let files: Vec<BorrowedFd<'_>> = file.into_iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        beside.push(SendAncillaryMessage::ScmRights(&files));
    }
    match sendmsg(socket, &[IoSlice::new(&bytes)], &mut beside, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        // So few bytes are sent as a whole or not at all.
        Ok(_) => Sent::Done,
        Err(Errno::AGAIN | Errno::INTR) => Sent::Full,
        Err(_) => Sent::Gone,
    }
}
