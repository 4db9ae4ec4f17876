//! `[port.NAME]`: the keys of every port, together with those of its kind.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use serde_json::Value as Json;

use super::identity::Identity;
use super::limit::{Limit, Storm};
use crate::keys::form::{Boolean, Choice, Form, Frames, Integer, TableOf};
use crate::keys::mistake::alternatives;
use crate::keys::units::show_duration;
use crate::keys::{Class, Key, Keys, Mac, Mutability, Name, Shape, Table, Value, keys};
use crate::kinds::{Kind, RESERVED_KINDS, Settings};

/// Most addresses bound to one port.
const MACS_MAX: usize = 4096;

/// Most ports mirrored to one.
const MIRROR_MAX: usize = 4096;

/// Bounds of `call_interval`.
const CALL_INTERVALS: std::ops::RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(1);

/// Bounds of `call_above`.
const CALL_RATES: std::ops::RangeInclusive<u64> = 0..=1_000_000_000;

/// The form of `ingress` and `egress`.
const LIMIT: TableOf<Limit> = TableOf { wanted: "a limit like { rate = \"1Gbit\" }", empty: Limit::defaults };

/// The form of `storm`.
const STORM: TableOf<Storm> = TableOf { wanted: "limits like { broadcast = \"1kpps\" }", empty: Storm::defaults };

keys! {
    /// Settings of one port. `settings` has the keys of its kind.
    pub struct Port {
        mac: BTreeSet<Mac> = BTreeSet::new(), Macs, Live, "Bound Ethernet addresses; in a map switch also where frames go; none: any.";
        isolated: bool = false, Boolean, Live, "Isolated ports do not reach each other.";
        weight: u32 = 1, Integer(1..=64), Live, "Share of a poller's attention, and of a port or bucket that several fill.";
        ingress: Limit = Limit::default(), LIMIT, Live, "How much the port may send; {}: as much as it can.";
        egress: Limit = Limit::default(), LIMIT, Live, "How much the port may receive; {}: as much as there is. Each sender has its share by weight.";
        storm: Storm = Storm::default(), STORM, Live, "How much the port may send to many; {}: as much as it can.";
        coalesce: Coalesce = Coalesce::Auto, Choice(&Coalesce::WORDS), Live, "Whether TCP segments for the port are joined: auto, if its client accepts unsegmented TCP; off, never.";
        poller: Placement = Placement::Any, Poller, Live, "The poller that serves the port, from 0, in the order of cores in the section engine.";
        mirror: BTreeSet<Name> = BTreeSet::new(), Mirrored, Live, "Ports of its switch whose frames are copied to it; it is then a mirror, and nothing else.";
        mirror_direction: Direction = Direction::Both, Choice(&Direction::WORDS), Live, "Which of their frames a mirror gets: from their clients (in), to them (out), or both.";
    }
    groups {
        /// Its identity, and the ports that it may reach.
        identity: Box<Identity>,
        /// When its client is called.
        calls: Calls,
    }
    fields {
        /// The switch it is on.
        switch: Name,
        /// Its kind, and the settings that ports of this kind have.
        settings: Settings,
    }
}

keys! {
    /// When a port's client is called (moderation; thesis 4.3.4).
    #[derive(Copy)]
    pub struct Calls {
        interval as "call_interval": CallInterval = CallInterval::Auto, Interval, Live, "Least time between two calls (interrupts, wake-ups) of the client; 0s: none; auto: as the traffic needs.";
        above as "call_above": u64 = 0, Frames(CALL_RATES), Live, "Rate of frames up to which calls have no least time between them, so that a quiet port keeps its latency.";
    }
}

/// Whether TCP segments for a port are joined (VPE 4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coalesce {
    /// They are, if its client accepts unsegmented TCP.
    #[default]
    Auto,
    /// They are not.
    Off,
}

impl Coalesce {
    /// The words of the configuration.
    pub const WORDS: [(&'static str, Self); 2] = [("auto", Self::Auto), ("off", Self::Off)];
}

/// The direction of the frames that a mirror gets copies of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Frames from and to the mirrored port's client.
    #[default]
    Both,
    /// Frames from the mirrored port's client.
    In,
    /// Frames to the mirrored port's client.
    Out,
}

impl Direction {
    /// The words of the configuration.
    pub const WORDS: [(&'static str, Self); 3] = [("both", Self::Both), ("in", Self::In), ("out", Self::Out)];

    /// Returns the word of the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

/// Dynamic ports: ports that clients made by attaching, by switch and name. A name is unique on its switch only.
pub type DynamicPorts = BTreeMap<(Name, Name), Port>;

/// The poller that serves a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The poller with the fewest ports when the port is added.
    #[default]
    Any,
    /// The poller of this number, from 0, in the order of `[engine] cores`.
    Poller(u32),
}

impl Placement {
    /// Returns the placement among `pollers` pollers: any poller if the configured one does not exist.
    pub fn within(self, pollers: usize) -> Self {
        match self {
            Self::Poller(number) if number as usize >= pollers => Self::Any,
            other => other,
        }
    }
}

impl Port {
    /// A port of this kind on `switch` with default settings. Its device or socket is called like the port, `name`.
    pub fn new(switch: Name, kind: Kind, name: &Name) -> Self {
        let mut settings = Settings::new(kind);
        settings.own_mut().named(name);
        Self::defaults(switch, settings)
    }

    /// Returns the kind.
    pub fn kind(&self) -> Kind {
        self.settings.kind()
    }

    /// Returns true if one of the port's limits uses this bucket.
    pub fn draws_on(&self, bucket: &Name) -> bool {
        [&self.ingress, &self.egress].iter().any(|limit| limit.bucket.as_ref() == Some(bucket))
    }

    /// Returns true if the settings can change to `other` while frames flow. Otherwise the port has to be removed and added.
    pub fn can_change_to(&self, other: &Self) -> bool {
        self.switch == other.switch && self.has_same_fixed_keys(other)
    }

    /// Returns true if both ports have one kind, and the same value of every key that cannot change while a port exists: the same
    /// device or socket can serve both.
    pub fn has_same_fixed_keys(&self, other: &Self) -> bool {
        let fixed = |port: &Self| {
            let values = port.values().into_iter().chain(port.settings.own().values());
            values.filter(|(_, mutability, _)| *mutability == Mutability::Fixed).collect::<Vec<_>>()
        };
        self.kind() == other.kind() && fixed(self) == fixed(other)
    }

    /// Reads `[port.NAME]`, or the keys of a new port. Notes missing keys and combinations that are not valid. A port that is one of the
    /// `dynamic` ports keeps the values of keys that are not written.
    pub fn read_section(name: &Name, keys: &Keys<'_>, dynamic: &DynamicPorts) -> Option<Self> {
        let head = Head::read(keys);
        if !keys.has("switch") {
            keys.missing("switch", "name the switch this port is on: switch = \"NAME\"");
        }
        if !keys.has("kind") {
            keys.missing("kind", format!("write kind = {}", alternatives(Kind::WORDS.map(|(w, _)| w))));
        }
        let (Some(switch), Some(kind)) = (head.switch, head.kind) else {
            read_all(&mut scratch(), keys);
            return None;
        };
        let existing = dynamic.get(&(switch.clone(), name.clone())).filter(|port| port.kind() == kind);
        let mut port = existing.cloned().unwrap_or_else(|| Self::new(switch, kind, name));
        read_all(&mut port, keys);
        refuse_other_kinds(kind, keys);
        port.settings.own_mut().validate(name, keys);
        port.validate(keys);
        Some(port)
    }

    /// Returns the port with the keys that are written. Notes those that cannot change while the port exists.
    #[must_use]
    pub fn changed(&self, keys: &Keys<'_>) -> Self {
        let mut new = self.clone();
        let head = Head::read(keys);
        read_all(&mut new, keys);
        new.validate(keys);
        let fixed = |key| {
            let (what, right) = ("cannot change while the port exists", "use \"port del\" and \"port add\"");
            keys.wrong(key, keys.span_of_key(key), what, right);
        };
        if head.switch.is_some_and(|switch| switch != self.switch) {
            fixed("switch");
        }
        if head.kind.is_some_and(|kind| kind != self.kind()) {
            fixed("kind");
        }
        refuse_other_kinds(self.kind(), keys);
        let (before, after) = (self.settings.own().values(), new.settings.own().values());
        for ((key, mutability, before), (_, _, after)) in before.into_iter().zip(after) {
            if mutability == Mutability::Fixed && before != after {
                fixed(key);
            }
        }
        new
    }

    /// Checks the values of keys one by one, without knowledge of the port and its kind.
    pub fn check_values(keys: &Keys<'_>) {
        Head::read(keys);
        read_all(&mut scratch(), keys);
    }

    /// Notes combinations of keys that are not valid, and sets the values that follow from other keys.
    fn validate(&mut self, keys: &Keys<'_>) {
        self.identity.validate(&self.mac, keys);
        let wrong = |key, what, right| keys.wrong(key, keys.span_of_key(key), what, right);
        // A mistake in the interval is reported already.
        let has_interval = matches!(self.calls.interval, CallInterval::Fixed(interval) if !interval.is_zero())
            || keys.has("call_interval") && !keys.understood("call_interval");
        if keys.understood("call_above") && self.calls.above > 0 && !has_interval {
            let right = "write call_interval, or leave it out";
            wrong("call_above", "there is no call_interval that it belongs to", right);
        }
        if self.mirror.is_empty() {
            self.mirror_direction = Direction::default();
            // A mistake in the list is reported already.
            if keys.understood("mirror_direction") && (keys.understood("mirror") || !keys.has("mirror")) {
                let right = "write mirror = [\"PORT\"], or leave it out";
                wrong("mirror_direction", "the port is no mirror", right);
            }
        }
    }
}

/// The keys `switch` and `kind`, which decide about all others.
struct Head {
    switch: Option<Name>,
    kind: Option<Kind>,
}

impl Head {
    fn read(keys: &Keys<'_>) -> Self {
        Self { switch: keys.parsed("switch", "a switch's name", str::parse), kind: read_kind(keys) }
    }
}

fn read_kind(keys: &Keys<'_>) -> Option<Kind> {
    let node = &keys.entry("kind")?.node;
    if let Value::Text(text) = &node.value
        && RESERVED_KINDS.contains(&text.as_str())
    {
        let what = format!("\"{text}\" is not available in this version");
        let right = format!("write {}", alternatives(Kind::WORDS.map(|(w, _)| w)));
        keys.wrong("kind", node.span.clone(), what, right);
        return None;
    }
    keys.choice("kind", &Kind::WORDS)
}

/// Returns a port for values that are only checked.
fn scratch() -> Port {
    let name: Name = "none".parse().expect("a name");
    Port::new(name.clone(), Kind::WORDS[0].1, &name)
}

/// Reads the keys of all ports and of the port's kind, and checks the values of keys of other kinds.
fn read_all(port: &mut Port, keys: &Keys<'_>) {
    port.read(keys);
    port.settings.own_mut().read(keys);
    for (_, kind) in Kind::WORDS {
        Settings::new(kind).own_mut().read(keys);
    }
}

/// Returns the kinds of ports that have a key of their own, empty for a key of every port.
fn kinds_of(key: &str) -> Vec<Kind> {
    let has = |kind: &Kind| Settings::new(*kind).own().values().iter().any(|(name, ..)| *name == key);
    Kind::WORDS.into_iter().map(|(_, kind)| kind).filter(has).collect()
}

/// Notes keys that only ports of other kinds have.
fn refuse_other_kinds(kind: Kind, keys: &Keys<'_>) {
    let mut refused: Vec<&str> = Vec::new();
    for (key, ..) in Kind::WORDS.into_iter().flat_map(|(_, other)| Settings::new(other).own().values()) {
        if !keys.has(key) || refused.contains(&key) {
            continue;
        }
        let of = kinds_of(key);
        if of.contains(&kind) {
            continue;
        }
        refused.push(key);
        let what = format!("{} {} port has no {key}", kind.article(), kind.as_str());
        let right = format!("leave it out, or write kind = {}", alternatives(of.iter().map(|kind| kind.as_str())));
        keys.wrong(key, keys.span_of_key(key), what, right);
    }
}

/// A key of ports, with the kinds that have it. No kinds stand for all kinds.
#[derive(Clone, Debug)]
pub struct PortKey {
    /// The key.
    pub key: Key,
    /// The kinds.
    pub kinds: Vec<Kind>,
}

/// Ends the reading of a port: notes every key that no port has.
pub fn finish(keys: Keys<'_>) {
    keys.finish_among(|| port_keys().into_iter().map(|known| known.key).collect());
}

/// Returns all keys of ports with their defaults, those of every port first.
pub fn port_keys() -> Vec<PortKey> {
    let text = |name, about, word: &str, words: &[&str]| Key {
        name,
        about,
        more: "",
        mutability: Mutability::Fixed,
        shape: Shape::text(word, alternatives(words.iter().copied())).words(words),
        value: Json::Null,
    };
    let words = Kind::WORDS.map(|(word, _)| word);
    let mut switch = text("switch", "The switch that the port is on; required.", "NAME", &[]);
    switch.shape.text = "a switch's name".to_owned();
    let kind = text("kind", "What the port connects; required.", &words.join("|"), &words);
    let of_all = [switch, kind].into_iter().chain(scratch().keys());
    let mut all: Vec<PortKey> = of_all.map(|key| PortKey { key, kinds: Vec::new() }).collect();
    for key in Kind::WORDS.into_iter().flat_map(|(_, kind)| Settings::new(kind).own().keys()) {
        if all.iter().all(|known| known.key.name != key.name) {
            all.push(PortKey { kinds: kinds_of(key.name), key });
        }
    }
    all
}

/// The form of `mac`.
#[derive(Clone, Copy, Debug)]
struct Macs;

impl Form for Macs {
    type Value = BTreeSet<Mac>;

    fn read(&self, keys: &Keys<'_>, key: &'static str, _: Option<&Self::Value>) -> Option<Self::Value> {
        keys.distinct(key, "a list of Ethernet addresses like [\"52:54:00:00:00:01\"]", MACS_MAX, str::parse)
    }

    fn write(&self, value: &Self::Value) -> Json {
        value.iter().map(ToString::to_string).collect()
    }

    fn shape(&self) -> Shape {
        let text = format!("a list of up to {MACS_MAX} Ethernet addresses like [\"52:54:00:00:00:01\"]");
        Shape::text("[\"ADDRESS\",...]", text).class(Class::Texts)
    }
}

/// The form of `mirror`.
#[derive(Clone, Copy, Debug)]
struct Mirrored;

impl Form for Mirrored {
    type Value = BTreeSet<Name>;

    fn read(&self, keys: &Keys<'_>, key: &'static str, _: Option<&Self::Value>) -> Option<Self::Value> {
        let list = keys.parsed_list(key, "a list of ports of the same switch like [\"vm1\"]", str::parse::<Name>)?;
        if let Some((_, span)) = list.get(MIRROR_MAX) {
            keys.wrong(key, span.clone(), "too many ports", format!("a switch has up to {MIRROR_MAX}"));
        }
        Some(list.into_iter().map(|(name, _)| name).collect())
    }

    fn write(&self, value: &Self::Value) -> Json {
        value.iter().map(ToString::to_string).collect()
    }

    fn shape(&self) -> Shape {
        let text = "a list of ports of the same switch like [\"vm1\"]";
        Shape::text("[\"PORT\",...]", text).class(Class::Texts)
    }
}

/// The least time between two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallInterval {
    /// This time.
    Fixed(Duration),
    /// What the traffic needs.
    Auto,
}

impl fmt::Display for CallInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Fixed(interval) => f.write_str(&show_duration(*interval)),
        }
    }
}

/// The form of `call_interval`.
#[derive(Clone, Copy, Debug)]
struct Interval;

impl Form for Interval {
    type Value = CallInterval;

    fn read(&self, keys: &Keys<'_>, key: &'static str, _: Option<&CallInterval>) -> Option<CallInterval> {
        match keys.entry(key)?.node.value {
            Value::Text(ref text) if text == "auto" => Some(CallInterval::Auto),
            _ => keys.duration(key, CALL_INTERVALS).map(CallInterval::Fixed),
        }
    }

    fn write(&self, value: &CallInterval) -> Json {
        value.to_string().into()
    }

    fn shape(&self) -> Shape {
        let [low, high] = [CALL_INTERVALS.start(), CALL_INTERVALS.end()].map(|bound| show_duration(*bound));
        Shape::text("TIME|auto", format!("a duration from {low} to {high}, like \"50us\", or \"auto\""))
            .words(&["auto"])
    }
}

/// The form of `poller`.
#[derive(Clone, Copy, Debug)]
struct Poller;

impl Form for Poller {
    type Value = Placement;

    fn read(&self, keys: &Keys<'_>, key: &'static str, _: Option<&Placement>) -> Option<Placement> {
        let node = &keys.entry(key)?.node;
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
        keys.wrong(key, node.span.clone(), what, "");
        None
    }

    fn write(&self, value: &Placement) -> Json {
        match value {
            Placement::Any => "any".into(),
            Placement::Poller(number) => (*number).into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::text("NUMBER|any", "a poller's number, or \"any\"")
            .class(Class::IntegerOrWord(0, u32::MAX.into()))
            .words(&["any"])
    }
}
