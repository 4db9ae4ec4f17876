//! The JSON of the API.

use std::collections::BTreeMap;

use ringway_memory::Limits;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::identity::IdentityStatus;
use super::limits::{BucketStatus, LimitStatus, StormStatus};
use super::switch::SwitchKeys;
use crate::config::memory::Memory;
use crate::config::mistake::Mistake;

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
    /// All buckets, by name.
    #[serde(default)]
    pub buckets: Vec<BucketStatus>,
    /// All pollers.
    pub pollers: Vec<PollerStatus>,
    /// The captures that run, by number.
    #[serde(default)]
    pub captures: Vec<CaptureStatus>,
    /// What ports did wrong, and where Ringway itself failed, latest first: the last 32 of each port.
    pub faults: Vec<Fault>,
    /// How often there was which fault since the daemon started, of all ports together.
    #[serde(default)]
    pub fault_counts: Vec<FaultCount>,
}

/// One port at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PortStatus {
    /// Its name.
    pub name: String,
    /// The switch it is on.
    pub switch: String,
    /// What it connects, a value of the key `kind`.
    pub kind: String,
    /// `up`; `waiting` when a configured process port has no client, or a port with a socket no front end; `connected` when a
    /// front end is there and its guest has no queue started; `failed` when a device or socket was lost; `paused` for a while when
    /// Ringway failed while it gave frames to the port, or the port's frames to another; `disabled` when Ringway failed twice within
    /// a minute while it served the port alone, until an administrator enables it.
    pub state: String,
    /// Why it failed, pauses or is disabled, and what is being done or can be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Addresses bound to it; none: any.
    pub mac: Vec<String>,
    /// Share of a poller's attention, and of a port or bucket that several fill.
    pub weight: u32,
    /// How much it may send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<LimitStatus>,
    /// How much it may be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<LimitStatus>,
    /// How much of what it sends may go to many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storm: Option<StormStatus>,
    /// Whether it is isolated: isolated ports do not reach each other.
    pub isolated: bool,
    /// Its identity besides `mac`, and the ports that it may reach.
    #[serde(default)]
    pub identity: IdentityStatus,
    /// Least time between two calls, like `50us`; `0s`: none.
    pub call_interval: String,
    /// Rate of frames up to which there is no least time between calls, like `10kpps`; `0pps`: there always is.
    pub call_above: String,
    /// The poller that serves it; null: none at present.
    pub poller: Option<usize>,
    /// For a mirror: the ports that it is given copies of the frames of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mirror: Vec<String>,
    /// For a mirror: `in`, frames from their clients; `out`, frames to them; or `both`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror_direction: Option<String>,
    /// Name of its network device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// What only a vhost-user port has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vhost_user: Option<VhostUserStatus>,
    /// The memory that a vhost-user or e1000 port's front end gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStatus>,
    /// What only an e1000 port has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub e1000: Option<E1000Status>,
    /// What only a stream port has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamStatus>,
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
    /// Times that an address turned up at this port and did not move here, because it had moved shortly before. The frames were
    /// forwarded.
    #[serde(default)]
    pub moves_held: u64,
    /// How often it had which fault.
    #[serde(default)]
    pub faults: BTreeMap<String, u64>,
    /// What serving it took of its poller beyond what it may; null: nothing so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow: Option<SlowStatus>,
}

/// What a port took of its poller's time beyond what it may: page faults in its memory, frames in very many pieces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SlowStatus {
    /// It goes on, and is set aside with growing pauses (`slow_client` in `faults`).
    pub slow: bool,
    /// A thread of its own kind serves it, until it has behaved for a while.
    pub quarantined: bool,
    /// Times that it became slow.
    pub times: u64,
    /// Visits that took too long.
    pub visits: u64,
    /// What they took beyond, in seconds.
    pub seconds: f64,
    /// The longest of them.
    pub longest: f64,
}

/// The memory that a front end gives, and its bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryStatus {
    /// Bytes of its files that are mapped.
    pub mapped: u64,
    /// Bytes that may be.
    pub size: u64,
    /// Mappings.
    pub mappings: u64,
    /// Mappings that there may be.
    pub most_mappings: u64,
    /// Bytes of pages that were not there when they were needed, and were made.
    pub filled: u64,
    /// Bytes of such pages that are made within an hour.
    pub holes: u64,
}

impl MemoryStatus {
    /// The bounds, before anything is known of what the front end gives.
    pub fn of(memory: Memory) -> Self {
        Self { size: memory.size, most_mappings: memory.mappings.into(), holes: memory.holes, ..Self::default() }
    }

    /// Takes what the front end gives now.
    pub fn see(&mut self, now: Limits) {
        self.mapped = now.bytes;
        self.mappings = now.mappings;
        self.filled = now.holes;
    }
}

/// What only a stream port has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StreamStatus {
    /// The socket, relative to the runtime directory.
    pub socket: String,
    /// Which side listens: `server` when it is the daemon, or `client`.
    pub role: String,
}

/// An e1000 port's NIC and its guest at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct E1000Status {
    /// The socket, relative to the runtime directory.
    pub socket: String,
    /// What the guest sees: `e1000` (82540EM) or `e1000e` (82574L).
    pub model: String,
    /// The NIC's own address.
    pub address: String,
    /// Whether its cable is plugged in: `up`, or `down`.
    pub link: String,
    /// Whether the ring registers are `mapped` into the guest, or `trapped`.
    pub registers: String,
    /// Whether the paravirtual extension is offered.
    pub csb: bool,
    /// Longest time until the guest is told that frames were sent, like `2ms`.
    pub completion_delay: String,
    /// How interrupts reach the guest: `none` yet, `intx`, `msi` or `msi-x`.
    pub interrupts: String,
    /// Descriptors of the ring of frames from the guest; 0: off.
    pub transmit_ring: u32,
    /// Descriptors of the ring of frames to the guest; 0: off.
    pub receive_ring: u32,
    /// Registers that the guest has read, each by a message and its answer.
    #[serde(default)]
    pub register_reads: u64,
    /// Registers that it has written, each by a message.
    #[serde(default)]
    pub register_writes: u64,
    /// Of these, tails of rings: what tells of new frames or buffers.
    #[serde(default)]
    pub tail_writes: u64,
    /// Messages that all this took, with those that unmask the pin.
    #[serde(default)]
    pub messages: u64,
    /// Interrupts raised.
    #[serde(default)]
    pub interrupts_raised: u64,
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
    /// Its settings, all of them.
    #[serde(flatten)]
    pub settings: SwitchKeys,
    /// How many ports it has.
    pub ports: usize,
    /// How often an address moved: it turned up at another port than before.
    #[serde(default)]
    pub moved: u64,
    /// How often an address turned up at another port than before and did not move, because it had moved shortly before.
    #[serde(default)]
    pub moves_held: u64,
    /// Addresses that moved from port to port, latest first; the last 64.
    #[serde(default)]
    pub moves: Vec<MoveStatus>,
}

/// An address that turned up at another port than before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MoveStatus {
    /// The VLAN; null: none.
    pub vlan: Option<u16>,
    /// The address.
    pub mac: String,
    /// Where it was before; null: a port that is no more.
    pub from: Option<String>,
    /// Where it is; null: a port that is no more.
    pub to: Option<String>,
    /// How often it moved.
    pub count: u64,
    /// It went back to where it came from: two have this address, or frames go in a circle.
    pub duplicate: bool,
    /// How often it turned up at another port and did not move, because it had moved shortly before.
    #[serde(default)]
    pub held: u64,
    /// Seconds since it moved last.
    pub age: f64,
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
    /// Rounds that moved frames.
    #[serde(default)]
    pub passes: u64,
    /// Times it went to sleep.
    #[serde(default)]
    pub sleeps: u64,
    /// It has not gone round its loop since it was looked at last: it serves no port.
    #[serde(default)]
    pub stuck: bool,
}

/// A capture that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CaptureStatus {
    /// Its number.
    pub id: u64,
    /// The switch.
    pub switch: String,
    /// The port whose frames it is shown.
    pub port: String,
    /// Frames captured, read or not yet.
    pub captured: u64,
    /// Frames lost because they were not read fast enough.
    pub lost: u64,
}

/// A count of faults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FaultCount {
    /// What happened, as one word.
    pub reason: String,
    /// The line of Ringway's source, where it is a defect of Ringway (`internal_error`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// How often.
    pub count: u64,
}

/// What a port's client did wrong, also where the port keeps its place (`slow_client`), or where Ringway failed while it served the port (`internal_error`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
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

/// One address a switch knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FdbEntry {
    /// The switch.
    pub switch: String,
    /// The VLAN in which it was heard; null: none, or every one.
    #[serde(default)]
    pub vlan: Option<u16>,
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
    /// The mistakes by key, when keys were wrong.
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
