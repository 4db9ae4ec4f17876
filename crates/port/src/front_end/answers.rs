//! Answers to the peer of a connection that outlives the switch: each is sent once, whenever the switch dies.
//!
//! An answer is written to the end of a file in memory, then its request is taken out of the socket, then sendfile(2) sends the answer. That call sends and
//! moves the position of the file as one step for whoever kills the switch (Linux, `do_sendfile`), and the keeper has the same open file. So a successor knows both: bytes
//! behind the position were not sent, and the request was taken if nothing of the socket is peeked at (SO_PEEK_OFF, which outlives the switch, too).
//!
//! The socket refers to pages of the file until the peer has read them. So no byte that was sent is written again.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, sendfile};
use rustix::io::Errno;

use super::receiver::Sent;

/// From this length on, a file that was sent as a whole begins anew. Its pages are freed when the peer has read them.
const LONG: u64 = 1 << 16;

/// Answers that are sent, or will be.
#[derive(Debug)]
pub struct Answers {
    file: OwnedFd,
    /// Its length.
    end: u64,
}

impl Answers {
    /// A new file, without answers.
    ///
    /// # Errors
    /// The kernel has no descriptors or memory left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { file: memfd_create("ringway-answers", MemfdFlags::CLOEXEC)?, end: 0 })
    }

    /// The file of a predecessor. `is_taken`: the request of the last answer was taken out of the socket. Otherwise it will be answered again.
    ///
    /// # Errors
    /// It is no such file.
    pub fn of(file: OwnedFd, is_taken: bool) -> io::Result<Self> {
        let sent = rustix::fs::tell(&file)?;
        let mut end = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        if !is_taken && sent < end {
            rustix::fs::ftruncate(&file, sent)?;
            end = sent;
        }
        // The predecessor was about to begin it anew.
        if sent > end {
            rustix::fs::seek(&file, SeekFrom::Start(end))?;
        }
        Ok(Self { file, end })
    }

    /// Adds an answer, which is sent later.
    ///
    /// # Errors
    /// The kernel has no memory left.
    pub fn add(&mut self, answer: &[u8]) -> io::Result<()> {
        if self.end >= LONG && rustix::fs::tell(&self.file)? == self.end {
            rustix::fs::ftruncate(&self.file, 0)?;
            rustix::fs::seek(&self.file, SeekFrom::Start(0))?;
            self.end = 0;
        }
        // The kernel writes so few bytes as a whole or not at all, and the successor of one that died in between answers again.
        let written = rustix::io::pwrite(&self.file, answer, self.end)?;
        self.end = self.end.saturating_add(written as u64);
        if written == answer.len() { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }

    /// Sends what was added and not sent, as much as there is room for.
    pub(super) fn send(&self, socket: &OwnedFd) -> Sent {
        loop {
            let Ok(sent) = rustix::fs::tell(&self.file) else { return Sent::Gone };
            let left = self.end.saturating_sub(sent);
            if left == 0 {
                return Sent::Done;
            }
            match sendfile(socket, &self.file, None, usize::try_from(left).unwrap_or(usize::MAX)) {
                Ok(1..) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Sent::Full,
                Ok(0) | Err(_) => return Sent::Gone,
            }
        }
    }
}

impl AsFd for Answers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("sockets")
    }

    fn read(socket: &OwnedFd) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 20];
        let count = recv(socket, &mut bytes[..], RecvFlags::empty()).map_or(0, |(_, count)| count);
        bytes.truncate(count);
        bytes
    }

    fn succeeds(answers: &Answers, is_taken: bool) -> Answers {
        let file = rustix::io::fcntl_dupfd_cloexec(answers, 3).expect("a descriptor");
        Answers::of(file, is_taken).expect("answers")
    }

    #[test]
    fn a_successor_sends_what_was_not_sent_of_a_request_that_was_taken_and_nothing_else() {
        let (near, far) = pair();
        let mut answers = Answers::new().expect("a file");
        answers.add(b"first").expect("room");
        assert_eq!(answers.send(&near), Sent::Done);
        assert_eq!(read(&far), b"first");
        for is_taken in [true, false] {
            assert_eq!(succeeds(&answers, is_taken).send(&near), Sent::Done);
            assert_eq!(read(&far), b"", "it was sent");
        }
        answers.add(b"second").expect("room");
        let mut again = succeeds(&answers, false);
        assert_eq!(again.send(&near), Sent::Done);
        assert_eq!(read(&far), b"", "its request will be answered");
        again.add(b"third").expect("room");
        assert_eq!(succeeds(&again, true).send(&near), Sent::Done);
        assert_eq!(read(&far), b"third");
    }

    #[test]
    fn what_the_peer_has_not_read_stays_as_it_was_sent() {
        let (near, far) = pair();
        let mut answers = Answers::new().expect("a file");
        let mut wanted = Vec::new();
        for count in 0..3000u32 {
            let answer = [&count.to_ne_bytes()[..], &[count as u8; 40]].concat();
            answers.add(&answer).expect("room");
            wanted.extend(&answer);
            while answers.send(&near) == Sent::Full {
                let bytes = read(&far);
                assert!(wanted.starts_with(&bytes));
                wanted.drain(..bytes.len());
            }
            answers = succeeds(&answers, true);
        }
        while !wanted.is_empty() {
            let bytes = read(&far);
            assert!(!bytes.is_empty() && wanted.starts_with(&bytes));
            wanted.drain(..bytes.len());
        }
        assert!(answers.end < 2 * LONG, "the file does not grow without end");
    }

    #[test]
    fn a_successor_of_one_that_began_the_file_anew_goes_on() {
        let (near, far) = pair();
        let mut answers = Answers::new().expect("a file");
        answers.add(&[1; 100]).expect("room");
        assert_eq!((answers.send(&near), read(&far).len()), (Sent::Done, 100));
        rustix::fs::ftruncate(&answers.file, 0).expect("a length");
        let mut again = succeeds(&answers, true);
        again.add(b"next").expect("room");
        assert_eq!((again.send(&near), read(&far)), (Sent::Done, b"next".to_vec()));
    }
}
