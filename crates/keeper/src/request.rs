//! What administrators ask of a keeper, at its socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, socket_with, sockopt,
};

use crate::message::send_bytes;

/// A request to upgrade. The executable is beside it.
pub(crate) const UPGRADE: [u8; 16] = *b"ringway-upgrade1";
/// A request to replace the keeper. The executable is beside it.
pub(crate) const REPLACE: [u8; 16] = *b"ringway-replace1";
/// A grant. Its line is behind it.
pub(crate) const GRANT: [u8; 16] = *b"ringway-grant001";
/// Most bytes of a request.
pub(crate) const REQUEST_MOST: usize = 16 << 10;
/// Most bytes of an answer.
const ANSWER_MOST: usize = 4096;

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// It was done.
    pub done: bool,
    /// What was done, or why it was not.
    pub text: String,
}

impl Answer {
    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self { done: false, text: text.into() }
    }

    pub(crate) fn done(text: impl Into<String>) -> Self {
        Self { done: true, text: text.into() }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.done)];
        bytes.extend(self.text.bytes().take(ANSWER_MOST - 1));
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (done, text) = bytes.split_first()?;
        Some(Self { done: *done == 1, text: String::from_utf8_lossy(text).into_owned() })
    }
}

/// Asks the keeper that listens at `socket` to go on with this executable. Waits at most so long for the answer.
///
/// # Errors
/// There is no keeper, or it does not answer.
pub fn ask_to_upgrade(socket: &Path, executable: impl AsFd, within: Duration) -> io::Result<Answer> {
    ask(socket, &UPGRADE, &[executable.as_fd()], within)
}

/// Asks the keeper that listens at `socket` to be replaced by this executable, with the switch going on. Waits at most so long for the answer.
///
/// # Errors
/// There is no keeper, or it does not answer.
pub fn ask_to_replace(socket: &Path, executable: impl AsFd, within: Duration) -> io::Result<Answer> {
    ask(socket, &REPLACE, &[executable.as_fd()], within)
}

/// Lets the switch of the keeper that listens at `socket` have what this line of JSON names: `{"port": NAME, "keys": {...}}`. Waits at most so long for the
/// answer.
///
/// # Errors
/// There is no keeper, it does not answer, or the line is too long.
pub fn grant(socket: &Path, line: &str, within: Duration) -> io::Result<Answer> {
    let bytes = [&GRANT, line.as_bytes()].concat();
    if bytes.len() > REQUEST_MOST {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    ask(socket, &bytes, &[], within)
}

fn ask(socket: &Path, request: &[u8], files: &[BorrowedFd<'_>], within: Duration) -> io::Result<Answer> {
    let keeper = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&keeper, sockopt::Timeout::Recv, Some(within))?;
    connect(&keeper, &SocketAddrUnix::new(socket)?)?;
    send_bytes(&keeper, request, files, SendFlags::empty())?;
    let mut bytes = [0; ANSWER_MOST];
    let (len, _) = recv(&keeper, &mut bytes[..], RecvFlags::empty())?;
    let bytes = bytes.get(..len).unwrap_or_default();
    Answer::decode(bytes).ok_or_else(|| io::Error::other("the keeper has ended the connection"))
}
