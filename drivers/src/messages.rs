//! Messages with descriptors on a socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// Most descriptors in one message.
const MOST_FDS: usize = 8;

/// Sends a message: its header, its payload, and descriptors.
pub fn send(socket: &UnixStream, header: &[u8], payload: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::other("too many descriptors"));
    }
    let message = [IoSlice::new(header), IoSlice::new(payload)];
    let sent = retry_on_intr(|| sendmsg(socket, &message, &mut ancillary, SendFlags::NOSIGNAL))?;
    if sent < header.len() + payload.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    Ok(())
}

/// Receives some bytes, and the descriptors that come with the first of them.
pub fn receive(socket: &UnixStream, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(bytes)];
    // A process that is stopped and goes on is interrupted, too: the socket has a time limit (signal(7)).
    let got = retry_on_intr(|| recvmsg(socket, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC))?;
    let files = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    Ok((got.bytes, files.flatten().collect()))
}

/// Says what an error means while an answer of `peer` is awaited.
pub fn no_answer(peer: &str, error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::other("no answer in time"),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            io::Error::other(format!("{peer} closed the connection"))
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::Command;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use ringway_testing::until;

    use super::*;

    #[test]
    fn a_message_that_comes_after_the_process_was_stopped_is_received() {
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_read_timeout(Some(Duration::from_secs(600))).unwrap();
        let (tell, told) = channel();
        let receives = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid()).unwrap();
            let mut bytes = [0; 8];
            receive(&near, &mut bytes).map(|(length, _)| bytes[..length].to_vec()).unwrap()
        });
        let stat = format!("/proc/self/task/{}/stat", told.recv().unwrap());
        until("it waits", || std::fs::read_to_string(&stat).unwrap().contains(") S "));
        let process = std::process::id();
        let stopped = Command::new("sh").arg("-c").arg(format!("kill -STOP {process}; kill -CONT {process}")).status();
        assert!(stopped.unwrap().success());
        far.write_all(b"here").unwrap();
        assert_eq!(receives.join().unwrap(), b"here");
    }
}
