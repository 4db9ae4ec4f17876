//! Settings and status of a port.

use std::path::PathBuf;

use ringway_memory::Limits;

use ringway_port::front_end::{Role, SocketAccess, State};

/// Settings of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `SWITCH:PORT`, for thread names and messages.
    pub label: String,
    /// Path of the socket.
    pub socket: PathBuf,
    /// Which side listens.
    pub role: Role,
    /// Who may connect to the socket that the port makes.
    pub access: SocketAccess,
    /// Most queue pairs, 1 to 8.
    pub queues: u16,
    /// The MTU in bytes that the guest is told and that the port enforces. `None`: no MTU.
    pub mtu: Option<u16>,
    /// Whether the port offers its configuration space. Only for front ends that leave the space to the back end.
    pub config_space: bool,
    /// The address in the configuration space.
    pub mac: Option<[u8; 6]>,
    /// Whether the guest may reset single rings. Only for front ends that pass such a reset on to the back end.
    pub ring_reset: bool,
    /// Whether the port offers checksum and segmentation offloads.
    pub offload: bool,
    /// File that records which chains are in flight, so that a successor of a killed process delivers no frame twice.
    /// Removed when the port is removed.
    pub record: Option<PathBuf>,
    /// Limits for the memory that the front end may share.
    pub memory: Limits,
}

/// Most queue pairs of one port.
pub const MOST_QUEUES: u16 = 8;

/// What a port knows of its front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// State of the front end.
    pub state: State,
    /// The virtio features in use.
    pub features: u64,
    /// Number of started queues.
    pub queues: u16,
    /// Size of a started queue in descriptors; 0 if no queue is started.
    pub ring_size: u16,
}
