//! The sockets of Ringway itself, for administrators and clients, in its own directory.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

use super::files::refuse_files;
use super::listener::{identity, remove_own};

/// Listens at `path`, which must not exist, for this user alone, until `open` has given the path to others. Connections refuse files where
/// the kernel can (Linux 6.16): returns whether they do. Nothing is left at the path if this fails, so that it can be tried again.
///
/// # Errors
/// The kernel refuses the socket or the path, or `open` fails.
pub fn listen_at(
    path: &Path,
    kind: SocketType,
    backlog: i32,
    open: impl FnOnce() -> io::Result<()>,
) -> io::Result<(OwnedFd, bool)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    // Closing a file of a client can block. Accepted sockets inherit this option.
    let refuses_files = refuse_files(&socket);
    // Before bind, so that the path has this mode from the start (see `Listener`).
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    let own = identity(path);
    // Nobody can connect before all is as it should be.
    let done = open().and_then(|()| Ok(listen(&socket, backlog)?));
    done.inspect_err(|_| remove_own(path, own))?;
    Ok((socket, refuses_files))
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn a_socket_that_was_half_made_can_be_made_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s");
        for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
            let made = listen_at(&path, kind, 1, || Err(ErrorKind::OutOfMemory.into()));
            assert_eq!(made.map_err(|why| why.kind()).map(drop), Err(ErrorKind::OutOfMemory));
            let foreign = listen_at(&path, kind, 1, || {
                std::fs::remove_file(&path).and_then(|()| std::fs::write(&path, "another's"))?;
                Err(ErrorKind::OutOfMemory.into())
            });
            assert!(foreign.is_err() && std::fs::read(&path).is_ok_and(|text| text == b"another's"));
            std::fs::remove_file(&path).expect("it is there");
            let _socket = listen_at(&path, kind, 1, || Ok(())).expect("the second time");
            let taken = listen_at(&path, kind, 1, || Ok(()));
            assert_eq!(taken.map_err(|why| why.kind()).map(drop), Err(ErrorKind::AddrInUse));
            assert!(path.exists(), "what is another's stays");
            std::fs::remove_file(&path).expect("it is there");
        }
    }
}
