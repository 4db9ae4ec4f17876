//! The attach protocol without the client library.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use ringway_abi::attach::{REPLY_BYTES, REPLY_FDS, Reply};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, recvmsg, sendmsg, socket_with,
};

use ringway_scenes::{Daemon, PATIENCE};

/// Most descriptors that one message can carry (`SCM_MAX_FD`).
pub const MOST_DESCRIPTORS: usize = 253;

/// A connection to `attach.sock`.
pub struct Raw(pub OwnedFd);

/// The switch's answer.
#[derive(Debug)]
pub enum Said {
    Granted {
        descriptors: Vec<OwnedFd>,
    },
    Refused(String),
    SendMemory,
    /// The connection ended without an answer.
    Closed,
    /// No answer came in time.
    Nothing,
}

impl Raw {
    pub fn connect(daemon: &Daemon) -> Self {
        let address = SocketAddrUnix::new(daemon.runtime_dir().join("attach.sock")).expect("short enough");
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let socket = socket.expect("a socket");
        connect(&socket, &address).expect("the switch listens");
        Self(socket)
    }

    /// Sends a message. Returns false if the switch has closed the connection.
    pub fn say(&self, message: &[u8]) -> bool {
        rustix::net::send(&self.0, message, SendFlags::NOSIGNAL).is_ok()
    }

    /// Sends a message with descriptors.
    pub fn say_with(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
        sendmsg(&self.0, &[IoSlice::new(message)], &mut ancillary, SendFlags::NOSIGNAL).is_ok()
    }

    /// Waits for the next answer, and returns true if it refuses with these words. The answer stays.
    pub fn hears(&self, words: &str) -> bool {
        let timeout = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        let _ = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timeout));
        let mut message = [0; REPLY_BYTES];
        let heard = recv(&self.0, &mut message[..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        let Ok((_, len @ 1..)) = heard else { return false };
        matches!(Reply::decode(&message[..len]), Ok(Reply::Refused(why)) if why.contains(words))
    }

    pub fn next_answer(&self) -> Said {
        self.hear_within(PATIENCE)
    }

    pub fn hear_within(&self, within: Duration) -> Said {
        let timeout = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timeout)) {
            Ok(1..) => {}
            _ => return Said::Nothing,
        }
        let mut message = [0; REPLY_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(REPLY_FDS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut into = [std::io::IoSliceMut::new(&mut message)];
        let Ok(received) = recvmsg(&self.0, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) else {
            return Said::Closed;
        };
        if received.bytes == 0 {
            return Said::Closed;
        }
        let mut descriptors = Vec::new();
        for part in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = part {
                descriptors.extend(rights);
            }
        }
        match Reply::decode(&message[..received.bytes]).expect("a valid answer") {
            Reply::Granted { .. } => Said::Granted { descriptors },
            Reply::Refused(reason) => Said::Refused(reason),
            Reply::SendMemory => Said::SendMemory,
        }
    }

    /// Checks that the switch refuses with these words and closes the connection.
    pub fn must_be_refused(&self, words: &str, why: &str) {
        match self.next_answer() {
            Said::Refused(said) if said.contains(words) => {}
            other => panic!("{why}: the switch does not refuse with {words:?}: {other:?}"),
        }
        assert!(matches!(self.next_answer(), Said::Closed), "{why}: the switch does not close the connection");
    }
}
