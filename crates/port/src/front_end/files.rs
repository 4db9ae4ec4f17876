//! Files that come with messages (SCM_RIGHTS).
//!
//! The receiver of a message has to close the files that came with the message, also files that nobody asked for: the kernel
//! closes these within recv(2), or within close(2) of a socket that was not read to its end. Closing can last as long as the
//! sender likes: the last close of a TCP socket waits for its peer (SO_LINGER), and the last close of a file waits for its
//! file system (FUSE). A port's own thread may wait for its own front end. A thread that serves several clients must not: its
//! sockets refuse files, or another thread closes them (`closing.rs`). `docs/decisions/waits.md` lists all such waits.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, recvmsg};

/// `SO_PASSRIGHTS` (asm-generic/socket.h, Linux 6.16).
const PASS_RIGHTS: libc::c_int = 83;
/// Most files in one message (`SCM_MAX_FD`).
const MOST: usize = 253;

/// Has the kernel refuse messages that carry files, on this socket and on those that it accepts later. The sender gets
/// EPERM. Returns false if this kernel cannot do so.
pub fn refuse_files(socket: impl AsFd) -> bool {
    pass_files(socket, false)
}

/// Ends what [`refuse_files`] began, for messages to this socket that are sent from now on.
pub fn accept_files(socket: impl AsFd) {
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

/// Has [`peek_bytes`] begin so many bytes behind the first one that was not received. Each look moves the place (SO_PEEK_OFF), and receiving
/// bytes moves it back. It belongs to the socket, and outlives the process.
///
/// # Errors
/// The kernel refuses.
pub fn set_peek_offset(socket: impl AsFd, offset: usize) -> io::Result<()> {
    let offset = libc::c_int::try_from(offset).map_err(io::Error::other)?;
    // SAFETY: the option takes an int, and `offset` outlives the call.
    let set = unsafe {
        let (socket, len) = (socket.as_fd().as_raw_fd(), size_of::<libc::c_int>() as libc::socklen_t);
        libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_PEEK_OFF, (&raw const offset).cast(), len)
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns true if something was looked at that was not received since.
pub(super) fn is_peeked(socket: impl AsFd) -> bool {
    peek_offset(socket) > 0
}

/// Returns how many bytes were looked at that were not received since, after [`set_peek_offset`] was called once.
pub fn peek_offset(socket: impl AsFd) -> usize {
    let (mut offset, mut len): (libc::c_int, _) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the option gives an int, `offset` has room for it, and both outlive the call.
    let got = unsafe {
        let socket = socket.as_fd().as_raw_fd();
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEEK_OFF, (&raw mut offset).cast(), &raw mut len)
    };
    if got == 0 { usize::try_from(offset).unwrap_or(0) } else { 0 }
}

/// Receives bytes without blocking, and adds the files that arrive with them to `files`. The caller has to close these
/// files. Returns the number of bytes.
///
/// # Errors
/// `WouldBlock`: nothing has come; or the connection broke.
pub fn receive_into(socket: impl AsFd, into: &mut [u8], files: &mut Vec<OwnedFd>) -> io::Result<usize> {
    // SAFETY: the slice is writable, and nothing else refers to its bytes.
    unsafe { receive(socket, into.as_mut_ptr(), into.len(), files) }
}

/// As [`receive_into`], for bytes that a peer can write, too.
///
/// # Errors
/// As there.
///
/// # Safety
/// `into` is writable for `len` bytes, and no reference to these bytes exists.
pub unsafe fn receive(socket: impl AsFd, into: *mut u8, len: usize, files: &mut Vec<OwnedFd>) -> io::Result<usize> {
    // An array of u64, because control messages need that alignment.
    let mut control = [const { MaybeUninit::<u64>::uninit() }; (MOST * size_of::<libc::c_int>()).div_ceil(8) + 4];
    // SAFETY: the macro only computes. The sum is less than the size of `control`.
    let control_bytes = unsafe { libc::CMSG_SPACE((MOST * size_of::<libc::c_int>()) as libc::c_uint) };
    let mut piece = libc::iovec { iov_base: into.cast(), iov_len: len };
    loop {
        // SAFETY: all zeroes is a valid msghdr: no address, no buffers, no control data.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
        (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), control_bytes as _);
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: the message refers to the caller's bytes and to `control`; both are writable and outlive the call.
        let count = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags) };
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

/// Reads bytes without blocking and without receiving them. Returns their number, and true if files came with them. The files stay
/// in the socket: none comes into this process, and none is closed for the last time.
pub fn peek_bytes(socket: impl AsFd, into: &mut [u8]) -> rustix::io::Result<(usize, bool)> {
    let mut beside = RecvAncillaryBuffer::default();
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let seen = recvmsg(socket, &mut [io::IoSliceMut::new(into)], &mut beside, flags)?;
    Ok((seen.bytes, seen.flags.contains(ReturnFlags::CTRUNC)))
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

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;
    use crate::front_end::testing::send_files;

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
            assert_eq!(peek_bytes(&near, &mut [0; 16]), Ok((3, true)));
        }
        rustix::io::ioctl_fionbio(&read, true).expect("non-blocking");
        assert_eq!(rustix::io::read(&read, &mut [0; 1]), Err(rustix::io::Errno::AGAIN), "a writer is left");
        drop(near);
        assert_eq!(rustix::io::read(&read, &mut [0; 1]), Ok(0), "the last writer goes with the socket");
    }
}
