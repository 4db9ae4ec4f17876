//! A small vhost-user back end with one queue pair, written from the specifications and independently of the driver.
//! Tests use it as the model for the driver, and measurements as a consumer with almost no cost.
#![allow(dead_code, reason = "each user needs a part of it")]

use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

use ringway_memory::{Mapping, View};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

pub const MRG_RXBUF: u64 = 1 << 15;
pub const EVENT_IDX: u64 = 1 << 29;
pub const PROTOCOL_FEATURES: u64 = 1 << 30;
pub const VERSION_1: u64 = 1 << 32;
pub const RING_PACKED: u64 = 1 << 34;
pub const IN_ORDER: u64 = 1 << 35;
/// All features of the model.
pub const ALL: u64 = MRG_RXBUF | EVENT_IDX | PROTOCOL_FEATURES | VERSION_1 | RING_PACKED | IN_ORDER;
pub const REPLY_ACK: u64 = 1 << 3;

const NEED_REPLY: u32 = 8;

/// One request of the front end.
pub struct Message {
    pub request: u32,
    pub flags: u32,
    pub payload: Vec<u8>,
    pub files: Vec<OwnedFd>,
}

impl Message {
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.payload[at..at + 4].try_into().expect("four bytes"))
    }

    pub fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.payload[at..at + 8].try_into().expect("eight bytes"))
    }
}

/// A connection to a front end.
pub struct Connection(pub UnixStream);

impl Connection {
    /// Waits for a front end at a socket.
    pub fn accept(listener: &UnixListener) -> Connection {
        Connection::over(listener.accept().expect("a front end").0)
    }

    pub fn over(socket: UnixStream) -> Connection {
        socket.set_read_timeout(Some(ringway_testing::PATIENCE)).expect("a timeout");
        Connection(socket)
    }

    /// Returns the next request, or `None` if the front end has closed the connection.
    pub fn next_request(&self) -> Option<Message> {
        let mut header = [0; 12];
        let files = self.read(&mut header)?;
        let word = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let mut payload = vec![0; word(8) as usize];
        if !payload.is_empty() {
            self.read(&mut payload)?;
        }
        Some(Message { request: word(0), flags: word(4), payload, files })
    }

    fn read(&self, into: &mut [u8]) -> Option<Vec<OwnedFd>> {
        let (mut at, mut files) = (0, Vec::new());
        while at < into.len() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut into[at..])];
            let got = recvmsg(&self.0, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC).ok()?.bytes;
            if got == 0 {
                return None;
            }
            at += got;
            for part in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = part {
                    files.extend(rights);
                }
            }
        }
        Some(files)
    }

    /// Answers a request with a number.
    pub fn answer(&self, request: u32, value: u64) {
        let mut reply = [request, 1 | 4, 8].map(u32::to_ne_bytes).concat();
        reply.extend(value.to_ne_bytes());
        (&self.0).write_all(&reply).expect("the front end reads");
    }
}

/// The front end's settings of one ring.
#[derive(Default)]
pub struct RingSettings {
    pub size: u32,
    pub base: u32,
    pub descriptors: u64,
    pub device: u64,
    pub driver: u64,
    pub kick: Option<OwnedFd>,
    pub call: Option<OwnedFd>,
    pub enabled: bool,
}

/// All settings of a front end.
pub struct Session {
    pub connection: Connection,
    pub features: u64,
    pub memory: Mapping,
    pub guest: u64,
    pub user: u64,
    /// The rings, the receive queue first.
    pub rings: Vec<RingSettings>,
    /// The requests in the order of their arrival.
    pub requests: Vec<u32>,
}

impl Session {
    /// Serves a front end until its last ring is enabled. Offers all features.
    pub fn serve(listener: &UnixListener) -> Session {
        Session::with(Connection::accept(listener), ALL, 1)
    }

    pub fn with(connection: Connection, offered: u64, pairs: usize) -> Session {
        let (mut features, mut memory, mut guest, mut user) = (0, None, 0, 0);
        let (mut rings, mut requests) = (Vec::new(), Vec::new());
        rings.resize_with(2 * pairs, RingSettings::default);
        while !rings.iter().all(|ring: &RingSettings| ring.enabled) {
            let mut message = connection.next_request().expect("a further request");
            requests.push(message.request);
            let mut answer = (message.flags & NEED_REPLY != 0).then_some(0);
            match message.request {
                1 => answer = Some(offered),
                2 => features = message.u64(0),
                3 => {}
                5 => {
                    assert_eq!((message.u32(0), message.files.len()), (1, 1), "one region");
                    let bytes = message.u64(16) as usize;
                    assert_eq!(message.u64(32), 0, "the region begins with the file");
                    memory = Some(Mapping::shared(message.files[0].as_fd(), bytes).expect("a mapping"));
                    (guest, user) = (message.u64(8), message.u64(24));
                }
                8 => rings[message.u32(0) as usize].size = message.u32(4),
                9 => {
                    let ring = &mut rings[message.u32(0) as usize];
                    (ring.descriptors, ring.device, ring.driver) = (message.u64(8), message.u64(16), message.u64(24));
                }
                10 => rings[message.u32(0) as usize].base = message.u32(4),
                12 => rings[message.u64(0) as usize].kick = message.files.pop(),
                13 => rings[message.u64(0) as usize].call = message.files.pop(),
                15 => answer = Some(REPLY_ACK | 1),
                16 => assert_eq!(message.u64(0) & !(REPLY_ACK | 1), 0, "only the offered features"),
                17 => answer = Some(pairs as u64),
                18 => rings[message.u32(0) as usize].enabled = message.u32(4) == 1,
                other => panic!("request {other} is not expected"),
            }
            if let Some(value) = answer {
                connection.answer(message.request, value);
            }
        }
        let memory = memory.expect("memory was shared");
        Session { connection, features, memory, guest, user, rings, requests }
    }

    /// Returns the memory at a guest address.
    pub fn guest(&self, address: u64, len: u32) -> View<'_> {
        let offset = address.checked_sub(self.guest).expect("inside the region") as usize;
        self.memory.view(offset, len as usize).expect("inside the region")
    }

    pub fn at(&self, user: u64, len: usize) -> View<'_> {
        self.memory.view((user - self.user) as usize, len).expect("inside the region")
    }
}
