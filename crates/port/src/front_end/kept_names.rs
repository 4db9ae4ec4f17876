//! The names under which the keeper holds what belongs to a port with a socket. The socket's path is in them, not the port's name: a port that gets another
//! name, or moves to another switch, keeps its connection, and a successor looks for it by what the configuration says then.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

/// Returns the name of one thing, `what`, that belongs to the port with this socket. Parts of it have names of their own behind a space.
#[must_use]
pub fn kept_name(what: &str, socket: &Path) -> String {
    format!("{what}/{}", path(socket))
}

/// Returns true if this name, with a number behind it or without, belongs to the port with this socket.
#[must_use]
pub fn is_kept_of(name: &str, socket: &Path) -> bool {
    let rest = name.split_once('/').and_then(|(_, rest)| rest.strip_prefix(&*path(socket)));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '#']))
}

/// A path without spaces and number signs, which end it in a name.
fn path(socket: &Path) -> String {
    match socket.to_str() {
        Some(path) if !path.contains([' ', '#', '=']) => path.to_owned(),
        _ => {
            // All processes of this version have the same keys.
            let mut hasher = DefaultHasher::new();
            socket.hash(&mut hasher);
            format!("={:016x}", hasher.finish())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_name_belongs_to_one_socket_whatever_is_in_its_path() {
        let paths = ["/run/vm", "/run/vm1", "/run/vm 1", "/run/vm#1", "/run/vm/1", "/run/=1", "/run/vm\u{e9}"];
        let mut paths: Vec<&OsStr> = paths.iter().map(|path| OsStr::new(*path)).collect();
        paths.extend([OsStr::from_bytes(b"/run/\xff"), OsStr::from_bytes(b"/run/\xfe")]);
        let longest = "x".repeat(107);
        paths.push(OsStr::new(&longest));
        for path in &paths {
            let whole = kept_name("connection", Path::new(path));
            let part = format!("{whole} queue65535");
            for name in [format!("{whole}#{}", u64::MAX), format!("{part}#{}", u64::MAX), whole, part] {
                assert!(name.len() <= ringway_keeper::NAME_MOST, "{name}");
                let of: Vec<_> = paths.iter().filter(|of| is_kept_of(&name, Path::new(of))).collect();
                assert_eq!(of, [path], "{name}");
            }
        }
    }
}
