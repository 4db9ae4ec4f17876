//! The identity of a port and the ports that it may reach: the keys `ip`, `guard`, `uplink`, `uplinks`, `allow`, `vlan`, `trunk`,
//! `native`.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;

use ringway_switch::policy;
use serde_json::Value as Json;

use crate::keys::form::{Boolean, Form};
use crate::keys::{Class, Keys, Mac, Name, Node, Shape, Value, keys};

/// Most addresses and prefixes of one port.
const IPS_MAX: usize = 1024;
/// Most names in `allow` and `uplinks`.
const NAMES_MAX: usize = 4096;
/// VLANs that there are (IEEE 802.1Q, table 9-2).
const VLANS: RangeInclusive<u16> = 1..=4094;

/// An IP prefix, or one address; written `10.0.0.0/24`, `10.0.0.5`, `fd00::/64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix(policy::Prefix);

impl Prefix {
    /// Returns the prefix as ringway-switch takes it.
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

/// A check of the source guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// Ethernet addresses, against `mac`.
    Mac,
    /// IP addresses, against `ip`.
    Ip,
    /// The port must not be a DHCP server.
    Dhcp,
    /// The port must not advertise a router.
    Ra,
}

/// The checks of the source guard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GuardMode {
    /// The addresses that are bound: `mac`, `ip`.
    #[default]
    Auto,
    /// Bound addresses, and that the port is neither a DHCP server nor a router.
    All,
    /// Nothing.
    Off,
    /// These checks.
    Only(BTreeSet<Check>),
}

/// Some of a switch's ports, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PortSet {
    /// Every port.
    #[default]
    All,
    /// These ports.
    These(BTreeSet<Name>),
}

impl PortSet {
    /// Returns the configured names.
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

    /// Returns true if the set has no VLAN.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the set as texts of the configuration: `10`, `20-29`.
    pub fn ranges(&self) -> impl Iterator<Item = String> + '_ {
        let one = |&(first, last): &(u16, u16)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        self.0.iter().map(one)
    }

    /// Returns every VLAN of the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().flat_map(|&(first, last)| first..=last)
    }

    /// Reads a number, a text of numbers and ranges, or a list of these.
    fn read(node: &Node) -> Result<Self, VlanMistake> {
        let nodes = if let Value::List(list) = &node.value { list.as_slice() } else { std::slice::from_ref(node) };
        let mut ranges = Vec::new();
        for node in nodes {
            let read = match &node.value {
                Value::Integer(number) => vlan(*number).map(|vlan| vec![(vlan, vlan)]),
                Value::Text(text) if text == "all" => Ok(vec![(*VLANS.start(), *VLANS.end())]),
                Value::Text(text) => text.split(',').map(range).collect(),
                _ => Err(format!("expected VLANs like [10, \"20-29\"] or \"all\", found {}", node.describe())),
            };
            ranges.extend(read.map_err(|what| VlanMistake { what, span: node.span.clone() })?);
        }
        Ok(Self::new(ranges))
    }
}

/// A mistake in VLANs, with its place.
struct VlanMistake {
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

/// The VLANs of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Vlan {
    /// None is configured. The port is in VLAN 1 once another port of the switch has a VLAN.
    #[default]
    Unset,
    /// One VLAN, without tags.
    Access(u16),
    /// Several VLANs, with tags.
    Trunk {
        /// The VLANs with tags.
        tagged: VlanSet,
        /// The VLAN without tags.
        native: Option<u16>,
    },
}

keys! {
    /// A port's identity, and the ports that it may reach. `vlan`, `trunk` and `native` are read together: see [`Identity::vlans`].
    pub struct Identity {
        ip: BTreeSet<Prefix> = BTreeSet::new(), Ips, Live, "Bound IP addresses and prefixes; none: any.";
        guard: GuardMode = GuardMode::Auto, Guards, Live, "What the source guard checks: bound addresses (auto), also DHCP servers and routers (all), nothing (off), or a list.",
            "auto checks Ethernet addresses where mac is set and IP addresses where ip is. all also drops what answers DHCP clients or \
             advertises routers. A list of mac, ip, dhcp and ra checks exactly what it names.";
        uplink: bool = false, Boolean, Live, "Whether the port leads out: to the host, or to a physical network.";
        uplinks: PortSet = PortSet::All, PortList, Live, "The uplinks that the port may use.";
        allow: PortSet = PortSet::All, PortList, Live, "The other ports that the port may reach; both sides must allow it; an empty list is uplinks only.";
        vlan: Option<u16> = None, Vid, Live, "The VLAN of a port without tags; none: VLAN 1, once another port of its switch has one.";
        trunk: Option<VlanSet> = None, Trunk, Live, "The VLANs of a port with tags; none: the port has no tags.";
        native: Option<u16> = None, Vid, Live, "The VLAN of a trunk's frames without tags; none: they are dropped.";
    }
}

impl Identity {
    /// Returns the VLANs of the port.
    pub fn vlans(&self) -> Vlan {
        match (self.vlan, &self.trunk) {
            (Some(vlan), _) => Vlan::Access(vlan),
            (None, Some(tagged)) => Vlan::Trunk { tagged: tagged.clone(), native: self.native },
            (None, None) => Vlan::Unset,
        }
    }

    /// Returns what the guard of a port with these Ethernet addresses checks.
    pub fn checks(&self, macs: &BTreeSet<Mac>) -> policy::Checks {
        let (mac, ip) = (!macs.is_empty(), !self.ip.is_empty());
        match &self.guard {
            GuardMode::Auto => policy::Checks { mac, ip, ..policy::Checks::NONE },
            GuardMode::All => policy::Checks { mac, ip, dhcp: true, ra: true },
            GuardMode::Off => policy::Checks::NONE,
            GuardMode::Only(checks) => policy::Checks {
                mac: checks.contains(&Check::Mac),
                ip: checks.contains(&Check::Ip),
                dhcp: checks.contains(&Check::Dhcp),
                ra: checks.contains(&Check::Ra),
            },
        }
    }

    /// Sets the values that follow from other keys, and notes combinations that are not valid. `macs` are the port's Ethernet addresses.
    pub fn validate(&mut self, macs: &BTreeSet<Mac>, keys: &Keys<'_>) {
        let [vlan, trunk, native] = ["vlan", "trunk", "native"].map(|key| keys.understood(key));
        if vlan && trunk {
            let right = "a port without tags has vlan, one with tags has trunk and perhaps native";
            keys.wrong("trunk", keys.span_of_key("trunk"), "cannot be together with vlan", right);
        }
        // The new key replaces the old mode: `vlan` ends a trunk, and `trunk` ends an access VLAN.
        if vlan {
            self.trunk = None;
        } else if trunk {
            self.vlan = None;
        }
        if self.trunk.is_none() {
            if native {
                let (what, right) = ("only a trunk has a native VLAN", "write trunk = [...], too, or vlan");
                keys.wrong("native", keys.span_of_key("native"), what, right);
            }
            self.native = None;
        }
        if self.trunk.as_ref().is_some_and(VlanSet::is_empty) && self.native.is_none() {
            let key = if trunk { "trunk" } else { "native" };
            let right = "write trunk = [10, \"20-29\"], native = 1, or vlan";
            keys.wrong(key, keys.span_of_value(key), "the port is then in no VLAN", right);
        }
        if let GuardMode::Only(checks) = &self.guard {
            let span = || keys.span_of_value("guard");
            if checks.contains(&Check::Mac) && macs.is_empty() {
                keys.wrong("guard", span(), "the port has no Ethernet addresses to guard", "write mac = [\"ADDRESS\"]");
            }
            if checks.contains(&Check::Ip) && self.ip.is_empty() {
                keys.wrong("guard", span(), "the port has no IP addresses to guard", "write ip = [\"ADDRESS\"]");
            }
        }
    }
}

/// The form of `ip`.
#[derive(Clone, Copy, Debug)]
struct Ips;

impl Form for Ips {
    type Value = BTreeSet<Prefix>;

    fn read(&self, keys: &Keys<'_>, key: &'static str, _: Option<&Self::Value>) -> Option<Self::Value> {
        let wanted = "a list of IP addresses like [\"10.0.0.5\", \"fd00::5\"]";
        keys.distinct(key, wanted, IPS_MAX, str::parse)
    }

    fn write(&self, value: &Self::Value) -> Json {
        value.iter().map(ToString::to_string).collect()
    }

    fn shape(&self) -> Shape {
        let text = format!("a list of up to {IPS_MAX} IP addresses and prefixes like [\"10.0.0.5\", \"fd00::/64\"]");
        Shape::text("[\"ADDRESS\",...]", text).class(Class::Texts)
    }
}

/// The words of [`GuardMode`] that are no list.
const GUARD_WORDS: [(&str, GuardMode); 3] =
    [("auto", GuardMode::Auto), ("all", GuardMode::All), ("off", GuardMode::Off)];

/// The words of [`Check`].
const CHECKS: [(&str, Check); 4] = [("mac", Check::Mac), ("ip", Check::Ip), ("dhcp", Check::Dhcp), ("ra", Check::Ra)];

/// The form of `guard`.
#[derive(Clone, Copy, Debug)]
struct Guards;

impl Form for Guards {
    type Value = GuardMode;

    fn read(&self, keys: &Keys<'_>, key: &'static str, _: Option<&GuardMode>) -> Option<GuardMode> {
        let how = "\"auto\", \"all\", \"off\" or a list of \"mac\", \"ip\", \"dhcp\", \"ra\"";
        if let Value::Text(text) = &keys.entry(key)?.node.value
            && let Some((_, guard)) = GUARD_WORDS.into_iter().find(|(word, _)| word == text)
        {
            return Some(guard);
        }
        let check = |text: &str| {
            let known = CHECKS.into_iter().find(|(word, _)| *word == text).map(|(_, check)| check);
            known.ok_or_else(|| format!("unknown value {text:?}; write {how}"))
        };
        let checks = keys.parsed_list(key, how, check)?;
        Some(GuardMode::Only(checks.into_iter().map(|(check, _)| check).collect()))
    }

    fn write(&self, value: &GuardMode) -> Json {
        if let Some((word, _)) = GUARD_WORDS.iter().find(|(_, known)| known == value) {
            return (*word).into();
        }
        let GuardMode::Only(checks) = value else { return Json::Null };
        CHECKS.iter().filter(|(_, check)| checks.contains(check)).map(|(word, _)| *word).collect()
    }

    fn shape(&self) -> Shape {
        let text = "\"auto\", \"all\", \"off\", or a list of \"mac\", \"ip\", \"dhcp\", \"ra\"";
        Shape::text("auto|all|off|[...]", text)
            .class(Class::Texts)
            .words(&["auto", "all", "off", "mac", "ip", "dhcp", "ra"])
    }
}

/// The form of `uplinks` and `allow`.
#[derive(Clone, Copy, Debug)]
struct PortList;

impl Form for PortList {
    type Value = PortSet;

    fn read(&self, keys: &Keys<'_>, key: &'static str, _: Option<&PortSet>) -> Option<PortSet> {
        if let Value::Text(text) = &keys.entry(key)?.node.value
            && text == "all"
        {
            return Some(PortSet::All);
        }
        let names: Vec<(Name, _)> = keys.parsed_list(key, "\"all\" or a list of ports like [\"vm2\"]", str::parse)?;
        if names.len() > NAMES_MAX {
            let right = format!("write up to {NAMES_MAX}, or \"all\"");
            keys.wrong(key, keys.span_of_value(key), "too many ports", right);
        }
        Some(PortSet::These(names.into_iter().map(|(name, _)| name).collect()))
    }

    fn write(&self, value: &PortSet) -> Json {
        match value {
            PortSet::All => "all".into(),
            PortSet::These(names) => names.iter().map(ToString::to_string).collect(),
        }
    }

    fn shape(&self) -> Shape {
        let text = format!("\"all\", or a list of up to {NAMES_MAX} ports like [\"vm2\"]");
        Shape::text("all|[\"NAME\",...]", text).class(Class::Texts).words(&["all"])
    }
}

/// The form of `vlan` and `native`.
#[derive(Clone, Copy, Debug)]
struct Vid;

impl Form for Vid {
    type Value = Option<u16>;

    fn read(&self, keys: &Keys<'_>, key: &'static str, _: Option<&Option<u16>>) -> Option<Option<u16>> {
        let node = &keys.entry(key)?.node;
        let what = match &node.value {
            Value::Text(text) if text == "none" => return Some(None),
            Value::Integer(number) => match vlan(*number) {
                Ok(vlan) => return Some(Some(vlan)),
                Err(what) => what,
            },
            _ => format!("expected a VLAN, 1 to 4094, or \"none\", found {}", node.describe()),
        };
        keys.wrong(key, node.span.clone(), what, "");
        None
    }

    fn write(&self, value: &Option<u16>) -> Json {
        (*value).into()
    }

    fn shape(&self) -> Shape {
        let (low, high) = (*VLANS.start(), *VLANS.end());
        Shape::text(&format!("{low}..{high}|none"), format!("a VLAN, {low} to {high}, or \"none\""))
            .class(Class::IntegerOrWord(low.into(), high.into()))
            .words(&["none"])
    }
}

/// The form of `trunk`.
#[derive(Clone, Copy, Debug)]
struct Trunk;

impl Form for Trunk {
    type Value = Option<VlanSet>;

    fn read(&self, keys: &Keys<'_>, key: &'static str, _: Option<&Self::Value>) -> Option<Self::Value> {
        let node = &keys.entry(key)?.node;
        if matches!(&node.value, Value::Text(text) if text == "none") {
            return Some(None);
        }
        VlanSet::read(node).map_err(|wrong| keys.wrong(key, wrong.span, wrong.what, "")).ok().map(Some)
    }

    fn write(&self, value: &Self::Value) -> Json {
        value.as_ref().map_or(Json::Null, |set| set.ranges().collect())
    }

    fn shape(&self) -> Shape {
        let text = "a list of VLANs and ranges like [10, \"20-29\"], \"all\", or \"none\"";
        Shape::text("[10,\"20-29\"]|all|none", text).class(Class::NumbersOrWord).words(&["all", "none"])
    }
}
