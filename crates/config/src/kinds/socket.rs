//! The sockets of ports. A port's peer is a hypervisor, or a program that speaks the protocol of the port's kind.

use std::path::{Component, Path, PathBuf};

use ringway_port_vhost_user as vhost_user;

use super::access::SocketAccess;
use crate::keys::form::{Choice, Text};
use crate::keys::{Keys, Name, keys};

/// The form of a socket's path. An empty path stands for the default, which depends on the port's name.
const PATH: Text<PathBuf> =
    Text { word: "PATH", wanted: "a socket's path", read: path, write: |path| path.display().to_string() };

keys! {
    /// The path of a port's socket, relative to the runtime directory.
    pub struct SocketPath {
        path as "socket": PathBuf = PathBuf::new(), PATH, Fixed, "The socket, relative to the runtime directory; by default NAME.sock.";
    }
    groups {
        /// Who may connect to it.
        access: SocketAccess,
    }
}

keys! {
    /// A port's socket, and which side listens on it.
    pub struct Socket {
        role: Role = Role::Server, Choice(&Role::WORDS), Fixed, "Which side listens on the socket: Ringway (server) or the peer (client).";
    }
    groups {
        /// The path.
        at: SocketPath,
    }
}

impl SocketPath {
    /// Returns the default for the port `name`.
    pub fn of_port(name: &Name) -> Self {
        Self { path: PathBuf::from(format!("{name}.sock")), ..Self::default() }
    }
}

impl Socket {
    /// A socket at this path.
    pub fn new(path: impl Into<PathBuf>, role: Role) -> Self {
        Self { role, at: SocketPath { path: path.into(), ..SocketPath::default() } }
    }

    /// Notes an `access` of a socket that the peer makes.
    pub fn validate(&self, keys: &Keys<'_>) {
        if self.role == Role::Client && keys.understood("access") {
            let what = "the peer makes the socket of a client, and decides who may connect";
            keys.wrong("access", keys.span_of_key("access"), what, "leave it out, or write role = \"server\"");
        }
    }
}

/// The side that listens on the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// The daemon listens, the peer connects.
    #[default]
    Server,
    /// The peer listens. The daemon connects, and connects again when the connection ends.
    Client,
}

impl Role {
    /// The words of the configuration.
    pub const WORDS: [(&'static str, Self); 2] = [("server", Self::Server), ("client", Self::Client)];

    /// Returns the role as ringway-port takes it.
    pub fn get(self) -> vhost_user::Role {
        match self {
            Self::Server => vhost_user::Role::Server,
            Self::Client => vhost_user::Role::Client,
        }
    }

    /// The word of the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }
}

/// Reads a socket's path and normalises it: no `.`, no double slashes.
///
/// # Errors
/// What is wrong and what would be right.
pub fn path(text: &str) -> Result<PathBuf, String> {
    let parts = Path::new(text).components().filter(|part| *part != Component::CurDir);
    let path: PathBuf = parts.collect();
    let is_text = !text.contains(char::is_control);
    let names_a_file = !text.ends_with('/') && !text.ends_with("/.") && path.file_name().is_some();
    if !names_a_file || !is_text || path.components().any(|part| part == Component::ParentDir) {
        return Err(format!("{text:?} is not a socket's path; write one like \"vm1.sock\", without \"..\""));
    }
    Ok(path)
}
