//! The JSON of the status, of changes and of refusals.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::identity::IdentityStatus;
use crate::limits::{BucketStatus, LimitStatus, StormStatus};
use crate::mistake::Mistake;
use crate::program::ProgramStatus;
use crate::switch::SwitchKeys;
pub use crate::traffic::Traffic;

/// The daemon at one moment. Counters of a port count since the port was added.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Status {
    /// Version of the daemon.
    pub version: String,
    /// Seconds since the daemon was ready.
    pub uptime: f64,
    /// All ports, sorted by switch and name.
    pub ports: Vec<PortStatus>,
    /// All switches, sorted by name.
    pub switches: Vec<SwitchStatus>,
    /// All buckets, sorted by name.
    #[serde(default)]
    pub buckets: Vec<BucketStatus>,
    /// All pollers.
    pub pollers: Vec<PollerStatus>,
    /// The running captures, sorted by number.
    #[serde(default)]
    pub captures: Vec<CaptureStatus>,
    /// Faults of ports, and failures of Ringway itself, latest first: the last 32 of each port.
    pub faults: Vec<Fault>,
    /// The number of faults since the daemon started, by reason, of all ports together.
    #[serde(default)]
    pub fault_counts: Vec<FaultCount>,
    /// Deaths of the switch, which others went on for, since its keeper started.
    #[serde(default)]
    pub deaths: Deaths,
    /// What is doubtful: names of ports that do not exist, addresses that several ports have or use.
    #[serde(default)]
    pub warnings: Vec<Mistake>,
    /// Lines of the log and of standard output that were lost, because they could not be written, or because their reader was too slow.
    #[serde(default)]
    pub log_lines_lost: u64,
}

/// Deaths of the switch's process. The keeper starts another one after each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Deaths {
    /// Their number.
    pub count: u64,
    /// Their numbers by cause: `signal 11`; `status 70`, a failure of Ringway that was not contained; `hang`, the keeper killed it as it made no
    /// progress; `other`.
    pub causes: BTreeMap<String, u64>,
    /// The last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Death>,
}

/// A death of the switch's process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Death {
    /// The cause, as in the numbers by cause.
    pub cause: String,
    /// Seconds since then.
    pub age: f64,
    /// The ports that are blamed, as `SWITCH:PORT`; none: nobody.
    pub ports: Vec<String>,
    /// Whether the client of the port is the cause; otherwise, one of these is.
    pub certain: bool,
}

/// One port at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PortStatus {
    /// Its name.
    pub name: String,
    /// The switch it is on.
    pub switch: String,
    /// Its kind, a value of the key `kind`.
    pub kind: String,
    /// `up`; `waiting`: a configured process port without a client, or a port without a front end; `connected`: a front end is
    /// connected, and its guest has started no queue; `failed`: a device or socket cannot be opened; `paused`: Ringway failed while
    /// it delivered frames to or from the port, which is closed for a while; `disabled`: Ringway failed twice within a minute while it
    /// served the port alone, which is closed until an administrator enables it; `set aside`: the same, as the switch died of it.
    pub state: String,
    /// Why it is `failed`, `paused`, `disabled` or `set aside`, and what follows or can be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Ethernet addresses bound to it; none: any.
    pub mac: Vec<String>,
    /// Share of a poller's attention, and of a port or bucket that several fill.
    pub weight: u32,
    /// The limit of what it may send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<LimitStatus>,
    /// The limit of what it may receive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<LimitStatus>,
    /// Storm control: the limits of what it may send to many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storm: Option<StormStatus>,
    /// Whether it is isolated: isolated ports do not reach each other.
    pub isolated: bool,
    /// Its identity besides `mac`, and the ports that it may reach.
    #[serde(default)]
    pub identity: IdentityStatus,
    /// Least time between two calls, like `50us`; `0s`: none; `auto`: as the traffic needs.
    pub call_interval: String,
    /// The least times between two calls in force.
    #[serde(default)]
    pub call_intervals: CallIntervals,
    /// Rate of frames up to which there is no least time between calls, like `10kpps`; `0pps`: there always is.
    pub call_above: String,
    /// The poller that serves it; null: none at present.
    pub poller: Option<usize>,
    /// For a mirror: the mirrored ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mirror: Vec<String>,
    /// For a mirror: which frames of the mirrored ports are copied: `in`, from their clients; `out`, to them; or `both`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror_direction: Option<String>,
    /// Name of its network device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Status of a vhost-user port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vhost_user: Option<VhostUserStatus>,
    /// The memory that a vhost-user or e1000 port's front end gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStatus>,
    /// Status of an e1000 port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub e1000: Option<E1000Status>,
    /// Status of a stream port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamStatus>,
    /// Status of an XDP port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xdp: Option<XdpStatus>,
    /// All frames taken from the client.
    #[serde(rename = "in")]
    pub input: Traffic,
    /// All frames delivered to the client.
    #[serde(rename = "out")]
    pub output: Traffic,
    /// All frames lost because of this port, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Times the client woke the switch.
    pub kicks: u64,
    /// Times the switch woke the client.
    pub calls: u64,
    /// Times that an address was heard at this port and did not move here, because it had moved shortly before. The frames were
    /// forwarded.
    #[serde(default)]
    pub moves_held: u64,
    /// TCP segments that were appended to others. The frame that they are parts of counts once, as delivered or as lost.
    #[serde(default)]
    pub coalesced: u64,
    /// Its number of faults, by reason.
    #[serde(default)]
    pub faults: BTreeMap<String, u64>,
    /// Its use of poller time beyond its budget; null: none so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow: Option<SlowStatus>,
}

/// The least times between two calls in force, like `50us`; `0s`: none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CallIntervals {
    /// Between calls for frames to receive.
    pub receive: String,
    /// Between calls for room to send.
    pub send: String,
}

/// The use of poller time beyond a port's budget. Causes are page faults in its memory, and frames in very many pieces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SlowStatus {
    /// It is over its budget at present, and served with growing pauses (`slow_client` in `faults`).
    pub slow: bool,
    /// A thread of the quarantine serves it, until it has kept its budget for a while.
    pub quarantined: bool,
    /// Times that it became slow.
    pub times: u64,
    /// Visits over the budget.
    pub visits: u64,
    /// Time of these visits over the budget, in seconds.
    pub seconds: f64,
    /// The longest of these times.
    pub longest: f64,
}

/// The memory that a front end gives, and its bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MemoryStatus {
    /// Bytes of its files that are mapped.
    pub mapped: u64,
    /// Most bytes that may be mapped.
    pub size: u64,
    /// Mappings.
    pub mappings: u64,
    /// Most mappings.
    pub most_mappings: u64,
    /// Bytes of missing pages that were allocated.
    pub filled: u64,
    /// Most bytes of missing pages that are allocated within an hour.
    pub holes: u64,
}

/// What only a stream port has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StreamStatus {
    /// The socket, relative to the runtime directory.
    pub socket: String,
    /// The daemon's role: `server` if it listens, or `client`.
    pub role: String,
}

/// What only an XDP port has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct XdpStatus {
    /// How frames get from the device to the port: `zero-copy`, `copy` or `generic`.
    pub mode: String,
    /// Number of the device's queues that the port has.
    pub queues: u32,
    /// Who writes checksums that senders left to the port, into frames to the device: `device`, or `software` (Ringway).
    pub checksums: String,
}

/// An e1000 port's NIC and its guest at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct E1000Status {
    /// The socket, relative to the runtime directory.
    pub socket: String,
    /// The NIC that the guest sees: `e1000` (82540EM) or `e1000e` (82574L).
    pub model: String,
    /// The NIC's own address.
    pub address: String,
    /// Whether its cable is plugged in: `up`, or `down`.
    pub link: String,
    /// Whether the ring registers are `mapped` into the guest, or `trapped`.
    pub registers: String,
    /// Whether the paravirtual extension is offered.
    pub csb: bool,
    /// Longest delay of the notification that frames were sent, like `2ms`.
    pub completion_delay: String,
    /// How interrupts reach the guest: `none` yet, `intx`, `msi` or `msi-x`.
    pub interrupts: String,
    /// Descriptors of the ring of frames from the guest; 0: off.
    pub transmit_ring: u32,
    /// Descriptors of the ring of frames to the guest; 0: off.
    pub receive_ring: u32,
    /// Register reads by the guest. Each takes a message and its answer.
    #[serde(default)]
    pub register_reads: u64,
    /// Register writes by the guest. Each takes a message.
    #[serde(default)]
    pub register_writes: u64,
    /// Of these, writes of ring tails, which announce frames or buffers.
    #[serde(default)]
    pub tail_writes: u64,
    /// Messages for all register accesses, and for unmasking the interrupt pin.
    #[serde(default)]
    pub messages: u64,
    /// Interrupts raised.
    #[serde(default)]
    pub interrupts_raised: u64,
}

/// A vhost-user port's front end at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct VhostUserStatus {
    /// The socket, relative to the runtime directory.
    pub socket: String,
    /// The daemon's role: `server` if it listens, or `client`.
    pub role: String,
    /// Most queue pairs.
    pub most_queues: u16,
    /// The MTU that the guest is told; null: none.
    pub mtu: Option<u16>,
    /// Whether guests may reset single rings.
    pub ring_reset: bool,
    /// Whether the configuration space is offered.
    pub config_space: bool,
    /// Whether checksums and segmentation are offered.
    pub offload: bool,
    /// The virtio features in use, like `mrg_rxbuf`.
    pub features: Vec<String>,
    /// Queues that are started.
    pub queues: u16,
    /// Descriptors of the first started queue.
    pub ring_size: u16,
}

/// One switch at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SwitchStatus {
    /// Its name.
    pub name: String,
    /// Its settings, all of them.
    #[serde(flatten)]
    pub settings: SwitchKeys,
    /// How many ports it has, also those that wait for a client or a device.
    pub ports: usize,
    /// Moves of addresses: times that an address was heard at another port than before.
    #[serde(default)]
    pub moved: u64,
    /// Times that an address was heard at another port and did not move, because it had moved shortly before.
    #[serde(default)]
    pub moves_held: u64,
    /// Addresses that moved, latest first; the last 64.
    #[serde(default)]
    pub moves: Vec<MoveStatus>,
    /// The forwarding program; null: none.
    #[serde(default)]
    pub program: Option<ProgramStatus>,
}

/// An address that was heard at another port than before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MoveStatus {
    /// The VLAN; null: none.
    pub vlan: Option<u16>,
    /// The address.
    pub mac: String,
    /// Its port before; null: a port that does not exist any more.
    pub from: Option<String>,
    /// Its port; null: a port that does not exist any more.
    pub to: Option<String>,
    /// How often it moved.
    pub count: u64,
    /// It moved back to its port before, and moved within the last two minutes: two stations have this address, or there is a loop.
    pub duplicate: bool,
    /// Times that it was heard at another port and did not move, because it had moved shortly before.
    #[serde(default)]
    pub held: u64,
    /// Seconds since it moved last.
    pub age: f64,
}

/// One poller at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PollerStatus {
    /// The CPU it is pinned to; null: none.
    pub core: Option<u32>,
    /// Seconds spent on frames.
    pub busy: f64,
    /// Seconds spent polling in vain or sleeping.
    pub free: f64,
    /// Rounds that moved frames.
    #[serde(default)]
    pub passes: u64,
    /// Times it went to sleep.
    #[serde(default)]
    pub sleeps: u64,
    /// Other threads want its processor, as of its last work: with `idle = "adaptive"` and without `cores` it sleeps at once while they do.
    #[serde(default)]
    pub shared: bool,
    /// It has not gone round its loop since the last check: it serves no port.
    #[serde(default)]
    pub stuck: bool,
}

/// A running capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CaptureStatus {
    /// Its number.
    pub id: u64,
    /// The switch.
    pub switch: String,
    /// The captured port.
    pub port: String,
    /// Frames captured, whether read or not.
    pub captured: u64,
    /// Frames lost because they were not read fast enough.
    pub lost: u64,
}

/// A count of faults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FaultCount {
    /// What happened, as one word.
    pub reason: String,
    /// The line of Ringway's source, for a defect of Ringway (`internal_error`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// How often.
    pub count: u64,
}

/// A fault of a port's client. With `slow_client` the port stays attached; `internal_error` is a failure of Ringway itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Fault {
    /// The port's name.
    pub port: String,
    /// The switch it was on.
    pub switch: String,
    /// What happened, as one word.
    pub reason: String,
    /// What happened, in words.
    pub detail: String,
    /// Seconds since then.
    pub age: f64,
}

/// An address that a switch knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FdbEntry {
    /// The switch.
    pub switch: String,
    /// The VLAN in which it was heard; null: none, or all.
    #[serde(default)]
    pub vlan: Option<u16>,
    /// The address.
    pub mac: String,
    /// Its port.
    pub port: String,
    /// Seconds since its last frame; null for an address that is bound by configuration.
    pub age: Option<f64>,
}

/// The result of a successful change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Done {
    /// One line per step, like "added port vm1 to switch lan0"; empty if nothing differed.
    pub changes: Vec<String>,
}

/// HTTP status code of a refusal because a device, socket or file that the request names is not available.
pub const UNAVAILABLE: u16 = 422;

/// Why a request was refused. Nothing has changed then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Refusal {
    /// What is wrong and what would be right.
    pub error: String,
    /// The mistakes in keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mistakes: Vec<Mistake>,
}
