//! The members: a port of each kind and way, in broadcast domains that may not hear each other.

use std::fmt::Write as _;

use ringway_traffic::E1000Mode;

use crate::frame::address;

/// How a member is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A process port of the configuration.
    Process,
    /// A process port that is there while its client is.
    OnDemand,
    /// A vhost-user port with split rings, whose driver listens or connects.
    Split { listens: bool },
    /// The same with packed rings, whose driver keeps what is in flight or does not.
    Packed { inflight: bool },
    /// An e1000 or e1000e, by its driver's mode.
    E1000(E1000Mode),
    /// A stream socket.
    Stream,
    /// A TAP device in a namespace.
    Tap,
    /// One end of a veth pair by AF_XDP.
    Xdp,
    /// One end of a veth pair by a packet socket.
    Packet,
}

impl Kind {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::OnDemand => "process on demand",
            Self::Split { listens: false } => "vhost-user split",
            Self::Split { listens: true } => "vhost-user client",
            Self::Packed { .. } => "vhost-user packed",
            Self::E1000(E1000Mode::Mapped) => "e1000e",
            Self::E1000(_) => "e1000",
            Self::Stream => "stream",
            Self::Tap => "tap",
            Self::Xdp => "xdp",
            Self::Packet => "packet",
        }
    }

    /// A kernel lies between the member and the switch, which may lose frames that no port counts.
    pub fn is_device(self) -> bool {
        matches!(self, Self::Tap | Self::Xdp | Self::Packet)
    }

    /// A veth pair.
    pub fn is_veth(self) -> bool {
        matches!(self, Self::Xdp | Self::Packet)
    }

    /// Its connection goes on when the switch dies.
    pub fn outlives(self) -> bool {
        self != Self::Stream
    }
}

/// A member.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    pub name: &'static str,
    pub kind: Kind,
    /// The switch that it is at.
    pub switch: &'static str,
    /// Its VLAN; 0: there are none at this switch.
    pub vlan: u16,
    /// Whether it does not reach other isolated ones.
    pub isolated: bool,
}

const fn member(name: &'static str, kind: Kind, vlan: u16, isolated: bool) -> Member {
    Member { name, kind, switch: "lan0", vlan, isolated }
}

const fn on_demand(name: &'static str) -> Member {
    Member { name, kind: Kind::OnDemand, switch: "lan1", vlan: 0, isolated: false }
}

/// All members. Their places are their numbers.
pub const MEMBERS: [Member; 18] = [
    member("p0", Kind::Process, 10, false),
    member("p1", Kind::Process, 10, true),
    member("p2", Kind::Process, 20, false),
    member("v0", Kind::Split { listens: false }, 10, false),
    member("v1", Kind::Split { listens: true }, 20, false),
    member("v2", Kind::Packed { inflight: true }, 10, true),
    member("v3", Kind::Packed { inflight: false }, 20, false),
    member("e0", Kind::E1000(E1000Mode::Moderated), 10, false),
    member("e1", Kind::E1000(E1000Mode::Csb), 20, false),
    member("e2", Kind::E1000(E1000Mode::Mapped), 10, false),
    member("s0", Kind::Stream, 10, false),
    member("t0", Kind::Tap, 10, false),
    member("t1", Kind::Tap, 20, false),
    member("x0", Kind::Xdp, 10, false),
    member("k0", Kind::Packet, 20, false),
    on_demand("d0"),
    on_demand("d1"),
    on_demand("d2"),
];

impl Member {
    /// Whether frames of this one may arrive at the other one.
    pub fn reaches(&self, other: &Self) -> bool {
        self.name != other.name
            && (self.switch, self.vlan) == (other.switch, other.vlan)
            && !(self.isolated && other.isolated)
    }

    /// The keys of its port, in the form of `ringway port add`; none: the port comes with its client. `namespace`: that of its device.
    pub fn keys(&self, number: usize, namespace: &str) -> Option<Vec<String>> {
        let mac = address(number as u16).map(|byte| format!("{byte:02x}")).join(":");
        let mut keys = match self.kind {
            Kind::OnDemand => return None,
            Kind::Process => vec!["kind=process".to_owned()],
            Kind::Split { listens } => {
                vec!["kind=vhost-user".into(), format!("role={}", if listens { "client" } else { "server" })]
            }
            Kind::Packed { .. } => vec!["kind=vhost-user".into()],
            Kind::E1000(E1000Mode::Mapped) => vec!["kind=e1000".into(), "model=e1000e".into()],
            Kind::E1000(E1000Mode::Csb) => vec!["kind=e1000".into(), "csb=true".into()],
            Kind::E1000(_) => vec!["kind=e1000".into()],
            Kind::Stream => vec!["kind=stream".into()],
            Kind::Tap => vec!["kind=tap".into(), format!("netns={namespace}")],
            Kind::Xdp => {
                vec![
                    "kind=xdp".into(),
                    "host=false".into(),
                    format!("device={}", self.name),
                    format!("netns={namespace}"),
                ]
            }
            Kind::Packet => vec!["kind=packet".into(), format!("device={}", self.name), format!("netns={namespace}")],
        };
        keys.push(format!("switch={}", self.switch));
        keys.push(format!("mac={mac}"));
        keys.push(format!("vlan={}", self.vlan));
        if self.isolated {
            keys.push("isolated=true".into());
        }
        Some(keys)
    }

    /// The section of its port in the configuration file.
    pub fn section(&self, number: usize, namespace: &str) -> String {
        let Some(keys) = self.keys(number, namespace) else { return String::new() };
        let mut text = format!("[port.{}]\n", self.name);
        for (key, value) in keys.iter().filter_map(|key| key.split_once('=')) {
            let is_bare = ["host", "csb", "isolated", "vlan"].contains(&key);
            let _ = if is_bare { writeln!(text, "{key} = {value}") } else { writeln!(text, "{key} = \"{value}\"") };
        }
        text
    }
}
