//! For tests: a function served on a socket, and a front end that can send anything.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use super::testing::{Card, message, version};
use super::{Function, Observer, Server, ServerSettings};

/// A card, served on a socket.
pub struct Served {
    pub card: Arc<Card>,
    pub socket: PathBuf,
    server: Option<Server>,
    _folder: tempfile::TempDir,
}

impl Served {
    pub fn new() -> Served {
        let folder = tempfile::tempdir().expect("a folder");
        let (card, socket) = (Card::new(), folder.path().join("vm.sock"));
        let settings = ServerSettings {
            label: "lan0:vm".into(),
            socket: socket.clone(),
            access: ringway_port::SocketAccess::default(),
        };
        let interrupts = Arc::clone(&card.interrupts);
        let observer = Arc::clone(&card) as Arc<dyn Observer>;
        let function = Arc::clone(&card) as Arc<dyn Function>;
        let server = Server::start(&settings, function, interrupts, observer).expect("a server");
        Served { card, socket, server: Some(server), _folder: folder }
    }

    /// Ends the port.
    pub fn end(&mut self) {
        self.server = None;
    }

    /// Connects a front end and negotiates a version.
    pub fn attach(&self) -> Raw {
        let mut front = Raw::connect(&self.socket);
        let answer = front.ask(1, &version("{\"capabilities\":{\"write_multiple\":true}}"));
        assert_eq!(answer.error, None, "a version");
        front
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub id: u16,
    pub command: u16,
    /// The errno, if the answer reports an error.
    pub error: Option<u32>,
    pub body: Vec<u8>,
    pub files: Vec<OwnedFd>,
}

impl Answer {
    pub fn words(&self) -> Vec<u32> {
        self.body.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().expect("4 bytes"))).collect()
    }
}

/// A front end that sends what a test tells it to.
pub struct Raw {
    pub socket: UnixStream,
    id: u16,
}

impl Raw {
    pub fn connect(path: &Path) -> Raw {
        let socket = UnixStream::connect(path).expect("a connection");
        socket.set_read_timeout(Some(ringway_testing::PATIENCE)).expect("a time");
        Raw { socket, id: 0xfff0 }
    }

    pub fn send(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) {
        assert_eq!(self.try_send(bytes, files), Ok(bytes.len()));
    }

    pub fn try_send(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> rustix::io::Result<usize> {
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(beside.push(SendAncillaryMessage::ScmRights(files)));
        }
        sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL)
    }

    /// Sends a command. Returns its id.
    pub fn tell(&mut self, command: u16, flags: u32, body: &[u8], files: &[BorrowedFd<'_>]) -> u16 {
        self.id = self.id.wrapping_add(1);
        self.send(&message(self.id, command, flags, body), files);
        self.id
    }

    /// Sends a command. Returns the answer to it.
    pub fn ask(&mut self, command: u16, body: &[u8]) -> Answer {
        self.ask_with(command, body, &[])
    }

    pub fn ask_with(&mut self, command: u16, body: &[u8], files: &[BorrowedFd<'_>]) -> Answer {
        let id = self.tell(command, 0, body, files);
        let answer = self.answer().expect("an answer");
        assert_eq!((answer.id, answer.command), (id, command), "an answer to this question");
        answer
    }

    /// Returns the next answer, or `None` when the connection has ended.
    pub fn answer(&mut self) -> Option<Answer> {
        let (header, mut files) = self.receive(16)?;
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let word = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().expect("4 bytes"));
        let (size, flags) = (word(4) as usize, word(8));
        assert_eq!(flags & !0x20, 1, "a reply");
        let (body, more) = self.receive(size - 16)?;
        files.extend(more);
        let error = (flags & 0x20 != 0).then(|| word(12));
        assert!(error.is_none() || body.is_empty(), "an error has no body");
        Some(Answer { id: half(0), command: half(2), error, body, files })
    }

    fn receive(&self, bytes: usize) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
        let (mut into, mut have, mut files) = (vec![0; bytes], 0, Vec::new());
        while have < bytes {
            let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
            let mut beside = RecvAncillaryBuffer::new(&mut space);
            let mut slices = [IoSliceMut::new(&mut into[have..])];
            let received = match recvmsg(&self.socket, &mut slices, &mut beside, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => received.bytes,
                Err(rustix::io::Errno::CONNRESET) => 0,
                Err(error) => panic!("no answer: {error}"),
            };
            for message in beside.drain() {
                if let RecvAncillaryMessage::ScmRights(given) = message {
                    files.extend(given);
                }
            }
            if received == 0 {
                return None;
            }
            have += received;
        }
        Some((into, files))
    }
}
