//! Where a port's peer connects: a hypervisor, or whoever speaks the protocol of the port's kind.

use std::path::{Component, Path, PathBuf};

use serde::Serialize;

use super::name::Name;

/// A port's socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Relative to the runtime directory.
    pub path: PathBuf,
    /// Which side listens.
    pub role: Role,
}

impl Socket {
    /// The default for the port `name`.
    pub fn new(name: &Name) -> Self {
        Self { path: PathBuf::from(format!("{name}.sock")), role: Role::default() }
    }
}

/// Which side listens on the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The daemon; the hypervisor connects.
    #[default]
    Server,
    /// The hypervisor; the daemon connects, again whenever the connection ends.
    Client,
}

impl Role {
    /// As it is written.
    pub const WORDS: [(&'static str, Self); 2] = [("server", Self::Server), ("client", Self::Client)];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }
}

/// Reads a socket's path, and makes it the one way to write it: without `.` and doubled slashes.
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
