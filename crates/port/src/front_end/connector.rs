//! How a port gets connections: a listener, or attempts to connect.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringway_keeper::Link;
use ringway_keeper::opener::Opener;
use rustix::event::{PollFd, PollFlags};

use super::access::SocketAccess;
use super::connection::Connection;
use super::listener::{Files, Listener, connect};
use super::role::Role;
use super::thread::{Stop, wait};

/// Time between two attempts to get what is unavailable for now: a descriptor, or a listener.
const TRY_EVERY: Duration = Duration::from_millis(100);

/// Makes the connections of a port.
pub enum Connector {
    /// The port listens.
    Listen(Listener),
    /// The port connects to a listener at this path.
    Connect(PathBuf, Files, Opener),
}

impl Connector {
    /// Listens at `path`, for those of `access` (a server), or connects to it later (a client).
    ///
    /// # Errors
    /// The socket cannot be opened.
    #[cfg(test)]
    pub fn open(role: Role, path: &Path, files: Files, access: &SocketAccess) -> io::Result<Connector> {
        Self::open_kept(role, path, files, access, None)
    }

    /// The same. `keeper`: has the listener outlive the switch.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub fn open_kept(
        role: Role,
        path: &Path,
        files: Files,
        access: &SocketAccess,
        keeper: Option<&Link>,
    ) -> io::Result<Connector> {
        match role {
            Role::Server => Ok(Connector::Listen(Listener::bind_kept(path, files, access, keeper)?)),
            Role::Client => {
                let opener = keeper.map_or_else(Opener::default, Link::opener);
                Ok(Connector::Connect(path.to_owned(), files, opener))
            }
        }
    }

    /// Returns the listener of a port that listens.
    pub fn listener(&self) -> Option<&Listener> {
        match self {
            Connector::Listen(listener) => Some(listener),
            Connector::Connect(..) => None,
        }
    }

    /// Waits for the next connection. Returns `None` when the thread has to stop.
    pub fn next(&self, stop: &Stop) -> Option<Connection> {
        match self {
            Connector::Listen(listener) => accept(listener, stop),
            Connector::Connect(path, files, opener) => loop {
                if let Ok(socket) = connect(path, *files, opener) {
                    return Some(socket);
                }
                if stop.wait_timeout(TRY_EVERY) {
                    return None;
                }
            },
        }
    }
}

fn accept(listener: &Listener, stop: &Stop) -> Option<Connection> {
    loop {
        let mut fds = [PollFd::new(stop, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
        wait(&mut fds, None);
        if !fds[0].revents().is_empty() {
            return None;
        }
        if fds[1].revents().is_empty() {
            continue;
        }
        match listener.accept() {
            Ok(socket) => return Some(socket),
            // Mostly, no descriptors are left: try again later. The front end waits in the backlog.
            Err(_) if stop.wait_timeout(TRY_EVERY) => return None,
            Err(_) => {}
        }
    }
}
