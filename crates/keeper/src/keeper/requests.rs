//! `keeper.sock`: what administrators ask of the keeper itself, without the switch: to upgrade, and to let the switch have what its configuration does not name. A request is one message.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, send,
    socket_with, sockopt,
};

use super::grants::Grants;
use crate::message::receive_files;
use crate::request::{Answer, GRANT, REPLACE, REQUEST_MOST, UPGRADE};

/// Longest time between a connection and its request. Another connection ends the wait before.
const REQUEST_WITHIN: Duration = Duration::from_secs(2);

/// The socket, from the moment on that the runtime directory is the switch's.
#[derive(Debug)]
pub(super) struct Requests {
    path: PathBuf,
    /// Device and inode of the path, so that only this socket's own is removed.
    identity: Option<(u64, u64)>,
    listener: OwnedFd,
    /// A connection whose request has not come yet.
    asking: Option<(OwnedFd, Instant)>,
}

/// A request to upgrade.
#[derive(Debug)]
pub(super) struct Request {
    /// The client asks to replace the keeper, not the switch.
    pub(super) is_for_keeper: bool,
    /// The executable.
    pub(super) executable: OwnedFd,
    client: OwnedFd,
}

impl Requests {
    /// Listens at this path, for this user and root alone.
    pub(super) fn listen(path: &Path) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // Before bind, so that the path has this mode from the start.
        rustix::fs::fchmod(&listener, Mode::RUSR | Mode::WUSR)?;
        let address = SocketAddrUnix::new(path)?;
        if bind(&listener, &address) == Err(Errno::ADDRINUSE) {
            // Of a keeper that was killed. The directory is this one's now.
            std::fs::remove_file(path)?;
            bind(&listener, &address)?;
        }
        listen(&listener, 4)?;
        Ok(Self { path: path.to_owned(), identity: identity(path), listener, asking: None })
    }

    /// What to wait for.
    pub(super) fn ends(&self) -> impl Iterator<Item = &OwnedFd> {
        std::iter::once(self.asking.as_ref().map_or(&self.listener, |(client, _)| client))
    }

    /// When to look again, whatever happens.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.asking.as_ref().map(|(_, until)| *until)
    }

    /// Returns a request to upgrade that has come. Takes grants. `own`: the numbers of the processes that the keeper has started. They are the daemon's user's,
    /// too, and a client may have taken one over.
    pub(super) fn next(&mut self, grants: &mut Grants, own: &[u32]) -> Option<Request> {
        if self.asking.is_none()
            && let Ok(client) = accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
        {
            self.asking = Some((client, Instant::now() + REQUEST_WITHIN));
        }
        let (client, until) = self.asking.take()?;
        let mut bytes = [0; REQUEST_MOST + 1];
        let (length, files) = match receive_files(&client, &mut bytes, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) if until > Instant::now() => {
                self.asking = Some((client, until));
                return None;
            }
            Err(_) => return None,
            Ok(received) => received,
        };
        let me = rustix::process::geteuid();
        let peer = sockopt::socket_peercred(&client);
        let may = peer.is_ok_and(|peer| peer.uid.is_root() || peer.uid == me);
        // It connects for the switch where the switch says.
        let is_own = peer.is_ok_and(|peer| own.iter().any(|own| i64::from(*own) == i64::from(peer.pid.as_raw_pid())));
        let said = match (&bytes[..length], files.into_iter().next()) {
            _ if !may || is_own => Answer::refused("only root and the switch's own user may ask for that"),
            (bytes, Some(executable)) if *bytes == UPGRADE || *bytes == REPLACE => {
                return Some(Request { is_for_keeper: *bytes == REPLACE, executable, client });
            }
            (bytes, None) if bytes.len() <= REQUEST_MOST && bytes.starts_with(&GRANT) => {
                grants.add(&bytes[GRANT.len()..]).map_or_else(Answer::refused, |()| Answer::done("granted"))
            }
            _ => Answer::refused("this keeper does not understand the request: it is of another version"),
        };
        answer(&client, &said);
        None
    }

    /// The socket of another keeper.
    pub(super) fn of(path: Vec<u8>, listener: OwnedFd) -> Self {
        let path = PathBuf::from(OsString::from_vec(path));
        Self { identity: identity(&path), path, listener, asking: None }
    }

    pub(super) fn path_bytes(&self) -> Vec<u8> {
        self.path.as_os_str().as_bytes().to_vec()
    }

    pub(super) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    path.symlink_metadata().ok().map(|meta| (meta.dev(), meta.ino()))
}

impl Request {
    pub(super) fn into_executable(self) -> OwnedFd {
        self.executable
    }

    pub(super) fn client(&self) -> BorrowedFd<'_> {
        self.client.as_fd()
    }

    /// Answers. Who asked may have gone.
    pub(super) fn answer(&self, said: &Answer) {
        answer(&self.client, said);
    }
}

pub(super) fn answer(client: impl AsFd, said: &Answer) {
    let _ = send(client, &said.encode(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

#[cfg(test)]
mod tests {
    use ringway_testing::file::directory;
    use rustix::net::{connect, recv};

    use super::*;

    #[test]
    fn processes_of_the_keeper_itself_are_granted_nothing_though_their_user_may_ask() {
        let dir = directory();
        let path = dir.path().join("keeper.sock");
        let (mut requests, mut grants) = (Requests::listen(&path).expect("a socket"), Grants::new().expect("memory"));
        for (own, done) in [(vec![1, std::process::id()], false), (vec![1], true)] {
            let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
            let socket = socket.expect("a socket");
            connect(&socket, &SocketAddrUnix::new(&path).expect("a path")).expect("it listens");
            send(&socket, &[&GRANT[..], b"line"].concat(), SendFlags::empty()).expect("it is sent");
            assert!(requests.next(&mut grants, &own).is_none());
            let mut bytes = [0; 256];
            let (_, length) = recv(&socket, &mut bytes[..], RecvFlags::DONTWAIT).expect("an answer");
            assert_eq!(Answer::decode(&bytes[..length]).map(|answer| answer.done), Some(done), "{own:?}");
        }
    }
}
