//! The directory of a daemon's sockets, and its lock against a second daemon.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use ringway_api::paths::{ATTACH_SOCKET, CONTROL_SOCKET, SOCKET_PATH_MAX};
use ringway_keeper::{Inherited, Link};
use ringway_port::remove_socket;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::inject;

/// The name under which the keeper holds the lock.
const KEPT: &str = "directory";

/// Why a runtime directory cannot be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another daemon uses it.
    #[error("a ringway daemon is already running in {}: stop it, or choose another with --runtime-dir", .0.display())]
    Taken(PathBuf),
    /// It cannot be made or opened.
    #[error("cannot use {} as runtime directory: {why}", path.display())]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// The reason.
        why: io::Error,
    },
}

/// A runtime directory that belongs to this process until the value is dropped or the process ends. The claim is a lock on the
/// directory itself, so that a process that was killed leaves nothing but sockets without a listener.
#[derive(Debug)]
pub struct RuntimeDir {
    path: PathBuf,
    /// Without a keeper, which has it otherwise: a client that has taken the switch over would come out of a container by a descriptor of a folder.
    _lock: Option<File>,
    link: Link,
}

impl RuntimeDir {
    /// Makes the directory if need be (mode 0700), claims it and removes the sockets that a dead daemon left. Where the daemon has a keeper, the
    /// claim outlives it, and so do the sockets.
    ///
    /// # Errors
    /// A live daemon uses it, another user can put sockets there, or it cannot be made.
    pub fn claim(path: &Path, link: &Link) -> Result<Self, ClaimError> {
        let unusable = |why: io::Error| ClaimError::Unusable { path: path.to_owned(), why };
        if let Some(Inherited { note, files, .. }) = link.inherit(KEPT)
            && !files.is_empty()
        {
            let path = PathBuf::from(OsString::from_vec(note));
            return Ok(Self { path, _lock: None, link: link.clone() });
        }
        inject::at("claim");
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(unusable)?;
        let path = path.canonicalize().map_err(unusable)?;
        let longest = path.as_os_str().len() + 1 + CONTROL_SOCKET.len().max(ATTACH_SOCKET.len());
        if longest > SOCKET_PATH_MAX {
            let limit = SOCKET_PATH_MAX - 1 - CONTROL_SOCKET.len().max(ATTACH_SOCKET.len());
            return Err(unusable(io::Error::other(format!(
                "a path can have at most {limit} bytes, as it holds sockets"
            ))));
        }
        let lock = File::open(&path).map_err(unusable)?;
        check_owner(&lock).map_err(unusable)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(ClaimError::Taken(path)),
            Err(e) => return Err(unusable(e.into())),
        }
        remove_sockets(&path).map_err(unusable)?;
        link.keep(KEPT, path.as_os_str().as_bytes(), &[lock.as_fd()]).map_err(unusable)?;
        Ok(Self { path, _lock: (!link.is_kept()).then_some(lock), link: link.clone() })
    }

    /// Returns true if a predecessor has left its claim.
    pub fn is_left(link: &Link) -> bool {
        !link.left(KEPT).is_empty()
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What outlives the daemon.
    pub fn keeper(&self) -> &Link {
        &self.link
    }

    /// Returns the path of the socket of this name.
    pub fn socket(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Removes the sockets that a dead daemon left.
fn remove_sockets(directory: &Path) -> io::Result<()> {
    for name in [CONTROL_SOCKET, ATTACH_SOCKET] {
        match fs::remove_file(directory.join(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// Checks that no other user can replace a socket in the directory: this user owns it, and no other can write to it.
fn check_owner(directory: &File) -> io::Result<()> {
    let (meta, me) = (directory.metadata()?, rustix::process::geteuid().as_raw());
    let wrong = if meta.uid() != me {
        format!("it belongs to user {} and this is user {me}: choose another with --runtime-dir", meta.uid())
    } else if meta.mode() & 0o022 != 0 {
        let mode = meta.mode() & 0o7777;
        format!("others can write to it (mode {mode:04o}): \"chmod go-w\" it, or choose another with --runtime-dir")
    } else {
        return Ok(());
    };
    Err(io::Error::other(wrong))
}

impl Drop for RuntimeDir {
    fn drop(&mut self) {
        // The next daemon tries again after a failure.
        [CONTROL_SOCKET, ATTACH_SOCKET].iter().for_each(|name| remove_socket(&self.link, &self.socket(name)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::os::unix::net::UnixListener;

    #[test]
    fn one_daemon_at_a_time_and_a_dead_ones_sockets_are_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/run");
        fs::create_dir_all(&path).unwrap();
        drop(UnixListener::bind(path.join(CONTROL_SOCKET)).unwrap());
        let claim = RuntimeDir::claim(&path, &Link::default()).unwrap();
        let _socket = UnixListener::bind(claim.socket(CONTROL_SOCKET)).unwrap();
        let second = RuntimeDir::claim(&path, &Link::default()).unwrap_err();
        assert!(second.to_string().contains("already running"), "{second}");
        assert!(claim.socket(CONTROL_SOCKET).exists(), "the second must not take the first's socket away");
        drop(claim);
        assert!(!path.join(CONTROL_SOCKET).exists());
        RuntimeDir::claim(&path, &Link::default()).unwrap();
    }

    #[test]
    fn a_directory_too_deep_for_a_socket_is_refused_by_its_length() {
        let dir = tempfile::tempdir().unwrap();
        let error = RuntimeDir::claim(&dir.path().join("x".repeat(100)), &Link::default()).unwrap_err();
        assert!(error.to_string().contains("at most 94 bytes"), "{error}");
    }

    #[test]
    fn a_directory_that_others_own_or_can_write_to_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        fs::create_dir(&path).unwrap();
        fs::write(path.join(CONTROL_SOCKET), "").unwrap();
        for mode in [0o770, 0o702, 0o1777] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = RuntimeDir::claim(&path, &Link::default()).unwrap_err().to_string();
            assert!(error.contains(&format!("others can write to it (mode {mode:04o}): \"chmod go-w\" it")), "{error}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let (theirs, owner) = if rustix::process::geteuid().is_root() {
            chown(&path, Some(65534), None).unwrap();
            (path.as_path(), 65534)
        } else {
            (Path::new("/"), 0)
        };
        let error = RuntimeDir::claim(theirs, &Link::default()).unwrap_err().to_string();
        assert!(error.contains(&format!("it belongs to user {owner} and this is user")), "{error}");
        assert!(path.join(CONTROL_SOCKET).exists(), "what is there is not ours to take away");
        if owner != 0 {
            chown(&path, Some(0), None).unwrap();
        }
        RuntimeDir::claim(&path, &Link::default()).unwrap();
    }
}
