//! Who may connect to a socket: the key `access` of ports, and the section `[sockets]`.

use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};

use crate::keys::form::{Optional, TableOf, Text};
use crate::keys::{Keys, Table, Validate, keys};

/// The form of `owner`.
const USER: Text<Account> =
    Text { word: "USER", wanted: "a user's name or number", read: user, write: |user| user.name.clone() };
/// The form of `group`.
const GROUP: Text<Account> =
    Text { word: "GROUP", wanted: "a group's name or number", read: group, write: |group| group.name.clone() };
/// The form of `mode`.
const MODE: Text<u16> =
    Text { word: "MODE", wanted: "permissions like \"0660\"", read: mode, write: |mode| format!("{mode:04o}") };
/// The form of a table of these keys.
const ACCESS: TableOf<Access> =
    TableOf { wanted: "a table like { group = \"kvm\", mode = \"0660\" }", empty: Access::defaults };
/// Permissions where there is a group, which would be of no use without them.
const MODE_WITH_GROUP: u16 = 0o660;

/// A user or group of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// As it is written: a name or a number.
    name: String,
    id: u32,
}

keys! {
    /// Who may connect to a socket. A program needs the permission to write to it.
    pub struct Access {
        owner: Option<Account> = None, Optional(USER), Fixed, "The socket's owner, of /etc/passwd or a number; by default the user that Ringway runs as.";
        group: Option<Account> = None, Optional(GROUP), Fixed, "The socket's group, of /etc/group or a number; by default the group that Ringway runs as.";
        mode: Option<u16> = None, Optional(MODE), Fixed, "The socket's permissions; by default 0600, and 0660 with a group.";
    }
}

impl Validate for Access {}

keys! {
    /// The key `access` of ports with a socket.
    pub struct SocketAccess {
        access: Access = Access::default(), ACCESS, Fixed, "Who may connect to the socket; what is left out is as in the section sockets.";
    }
}

keys! {
    /// The sockets that Ringway makes.
    pub struct Sockets {
        control: Access = Access::default(), ACCESS, Fixed, "Who may administer the switch: control.sock, when Ringway starts.";
        attach: Access = Access::default(), ACCESS, Fixed, "Who may attach programs: attach.sock, when Ringway starts.";
    }
    groups {
        /// The sockets of ports that do not say otherwise.
        ports: Access,
    }
}

impl Sockets {
    /// Reads `[sockets]`.
    pub fn read_section(keys: Keys<'_>) -> Self {
        let mut sockets = Self::default();
        sockets.read(&keys);
        keys.finish();
        sockets
    }
}

impl Access {
    /// Returns this access, with the values of `others` for what is left out.
    #[must_use]
    pub fn or(&self, others: &Self) -> Self {
        Self {
            owner: self.owner.clone().or_else(|| others.owner.clone()),
            group: self.group.clone().or_else(|| others.group.clone()),
            mode: self.mode.or(others.mode),
        }
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
        // One descriptor for the check and the changes: others may be able to replace the file in the socket's folder.
        let file = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let about = rustix::fs::fstat(&file)?;
        let is_socket = FileType::from_raw_mode(about.st_mode) == FileType::Socket;
        if !is_socket || about.st_nlink != 1 || about.st_uid != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other("somebody has put another file in its place"));
        }
        let (owner, group) = (self.owner.as_ref(), self.group.as_ref());
        if owner.is_some() || group.is_some() {
            let (owner, group) = (owner.map(|user| Uid::from_raw(user.id)), group.map(|group| Gid::from_raw(group.id)));
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

fn named(what: &str, why: io::Error) -> io::Error {
    io::Error::new(why.kind(), format!("{what}: {why}"))
}

fn user(text: &str) -> Result<Account, String> {
    account(text, "user", "/etc/passwd")
}

fn group(text: &str) -> Result<Account, String> {
    account(text, "group", "/etc/group")
}

/// Finds a user or group. The last number stands for "no change" in chown(2), and is none.
fn account(text: &str, what: &str, table: &str) -> Result<Account, String> {
    let id = match text.parse() {
        Ok(id) => Some(id),
        Err(_) => id_in(&std::fs::read_to_string(table).unwrap_or_default(), text),
    };
    match id.filter(|id| *id != u32::MAX) {
        Some(id) => Ok(Account { name: text.to_owned(), id }),
        None => Err(format!("there is no {what} {text:?} in {table}; write one that is there, or a number")),
    }
}

/// Returns the number of a user or group: the third field of its line (passwd(5), group(5)).
fn id_in(table: &str, name: &str) -> Option<u32> {
    table
        .lines()
        .map(|line| line.split(':'))
        .find_map(|mut fields| (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?)
}

fn mode(text: &str) -> Result<u16, String> {
    let is_octal = !text.is_empty() && text.len() <= 4 && text.bytes().all(|digit| matches!(digit, b'0'..=b'7'));
    let mode = is_octal.then(|| u16::from_str_radix(text, 8).ok()).flatten().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| {
        format!("{text:?} is not the mode of a socket; write octal digits like \"0660\", at most \"0777\"")
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    fn access(owner: Option<&str>, group_name: Option<&str>, mode: Option<u16>) -> Access {
        Access {
            owner: owner.map(|owner| user(owner).expect("a user")),
            group: group_name.map(|name| group(name).expect("a group")),
            mode,
        }
    }

    #[test]
    fn users_groups_and_modes_are_understood() {
        let table = "root:x:0:0:root:/root:/bin/sh\nkvm:x:109:\nlong:x:4294967296:\nbad\nshort:x\n";
        assert_eq!([id_in(table, "root"), id_in(table, "kvm")], [Some(0), Some(109)]);
        assert_eq!(["", "x", "kv", "long", "bad", "short"].map(|name| id_in(table, name)), [None; 6]);
        assert_eq!((user("root").map(|user| user.id), group("7").map(|group| group.id)), (Ok(0), Ok(7)));
        for wrong in ["", "4294967295", "-1", "no body"] {
            assert!(user(wrong).is_err_and(|what| what.contains("/etc/passwd")), "{wrong}");
        }
        assert_eq!(["0660", "600", "0", "777"].map(mode), [Ok(0o660), Ok(0o600), Ok(0), Ok(0o777)]);
        for wrong in ["", "0o660", "+660", "1777", "0880", "00660", "rw"] {
            assert!(mode(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_a_port_leaves_out_is_that_of_all_ports() {
        let all = access(Some("1"), Some("2"), Some(0o666));
        assert_eq!(Access::default().or(&all), all);
        assert_eq!(access(Some("3"), None, None).or(&all), access(Some("3"), Some("2"), Some(0o666)));
        assert_eq!(all.or(&access(Some("3"), Some("4"), None)), all);
    }

    #[test]
    fn a_socket_is_given_to_its_users() {
        let dir = tempfile::tempdir().expect("a directory");
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let (me, mine) = (own.0.to_string(), own.1.to_string());
        let is_root = rustix::process::geteuid().is_root();
        for (wanted, right) in [
            (Access::default(), Some((own.0, own.1, 0o600))),
            (access(None, Some(&mine), None), Some((own.0, own.1, 0o660))),
            (access(Some(&me), Some(&mine), Some(0o606)), Some((own.0, own.1, 0o606))),
            (access(None, None, Some(0)), Some((own.0, own.1, 0))),
            (access(Some("65534"), Some("7"), None), is_root.then_some((65534, 7, 0o660))),
        ] {
            let path = dir.path().join("s");
            let _socket = UnixListener::bind(&path).expect("a socket");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("a mode");
            let set = wanted.set(&path);
            let about = std::fs::metadata(&path).expect("a file");
            let has = (about.uid(), about.gid(), about.mode() & 0o7777);
            match right {
                Some(right) => assert_eq!((set.is_ok(), has), (true, right), "{wanted:?}: {set:?}"),
                None => assert!(set.is_err_and(|why| why.to_string().contains("its owner and group")), "{wanted:?}"),
            }
            std::fs::remove_file(path).expect("removed");
        }
    }

    #[test]
    fn a_file_in_the_place_of_the_socket_is_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, secret) = (dir.path().join("s"), dir.path().join("secret"));
        std::fs::write(&secret, "").expect("a file");
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).expect("a mode");
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
        assert_eq!(std::fs::metadata(&secret).expect("a file").mode() & 0o777, 0o600);
    }
}
