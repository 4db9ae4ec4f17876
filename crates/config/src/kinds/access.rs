//! Who may connect to a socket: the key `access` of ports, and the section `[sockets]`.

use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

use ringway_keeper::opener::open_to_read;
use rustix::process::{getegid, geteuid, getgroups};
use rustix::thread::{CapabilitySet, capabilities};

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
/// The permission to connect of a socket's owner.
const OWNER_CONNECTS: u16 = 0o200;

/// A user or group of this machine. Two are the same if they are written alike, as their keys are.
#[derive(Clone, Debug)]
pub struct Account {
    /// As it is written: a name or a number.
    name: String,
    id: u32,
}

impl PartialEq for Account {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Account {}

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

    /// Returns the access as ringway-port takes it.
    pub fn get(&self) -> ringway_port::SocketAccess {
        let id = |account: &Option<Account>| account.as_ref().map(|account| account.id);
        ringway_port::SocketAccess { owner: id(&self.owner), group: id(&self.group), mode: self.mode }
    }
}

impl SocketAccess {
    /// Returns the access as ringway-port takes it, with the values of `all` for what is left out.
    pub fn get(&self, all: &Access) -> ringway_port::SocketAccess {
        self.access.or(all).get()
    }
}

fn user(text: &str) -> Result<Account, String> {
    let user = account(text, "user", "/etc/passwd")?;
    if user.id == geteuid().as_raw() || may_give_away() {
        return Ok(user);
    }
    Err(format!("a socket cannot be given to user {text:?} without CAP_CHOWN; leave it out, or run Ringway as root"))
}

fn group(text: &str) -> Result<Account, String> {
    let group = account(text, "group", "/etc/group")?;
    let is_own = || getgroups().is_ok_and(|groups| groups.iter().any(|own| own.as_raw() == group.id));
    if group.id == getegid().as_raw() || is_own() || may_give_away() {
        return Ok(group);
    }
    let what = format!("this process is not in group {text:?}, and a socket cannot be given to it without CAP_CHOWN");
    Err(format!("{what}; write a group that it is in, or run Ringway as root"))
}

/// Returns whether this process may give files to any user and group: as it was at the first call. Later the switch has no privileges, and its opener
/// gives sockets away.
pub fn may_give_away() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| capabilities(None).is_ok_and(|has| has.effective.contains(CapabilitySet::CHOWN)))
}

/// Finds a user or group. The last number stands for "no change" in chown(2), and is none.
fn account(text: &str, what: &str, table: &str) -> Result<Account, String> {
    let id = match text.parse() {
        Ok(id) => Some(id),
        Err(_) => {
            let mut read = Vec::new();
            let done = open_to_read(Path::new(table)).and_then(|mut file| file.read_to_end(&mut read));
            done.map_err(|why| format!("cannot read {table}: {why}; write a number"))?;
            id_in(&read, text)
        }
    };
    match id.filter(|id| *id != u32::MAX) {
        Some(id) => Ok(Account { name: text.to_owned(), id }),
        None => Err(format!("there is no {what} {text:?} in {table}; write one that is there, or a number")),
    }
}

/// Returns the number of a user or group: the third field of its line (passwd(5), group(5)). Lines need not be UTF-8.
fn id_in(table: &[u8], name: &str) -> Option<u32> {
    table.split(|byte| *byte == b'\n').map(|line| line.split(|byte| *byte == b':')).find_map(|mut fields| {
        let id = (fields.next()? == name.as_bytes()).then(|| fields.nth(1))??;
        std::str::from_utf8(id).ok()?.parse().ok()
    })
}

fn mode(text: &str) -> Result<u16, String> {
    let is_octal = !text.is_empty() && text.len() <= 4 && text.bytes().all(|digit| matches!(digit, b'0'..=b'7'));
    let mode = is_octal.then(|| u16::from_str_radix(text, 8).ok()).flatten().filter(|mode| *mode <= 0o777);
    let mode = mode.ok_or_else(|| {
        format!("{text:?} is not the mode of a socket; write octal digits like \"0660\", at most \"0777\"")
    })?;
    if mode & OWNER_CONNECTS == 0 {
        let what =
            format!("with mode {text:?} the owner cannot connect, nor Ringway take the socket back when it was killed");
        return Err(format!("{what}; write one like \"0600\""));
    }
    Ok(mode)
}

#[cfg(test)]
mod tests {
    use rustix::thread::set_capabilities;

    use super::*;

    fn account(name: &str, id: u32) -> Account {
        Account { name: name.to_owned(), id }
    }

    #[test]
    fn users_groups_and_modes_are_understood() {
        let table = b"root:x:0:0:root:/root:/bin/sh\nj\xf6rg:x:5:\nkvm:x:109:\nlong:x:4294967296:\nbad\nshort:x\n";
        assert_eq!([id_in(table, "root"), id_in(table, "kvm")], [Some(0), Some(109)]);
        assert_eq!(["", "x", "kv", "long", "bad", "short"].map(|name| id_in(table, name)), [None; 6]);
        let (me, mine) = (geteuid().as_raw(), getegid().as_raw());
        assert_eq!(user(&me.to_string()).map(|user| user.id), Ok(me));
        assert_eq!(group(&mine.to_string()).map(|group| group.id), Ok(mine));
        for wrong in ["", "4294967295", "-1", "no body"] {
            assert!(user(wrong).is_err_and(|what| what.contains("/etc/passwd")), "{wrong}");
        }
        let unreadable = super::account("root", "user", "/none").expect_err("no table");
        assert!(unreadable.starts_with("cannot read /none: No such file"), "{unreadable}");
        assert_eq!(["0660", "600", "200", "777"].map(mode), [Ok(0o660), Ok(0o600), Ok(0o200), Ok(0o777)]);
        for wrong in ["", "0o660", "+660", "1777", "0880", "00660", "rw"] {
            assert!(mode(wrong).is_err_and(|what| what.contains("is not the mode of a socket")), "{wrong}");
        }
        for closed in ["0", "0466", "0577"] {
            assert!(mode(closed).is_err_and(|what| what.contains("the owner cannot connect")), "{closed}");
        }
    }

    #[test]
    fn who_may_not_give_a_socket_away_is_told_when_the_configuration_is_read() {
        // Capabilities are those of a thread.
        let said = std::thread::spawn(|| {
            let mut has = capabilities(None).expect("capabilities");
            has.effective.remove(CapabilitySet::CHOWN);
            set_capabilities(None, has).expect("fewer capabilities");
            let (me, mine) = (geteuid().as_raw(), getegid().as_raw());
            assert!(user(&me.to_string()).is_ok() && group(&mine.to_string()).is_ok());
            let config = "[sockets.attach]\ngroup = \"4000000\"\n[switch.a]\n[port.b]\nswitch = \"a\"\nkind = \"e1000\"\n\
                access = { owner = \"4000000\" }\n";
            crate::parse("r.toml", config, &crate::Host::here("/run/r".as_ref())).expect_err("refused").to_string()
        });
        let said = said.join().expect("an answer");
        assert!(said.contains("r.toml:2:9: key \"sockets.attach.group\": this process is not in group"), "{said}");
        assert!(said.contains("r.toml:7:20: key \"port.b.access.owner\": a socket cannot be given to user"), "{said}");
    }

    #[test]
    fn what_a_port_leaves_out_is_that_of_all_ports() {
        let access = |owner, group, mode| Access { owner, group, mode };
        let [one, two, three, four] =
            ["1", "2", "3", "4"].map(|name| Some(account(name, name.parse().expect("a number"))));
        let all = access(one, two.clone(), Some(0o666));
        assert_eq!(Access::default().or(&all), all);
        assert_eq!(access(three.clone(), None, None).or(&all), access(three.clone(), two, Some(0o666)));
        assert_eq!(all.or(&access(three, four, None)), all);
        let given = ringway_port::SocketAccess { owner: Some(1), group: Some(2), mode: Some(0o666) };
        assert_eq!(SocketAccess::default().get(&all), given);
    }

    #[test]
    fn accounts_that_are_written_alike_are_the_same_as_their_keys_are() {
        for (name, same) in [("kvm", true), ("other", false)] {
            let [one, other] = [account("kvm", 7), account(name, 8)]
                .map(|group| SocketAccess { access: Access { group: Some(group), ..Access::default() } });
            assert_eq!((one == other, one.values() == other.values()), (same, same), "{name}");
        }
    }
}
