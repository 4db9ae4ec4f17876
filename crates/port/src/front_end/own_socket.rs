//! The sockets of Ringway itself, for administrators and clients, in its own directory.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ringway_keeper::{Inherited, Link};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, getsockname, listen, socket_with};

use super::access::SocketAccess;
use super::files::refuse_files;
use super::placing::{bind_at, identity, remove_at};

/// The note of a socket whose connections refuse files.
const REFUSES_FILES: &[u8] = &[1];

/// Listens at `path`, with access for those of `access`. Connections refuse files where the kernel can (Linux 6.16): returns whether they do. Nothing is
/// left at the path if this fails, so that it can be tried again. The keeper has a copy: a successor goes on listening, and who connects meanwhile waits.
///
/// # Errors
/// Another process listens at `path`, something else than a socket is there, or the kernel refuses the socket or the path.
pub fn listen_at(
    path: &Path,
    kind: SocketType,
    backlog: i32,
    access: &SocketAccess,
    keeper: &Link,
) -> io::Result<(OwnedFd, bool)> {
    let name = format!("socket/{}", path.file_name().unwrap_or_default().to_string_lossy());
    if let Some(Inherited { note, files, .. }) = keeper.inherit(&name)
        && let Some(socket) = files.into_iter().next()
        && is_at(&socket, path)
    {
        return Ok((socket, note == REFUSES_FILES));
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    // Closing a file of a client can block. Accepted sockets inherit this option.
    let refuses_files = refuse_files(&socket);
    let (opener, bound) = (keeper.opener(), bind_at(&keeper.opener(), &socket, path, access)?);
    listen(&socket, backlog).inspect_err(|_| remove_at(&opener, path, bound))?;
    keeper.keep(&name, if refuses_files { REFUSES_FILES } else { &[] }, &[socket.as_fd()])?;
    Ok((socket, refuses_files))
}

/// Returns true if who connects to this path connects to this socket: the path is still a socket's, and this one was bound there.
fn is_at(socket: &OwnedFd, path: &Path) -> bool {
    let address = getsockname(socket).ok().and_then(|address| SocketAddrUnix::try_from(address).ok());
    let bound = address.as_ref().and_then(SocketAddrUnix::path_bytes);
    bound.is_some_and(|bound| bound == path.as_os_str().as_bytes()) && identity(path).is_some()
}
