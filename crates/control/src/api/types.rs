//! The JSON of the API.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::identity::IdentityStatus;
use crate::config::Mistake;

/// The daemon at one moment. Counters count since the port came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// Version of the daemon.
    pub version: String,
    /// Seconds since the daemon was ready.
    pub uptime: f64,
    /// All ports, by switch and name.
    pub ports: Vec<PortStatus>,
    /// All switches, by name.
    pub switches: Vec<SwitchStatus>,
    /// All pollers.
    pub pollers: Vec<PollerStatus>,
    /// The ports that failed last, latest first.
    pub faults: Vec<Fault>,
}

/// One port at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PortStatus {
    /// Its name.
    pub name: String,
    /// The switch it is on.
    pub switch: String,
    /// What it connects: `process`, `tap` or `vhost-user`.
    pub kind: String,
    /// `up`; `waiting` when a configured process port has no client, or a vhost-user port no front end; `connected` when a
    /// front end is there and its guest has no queue started; `failed` when a device or socket was lost.
    pub state: String,
    /// Why it failed, and what is being done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Addresses bound to it; none: any.
    pub mac: Vec<String>,
    /// Share of a poller's attention.
    pub weight: u32,
    /// Whether it reaches other isolated ports.
    pub isolated: bool,
    /// Who it is besides, and whom it may reach.
    #[serde(default)]
    pub identity: IdentityStatus,
    /// Least time between two calls, like `50us`; `0s`: none.
    pub call_interval: String,
    /// Rate of frames up to which there is no least time between calls, like `10kpps`; `0pps`: there always is.
    pub call_above: String,
    /// The poller that serves it; null: none at present.
    pub poller: Option<usize>,
    /// Name of its network device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// What a vhost-user port has besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vhost_user: Option<VhostUserStatus>,
    /// Every frame taken from the client.
    #[serde(rename = "in")]
    pub input: Traffic,
    /// Every frame given to the client.
    #[serde(rename = "out")]
    pub output: Traffic,
    /// Every frame lost because of this port, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Times the client woke the switch.
    pub kicks: u64,
    /// Times the switch woke the client.
    pub calls: u64,
}

/// A vhost-user port's front end at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VhostUserStatus {
    /// The socket, relative to the runtime directory.
    pub socket: String,
    /// Which side listens: `server` when it is the daemon, or `client`.
    pub role: String,
    /// Most queue pairs.
    pub most_queues: u16,
    /// The MTU that the guest is told; null: none.
    pub mtu: Option<u16>,
    /// Whether checksums and segmentation are offered.
    pub offload: bool,
    /// The virtio features in use, like `mrg_rxbuf`.
    pub features: Vec<String>,
    /// Queues that are started.
    pub queues: u16,
    /// Descriptors of the first started queue.
    pub ring_size: u16,
}

/// Frames and their bytes without FCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Traffic {
    /// How many.
    pub frames: u64,
    /// How long together.
    pub bytes: u64,
}

/// One switch at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SwitchStatus {
    /// Its name.
    pub name: String,
    /// `learning` or `map`.
    pub forwarding: String,
    /// How many ports it has.
    pub ports: usize,
}

/// One poller at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PollerStatus {
    /// The CPU it is pinned to; null: none.
    pub core: Option<u32>,
    /// Seconds spent on frames.
    pub busy: f64,
    /// Seconds spent polling in vain or sleeping.
    pub free: f64,
}

/// A port that was taken away because of what its client did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Fault {
    /// The port's name.
    pub port: String,
    /// The switch it was on.
    pub switch: String,
    /// What the client did, as one word.
    pub reason: String,
    /// The same for people.
    pub detail: String,
    /// Seconds since then.
    pub age: f64,
}

/// One address a switch knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FdbEntry {
    /// The switch.
    pub switch: String,
    /// The address.
    pub mac: String,
    /// The port behind which it is.
    pub port: String,
    /// Seconds since a frame came from it; null for an address bound by configuration.
    pub age: Option<f64>,
}

/// What a successful change did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Done {
    /// One line per step, like "added port vm1 to switch lan0"; empty when nothing differed.
    pub changes: Vec<String>,
}

/// Why a request was refused. Nothing has changed then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refusal {
    /// What is wrong and what would be right, for people.
    pub error: String,
    /// The same by key, when keys were wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<MistakeSchema>)]
    pub mistakes: Vec<Mistake>,
}

/// The form of a mistake, for the description of the API.
#[derive(ToSchema)]
#[schema(as = Mistake)]
#[allow(dead_code, reason = "describes config::Mistake, which knows nothing of the API")]
pub struct MistakeSchema {
    /// The key that is wrong.
    key: String,
    /// What is wrong with it.
    what: String,
    /// What would be right.
    right: Option<String>,
}

/// The keys of a port, as in `[port.NAME]`, for the description of the API. Unknown keys are refused.
#[derive(ToSchema)]
#[schema(as = PortKeys)]
#[allow(dead_code, reason = "describes config::PortKeys, which knows nothing of the API")]
pub struct PortKeysSchema {
    /// The port's name; only, and necessarily, for a new port.
    name: Option<String>,
    /// The switch it is on; cannot change.
    switch: Option<String>,
    /// `process`, `tap` or `vhost-user`; cannot change.
    kind: Option<String>,
    /// Bound addresses.
    mac: Option<Vec<String>>,
    /// Isolated ports do not reach each other.
    isolated: Option<bool>,
    /// Bound IP addresses and prefixes.
    ip: Option<Vec<String>>,
    /// `auto`, `all`, `off`, or a list of `mac`, `ip`, `dhcp`, `ra`.
    guard: Option<Vec<String>>,
    /// Whether it leads out.
    uplink: Option<bool>,
    /// The uplinks that it may use, or `all`.
    uplinks: Option<Vec<String>>,
    /// The other ports that it may reach, or `all`.
    allow: Option<Vec<String>>,
    /// The VLAN of a port without tags, 1 to 4094, or `none`.
    vlan: Option<u16>,
    /// The VLANs of a port with tags, like `10` or `20-29`, or `all`.
    trunk: Option<Vec<String>>,
    /// The VLAN of a trunk's frames without tags, or `none`.
    native: Option<u16>,
    /// Share of a poller's attention, 1 to 64.
    weight: Option<u32>,
    /// Least time between two calls, `0us` to `1s`.
    call_interval: Option<String>,
    /// Rate of frames up to which there is no least time between calls, like `10kpps`.
    call_above: Option<String>,
    /// The poller that serves it: its number from 0, or `any`.
    poller: Option<u32>,
    /// For a TAP: the device's name; cannot change.
    device: Option<String>,
    /// For a TAP: the network namespace; cannot change.
    netns: Option<String>,
    /// For a vhost-user port: the socket, relative to the runtime directory, by default `NAME.sock`; cannot change.
    socket: Option<String>,
    /// For a vhost-user port: `server` when the daemon listens, `client` when the hypervisor does; cannot change.
    role: Option<String>,
    /// For a vhost-user port: most queue pairs, 1 to 8; cannot change.
    queues: Option<u16>,
    /// For a vhost-user port: the MTU that the guest is told, 68 to 65513; cannot change.
    mtu: Option<u16>,
    /// For a vhost-user port: whether checksums and segmentation are offered; cannot change.
    offload: Option<bool>,
}
