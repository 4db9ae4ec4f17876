//! What `kind = "vhost-user"` has beside the keys of every port.

use std::path::{Component, Path, PathBuf};

use serde::Serialize;

use super::name::Name;

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

/// Most queue pairs of a port.
pub const MOST_QUEUES: u16 = 8;

/// Smallest and largest MTU: virtio allows no less (1.3, 5.1.4.1), a frame with two VLAN tags holds no more.
pub const MTU: std::ops::RangeInclusive<u32> = 68..=65_513;

/// Settings of a vhost-user port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostUser {
    /// The socket, relative to the runtime directory.
    pub socket: PathBuf,
    /// Which side listens.
    pub role: Role,
    /// Most queue pairs, 1 to 8.
    pub queues: u16,
    /// The MTU that the guest is told, and longer frames than it allows are dropped; none: the guest chooses.
    pub mtu: Option<u16>,
    /// Whether checksums and segmentation may be left to the other side.
    pub offload: bool,
}

impl VhostUser {
    /// The defaults for the port `name`.
    pub fn new(name: &Name) -> Self {
        let socket = PathBuf::from(format!("{name}.sock"));
        Self { socket, role: Role::default(), queues: MOST_QUEUES, mtu: None, offload: true }
    }
}

/// Reads a socket's path, and makes it the one way to write it: without `.` and doubled slashes.
///
/// # Errors
/// What is wrong and what would be right.
pub fn socket(text: &str) -> Result<PathBuf, String> {
    let parts = Path::new(text).components().filter(|part| *part != Component::CurDir);
    let path: PathBuf = parts.collect();
    let names_a_file = !text.ends_with('/') && !text.ends_with("/.") && path.file_name().is_some();
    if !names_a_file || text.contains('\0') || path.components().any(|part| part == Component::ParentDir) {
        return Err(format!("{text:?} is not a socket's path; write one like \"vm1.sock\", without \"..\""));
    }
    Ok(path)
}
