//! `[port.NAME]`: one attachment.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::e1000::{E1000, Model};
use super::identity::Identity;
use super::limit::{Limit, Storm};
use super::memory::Memory;
use super::name::{Mac, Name};
use super::socket::Socket;
use super::vhost_user::VhostUser;

/// What is at the other side of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A program with shared memory, attached by name.
    Process,
    /// The host's network stack or a namespace's, by a TAP device.
    Tap,
    /// A virtual machine's virtio-net, by a hypervisor that speaks vhost-user.
    VhostUser,
    /// A virtual machine's emulated NIC, by a hypervisor that speaks vfio-user.
    E1000,
    /// Frames on a stream socket: any NIC of QEMU (`-netdev stream`), passt.
    Stream,
}

impl Kind {
    /// As they are written.
    pub const WORDS: [(&'static str, Self); 5] = [
        ("process", Self::Process),
        ("tap", Self::Tap),
        ("vhost-user", Self::VhostUser),
        ("e1000", Self::E1000),
        ("stream", Self::Stream),
    ];

    /// Those of later versions.
    pub const LATER: [&'static str; 2] = ["xdp", "vxlan"];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Tap => "tap",
            Self::VhostUser => "vhost-user",
            Self::E1000 => "e1000",
            Self::Stream => "stream",
        }
    }

    /// The word before it.
    pub fn article(self) -> &'static str {
        if self == Self::E1000 { "an" } else { "a" }
    }
}

/// When a port's client is called (moderation; thesis 4.3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Least time between two calls, up to 1 s; zero: none.
    pub interval: Duration,
    /// Frames per second up to which there is no least time, so that a quiet port keeps its latency; zero: there always is.
    pub above: u64,
}

/// Which way the frames go that a port is given copies of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the mirrored port's client, and to it.
    #[default]
    Both,
    /// From it.
    In,
    /// To it.
    Out,
}

impl Direction {
    /// As they are written.
    pub const WORDS: [(&'static str, Self); 3] = [("both", Self::Both), ("in", Self::In), ("out", Self::Out)];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

/// Which poller serves a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The one with the fewest ports when it comes.
    #[default]
    Any,
    /// This one, from 0, in the order of `[engine] cores`.
    Poller(u32),
}

impl Placement {
    /// The same where there are so many pollers: any in place of one that is not there.
    pub fn within(self, pollers: usize) -> Self {
        match self {
            Self::Poller(number) if number as usize >= pollers => Self::Any,
            other => other,
        }
    }
}

impl Serialize for Placement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Any => serializer.serialize_str("any"),
            Self::Poller(number) => serializer.serialize_u32(*number),
        }
    }
}

/// Settings of one port, complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The switch it is on.
    pub switch: Name,
    /// What it connects.
    pub kind: Kind,
    /// Bound addresses; empty: any.
    pub mac: BTreeSet<Mac>,
    /// Isolated ports do not reach each other.
    pub isolated: bool,
    /// Who it is besides, and whom it may reach.
    pub identity: Box<Identity>,
    /// Share of a poller's attention, and of a port or bucket that several fill, 1 to 64.
    pub weight: u32,
    /// How much it may send.
    pub ingress: Limit,
    /// How much it may be given.
    pub egress: Limit,
    /// How much of what it sends may go to many.
    pub storm: Storm,
    /// When its client is called.
    pub calls: Calls,
    /// Which poller serves it.
    pub poller: Placement,
    /// The ports of its switch that it is given copies of the frames of: it is then a mirror, and nothing else.
    pub mirror: BTreeSet<Name>,
    /// Which of their frames.
    pub mirror_direction: Direction,
    /// For a TAP: the device's name.
    pub device: Option<String>,
    /// For a TAP: the network namespace the device is in, by name (`/run/netns/NAME`) or path; none: the daemon's.
    pub netns: Option<String>,
    /// For a vhost-user, e1000 or stream port: where its peer connects.
    pub socket: Option<Socket>,
    /// For a vhost-user or e1000 port: how much memory its front end may give.
    pub memory: Memory,
    /// What a vhost-user port has besides.
    pub vhost_user: Option<VhostUser>,
    /// What an e1000 port has besides.
    pub e1000: Option<E1000>,
}

impl Port {
    /// A port on `switch` with defaults for the rest. `name` is that of its device or socket where it has one.
    pub fn new(switch: Name, kind: Kind, name: &Name) -> Self {
        Self {
            switch,
            kind,
            mac: BTreeSet::new(),
            isolated: false,
            identity: Box::default(),
            weight: 1,
            ingress: Limit::default(),
            egress: Limit::default(),
            storm: Storm::default(),
            calls: Calls::default(),
            poller: Placement::default(),
            mirror: BTreeSet::new(),
            mirror_direction: Direction::default(),
            device: (kind == Kind::Tap).then(|| name.to_string()),
            netns: None,
            socket: matches!(kind, Kind::VhostUser | Kind::E1000 | Kind::Stream).then(|| Socket::new(name)),
            memory: Memory::PORT,
            vhost_user: (kind == Kind::VhostUser).then(VhostUser::default),
            e1000: (kind == Kind::E1000).then(|| E1000::new(Model::default())),
        }
    }

    /// Whether one of its limits is part of this bucket.
    pub fn draws_on(&self, bucket: &Name) -> bool {
        [&self.ingress, &self.egress].iter().any(|limit| limit.bucket.as_ref() == Some(bucket))
    }

    /// Whether `self` can become `other` while frames flow; otherwise it has to be removed and added.
    pub fn can_become(&self, other: &Self) -> bool {
        self.switch == other.switch && self.has_the_end_of(other)
    }

    /// Whether both mean the same thing at the port's other side: the same device, or the same socket used in the same way.
    pub fn has_the_end_of(&self, other: &Self) -> bool {
        let end = |p: &Self| (p.kind, p.device.clone(), p.netns.clone(), p.socket.clone());
        let nic = |p: &Self| (p.memory, p.vhost_user.clone(), p.e1000.as_ref().map(E1000::fixed));
        end(self) == end(other) && nic(self) == nic(other)
    }
}
