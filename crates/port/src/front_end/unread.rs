//! What the peer of a socket has not read.

use std::os::fd::{AsFd, AsRawFd};

/// Fewer bytes of memory than any message takes.
const LEAST: libc::c_int = 128;

/// Returns true if the peer of a Unix socket has not read all that was sent to it.
pub fn has_unread(socket: impl AsFd) -> bool {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request (SIOCOUTQ) writes an int, and `bytes` outlives the call.
    let got = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    // The kernel counts the memory of the messages. Each thread that reads a message leaves 1 byte of it until it has woken those
    // that wait for room (`sock_wfree`). A message takes several hundred bytes.
    got == 0 && bytes >= LEAST
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

    use super::*;

    #[test]
    fn what_was_sent_is_unread_until_the_peer_reads_it_or_goes() {
        let pair =
            || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("sockets");
        let (near, far) = pair();
        assert!(!has_unread(&near));
        for _ in 0..2 {
            assert_eq!(send(&near, b"a", SendFlags::NOSIGNAL), Ok(1));
            assert!(has_unread(&near) && !has_unread(&far));
        }
        for is_left in [true, false] {
            assert_eq!(recv(&far, &mut [0; 2][..], RecvFlags::empty()).map(|(_, len)| len), Ok(1));
            assert_eq!(has_unread(&near), is_left);
        }
        assert_eq!(send(&near, b"a", SendFlags::NOSIGNAL), Ok(1));
        drop(far);
        assert!(!has_unread(&near));
    }
}
