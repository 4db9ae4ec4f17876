//! A vhost-user front end that sends arbitrary messages.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use ringway_memory::Mapping;
use ringway_scenes::{PATIENCE, until};
use ringway_testing::file::new_eventfd;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::scene::Scene;

pub const SET_FEATURES: u32 = 2;
pub const SET_OWNER: u32 = 3;
pub const SET_MEM_TABLE: u32 = 5;
pub const SET_LOG_BASE: u32 = 6;
pub const SET_VRING_NUM: u32 = 8;
pub const SET_VRING_ADDR: u32 = 9;
pub const SET_VRING_BASE: u32 = 10;
pub const SET_VRING_KICK: u32 = 12;
pub const SET_PROTOCOL_FEATURES: u32 = 16;
pub const SET_VRING_ENABLE: u32 = 18;
pub const SET_INFLIGHT_FD: u32 = 32;

const VERSION_1: u64 = 1 << 32;
const PROTOCOL_FEATURES: u64 = 1 << 30;
pub const LOG_ALL: u64 = 1 << 26;
/// LOG_SHMFD, REPLY_ACK, INFLIGHT_SHMFD, CONFIGURE_MEM_SLOTS.
const PROTOCOL: u64 = 1 << 1 | 1 << 3 | 1 << 12 | 1 << 15;

/// Descriptors of a ring.
pub const RING: u16 = 256;
/// Places in the memory of the descriptor table, the available ring and the used ring of queue 1, and of a frame's buffer.
const TABLE: u64 = 0;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const BUFFER: u64 = 0x4000;
/// Bytes of the memory that `send` needs.
pub const LEAST: usize = 0x10_000;

/// Returns a configuration of `vhost-user` ports `evil0` and so on.
pub fn config(ports: usize) -> String {
    let port = |number| format!("[port.evil{number}]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n");
    "[switch.lan0]\n".to_owned() + &(0..ports).map(port).collect::<String>()
}

pub fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Returns a message body with a queue's number and another number.
pub fn state(queue: u32, number: u32) -> Vec<u8> {
    [queue.to_ne_bytes(), number.to_ne_bytes()].concat()
}

pub struct FrontEnd {
    socket: UnixStream,
    /// Kick descriptors of running queues.
    kicks: Vec<OwnedFd>,
}

impl FrontEnd {
    /// Connects and negotiates features: `more` in addition to the necessary ones.
    pub fn connect(scene: &Scene, port: &str, more: u64) -> FrontEnd {
        let path = scene.daemon.runtime_dir().join(format!("{port}.sock"));
        let socket = UnixStream::connect(path).expect("a port listens");
        socket.set_read_timeout(Some(2 * PATIENCE)).expect("a time");
        let front_end = FrontEnd { socket, kicks: Vec::new() };
        front_end.say(SET_OWNER, false, &[], &[]);
        front_end.say(SET_PROTOCOL_FEATURES, false, &words(&[PROTOCOL]), &[]);
        assert!(front_end.ask(SET_FEATURES, &words(&[VERSION_1 | PROTOCOL_FEATURES | more]), &[]));
        front_end
    }

    fn say(&self, request: u32, need_reply: bool, body: &[u8], files: &[BorrowedFd<'_>]) {
        let flags = 1 | u32::from(need_reply) << 3;
        let message = [&[request, flags, body.len() as u32].map(u32::to_ne_bytes).concat(), body].concat();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(files.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(files)));
        // The port may have ended the connection already.
        let _ = sendmsg(&self.socket, &[IoSlice::new(&message)], &mut ancillary, SendFlags::NOSIGNAL);
    }

    /// Sends a request. Returns true if the port accepts it, and false if the port refuses it or ends the connection.
    pub fn ask(&self, request: u32, body: &[u8], files: &[BorrowedFd<'_>]) -> bool {
        self.say(request, true, body, files);
        self.next_answer().is_some_and(|number| number == 0)
    }

    /// Sends a request with its own kind of answer. Returns the answer.
    pub fn ask_for_answer(&self, request: u32, body: &[u8], files: &[BorrowedFd<'_>]) -> bool {
        self.say(request, false, body, files);
        self.next_answer().is_some()
    }

    /// Returns the first number of an answer.
    fn next_answer(&self) -> Option<u64> {
        let (mut header, mut body) = ([0; 12], Vec::new());
        (&self.socket).read_exact(&mut header).ok()?;
        let size = u32::from_ne_bytes(header[8..].try_into().expect("four bytes"));
        body.resize(size as usize, 0);
        (&self.socket).read_exact(&mut body).ok()?;
        body.first_chunk().copied().map(u64::from_ne_bytes)
    }

    /// Shares one region of memory, at address 0.
    pub fn share(&self, file: &OwnedFd, bytes: u64) -> bool {
        self.share_all(&[(file.as_fd(), 0, bytes, 0)])
    }

    /// Shares regions: file, address (of both the guest and the front end), bytes, offset in the file.
    pub fn share_all(&self, regions: &[(BorrowedFd<'_>, u64, u64, u64)]) -> bool {
        let mut body = [(regions.len() as u32).to_ne_bytes(), [0; 4]].concat();
        regions.iter().for_each(|&(_, at, bytes, offset)| body.extend(words(&[at, bytes, at, offset])));
        let files: Vec<_> = regions.iter().map(|region| region.0).collect();
        self.ask(SET_MEM_TABLE, &body, &files)
    }

    /// Starts the transmit queue at the memory's beginning. Returns false if the port ends the connection.
    pub fn start(&mut self) -> bool {
        let kick = new_eventfd();
        let address = [state(1, 0), words(&[TABLE, USED, AVAILABLE, 0])].concat();
        let started = self.ask(SET_VRING_NUM, &state(1, RING.into()), &[])
            && self.ask(SET_VRING_BASE, &state(1, 0), &[])
            && self.ask(SET_VRING_ADDR, &address, &[])
            && self.ask(SET_VRING_KICK, &words(&[1]), &[kick.as_fd()])
            && self.ask(SET_VRING_ENABLE, &state(1, 1), &[]);
        let _ = rustix::io::write(&kick, &1u64.to_ne_bytes());
        self.kicks.push(kick);
        started
    }

    pub fn kick(&self) {
        for kick in &self.kicks {
            let _ = rustix::io::write(kick, &1u64.to_ne_bytes());
        }
    }
}

/// Writes descriptors of frames into the memory and makes them available. `frames` has the address and length of each
/// buffer, with its header of 12 bytes.
pub fn offer(memory: &Mapping, first: u16, frames: &[(u64, u32)]) {
    let put = |at: u64, bytes: &[u8]| {
        assert!(memory.view(at as usize, bytes.len()).expect("inside").write(bytes));
    };
    for (&(address, len), number) in frames.iter().zip(first..) {
        let slot = u64::from(number % RING);
        put(TABLE + 16 * slot, &[address.to_le_bytes(), u64::from(len).to_le_bytes()].concat());
        put(AVAILABLE + 4 + 2 * slot, &(slot as u16).to_le_bytes());
    }
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    put(AVAILABLE + 2, &first.wrapping_add(frames.len() as u16).to_le_bytes());
}

/// Returns the number of used chains.
pub fn used(memory: &Mapping) -> u16 {
    let mut bytes = [0; 2];
    assert!(memory.view(USED as usize + 2, 2).expect("inside").read(&mut bytes));
    u16::from_le_bytes(bytes)
}

/// Writes a frame behind its header. Returns the buffer's address.
pub fn put_frame(memory: &Mapping, frame: &[u8]) -> (u64, u32) {
    let bytes = [&[0; 12], frame].concat();
    assert!(memory.view(BUFFER as usize, bytes.len()).expect("inside").write(&bytes));
    (BUFFER, bytes.len() as u32)
}

/// Waits until the port has ended the connection for this reason, and waits for the next one.
pub fn must_have_ended(scene: &Scene, port: &str, reason: &str) {
    until(&format!("{port} is ended for {reason}"), || scene.faults(port, reason) > 0);
    scene.daemon.until_state(port, "waiting");
}
