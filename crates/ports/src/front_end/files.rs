//! Files that come with messages (SCM_RIGHTS).
//!
//! The receiver of a message has to close the files that came with the message, also files that nobody asked for: the kernel
//! closes these within recv(2), or within close(2) of a socket that was not read to its end. Closing can last as long as the
//! sender likes: the last close of a TCP socket waits for its peer (SO_LINGER), and the last close of a file waits for its
//! file system (FUSE). A port's own thread may wait for its own front end. A thread that serves several clients must not: its
//! sockets refuse files, or another thread closes them. `docs/decisions/waits.md` lists all such waits.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::net::{Shutdown, shutdown};

/// `SO_PASSRIGHTS` (asm-generic/socket.h, Linux 6.16).
const PASS_RIGHTS: libc::c_int = 83;
/// Most files in one message (`SCM_MAX_FD`).
const MOST: usize = 253;
/// Most threads that close files of clients at a time.
const MOST_CLOSING: usize = 16;
/// Time between two looks at a file that other threads have.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Has the kernel refuse messages that carry files, on this socket and on those that it accepts later. The sender gets
/// EPERM. Returns false if this kernel cannot do so.
pub fn refuse_files(socket: impl AsFd) -> bool {
    pass_files(socket, false)
}

/// Ends what [`refuse_files`] began, for messages to this socket that are sent from now on.
pub(crate) fn accept_files(socket: impl AsFd) {
    // A kernel that cannot refuse files always accepts them.
    let _ = pass_files(socket, true);
}

fn pass_files(socket: impl AsFd, on: bool) -> bool {
    let on = libc::c_int::from(on);
    // SAFETY: the option takes an int, and `on` outlives the call.
    let set = unsafe {
        let (socket, len) = (socket.as_fd().as_raw_fd(), size_of::<libc::c_int>() as libc::socklen_t);
        libc::setsockopt(socket, libc::SOL_SOCKET, PASS_RIGHTS, (&raw const on).cast(), len)
    };
    set == 0
}

/// Receives bytes without blocking, and adds the files that arrive with them to `files`. The caller has to close these
/// files.
///
/// # Safety
/// `into` is writable for `len` bytes, and no reference to these bytes exists.
pub(crate) unsafe fn receive(
    socket: &OwnedFd,
    into: *mut u8,
    len: usize,
    files: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    // SAFETY: what the caller promises is what `receive_with` needs.
    unsafe { receive_with(socket, 0, (into, len), files) }
}

/// Reads a message without blocking, and adds copies of the files that came with it to `files`. The message and its files
/// stay in the socket. Thus no file is closed for the last time, even where there is no room for the copies: the caller
/// closes them, and the socket, where that may last.
pub(crate) fn peek(socket: &OwnedFd, into: &mut [u8], files: &mut Vec<OwnedFd>) -> io::Result<usize> {
    // SAFETY: `into` is lent for the call.
    unsafe { receive_with(socket, libc::MSG_PEEK, (into.as_mut_ptr(), into.len()), files) }
}

/// # Safety
/// As for [`receive`], of the memory `into`: address and length.
unsafe fn receive_with(
    socket: &OwnedFd,
    flags: libc::c_int,
    into: (*mut u8, usize),
    files: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    // An array of u64, because control messages need that alignment.
    let mut control = [const { MaybeUninit::<u64>::uninit() }; (MOST * size_of::<libc::c_int>()).div_ceil(8) + 4];
    let mut piece = libc::iovec { iov_base: into.0.cast(), iov_len: into.1 };
    loop {
        // SAFETY: all zeroes is a valid msghdr: no address, no buffers, no control data.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
        (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control) as _);
        let flags = flags | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: the message refers to the caller's bytes and to `control`; both are writable and outlive the call.
        let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
        if let Ok(count) = usize::try_from(count) {
            if message.msg_controllen > 0 {
                // SAFETY: the kernel has just filled `control` and its length in.
                unsafe { take_files(&message, files) };
            }
            return Ok(count);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// # Safety
/// The kernel has filled the message in, and no earlier call has taken its files.
#[cold]
unsafe fn take_files(message: &libc::msghdr, files: &mut Vec<OwnedFd>) {
    // SAFETY: the caller guarantees that the kernel has filled the message in. `CMSG_FIRSTHDR` and `CMSG_NXTHDR` return
    // only headers inside the control data. Each header gives the length of its data. The data of SCM_RIGHTS are open
    // descriptors that nothing else owns, as their files were not taken before.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(found) = header.as_ref() {
            if (found.cmsg_level, found.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let bytes = found.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                let data = libc::CMSG_DATA(header).cast::<libc::c_int>();
                files.extend(
                    (0..bytes / size_of::<libc::c_int>()).map(|at| OwnedFd::from_raw_fd(data.add(at).read_unaligned())),
                );
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}

/// What waits to be closed, and the number of threads that close.
type Queue = Mutex<(Vec<Closing>, usize)>;

/// What clients have sent. They decide how long closing it lasts.
static CLOSING: Queue = Mutex::new((Vec::new(), 0));
/// The switch's own files. They do not wait for those of clients: otherwise one client could keep all of them open.
static CLOSING_OWN: Queue = Mutex::new((Vec::new(), 0));

enum Closing {
    Files(Vec<OwnedFd>),
    Socket(OwnedFd),
    Shared(Arc<OwnedFd>),
}

impl Closing {
    fn close(self) {
        let socket = match self {
            Self::Files(files) => return drop(files),
            Self::Shared(file) => {
                // The others only borrow it for the time of a call.
                while Arc::strong_count(&file) > 1 {
                    std::thread::sleep(LOOK_EVERY);
                }
                return;
            }
            Self::Socket(socket) => socket,
        };
        // The kernel lets a peer forget what it has not read (ECONNRESET) when a socket is closed before all is read of it.
        let mut message = [0; 16];
        loop {
            let mut files = Vec::new();
            // SAFETY: `message` is a local array, and nothing else refers to it.
            let received = unsafe { receive(&socket, message.as_mut_ptr(), message.len(), &mut files) };
            if !received.is_ok_and(|len| len > 0) {
                return;
            }
        }
    }
}

/// Closes files on a separate thread that serves no port.
pub(crate) fn close_in_background(files: Vec<OwnedFd>) {
    if !files.is_empty() {
        close_later(&CLOSING, MOST_CLOSING, Closing::Files(files));
    }
}

/// Closes a file of the switch on a separate thread, when no other thread has it any more: none of them closes it.
pub(crate) fn close_when_unshared(file: Arc<OwnedFd>) {
    close_later(&CLOSING_OWN, 1, Closing::Shared(file));
}

/// Closes a connection on a separate thread, after what the peer has sent. The peer can still read what was sent to it.
pub(crate) fn close_socket_in_background(socket: OwnedFd) {
    // From now on the peer can send no more.
    let _ = shutdown(&socket, Shutdown::Both);
    close_later(&CLOSING, MOST_CLOSING, Closing::Socket(socket));
}

fn close_later(queue: &'static Queue, most_threads: usize, what: Closing) {
    let mut closing = queue.lock();
    closing.0.push(what);
    if closing.1 < most_threads {
        let started = std::thread::Builder::new().name("closing".into()).spawn(|| {
            loop {
                let mut closing = queue.lock();
                let Some(what) = closing.0.pop() else {
                    closing.1 -= 1;
                    return;
                };
                drop(closing);
                what.close();
            }
        });
        // If no thread can be started, the next call's thread closes these files.
        closing.1 += usize::from(started.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;
    use crate::front_end::testing::{lingering, send_files};

    fn pair(kind: SocketType) -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None).expect("sockets")
    }

    fn receive_some(socket: &OwnedFd) -> (io::Result<usize>, Vec<OwnedFd>) {
        let (mut bytes, mut files) = ([0; 16], Vec::new());
        // SAFETY: `bytes` is a local array, and nothing else refers to it.
        let count = unsafe { receive(socket, bytes.as_mut_ptr(), bytes.len(), &mut files) };
        (count, files)
    }

    #[test]
    fn files_are_refused_where_the_kernel_can_and_bytes_are_not() {
        for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
            let (near, far) = pair(kind);
            if !refuse_files(&near) {
                return;
            }
            let (_read, file) = rustix::pipe::pipe().expect("a pipe");
            assert_eq!(send_files(&far, b"a", vec![file]), Err(rustix::io::Errno::PERM));
            assert_eq!(send_files(&far, b"ab", Vec::new()), Ok(2));
            assert_eq!(receive_some(&near).0.expect("bytes"), 2);
        }
    }

    #[test]
    fn files_that_come_with_bytes_are_the_receivers_to_close() {
        for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
            let (near, far) = pair(kind);
            for count in [0, 1, 253] {
                let (_read, write) = rustix::pipe::pipe().expect("a pipe");
                let copies = (0..count).map(|_| write.try_clone().expect("a descriptor")).collect();
                assert_eq!(send_files(&far, b"abc", copies), Ok(3));
                let (received, files) = receive_some(&near);
                assert_eq!((received.expect("bytes"), files.len()), (3, count));
            }
            assert_eq!(receive_some(&near).0.expect_err("nothing").raw_os_error(), Some(libc::EAGAIN));
        }
    }

    #[test]
    fn a_message_that_is_peeked_at_keeps_its_files() {
        let (near, far) = pair(SocketType::SEQPACKET);
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        assert_eq!(send_files(&far, b"abc", vec![write]), Ok(3));
        for _ in 0..2 {
            let (mut bytes, mut files) = ([0; 16], Vec::new());
            assert_eq!((peek(&near, &mut bytes, &mut files).expect("a message"), files.len()), (3, 1));
        }
        rustix::io::ioctl_fionbio(&read, true).expect("non-blocking");
        assert_eq!(rustix::io::read(&read, &mut [0; 1]), Err(rustix::io::Errno::AGAIN), "a writer is left");
        drop(near);
        assert_eq!(rustix::io::read(&read, &mut [0; 1]), Ok(0), "the last writer goes with the socket");
    }

    #[test]
    fn what_was_sent_to_a_peer_can_be_read_after_its_connection_was_closed_with_files_in_it() {
        let (near, far) = pair(SocketType::SEQPACKET);
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        for _ in 0..3 {
            assert_eq!(send_files(&far, b"abc", vec![write.try_clone().expect("a descriptor")]), Ok(3));
        }
        drop(write);
        assert_eq!(send_files(&near, b"reason", Vec::new()), Ok(6));
        close_socket_in_background(near);
        assert_eq!(rustix::io::read(&read, &mut [0; 1]), Ok(0), "all copies are closed");
        assert_eq!(receive_some(&far).0.expect("the reason"), 6);
        assert_eq!(receive_some(&far).0.expect("the end"), 0);
    }

    #[test]
    fn closing_what_lasts_holds_up_nobody() {
        let (peers, files): (Vec<_>, Vec<_>) = (0..MOST_CLOSING + 4).map(|_| lingering()).map(|(a, b)| (b, a)).unzip();
        for (number, file) in files.into_iter().enumerate() {
            close_in_background(vec![file]);
            if number < MOST_CLOSING {
                ringway_testing::until("a thread closes the file", || CLOSING.lock().0.is_empty());
            }
        }
        let (read, own) = rustix::pipe::pipe().expect("a pipe");
        close_when_unshared(Arc::new(own));
        rustix::io::ioctl_fionbio(&read, true).expect("non-blocking");
        ringway_testing::until("the switch's own file is closed", || rustix::io::read(&read, &mut [0; 1]) == Ok(0));
        // This line is reached although no close has returned yet. The threads wait for the peers, and the peers go
        // now.
        drop(peers);
        while CLOSING.lock().1 > 0 {
            std::thread::yield_now();
        }
    }
}
