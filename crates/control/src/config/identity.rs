//! Who a port is, and whom it may reach: the keys `ip`, `guard`, `uplink`, `uplinks`, `allow`, `vlan`, `trunk`, `native`.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;

use ringway_switch::policy;
use serde::{Serialize, Serializer};

use super::keys::Keys;
use super::name::{Mac, Name};
use super::node::{Node, Value};

/// Most addresses and prefixes of one port.
const IPS_MAX: usize = 1024;
/// Most names in `allow` and `uplinks`.
const NAMES_MAX: usize = 4096;
/// VLANs that there are (IEEE 802.1Q, table 9-2).
const VLANS: RangeInclusive<u16> = 1..=4094;

/// IP addresses that begin alike, or one address; written `10.0.0.0/24`, `10.0.0.5`, `fd00::/64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix(policy::Prefix);

impl Prefix {
    /// As the switch takes it.
    pub fn get(self) -> policy::Prefix {
        self.0
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed =
            || format!("{text:?} is not an IP address; write it like \"10.0.0.5\", \"10.0.0.0/24\" or \"fd00::5\"");
        let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address.parse().map_err(|_| malformed())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => most,
            Some(digits) if digits.len() <= 3 && digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse().ok().filter(|length| *length <= most).ok_or_else(malformed)?
            }
            Some(_) => return Err(malformed()),
        };
        let first: IpAddr = match address {
            IpAddr::V4(a) => (u32::from(a) & !u32::MAX.checked_shr(length.into()).unwrap_or(0)).to_be_bytes().into(),
            IpAddr::V6(a) => Ipv6Addr::from(u128::from(a) & !u128::MAX.checked_shr(length.into()).unwrap_or(0)).into(),
        };
        if first != address {
            return Err(format!("{text:?} has bits beyond its length; write \"{address}\" or \"{first}/{length}\""));
        }
        if address.is_multicast() {
            return Err(format!("{text} is for groups; a port's address is a single station's"));
        }
        Ok(Self(policy::Prefix { address, length }))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policy::Prefix { address, length } = self.0;
        let whole = length == if address.is_ipv4() { 32 } else { 128 };
        if whole { write!(f, "{address}") } else { write!(f, "{address}/{length}") }
    }
}

impl Serialize for Prefix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One thing that the source guard looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Check {
    /// Ethernet addresses, against `mac`.
    Mac,
    /// IP addresses, against `ip`.
    Ip,
    /// The port is no DHCP server.
    Dhcp,
    /// The port advertises no router.
    Ra,
}

/// What the source guard looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Guarding {
    /// What there are addresses for.
    #[default]
    Auto,
    /// That, and that the port is neither DHCP server nor router.
    All,
    /// Nothing.
    Off,
    /// These.
    #[serde(untagged)]
    These(BTreeSet<Check>),
}

/// Some of a switch's ports, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ports {
    /// Every port.
    #[default]
    All,
    /// These.
    #[serde(untagged)]
    These(BTreeSet<Name>),
}

impl Ports {
    /// The names that are written.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        let names = if let Self::These(names) = self { Some(names) } else { None };
        names.into_iter().flatten()
    }
}

/// VLANs, as sorted ranges that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VlanSet(Vec<(u16, u16)>);

impl VlanSet {
    fn new(mut ranges: Vec<(u16, u16)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(u16, u16)> = Vec::new();
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(before) if first <= before.1 + 1 => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    /// Whether there is none in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As they are written: `10`, `20-29`.
    pub fn ranges(&self) -> impl Iterator<Item = String> + '_ {
        let one = |&(first, last): &(u16, u16)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        self.0.iter().map(one)
    }

    /// Every VLAN of the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().flat_map(|&(first, last)| first..=last)
    }

    /// Reads a number, a text of numbers and ranges, or a list of such.
    fn read(node: &Node) -> Result<Self, Wrong> {
        let nodes = if let Value::List(list) = &node.value { list.as_slice() } else { std::slice::from_ref(node) };
        let mut ranges = Vec::new();
        for node in nodes {
            let read = match &node.value {
                Value::Integer(number) => vlan(*number).map(|vlan| vec![(vlan, vlan)]),
                Value::Text(text) if text == "all" => Ok(vec![(*VLANS.start(), *VLANS.end())]),
                Value::Text(text) => text.split(',').map(range).collect(),
                _ => Err(format!("expected VLANs like [10, \"20-29\"] or \"all\", found {}", node.describe())),
            };
            ranges.extend(read.map_err(|what| Wrong { what, span: node.span.clone() })?);
        }
        Ok(Self::new(ranges))
    }
}

/// What is wrong, and where.
struct Wrong {
    what: String,
    span: Option<Range<usize>>,
}

fn vlan(number: i64) -> Result<u16, String> {
    let vlan = u16::try_from(number).ok().filter(|vlan| VLANS.contains(vlan));
    vlan.ok_or_else(|| format!("{number} is not a VLAN; write 1 to 4094"))
}

fn range(text: &str) -> Result<(u16, u16), String> {
    let how = || format!("{text:?} are not VLANs; write them like 10, \"20-29\" or \"all\"");
    let number = |text: &str| text.trim().parse().map_err(|_| how()).and_then(vlan);
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (number(first)?, number(last)?);
    if first > last { Err(how()) } else { Ok((first, last)) }
}

impl Serialize for VlanSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.ranges())
    }
}

/// Which broadcast domains a port is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Vlan {
    /// Nothing is said: with other ports of its switch, VLAN 1.
    #[default]
    Unset,
    /// One, without tags.
    Access(u16),
    /// Several, told apart by tags.
    Trunk {
        /// Which, but for the native one.
        tagged: VlanSet,
        /// The one without tags.
        native: Option<u16>,
    },
}

/// Who a port is, and whom it may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Its IP addresses.
    pub ip: BTreeSet<Prefix>,
    /// What the source guard looks at.
    pub guard: Guarding,
    /// Whether it leads out: to the host, a physical network.
    pub uplink: bool,
    /// The uplinks it may use, of which the first in the order of names takes what is for nobody here in a map switch.
    pub uplinks: Ports,
    /// The other ports it may reach; both must allow it.
    pub allow: Ports,
    /// Its broadcast domains.
    pub vlan: Vlan,
}

impl Identity {
    /// What the guard of a port with these Ethernet addresses looks at.
    pub fn checks(&self, macs: &BTreeSet<Mac>) -> policy::Checks {
        let (mac, ip) = (!macs.is_empty(), !self.ip.is_empty());
        match &self.guard {
            Guarding::Auto => policy::Checks { mac, ip, ..policy::Checks::NONE },
            Guarding::All => policy::Checks { mac, ip, dhcp: true, ra: true },
            Guarding::Off => policy::Checks::NONE,
            Guarding::These(checks) => policy::Checks {
                mac: checks.contains(&Check::Mac),
                ip: checks.contains(&Check::Ip),
                dhcp: checks.contains(&Check::Dhcp),
                ra: checks.contains(&Check::Ra),
            },
        }
    }
}

/// A VLAN, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MaybeVlan {
    /// Nothing said.
    None,
    /// This one.
    #[serde(untagged)]
    This(u16),
}

/// The keys that were written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "each is a key of `Identity`, where it is described")]
pub struct IdentityKeys {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<BTreeSet<Prefix>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard: Option<Guarding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uplink: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uplinks: Option<Ports>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Ports>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<MaybeVlan>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trunk: Option<VlanSet>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native: Option<MaybeVlan>,
}

impl IdentityKeys {
    /// Reads the keys.
    pub fn read(keys: &Keys<'_>) -> Self {
        let read = Self {
            ip: read_ips(keys),
            guard: read_guard(keys),
            uplink: keys.boolean("uplink"),
            uplinks: read_ports(keys, "uplinks"),
            allow: read_ports(keys, "allow"),
            vlan: read_vlan(keys, "vlan"),
            trunk: read_trunk(keys),
            native: read_vlan(keys, "native"),
        };
        if read.vlan.is_some() && read.trunk.is_some() {
            let span = keys.entry("trunk").and_then(|e| e.span.clone());
            let right = "a port without tags has vlan, one with tags has trunk and perhaps native";
            keys.wrong("trunk", span, "cannot be together with vlan", right);
        }
        read
    }

    /// Applies the keys to a port's identity, noting what does not go together. `macs` are its Ethernet addresses now.
    pub fn apply(&self, to: &mut Identity, macs: &BTreeSet<Mac>, keys: &Keys<'_>) {
        to.ip = self.ip.clone().unwrap_or(std::mem::take(&mut to.ip));
        to.guard = self.guard.clone().unwrap_or(std::mem::take(&mut to.guard));
        to.uplink = self.uplink.unwrap_or(to.uplink);
        to.uplinks = self.uplinks.clone().unwrap_or(std::mem::take(&mut to.uplinks));
        to.allow = self.allow.clone().unwrap_or(std::mem::take(&mut to.allow));
        match (self.vlan, &self.trunk) {
            (Some(MaybeVlan::This(vlan)), _) => to.vlan = Vlan::Access(vlan),
            (Some(MaybeVlan::None), _) => to.vlan = Vlan::Unset,
            (None, Some(trunk)) => {
                let native = if let Vlan::Trunk { native, .. } = to.vlan { native } else { None };
                to.vlan = Vlan::Trunk { tagged: trunk.clone(), native };
            }
            (None, None) => {}
        }
        if let Some(native) = self.native {
            match &mut to.vlan {
                Vlan::Trunk { native: now, .. } => {
                    *now = if let MaybeVlan::This(vlan) = native { Some(vlan) } else { None }
                }
                _ => {
                    let span = keys.entry("native").and_then(|e| e.span.clone());
                    keys.wrong("native", span, "only a trunk has a native VLAN", "write trunk = [...], too, or vlan");
                }
            }
        }
        if let Vlan::Trunk { tagged, native: None } = &to.vlan
            && tagged.is_empty()
        {
            let key = if self.trunk.is_some() { "trunk" } else { "native" };
            let span = keys.entry(key).and_then(|e| e.node.span.clone());
            keys.wrong(key, span, "the port is then in no VLAN", "write trunk = [10, \"20-29\"], native = 1, or vlan");
        }
        if let Guarding::These(checks) = &to.guard {
            let span = || keys.entry("guard").and_then(|e| e.node.span.clone());
            if checks.contains(&Check::Mac) && macs.is_empty() {
                keys.wrong("guard", span(), "the port has no Ethernet addresses to guard", "write mac = [\"ADDRESS\"]");
            }
            if checks.contains(&Check::Ip) && to.ip.is_empty() {
                keys.wrong("guard", span(), "the port has no IP addresses to guard", "write ip = [\"ADDRESS\"]");
            }
        }
    }
}

fn read_ips(keys: &Keys<'_>) -> Option<BTreeSet<Prefix>> {
    let mut ips = BTreeSet::new();
    let list: Vec<(Prefix, Option<Range<usize>>)> =
        keys.parsed_list("ip", "a list of IP addresses like [\"10.0.0.5\", \"fd00::5\"]", str::parse)?;
    for (ip, span) in list {
        if !ips.insert(ip) {
            keys.wrong("ip", span, format!("{ip} is listed twice"), "list it once");
        } else if ips.len() == IPS_MAX + 1 {
            keys.wrong("ip", span, "too many addresses", format!("a port can have up to {IPS_MAX}"));
        }
    }
    Some(ips)
}

fn read_guard(keys: &Keys<'_>) -> Option<Guarding> {
    const WORDS: [(&str, Guarding); 3] = [("auto", Guarding::Auto), ("all", Guarding::All), ("off", Guarding::Off)];
    const CHECKS: [(&str, Check); 4] =
        [("mac", Check::Mac), ("ip", Check::Ip), ("dhcp", Check::Dhcp), ("ra", Check::Ra)];
    let how = "\"auto\", \"all\", \"off\" or a list of \"mac\", \"ip\", \"dhcp\", \"ra\"";
    if let Value::Text(text) = &keys.entry("guard")?.node.value
        && let Some((_, guard)) = WORDS.into_iter().find(|(word, _)| word == text)
    {
        return Some(guard);
    }
    let check = |text: &str| {
        let known = CHECKS.into_iter().find(|(word, _)| *word == text).map(|(_, check)| check);
        known.ok_or_else(|| format!("unknown value {text:?}; write {how}"))
    };
    let checks = keys.parsed_list("guard", how, check)?;
    Some(Guarding::These(checks.into_iter().map(|(check, _)| check).collect()))
}

fn read_ports(keys: &Keys<'_>, key: &'static str) -> Option<Ports> {
    if let Value::Text(text) = &keys.entry(key)?.node.value
        && text == "all"
    {
        return Some(Ports::All);
    }
    let names: Vec<(Name, _)> = keys.parsed_list(key, "\"all\" or a list of ports like [\"vm2\"]", str::parse)?;
    if names.len() > NAMES_MAX {
        let span = keys.entry(key).and_then(|e| e.node.span.clone());
        keys.wrong(key, span, "too many ports", format!("write up to {NAMES_MAX}, or \"all\""));
    }
    Some(Ports::These(names.into_iter().map(|(name, _)| name).collect()))
}

fn read_vlan(keys: &Keys<'_>, key: &'static str) -> Option<MaybeVlan> {
    let node = &keys.entry(key)?.node;
    let what = match &node.value {
        Value::Text(text) if text == "none" => return Some(MaybeVlan::None),
        Value::Integer(number) => match vlan(*number) {
            Ok(vlan) => return Some(MaybeVlan::This(vlan)),
            Err(what) => what,
        },
        _ => format!("expected a VLAN, 1 to 4094, or \"none\", found {}", node.describe()),
    };
    keys.wrong(key, node.span.clone(), what, "");
    None
}

fn read_trunk(keys: &Keys<'_>) -> Option<VlanSet> {
    let node = &keys.entry("trunk")?.node;
    VlanSet::read(node).map_err(|wrong| keys.wrong("trunk", wrong.span, wrong.what, "")).ok()
}
