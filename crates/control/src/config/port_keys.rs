//! The keys of a port, as they are written. The same serve the file, `port add`, `port set` and the API.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::check::Made;
use super::e1000::{Cable, E1000, Model, Registers};
use super::identity::IdentityKeys;
use super::keys::Keys;
use super::limit::{Limit, Storm};
use super::memory::MemoryKeys;
use super::mistake::alternatives;
use super::name::{Mac, Name};
use super::node::Value;
use super::port::{Calls, Direction, Kind, Placement, Port};
use super::socket::{self, Role, Socket};
use super::units;
use super::vhost_user::{MOST_QUEUES, MTU, VhostUser};

/// Longest name of a network device in bytes.
const DEVICE_MAX: usize = 15;

/// Most addresses bound to one port.
const MACS_MAX: usize = 4096;

/// Most ports mirrored to one.
const MIRROR_MAX: usize = 4096;

/// Longest least time between two calls.
const CALL_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Largest rate of frames that can be named.
const RATE_MAX: u64 = 1_000_000_000;

/// Keys that only ports of some kinds have.
const OF_KIND: [(&str, &[Kind]); 13] = [
    ("device", &[Kind::Tap]),
    ("netns", &[Kind::Tap]),
    ("socket", &[Kind::VhostUser, Kind::E1000, Kind::Stream]),
    ("role", &[Kind::VhostUser, Kind::Stream]),
    ("memory", &[Kind::VhostUser, Kind::E1000]),
    ("queues", &[Kind::VhostUser]),
    ("mtu", &[Kind::VhostUser]),
    ("offload", &[Kind::VhostUser]),
    ("model", &[Kind::E1000]),
    ("link", &[Kind::E1000]),
    ("registers", &[Kind::E1000]),
    ("csb", &[Kind::E1000]),
    ("completion_delay", &[Kind::E1000]),
];

/// The keys of one port that were written, for a new port or for a change of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "each is a key of `Port`, `VhostUser` or `E1000`, where it is described")]
pub struct PortKeys {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch: Option<Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<BTreeSet<Mac>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolated: Option<bool>,
    #[serde(flatten)]
    pub identity: IdentityKeys,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress: Option<Limit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Limit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storm: Option<Storm>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_duration")]
    pub call_interval: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_rate")]
    pub call_above: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub poller: Option<Placement>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<BTreeSet<Name>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror_direction: Option<Direction>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryKeys>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offload: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Model>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Cable>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registers: Option<Registers>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csb: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_duration")]
    pub completion_delay: Option<Duration>,
}

impl PortKeys {
    /// Reads the keys. Whether they make a whole port is for [`PortKeys::complete`] to say.
    pub fn read(keys: &Keys<'_>) -> Self {
        let small = |key, range| keys.integer(key, range).and_then(|n| u16::try_from(n).ok());
        Self {
            switch: keys.parsed("switch", "a switch's name", str::parse),
            kind: read_kind(keys),
            mac: read_macs(keys),
            isolated: keys.boolean("isolated"),
            identity: IdentityKeys::read(keys),
            weight: keys.integer("weight", 1..=64),
            ingress: Limit::read(keys, "ingress"),
            egress: Limit::read(keys, "egress"),
            storm: Storm::read(keys),
            call_interval: keys.duration("call_interval", Duration::ZERO..=CALL_INTERVAL_MAX),
            call_above: keys.rate("call_above", 0..=RATE_MAX),
            poller: read_poller(keys),
            mirror: read_mirror(keys),
            mirror_direction: keys.choice("mirror_direction", &Direction::WORDS),
            device: keys.parsed("device", "a network device's name", device_name),
            netns: keys.parsed("netns", "a network namespace's name or path", netns),
            socket: keys.parsed("socket", "a socket's path", socket::path),
            role: keys.choice("role", &Role::WORDS),
            memory: MemoryKeys::read(keys),
            queues: small("queues", 1..=MOST_QUEUES.into()),
            mtu: small("mtu", MTU),
            offload: keys.boolean("offload"),
            model: keys.choice("model", &Model::WORDS),
            link: keys.choice("link", &Cable::WORDS),
            registers: keys.choice("registers", &Registers::WORDS),
            csb: keys.boolean("csb"),
            completion_delay: keys.duration("completion_delay", Duration::ZERO..=CALL_INTERVAL_MAX),
        }
    }

    /// Makes a port called `name`, noting what is missing or does not go together. Of one that a client `made` stays what is
    /// not written.
    pub fn complete(self, name: &Name, keys: &Keys<'_>, made: &Made) -> Option<Port> {
        let has = |key| keys.entry(key).is_some();
        if !has("switch") {
            keys.missing("switch", "name the switch this port is on: switch = \"NAME\"");
        }
        if !has("kind") {
            keys.missing("kind", format!("write kind = {}", alternatives(Kind::WORDS.map(|(w, _)| w))));
        }
        let (switch, kind) = (self.switch.clone()?, self.kind?);
        refuse_other_kinds(kind, keys);
        if kind == Kind::Tap
            && !has("device")
            && let Err(what) = device_name(name.as_str())
        {
            keys.missing("device", format!("the port's name does not do, as {what}"));
        }
        let made = made.get(&(switch.clone(), name.clone())).filter(|made| made.kind == kind);
        let mut port = made.cloned().unwrap_or_else(|| Port::new(switch, kind, name));
        if let Some(e1000) = &mut port.e1000 {
            *e1000 = self.nic(keys);
        }
        self.set_changeable(&mut port, keys);
        port.device = self.device.or(port.device);
        port.netns = self.netns;
        if let Some(default) = port.socket.take() {
            let path = self.socket.unwrap_or(default.path);
            port.socket = Some(Socket { path, role: self.role.unwrap_or(default.role) });
        }
        port.memory = self.memory.unwrap_or_default().over(port.memory);
        if let Some(default) = port.vhost_user.take() {
            port.vhost_user = Some(VhostUser {
                queues: self.queues.unwrap_or(default.queues),
                mtu: self.mtu.or(default.mtu),
                offload: self.offload.unwrap_or(default.offload),
            });
        }
        Some(port)
    }

    /// Applies the keys to `port`, noting those that cannot change while it exists.
    pub fn change(self, port: &Port, keys: &Keys<'_>) -> Port {
        let mut new = port.clone();
        self.set_changeable(&mut new, keys);
        let same = |key, same: bool| {
            if !same {
                let span = keys.entry(key).and_then(|e| e.span.clone());
                keys.wrong(key, span, "cannot change while the port exists", "use \"port del\" and \"port add\"");
            }
        };
        same("switch", self.switch.is_none_or(|s| s == port.switch));
        same("kind", self.kind.is_none_or(|k| k == port.kind));
        refuse_other_kinds(port.kind, keys);
        if port.kind == Kind::Tap {
            same("device", self.device.is_none_or(|d| Some(d) == port.device));
            same("netns", self.netns.is_none_or(|n| Some(n) == port.netns));
        }
        if let Some(socket) = &port.socket {
            same("socket", self.socket.is_none_or(|s| s == socket.path));
            same("role", self.role.is_none_or(|r| r == socket.role));
        }
        same("memory", self.memory.is_none_or(|m| m.over(port.memory) == port.memory));
        if let Some(vhost_user) = &port.vhost_user {
            same("queues", self.queues.is_none_or(|q| q == vhost_user.queues));
            same("mtu", self.mtu.is_none_or(|m| Some(m) == vhost_user.mtu));
            same("offload", self.offload.is_none_or(|o| o == vhost_user.offload));
        }
        if let Some(e1000) = &port.e1000 {
            same("model", self.model.is_none_or(|m| m == e1000.model));
            same("registers", self.registers.is_none_or(|r| r == e1000.registers));
            same("csb", self.csb.is_none_or(|c| c == e1000.csb));
        }
        new
    }

    /// What an e1000 is from the start.
    fn nic(&self, keys: &Keys<'_>) -> E1000 {
        let default = E1000::new(self.model.unwrap_or_default());
        let registers = self.registers.unwrap_or(default.registers);
        if (default.model, registers) == (Model::E1000, Registers::Mapped) {
            let span = keys.entry("registers").and_then(|entry| entry.span.clone());
            let what = "an e1000's registers cannot be mapped: its first interrupt would undo that";
            keys.wrong("registers", span, what, "leave it out, or write model = \"e1000e\"");
        }
        let completion_delay = self.completion_delay.unwrap_or(default.completion_delay);
        E1000 { registers, csb: self.csb.unwrap_or(default.csb), completion_delay, ..default }
    }

    /// What may change while frames flow.
    fn set_changeable(&self, port: &mut Port, keys: &Keys<'_>) {
        port.mac = self.mac.clone().unwrap_or(std::mem::take(&mut port.mac));
        port.isolated = self.isolated.unwrap_or(port.isolated);
        self.identity.apply(&mut port.identity, &port.mac, keys);
        port.weight = self.weight.unwrap_or(port.weight);
        port.ingress = self.ingress.clone().unwrap_or(std::mem::take(&mut port.ingress));
        port.egress = self.egress.clone().unwrap_or(std::mem::take(&mut port.egress));
        port.storm = self.storm.clone().unwrap_or(std::mem::take(&mut port.storm));
        let Calls { interval, above } = port.calls;
        port.calls =
            Calls { interval: self.call_interval.unwrap_or(interval), above: self.call_above.unwrap_or(above) };
        port.poller = self.poller.unwrap_or(port.poller);
        port.mirror = self.mirror.clone().unwrap_or(std::mem::take(&mut port.mirror));
        port.mirror_direction = self.mirror_direction.unwrap_or(port.mirror_direction);
        let idle = |key, what, right| {
            let span = keys.entry(key).and_then(|e| e.span.clone());
            keys.wrong(key, span, what, right);
        };
        let has_interval =
            !port.calls.interval.is_zero() || keys.entry("call_interval").is_some_and(|_| self.call_interval.is_none());
        if self.call_above.is_some_and(|above| above > 0) && !has_interval {
            idle("call_above", "there is no call_interval that it belongs to", "write call_interval, or leave it out");
        }
        if port.mirror.is_empty() {
            port.mirror_direction = Direction::default();
            // A list that could not be read is a mistake of its own.
            if self.mirror_direction.is_some() && (self.mirror.is_some() || keys.entry("mirror").is_none()) {
                idle("mirror_direction", "the port is no mirror", "write mirror = [\"PORT\"], or leave it out");
            }
        }
        if let Some(e1000) = &mut port.e1000 {
            e1000.link = self.link.unwrap_or(e1000.link);
            e1000.completion_delay = self.completion_delay.unwrap_or(e1000.completion_delay);
        }
    }
}

fn write_duration<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(units::show_duration).serialize(serializer)
}

fn write_rate<S: Serializer>(value: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(units::show_rate).serialize(serializer)
}

fn refuse_other_kinds(kind: Kind, keys: &Keys<'_>) {
    for (key, of) in OF_KIND.into_iter().filter(|(_, of)| !of.contains(&kind)) {
        let Some(entry) = keys.entry(key) else { continue };
        let what = format!("{} {} port has no {key}", kind.article(), kind.as_str());
        let right = format!("leave it out, or write kind = {}", alternatives(of.iter().map(|kind| kind.as_str())));
        keys.wrong(key, entry.span.clone(), what, right);
    }
}

fn read_kind(keys: &Keys<'_>) -> Option<Kind> {
    let node = &keys.entry("kind")?.node;
    if let Value::Text(text) = &node.value
        && Kind::LATER.contains(&text.as_str())
    {
        let what = format!("\"{text}\" is not available in this version");
        let right = format!("write {}", alternatives(Kind::WORDS.map(|(w, _)| w)));
        keys.wrong("kind", node.span.clone(), what, right);
        return None;
    }
    keys.choice("kind", &Kind::WORDS)
}

fn read_poller(keys: &Keys<'_>) -> Option<Placement> {
    let node = &keys.entry("poller")?.node;
    match &node.value {
        Value::Text(text) if text == "any" => return Some(Placement::Any),
        Value::Integer(number) => {
            if let Ok(number) = u32::try_from(*number) {
                return Some(Placement::Poller(number));
            }
        }
        _ => {}
    }
    let what = format!("expected a poller's number or \"any\", found {}", node.describe());
    keys.wrong("poller", node.span.clone(), what, "");
    None
}

fn read_mirror(keys: &Keys<'_>) -> Option<BTreeSet<Name>> {
    let list = keys.parsed_list("mirror", "a list of ports of the same switch like [\"vm1\"]", str::parse::<Name>)?;
    if let Some((_, span)) = list.get(MIRROR_MAX) {
        keys.wrong("mirror", span.clone(), "too many ports", format!("a switch has up to {MIRROR_MAX}"));
    }
    Some(list.into_iter().map(|(name, _)| name).collect())
}

fn read_macs(keys: &Keys<'_>) -> Option<BTreeSet<Mac>> {
    let mut macs = BTreeSet::new();
    let list: Vec<(Mac, Option<Range<usize>>)> =
        keys.parsed_list("mac", "a list of Ethernet addresses like [\"52:54:00:00:00:01\"]", str::parse)?;
    for (mac, span) in list {
        if !macs.insert(mac) {
            keys.wrong("mac", span, format!("{mac} is listed twice"), "list it once");
        } else if macs.len() == MACS_MAX + 1 {
            keys.wrong("mac", span, "too many addresses", format!("a port can have up to {MACS_MAX}"));
        }
    }
    Some(macs)
}

fn device_name(text: &str) -> Result<String, String> {
    let allowed = |b: u8| b.is_ascii_graphic() && !matches!(b, b'/' | b':' | b'%');
    if text.is_empty() || text.len() > DEVICE_MAX || !text.bytes().all(allowed) || text == "." || text == ".." {
        let right = format!("1 to {DEVICE_MAX} printable characters without \"/\", \":\", \"%\" and spaces");
        return Err(format!("{text:?} is not a network device's name; write {right}"));
    }
    Ok(text.to_owned())
}

fn netns(text: &str) -> Result<String, String> {
    let plain = !text.is_empty() && !text.contains('/') && text != "." && text != "..";
    if (!plain && !text.starts_with('/')) || text.contains(char::is_control) {
        return Err(format!("{text:?} is not a network namespace; write a name of \"ip netns\" or an absolute path"));
    }
    Ok(text.to_owned())
}
