//! Who may connect to a socket that a port has made.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::process::geteuid;

/// Permissions where there is a group, which would be of no use without them.
const MODE_WITH_GROUP: u16 = 0o660;

/// Owner, group and mode of a socket. What is `None` stays as it is: those of this process, and 0600.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketAccess {
    /// The user's number.
    pub owner: Option<u32>,
    /// The group's number.
    pub group: Option<u32>,
    /// The permissions; by default 0660 with a group.
    pub mode: Option<u16>,
}

impl SocketAccess {
    /// Returns the path at which a socket with this access can be made: in a folder where no other user can put another file in the
    /// socket's place, nor another folder in the place of one on the way, and without symbolic links on the way.
    pub(super) fn place(&self, path: &Path) -> io::Result<PathBuf> {
        if *self == Self::default() {
            return Ok(path.to_owned());
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder }.canonicalize()?;
        for above in folder.ancestors() {
            judge(above, above == folder)?;
        }
        Ok(folder.join(name))
    }

    /// Gives the socket at `path` to these users. This process has just made it, with access for itself alone.
    ///
    /// # Errors
    /// The kernel refuses, or another file is there now.
    pub fn set(&self, path: &Path) -> io::Result<()> {
        let mode = self.mode.or(self.group.is_some().then_some(MODE_WITH_GROUP));
        if self.owner.is_none() && mode.is_none() {
            return Ok(());
        }
        // One descriptor for the check and the changes.
        let file = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let about = rustix::fs::fstat(&file)?;
        let is_socket = FileType::from_raw_mode(about.st_mode) == FileType::Socket;
        if !is_socket || about.st_nlink != 1 || about.st_uid != geteuid().as_raw() {
            return Err(io::Error::other("somebody has put another file in its place"));
        }
        if self.owner.is_some() || self.group.is_some() {
            let (owner, group) = (self.owner.map(Uid::from_raw), self.group.map(Gid::from_raw));
            let changed = rustix::fs::chownat(&file, "", owner, group, AtFlags::EMPTY_PATH);
            changed.map_err(|why| named("its owner and group cannot be changed", why.into()))?;
        }
        if let Some(mode) = mode {
            // A descriptor that is not open for reading has no fchmod(2).
            let place = format!("/proc/self/fd/{}", file.as_raw_fd());
            let changed = rustix::fs::chmod(place, Mode::from_raw_mode(mode.into()));
            changed.map_err(|why| named("its mode cannot be changed", why.into()))?;
        }
        Ok(())
    }
}

/// Checks that no other user but root can replace what is in a folder: the socket in its own folder, or the next folder on the way to it.
///
/// # Errors
/// Another user can. The error names the folder, and says what would be right.
fn judge(folder: &Path, is_own: bool) -> io::Result<()> {
    let here = folder.display();
    // A link that somebody put in a folder's place meanwhile belongs to him.
    let about = std::fs::symlink_metadata(folder).map_err(|why| named(&format!("cannot look at {here}"), why))?;
    let me = geteuid().as_raw();
    let is_roots = about.uid() == 0 && !is_own;
    if about.uid() != me && !is_roots {
        let what = format!("{here} belongs to user {}, who could put another file in its place", about.uid());
        return Err(io::Error::other(format!("{what}: leave out access, or choose another folder")));
    }
    // In a folder like /tmp, others can add files, and replace only their own. The next folder on the way belongs to root or to this user.
    let is_sticky = about.mode() & 0o1000 != 0 && !is_own;
    if about.mode() & 0o022 != 0 && !is_sticky {
        let what = format!("others can write to {here}, and put another file in its place");
        return Err(io::Error::other(format!("{what}: \"chmod go-w\" it, leave out access, or choose another folder")));
    }
    Ok(())
}

fn named(what: &str, why: io::Error) -> io::Error {
    io::Error::new(why.kind(), format!("{what}: {why}"))
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, metadata, set_permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::super::listener::Listener;
    use super::*;

    fn access(owner: Option<u32>, group: Option<u32>, mode: Option<u16>) -> SocketAccess {
        SocketAccess { owner, group, mode }
    }

    #[test]
    fn a_socket_is_given_to_its_users_or_is_not_made() {
        let dir = tempfile::tempdir().expect("a directory");
        let own = (geteuid().as_raw(), rustix::process::getegid().as_raw());
        for (wanted, right) in [
            (SocketAccess::default(), Some((own.0, own.1, 0o600))),
            (access(None, Some(own.1), None), Some((own.0, own.1, 0o660))),
            (access(Some(own.0), Some(own.1), Some(0o606)), Some((own.0, own.1, 0o606))),
            (access(None, None, Some(0o200)), Some((own.0, own.1, 0o200))),
            (access(Some(65534), Some(7), None), geteuid().is_root().then_some((65534, 7, 0o660))),
        ] {
            let path = dir.path().join("s");
            let socket = Listener::bind(&path, crate::front_end::Files::Refused, &wanted);
            match (right, socket) {
                (Some(right), Ok(_socket)) => {
                    let about = metadata(&path).expect("a file");
                    assert_eq!((about.uid(), about.gid(), about.mode() & 0o7777), right, "{wanted:?}");
                }
                (None, Err(why)) => assert!(why.to_string().contains("its owner and group"), "{wanted:?}: {why}"),
                (_, socket) => panic!("{wanted:?}: {:?}", socket.err()),
            }
            assert!(!path.exists(), "it goes with its listener");
        }
    }

    #[test]
    fn a_socket_is_given_away_only_where_nobody_else_can_replace_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let folder = dir.path().join("folder");
        std::fs::create_dir(&folder).expect("a folder");
        symlink(&folder, dir.path().join("link")).expect("a link");
        let open = access(None, None, Some(0o666));
        let bind = |access: &SocketAccess| {
            Listener::bind(&dir.path().join("link/s"), crate::front_end::Files::Refused, access).map(drop)
        };
        for mode in [0o770, 0o702, 0o1777] {
            set_permissions(&folder, Permissions::from_mode(mode)).expect("a mode");
            assert!(bind(&open).is_err_and(|why| why.to_string().starts_with("others can write to")), "{mode:o}");
            bind(&SocketAccess::default()).expect("a socket for this user alone");
        }
        set_permissions(&folder, Permissions::from_mode(0o755)).expect("a mode");
        bind(&open).expect("a socket");
        if geteuid().is_root() {
            std::os::unix::fs::chown(&folder, Some(65534), None).expect("an owner");
            assert!(bind(&open).is_err_and(|why| why.to_string().contains("belongs to user 65534")));
        }
    }

    #[test]
    fn a_socket_is_given_away_only_where_nobody_else_can_replace_a_folder_on_the_way() {
        let dir = tempfile::tempdir().expect("a directory");
        let (above, folder) = (dir.path().join("above"), dir.path().join("above/middle/folder"));
        std::fs::create_dir_all(&folder).expect("folders");
        let bind = || {
            Listener::bind(&folder.join("s"), crate::front_end::Files::Refused, &access(None, None, Some(0o666)))
                .map(drop)
        };
        for mode in [0o770, 0o702] {
            set_permissions(&above, Permissions::from_mode(mode)).expect("a mode");
            let why = bind().expect_err("refused").to_string();
            let wanted = format!("others can write to {}, and", above.display());
            assert!(why.starts_with(&wanted) && why.contains("\"chmod go-w\" it"), "{mode:o}: {why}");
        }
        for mode in [0o755, 0o1777] {
            set_permissions(&above, Permissions::from_mode(mode)).expect("a mode");
            bind().unwrap_or_else(|why| panic!("{mode:o}: {why}"));
        }
        if geteuid().is_root() {
            std::os::unix::fs::chown(&above, Some(65534), None).expect("an owner");
            let why = bind().expect_err("refused").to_string();
            assert!(why.starts_with(&format!("{} belongs to user 65534", above.display())), "{why}");
        }
    }

    #[test]
    fn a_file_in_the_place_of_the_socket_is_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, secret) = (dir.path().join("s"), dir.path().join("secret"));
        std::fs::write(&secret, "").expect("a file");
        set_permissions(&secret, Permissions::from_mode(0o600)).expect("a mode");
        let refused = || access(None, None, Some(0o666)).set(&path).expect_err("refused").to_string();
        symlink(&secret, &path).expect("a link");
        assert_eq!(refused(), "somebody has put another file in its place");
        std::fs::remove_file(&path).expect("removed");
        std::fs::hard_link(&secret, &path).expect("a link");
        assert_eq!(refused(), "somebody has put another file in its place");
        let _socket = UnixListener::bind(dir.path().join("other")).expect("a socket");
        std::fs::remove_file(&path).expect("removed");
        std::fs::hard_link(dir.path().join("other"), &path).expect("a link");
        assert_eq!(refused(), "somebody has put another file in its place");
        assert_eq!(metadata(&secret).expect("a file").mode() & 0o777, 0o600);
    }
}
