//! The front end's side of vhost-user (docs/interop/vhost-user.rst in QEMU's tree): as much as one queue pair needs.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::feature;
use super::ring::Parts;
use crate::messages;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;
const HEADER_BYTES: usize = 12;

const PROTOCOL_MQ: u64 = 1 << 0;
const PROTOCOL_REPLY_ACK: u64 = 1 << 3;
const PROTOCOL_INFLIGHT_SHMFD: u64 = 1 << 12;
/// Bytes of the description of in-flight memory, with the padding that a C compiler adds.
const INFLIGHT_BYTES: usize = 24;

/// Requests and their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "the names of the specification")]
enum Request {
    GET_FEATURES = 1,
    SET_FEATURES = 2,
    SET_OWNER = 3,
    SET_MEM_TABLE = 5,
    SET_VRING_NUM = 8,
    SET_VRING_ADDR = 9,
    SET_VRING_BASE = 10,
    SET_VRING_KICK = 12,
    SET_VRING_CALL = 13,
    GET_PROTOCOL_FEATURES = 15,
    SET_PROTOCOL_FEATURES = 16,
    GET_QUEUE_NUM = 17,
    SET_VRING_ENABLE = 18,
    GET_INFLIGHT_FD = 31,
    SET_INFLIGHT_FD = 32,
}

/// Why a back end cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum VhostUserError {
    /// Invalid options.
    #[error("{0}")]
    Options(String),
    /// No back end listens.
    #[error("no vhost-user back end at {}: {source}", path.display())]
    Unreachable {
        /// Path of the socket.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A required feature is missing.
    #[error("the back end at {} does not offer {}", path.display(), name)]
    Lacks {
        /// Path of the socket.
        path: PathBuf,
        /// Name of the feature.
        name: &'static str,
    },
    /// The dialogue with the back end failed.
    #[error("vhost-user back end at {}: {request}: {source}", path.display())]
    Dialogue {
        /// Path of the socket.
        path: PathBuf,
        /// The request.
        request: String,
        /// What went wrong.
        source: io::Error,
    },
    /// The kernel refuses memory, an eventfd or the like.
    #[error("cannot make the driver's memory: {0}")]
    Memory(#[from] io::Error),
}

/// A connection to a back end.
#[derive(Debug)]
pub struct FrontEnd {
    socket: UnixStream,
    path: PathBuf,
    /// Protocol features in use.
    protocol: u64,
    /// True if rings have to be enabled. Without protocol features they are enabled from the start.
    enables: bool,
}

/// Memory shared with the back end: one region.
#[derive(Debug, Clone, Copy)]
pub struct Region<'f> {
    /// The file to map, from its beginning.
    pub file: BorrowedFd<'f>,
    /// Bytes of the memory.
    pub bytes: usize,
    /// Address of the memory in descriptors.
    pub guest: u64,
    /// Address of the memory in the driver.
    pub user: u64,
}

/// One virtqueue, as it is described to the back end.
#[derive(Debug)]
pub struct Vring {
    /// Number of the queue.
    pub index: u32,
    /// Number of descriptors.
    pub size: u32,
    /// Where the back end begins.
    pub base: u32,
    /// Address of the rings in the driver.
    pub user: u64,
    /// The offsets of its parts.
    pub parts: Parts,
}

/// In-flight memory of a back end, which the driver keeps for the next one.
#[derive(Debug)]
pub struct Inflight {
    /// As the back end has described it.
    place: [u8; INFLIGHT_BYTES],
    file: OwnedFd,
}

/// The eventfds of one virtqueue.
#[derive(Debug)]
pub struct Eventfds {
    /// Wakes the device.
    pub kick: OwnedFd,
    /// Wakes the driver.
    pub call: OwnedFd,
}

impl FrontEnd {
    /// Connects to a back end that listens.
    pub fn connect(path: &Path, within: Duration) -> Result<FrontEnd, VhostUserError> {
        let unreachable = |source| VhostUserError::Unreachable { path: path.to_owned(), source };
        let socket = UnixStream::connect(path).map_err(unreachable)?;
        Self::over(socket, path, within)
    }

    /// Listens until a back end connects. Removes the socket afterwards.
    pub fn listen(path: &Path, within: Duration) -> Result<FrontEnd, VhostUserError> {
        let unreachable = |source| VhostUserError::Unreachable { path: path.to_owned(), source };
        let listener = UnixListener::bind(path).map_err(unreachable)?;
        let timeout = Timespec::try_from(within).ok();
        let ready = poll(&mut [PollFd::new(&listener, PollFlags::IN)], timeout.as_ref());
        let accepted = match ready {
            Ok(0) => Err(io::Error::other(format!("nobody connected within {within:?}"))),
            Ok(_) => listener.accept().map(|(socket, _)| socket),
            Err(error) => Err(error.into()),
        };
        let _ = std::fs::remove_file(path);
        Self::over(accepted.map_err(unreachable)?, path, within)
    }

    fn over(socket: UnixStream, path: &Path, within: Duration) -> Result<FrontEnd, VhostUserError> {
        socket.set_read_timeout(Some(within))?;
        socket.set_write_timeout(Some(within))?;
        Ok(FrontEnd { socket, path: path.to_owned(), protocol: 0, enables: false })
    }

    /// Negotiates exactly the features `wanted`, INFLIGHT_SHMFD if the back end has it and `inflight` says so, and checks that the device
    /// has `pairs` queue pairs.
    pub fn negotiate(&mut self, wanted: u64, pairs: u16, inflight: bool) -> Result<(), VhostUserError> {
        self.send_request(Request::SET_OWNER, &[], &[])?;
        let offered = self.query(Request::GET_FEATURES)?;
        let missing = wanted & !offered;
        if missing != 0 {
            let name = feature::name(missing & missing.wrapping_neg());
            return Err(VhostUserError::Lacks { path: self.path.clone(), name });
        }
        let mut features = wanted;
        if offered & feature::PROTOCOL != 0 {
            features |= feature::PROTOCOL;
            self.enables = true;
            let mut agreed = self.query(Request::GET_PROTOCOL_FEATURES)?
                & (PROTOCOL_REPLY_ACK | PROTOCOL_MQ | PROTOCOL_INFLIGHT_SHMFD);
            if !inflight {
                agreed &= !PROTOCOL_INFLIGHT_SHMFD;
            }
            if pairs == 1 {
                agreed &= !PROTOCOL_MQ;
            }
            self.send_request(Request::SET_PROTOCOL_FEATURES, &agreed.to_ne_bytes(), &[])?;
            self.protocol = agreed;
        }
        if pairs > 1 {
            let has = if self.protocol & PROTOCOL_MQ == 0 { 1 } else { self.query(Request::GET_QUEUE_NUM)? };
            if has < u64::from(pairs) {
                let what = format!("the back end at {} has {has} queue pairs, not {pairs}", self.path.display());
                return Err(VhostUserError::Options(what));
            }
        }
        self.send_request(Request::SET_FEATURES, &features.to_ne_bytes(), &[])
    }

    /// Shares the memory with the back end.
    pub fn share(&mut self, region: &Region<'_>) -> Result<(), VhostUserError> {
        let mut table = [1u32.to_ne_bytes(), 0u32.to_ne_bytes()].concat();
        for word in [region.guest, region.bytes as u64, region.user, 0] {
            table.extend(word.to_ne_bytes());
        }
        self.send_request(Request::SET_MEM_TABLE, &table, &[region.file])
    }

    /// Gives the back end the memory that an earlier one has filled, or else asks for such memory.
    pub fn keep_inflight(&mut self, kept: &mut Option<Inflight>, queues: u16, size: u32) -> Result<(), VhostUserError> {
        if self.protocol & PROTOCOL_INFLIGHT_SHMFD == 0 {
            return Err(VhostUserError::Lacks { path: self.path.clone(), name: "INFLIGHT_SHMFD" });
        }
        let inflight = match kept.take() {
            Some(inflight) => inflight,
            None => self.new_inflight(queues, size).map_err(|error| self.broken(Request::GET_INFLIGHT_FD, error))?,
        };
        let Inflight { place, file } = kept.insert(inflight);
        self.send_request(Request::SET_INFLIGHT_FD, place, &[file.as_fd()])
    }

    fn new_inflight(&self, queues: u16, size: u32) -> io::Result<Inflight> {
        let mut wanted = [0; INFLIGHT_BYTES];
        wanted[16..18].copy_from_slice(&queues.to_ne_bytes());
        wanted[18..20].copy_from_slice(&(size as u16).to_ne_bytes());
        self.send(Request::GET_INFLIGHT_FD, VERSION, &wanted, &[])?;
        let mut answer = [0; HEADER_BYTES + INFLIGHT_BYTES];
        // Back ends send an answer at once, and its bytes come together.
        let (bytes, files) = messages::receive(&self.socket, &mut answer)?;
        let (place, file) = answer[HEADER_BYTES..]
            .first_chunk()
            .zip(files.into_iter().next())
            .filter(|_| bytes == HEADER_BYTES + INFLIGHT_BYTES)
            .ok_or_else(|| io::Error::other(format!("it answers with {bytes} bytes, or without a file")))?;
        Ok(Inflight { place: *place, file })
    }

    /// Configures and starts one virtqueue.
    pub fn start(&mut self, vring: &Vring) -> Result<Eventfds, VhostUserError> {
        let new = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from);
        let eventfds = Eventfds { kick: new()?, call: new()? };
        let state = |number: u32| [vring.index.to_ne_bytes(), number.to_ne_bytes()].concat();
        self.send_request(Request::SET_VRING_NUM, &state(vring.size), &[])?;
        self.send_request(Request::SET_VRING_BASE, &state(vring.base), &[])?;
        // No flags. Then, in the order of the message: descriptors, device area, driver area, and no log.
        let mut addresses = state(0);
        for at in [vring.parts.descriptors, vring.parts.device, vring.parts.driver] {
            addresses.extend((vring.user + at as u64).to_ne_bytes());
        }
        addresses.extend(0u64.to_ne_bytes());
        self.send_request(Request::SET_VRING_ADDR, &addresses, &[])?;
        let index = u64::from(vring.index).to_ne_bytes();
        self.send_request(Request::SET_VRING_CALL, &index, &[eventfds.call.as_fd()])?;
        self.send_request(Request::SET_VRING_KICK, &index, &[eventfds.kick.as_fd()])?;
        // Back ends start a ring at its first kick.
        let _ = rustix::io::write(&eventfds.kick, &1u64.to_ne_bytes());
        Ok(eventfds)
    }

    /// Enables a started virtqueue.
    pub fn enable(&mut self, index: u32) -> Result<(), VhostUserError> {
        if !self.enables {
            return Ok(());
        }
        self.send_request(Request::SET_VRING_ENABLE, &[index.to_ne_bytes(), 1u32.to_ne_bytes()].concat(), &[])
    }

    /// Returns the connection, whose end is the end of the back end.
    pub fn into_socket(self) -> UnixStream {
        self.socket
    }

    /// Sends a request. With REPLY_ACK, waits until it is done.
    fn send_request(
        &mut self,
        request: Request,
        payload: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> Result<(), VhostUserError> {
        let acknowledged = self.protocol & PROTOCOL_REPLY_ACK != 0;
        let flags = VERSION | if acknowledged { NEED_REPLY } else { 0 };
        let mut done = self.send(request, flags, payload, files);
        if done.is_ok() && acknowledged {
            done = match self.reply(request) {
                Ok(0) => Ok(()),
                Ok(code) => Err(io::Error::other(format!("the back end refused it with {code}"))),
                Err(error) => Err(error),
            };
        }
        done.map_err(|source| self.broken(request, source))
    }

    /// Sends a request and returns the number in the answer.
    fn query(&mut self, request: Request) -> Result<u64, VhostUserError> {
        let answer = self.send(request, VERSION, &[], &[]).and_then(|()| self.reply(request));
        answer.map_err(|source| self.broken(request, source))
    }

    fn send(&self, request: Request, flags: u32, payload: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let header = [request as u32, flags, payload.len() as u32].map(u32::to_ne_bytes).concat();
        messages::send(&self.socket, &header, payload, files)
    }

    /// Receives a reply, which must be one number.
    fn reply(&mut self, request: Request) -> io::Result<u64> {
        let mut message = [0; HEADER_BYTES + 8];
        let read = self.socket.read_exact(&mut message);
        read.map_err(|error| messages::no_answer("the back end", error))?;
        let word = |at: usize| u32::from_ne_bytes([message[at], message[at + 1], message[at + 2], message[at + 3]]);
        let (what, flags, size) = (word(0), word(4), word(8));
        if what != request as u32 || flags & (REPLY | 3) != REPLY | VERSION || size != 8 {
            return Err(io::Error::other(format!("it answers with request {what}, flags {flags:#x}, {size} bytes")));
        }
        Ok(u64::from(word(12)) | u64::from(word(16)) << 32)
    }

    fn broken(&self, request: Request, source: io::Error) -> VhostUserError {
        VhostUserError::Dialogue { path: self.path.clone(), request: format!("{request:?}"), source }
    }
}
