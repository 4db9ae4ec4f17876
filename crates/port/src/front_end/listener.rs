//! The socket of a port: listening and connecting.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ringway_keeper::opener::Opener;
use ringway_keeper::{Guard, Inherited, Link};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, accept_with, listen, shutdown, socket_with};

use super::access::SocketAccess;
use super::closer::{ClientFd, new_owner};
use super::connection::Connection;
use super::fields::Fields;
use super::files::{accept_files, refuse_files};
use super::kept_names::kept_name;
use super::placing::{bind_at, connect_at, identity, remove_at};

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// What happens to files that the other side sends (SCM_RIGHTS).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// Received, from the moment on that the closer has a copy of the connection.
    Taken,
    /// Refused by the kernel, where it can (Linux 6.16).
    Refused,
}

/// A socket whose connections refuse files. [`Connection::accept_files`] and [`Listener::bind`] change that once the closer has a copy: otherwise
/// this process would close for the last time what waits in it.
fn new_socket() -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    refuse_files(&socket);
    Ok(socket)
}

/// Connects to the listener at `path`, without waiting for a free place in its backlog: by the opener, if there is one.
///
/// # Errors
/// There is no listener, the closer cannot have the connection, or the kernel refuses.
pub fn connect(path: &Path, files: Files, opener: &Opener) -> io::Result<Connection> {
    let connection = Connection::from(new_socket()?);
    // Before the peer can send.
    if files == Files::Taken {
        connection.accept_files(new_owner())?;
    }
    connect_at(opener, &*connection, path)?;
    Ok(connection)
}

/// A listening socket for front ends. When it is dropped, its path is removed, and front ends in its backlog read the end
/// of the stream (see [`Connection`]).
pub struct Listener {
    socket: ClientFd,
    files: Files,
    path: PathBuf,
    /// Device and inode of the path, so that only this socket's own path is removed.
    identity: Option<(u64, u64)>,
    /// The keeper has a copy: a successor of the switch goes on listening. Dropped last.
    guard: Option<Guard>,
    /// Removes the path.
    opener: Opener,
}

impl Listener {
    /// Listens at `path`, with access for those of `access`. Replaces a socket that a dead process left there. Peers may send files from the
    /// moment on that they have connected, if the closer is given a copy of this socket: then it is the closer that closes connections in the backlog for
    /// the last time.
    ///
    /// # Errors
    /// Another process listens at `path`, something else than a socket exists there, others could replace a socket that is given away,
    /// or the kernel refuses.
    #[cfg(test)]
    pub fn bind(path: &Path, files: Files, access: &SocketAccess) -> io::Result<Listener> {
        Self::bind_kept(path, files, access, None)
    }

    /// The same. `keeper`: has the socket outlive the switch, and goes on with the one that a predecessor left, if that is at the path still, with the same access. Who connects meanwhile waits.
    ///
    /// # Errors
    /// As of [`bind`](Self::bind), or the keeper cannot hold the socket.
    pub fn bind_kept(path: &Path, files: Files, access: &SocketAccess, keeper: Option<&Link>) -> io::Result<Listener> {
        let name = kept_name("listener", path);
        let path = access.place(path)?;
        let opener = keeper.map_or_else(Opener::default, Link::opener);
        let keeper = keeper.filter(|link| link.is_kept());
        let words = format!("{files:?} {access:?}");
        if let Some(link) = keeper
            && let Some(left) = Self::inherit(link, &name, &path, files, &words)
        {
            return Ok(left);
        }
        let socket = new_socket()?;
        let identity = bind_at(&opener, &socket, &path, access)?;
        let mut listener = Listener { identity, socket: socket.into(), files, path, guard: None, opener };
        // Not waited for: this thread may serve others, and has locks. Otherwise files are accepted from each connection's accept on.
        if files == Files::Taken && listener.socket.ask(new_owner(), keeper.is_some()).is_ok() {
            accept_files(&listener.socket);
        }
        // Nobody can connect before all is as it should be.
        listen(&*listener.socket, 8)?;
        if let Some(link) = keeper {
            let note = note(&listener.path, identity, &words);
            let files = [listener.socket.as_fd()];
            listener.guard = Some(Guard::new(link, &name, &note, &files, None)?);
        }
        Ok(listener)
    }

    /// The socket that a predecessor left under this name. One that does not fit any more is closed.
    fn inherit(link: &Link, name: &str, path: &Path, files: Files, words: &str) -> Option<Listener> {
        let Inherited { name, note: was, files: sockets } = link.inherit(name)?;
        let guard = Guard::of(link, name, None);
        let socket = ClientFd::from(sockets.into_iter().next()?);
        let own = identity(path);
        if own.is_none() || was != note(path, own, words) {
            let (path, identity) = place_of(&was)?;
            let guard = Some(guard);
            drop(Listener {
                socket,
                files: Files::Refused,
                path,
                identity: Some(identity),
                guard,
                opener: link.opener(),
            });
            return None;
        }
        if files == Files::Taken && socket.ask(new_owner(), true).is_err() {
            refuse_files(&socket);
        }
        Some(Listener {
            socket,
            files,
            path: path.to_owned(),
            identity: own,
            guard: Some(guard),
            opener: link.opener(),
        })
    }

    /// Accepts the next front end that waits.
    ///
    /// # Errors
    /// No front end waits any more, this process has no descriptors left, or the closer cannot have the connection.
    pub fn accept(&self) -> io::Result<Connection> {
        let connection = Connection::from(accept_with(&*self.socket, FLAGS)?);
        if self.files == Files::Taken {
            connection.accept_files(new_owner())?;
        }
        Ok(connection)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        remove_at(&self.opener, &self.path, self.identity);
        // Closing a listener resets the connections in its backlog (net/unix, `unix_release_sock`). After the shutdown
        // the kernel refuses further connections, so this ends.
        let _ = shutdown(&*self.socket, Shutdown::Both);
        while self.accept().is_ok() {}
    }
}

/// The note of a listener: device and inode of its path, the path, and words that are compared only.
fn note(path: &Path, identity: Option<(u64, u64)>, words: &str) -> Vec<u8> {
    let (device, inode) = identity.unwrap_or_default();
    let path = path.as_os_str().as_bytes();
    let head = [device, inode, path.len() as u64].map(u64::to_ne_bytes).concat();
    [&head, path, words.as_bytes()].concat()
}

/// The path in a note, and its device and inode.
fn place_of(note: &[u8]) -> Option<(PathBuf, (u64, u64))> {
    let (head, rest) = note.split_first_chunk::<24>()?;
    let mut fields = Fields(head);
    let (device, inode, length) = (fields.u64(), fields.u64(), fields.u64());
    let path = rest.get(..usize::try_from(length).ok()?)?;
    Some((OsStr::from_bytes(path).into(), (device, inode)))
}
