//! The sockets of Ringway itself, for administrators and clients, in its own directory.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ringway_keeper::{Inherited, Link};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, getsockname, listen, socket_with};

use super::files::refuse_files;
use super::listener::{identity, remove_own};

/// The note of a socket whose connections refuse files.
const REFUSES_FILES: &[u8] = &[1];

/// Listens at `path`, which must not exist, for this user alone, until `open` has given the path to others. Connections refuse files where
/// the kernel can (Linux 6.16): returns whether they do. Nothing is left at the path if this fails, so that it can be tried again. The keeper has a copy: a successor
/// goes on listening, and who connects meanwhile waits.
///
/// # Errors
/// The kernel refuses the socket or the path, or `open` fails.
pub fn listen_at(
    path: &Path,
    kind: SocketType,
    backlog: i32,
    open: impl FnOnce() -> io::Result<()>,
    keeper: &Link,
) -> io::Result<(OwnedFd, bool)> {
    let name = format!("socket/{}", path.file_name().unwrap_or_default().to_string_lossy());
    if let Some(Inherited { note, files, .. }) = keeper.inherit(&name)
        && let Some(socket) = files.into_iter().next()
        && is_at(&socket, path)
    {
        open()?;
        return Ok((socket, note == REFUSES_FILES));
    }
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
    keeper.keep(&name, if refuses_files { REFUSES_FILES } else { &[] }, &[socket.as_fd()])?;
    Ok((socket, refuses_files))
}

/// Returns true if who connects to this path connects to this socket: the path is still a socket's, and this one was bound there.
fn is_at(socket: &OwnedFd, path: &Path) -> bool {
    let address = getsockname(socket).ok().and_then(|address| SocketAddrUnix::try_from(address).ok());
    let bound = address.as_ref().and_then(SocketAddrUnix::path_bytes);
    bound.is_some_and(|bound| bound == path.as_os_str().as_bytes()) && identity(path).is_some()
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
            let made = listen_at(&path, kind, 1, || Err(ErrorKind::OutOfMemory.into()), &Link::default());
            assert_eq!(made.map_err(|why| why.kind()).map(drop), Err(ErrorKind::OutOfMemory));
            let foreign = listen_at(
                &path,
                kind,
                1,
                || {
                    std::fs::remove_file(&path).and_then(|()| std::fs::write(&path, "another's"))?;
                    Err(ErrorKind::OutOfMemory.into())
                },
                &Link::default(),
            );
            assert!(foreign.is_err() && std::fs::read(&path).is_ok_and(|text| text == b"another's"));
            std::fs::remove_file(&path).expect("it is there");
            let _socket = listen_at(&path, kind, 1, || Ok(()), &Link::default()).expect("the second time");
            let taken = listen_at(&path, kind, 1, || Ok(()), &Link::default());
            assert_eq!(taken.map_err(|why| why.kind()).map(drop), Err(ErrorKind::AddrInUse));
            assert!(path.exists(), "what is another's stays");
            std::fs::remove_file(&path).expect("it is there");
        }
    }
}
