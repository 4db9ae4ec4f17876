//! `[port.NAME]`: one attachment. The same keys serve `port add`, `port set` and the API.

use std::collections::BTreeSet;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::keys::Keys;
use super::mistake::alternatives;
use super::name::{Mac, Name};

/// What is at the other side of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A program with shared memory, attached by name.
    Process,
    /// The host's network stack or a namespace's, by a TAP device.
    Tap,
}

impl Kind {
    /// As they are written.
    pub const WORDS: [(&'static str, Self); 2] = [("process", Self::Process), ("tap", Self::Tap)];

    const LATER: [&'static str; 5] = ["vhost-user", "e1000", "stream", "xdp", "vxlan"];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Tap => "tap",
        }
    }
}

/// Longest name of a network device in bytes.
const DEVICE_MAX: usize = 15;

/// Most addresses bound to one port.
const MACS_MAX: usize = 64;

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
    /// Share of a poller's attention, 1 to 64.
    pub weight: u32,
    /// For a TAP: the device's name.
    pub device: Option<String>,
    /// For a TAP: the network namespace the device is in, by name (`/run/netns/NAME`) or path; none: the daemon's.
    pub netns: Option<String>,
}

impl Port {
    /// A port on `switch` with defaults for the rest. `name` is its device's name where it has one.
    pub fn new(switch: Name, kind: Kind, name: &Name) -> Self {
        let device = (kind == Kind::Tap).then(|| name.to_string());
        Self { switch, kind, mac: BTreeSet::new(), isolated: false, weight: 1, device, netns: None }
    }

    /// Whether `self` can become `other` while frames flow; otherwise it has to be removed and added.
    pub fn can_become(&self, other: &Self) -> bool {
        let fixed = |p: &Self| (p.switch.clone(), p.kind, p.device.clone(), p.netns.clone());
        fixed(self) == fixed(other)
    }
}

/// The keys of one port that were written, for a new port or for a change of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortKeys {
    /// `switch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch: Option<Name>,
    /// `kind`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// `mac`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<BTreeSet<Mac>>,
    /// `isolated`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolated: Option<bool>,
    /// `weight`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// `device`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// `netns`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
}

impl PortKeys {
    /// Reads the keys. Whether they make a whole port is for [`PortKeys::complete`] to say.
    pub fn read(keys: &Keys<'_>) -> Self {
        let kind = read_kind(keys);
        Self {
            switch: keys.parsed("switch", "a switch's name", str::parse),
            kind,
            mac: read_macs(keys),
            isolated: keys.boolean("isolated"),
            weight: keys.integer("weight", 1..=64),
            device: keys.parsed("device", "a network device's name", device_name),
            netns: keys.parsed("netns", "a network namespace's name or path", netns),
        }
    }

    /// Makes a port called `name`, noting what is missing or does not go together.
    pub fn complete(self, name: &Name, keys: &Keys<'_>) -> Option<Port> {
        let has = |key| keys.entry(key).is_some();
        if !has("switch") {
            keys.missing("switch", "name the switch this port is on: switch = \"NAME\"");
        }
        if !has("kind") {
            keys.missing("kind", format!("write kind = {}", alternatives(Kind::WORDS.map(|(w, _)| w))));
        }
        let (switch, kind) = (self.switch?, self.kind?);
        let span_of = |key| keys.entry(key).and_then(|e| e.span.clone());
        if kind != Kind::Tap {
            for key in
                [self.device.as_ref().map(|_| "device"), self.netns.as_ref().map(|_| "netns")].into_iter().flatten()
            {
                let what = format!("a {} port has no {key}", kind.as_str());
                keys.wrong(key, span_of(key), what, "leave it out, or write kind = \"tap\"");
            }
        } else if self.device.is_none()
            && let Err(what) = device_name(name.as_str())
        {
            keys.missing("device", format!("the port's name does not do, as {what}"));
        }
        let port = Port::new(switch, kind, name);
        Some(Port {
            mac: self.mac.unwrap_or_default(),
            isolated: self.isolated.unwrap_or(port.isolated),
            weight: self.weight.unwrap_or(port.weight),
            device: self.device.or(port.device),
            netns: self.netns,
            ..port
        })
    }

    /// Applies the keys to `port`, noting those that cannot change while it exists.
    pub fn change(self, port: &Port, keys: &Keys<'_>) -> Port {
        let mut new = port.clone();
        if let Some(mac) = self.mac {
            new.mac = mac;
        }
        new.isolated = self.isolated.unwrap_or(new.isolated);
        new.weight = self.weight.unwrap_or(new.weight);
        let same = |key, same: bool| {
            if !same {
                let span = keys.entry(key).and_then(|e| e.span.clone());
                keys.wrong(key, span, "cannot change while the port exists", "use \"port del\" and \"port add\"");
            }
        };
        same("switch", self.switch.is_none_or(|s| s == port.switch));
        same("kind", self.kind.is_none_or(|k| k == port.kind));
        same("device", self.device.is_none_or(|d| Some(d) == port.device));
        same("netns", self.netns.is_none_or(|n| Some(n) == port.netns));
        new
    }
}

fn read_kind(keys: &Keys<'_>) -> Option<Kind> {
    let entry = keys.entry("kind")?;
    let written = match &entry.node.value {
        super::node::Value::Text(text) if Kind::LATER.contains(&text.as_str()) => Some(text),
        _ => None,
    };
    let here = || alternatives(Kind::WORDS.map(|(w, _)| w));
    for key in ["ingress", "egress"] {
        keys.later(key);
    }
    let Some(written) = written else {
        keys.later("socket");
        keys.later("role");
        return keys.choice("kind", &Kind::WORDS);
    };
    // Keys of a kind that is not there are not worth a message each.
    let _ = (keys.entry("socket"), keys.entry("role"));
    let what = format!("\"{written}\" is not available in this version");
    keys.wrong("kind", entry.node.span.clone(), what, format!("write {}", here()));
    None
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
    let plain = !text.is_empty() && !text.contains(['/', '\0']) && text != "." && text != "..";
    if !plain && !text.starts_with('/') {
        return Err(format!("{text:?} is not a network namespace; write a name of \"ip netns\" or an absolute path"));
    }
    Ok(text.to_owned())
}
