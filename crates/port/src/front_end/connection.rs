//! A connection, and its end.
//!
//! A connection is dropped only after everything that the front end has sent was read. The kernel resets a connection that is
//! closed with unread bytes. QEMU (11.1) with a vfio-user device breaks an assertion of its own after such a reset and ends
//! together with its guest. If the closer has a copy of the connection, the closer reads to the end, also after the switch was killed.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

use super::closer::{ANY_FILES, ClientFd, Taking, take_files_as, wait_for_closes};
use super::closing::Process;
use super::files::accept_files;

/// Time limit for a message, from its first byte to its last. The clients of unit tests may have no processor for longer.
pub const MESSAGE_WITHIN: Duration = Duration::from_secs(if cfg!(test) { 3600 } else { 5 });

/// A connected stream socket that is closed gracefully when it is dropped: the other side can read all bytes that were
/// sent to it, and then the end of the stream. Closing a socket that has unread bytes would reset the connection
/// instead (net/unix, `unix_release_sock`). A reset kills a QEMU (11.1) with a vfio-user device: it sets its error
/// twice and fails an assertion (`vfio_user_recv_hdr`).
#[derive(Debug)]
pub struct Connection(ClientFd);

impl From<OwnedFd> for Connection {
    fn from(socket: OwnedFd) -> Connection {
        Connection(socket.into())
    }
}

impl Connection {
    /// Lets the peer send files, when the closer can receive them. `owner`: whose closes they count among.
    ///
    /// # Errors
    /// The closer cannot have the connection.
    pub fn accept_files(&self, owner: Process) -> io::Result<()> {
        self.0.hold(owner)?;
        self.accept_held_files()
    }

    /// The same for a connection that the keeper has, too: it goes on also if the switch dies now.
    ///
    /// # Errors
    /// The closer cannot have the connection.
    pub(super) fn accept_files_of_left(&self, owner: Process) -> io::Result<()> {
        self.0.hold_left(owner, true)?;
        self.accept_held_files()
    }

    fn accept_held_files(&self) -> io::Result<()> {
        // Otherwise the kernel drops a message out of band (MSG_OOB), and closes its files, when the bytes behind it are received.
        rustix::net::sockopt::set_socket_oobinline(&self.0, true)?;
        accept_files(&self.0);
        Ok(())
    }

    /// Whose closes its files count among, if it takes files.
    pub fn owner(&self) -> Option<Process> {
        self.0.owner()
    }

    /// The keeper has a copy, too, for a successor of the switch.
    pub(super) fn outlives(&self) {
        self.0.outlives();
    }

    /// Has the closer receive `bytes` bytes, which this thread has seen already, and the files that came with them. `None`: they cannot
    /// be had.
    pub fn take(&self, bytes: usize) -> Option<Vec<ClientFd>> {
        self.take_as(bytes, Taking::Receive)
    }

    /// The same, for bytes that stay in the socket, with their files: copies of these come.
    pub(super) fn peek(&self, bytes: usize) -> Option<Vec<ClientFd>> {
        self.take_as(bytes, Taking::Peek)
    }

    /// Has the closer receive `bytes` bytes, and close the files that came with them. Returns false if it cannot, or if these are not so many. `files`: `None` if any number is right.
    pub(super) fn discard(&self, bytes: usize, files: Option<usize>) -> bool {
        let files = files.map_or(ANY_FILES, |files| u32::try_from(files).unwrap_or(ANY_FILES));
        self.take_as(bytes, Taking::Discard { files }).is_some()
    }

    fn take_as(&self, bytes: usize, how: Taking) -> Option<Vec<ClientFd>> {
        self.0.hold(None).ok()?;
        // A client may give descriptors faster than the closer, without a processor, closes those before.
        wait_for_closes(&self.0);
        let (say, hear) = channel();
        take_files_as(&self.0, bytes, how, move |files| {
            let _ = say.send(files);
        });
        hear.recv_timeout(MESSAGE_WITHIN).ok().flatten()
    }
}

impl Deref for Connection {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        &self.0
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // After the shutdown no more bytes arrive, so at most one socket buffer is unread. The shutdown fails if the
        // other side has closed its end.
        let _ = shutdown(&*self.0, Shutdown::Both);
        if self.0.is_held() {
            return;
        }
        let mut unread = [0; 4096];
        while matches!(recv(&*self.0, &mut unread[..], RecvFlags::DONTWAIT), Ok((_, 1..))) {}
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

    use super::*;

    #[test]
    fn whoever_has_sent_what_was_not_read_reads_to_the_end() {
        for read in [0, 1, 5000] {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("sockets");
            let near = Connection::from(near);
            while send(&far, &[1; 8192], SendFlags::NOSIGNAL).is_ok() {}
            assert_eq!(recv(&near, &mut vec![0; read][..], RecvFlags::empty()).map(|(_, count)| count), Ok(read));
            assert_eq!(send(&near, b"answer", SendFlags::NOSIGNAL), Ok(6));
            drop(near);
            let (mut far, mut answer) = (UnixStream::from(far), String::new());
            far.read_to_string(&mut answer).expect("the end, not a reset");
            assert_eq!(answer, "answer");
        }
    }
}
