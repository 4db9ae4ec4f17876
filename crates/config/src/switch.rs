//! `[switch.NAME]`: one broadcast domain.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use ringway_switch::OnFault;
use ringway_switch::policy::Rules;
use serde_json::Value as Json;

use crate::keys::form::{Choice, Form, Integer, TableOf, Text, Time};
use crate::keys::mistake::{alternatives, nearest};
use crate::keys::{Class, Keys, Name, Shape, Table, Validate, Value, keys, units};

/// How a switch finds a frame's destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Forwarding {
    /// Learns which addresses are behind which port.
    #[default]
    Learning,
    /// Uses only the addresses that are bound to ports (`mac`).
    Map,
    /// Asks a program.
    Program(ProgramKeys),
}

impl Forwarding {
    /// The words of the configuration.
    const WORDS: [&'static str; 2] = ["learning", "map"];

    /// The program, if there is one.
    pub fn program(&self) -> Option<&ProgramKeys> {
        match self {
            Self::Program(keys) => Some(keys),
            Self::Learning | Self::Map => None,
        }
    }

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "learning" => Ok(Self::Learning),
            "map" => Ok(Self::Map),
            _ => Err(match nearest(text, Self::WORDS) {
                Some(near) => {
                    let all = alternatives(Self::WORDS);
                    format!("unknown value {text:?}; did you mean \"{near}\"? ({all} can be used)")
                }
                None => format!("unknown value {text:?}; write {FORWARDING}"),
            }),
        }
    }
}

/// The expectation of `forwarding` in messages.
const FORWARDING: &str = "\"learning\", \"map\" or { program = \"FILE.wasm\" }";

/// Where the frames of a batch go if a program fails.
const ON_FAULT: [(&str, OnFault); 2] = [("learning", OnFault::Learning), ("drop", OnFault::Drop)];

/// Longest text `config` in bytes.
const CONFIG_MAX: usize = 64 << 10;

keys! {
    /// A forwarding program as configured.
    pub struct ProgramKeys {
        program: PathBuf = PathBuf::new(), PROGRAM, Live, "The module (WebAssembly); required.";
        config: String = String::new(), CONFIG, Live, "What the program reads at its start.";
        config_file: PathBuf = PathBuf::new(), CONFIG_FILE, Live, "A file with what the program reads at its start, instead of config; it may be larger.";
        on_fault: OnFault = OnFault::Learning, Choice(&ON_FAULT), Live, "Where a batch goes if the program fails: where the learning bridge sends it, or nowhere.";
    }
}

/// The form of `program`.
const PROGRAM: Text<PathBuf> =
    Text { word: "FILE", wanted: "a file's path", read: read_path, write: |path| path.display().to_string() };

fn read_path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("it is empty; write the path of a file".to_owned()) } else { Ok(PathBuf::from(text)) }
}

/// The form of `config_file`.
const CONFIG_FILE: Text<PathBuf> = Text { wanted: "a file's path, instead of config", ..PROGRAM };

/// The form of `config`.
const CONFIG: Text<String> = Text { word: "TEXT", wanted: "a text", read: read_config, write: String::clone };

fn read_config(text: &str) -> Result<String, String> {
    match text.len() {
        0..=CONFIG_MAX => Ok(text.to_owned()),
        bytes => Err(format!("it has {bytes} bytes; write at most {CONFIG_MAX}, or config_file = \"PATH\"")),
    }
}

impl ProgramKeys {
    /// The keys that are paths of files.
    pub const PATHS: [&'static str; 2] = ["program", "config_file"];

    /// The keys that are paths of files, with their paths. An empty path: the key is not written.
    pub fn paths(&mut self) -> impl Iterator<Item = (&'static str, &mut PathBuf)> {
        Self::PATHS.into_iter().zip([&mut self.program, &mut self.config_file])
    }
}

impl Validate for ProgramKeys {
    fn validate(&mut self, keys: &Keys<'_>) {
        if self.program.as_os_str().is_empty() && !keys.has("program") {
            keys.missing("program", "write the path of a module: program = \"acl.wasm\"");
        }
        // Where only one of both is written, it replaces the other.
        match (keys.understood("config"), keys.understood("config_file")) {
            (true, true) => {
                let span = keys.span_of_key("config_file");
                keys.wrong("config_file", span, "config is given, too", "write one of them");
            }
            (true, false) => self.config_file = PathBuf::new(),
            (false, true) => self.config = String::new(),
            (false, false) => {}
        }
    }
}

/// The form of `forwarding`: a word, or the table of a program.
#[derive(Clone, Copy, Debug)]
struct ForwardingForm;

impl ForwardingForm {
    const PROGRAM: TableOf<ProgramKeys> = TableOf { wanted: FORWARDING, empty: ProgramKeys::default };
}

impl Form for ForwardingForm {
    type Value = Forwarding;

    const IS_TABLE: bool = true;

    fn read(&self, keys: &Keys<'_>, key: &'static str, now: Option<&Forwarding>) -> Option<Forwarding> {
        match keys.entry(key)?.node.value {
            Value::Table(_) | Value::Part(_) => {
                let default = ProgramKeys::default();
                let now = now.map(|now| now.program().unwrap_or(&default));
                Self::PROGRAM.read(keys, key, now).map(Forwarding::Program)
            }
            _ => keys.parsed(key, FORWARDING, Forwarding::read),
        }
    }

    fn write(&self, value: &Forwarding) -> Json {
        match value {
            Forwarding::Learning => "learning".into(),
            Forwarding::Map => "map".into(),
            Forwarding::Program(keys) => Self::PROGRAM.write(keys),
        }
    }

    fn shape(&self) -> Shape {
        let table = Self::PROGRAM.shape();
        let Class::Table(keys) = table.class else { return table };
        let shape = Shape::text("learning|map|{program=FILE,...}", FORWARDING).words(&Forwarding::WORDS);
        shape.class(Class::TableOrWord(keys))
    }
}

/// The destination of frames that are not for one known port (VALE §3.3.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Flood {
    /// Every port except the source.
    #[default]
    Flood,
    /// None: the frames are dropped and counted.
    Drop,
    /// This port.
    Port(Name),
}

impl Flood {
    fn read(text: &str) -> Result<Self, String> {
        match text {
            "flood" => Ok(Self::Flood),
            "drop" => Ok(Self::Drop),
            _ => match text.strip_prefix("port:") {
                Some(name) => name.parse().map(Self::Port),
                None => Err(format!("unknown value {text:?}; write \"flood\", \"drop\" or \"port:NAME\"")),
            },
        }
    }
}

impl fmt::Display for Flood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flood => f.write_str("flood"),
            Self::Drop => f.write_str("drop"),
            Self::Port(name) => write!(f, "port:{name}"),
        }
    }
}

/// The words of `local`, `outbound`, `inbound` and `transit`.
pub const RULES: [(&str, bool); 2] = [("allow", true), ("drop", false)];

/// The form of [`Flood`].
const FLOOD: Text<Flood> = Text {
    word: "flood|drop|port:NAME",
    wanted: "\"flood\", \"drop\" or \"port:NAME\"",
    read: Flood::read,
    write: ToString::to_string,
};

/// A protocol between bridges, or between a station and its bridge, which a switch keeps from other ports by default: the last byte of its
/// group, 01:80:c2:00:00:00 to 0f (IEEE 802.1Q table 8-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reserved(u8);

impl Reserved {
    /// The words of the configuration. Other groups are written as addresses.
    pub const WORDS: [(&'static str, Self); 4] =
        [("stp", Self(0x00)), ("lacp", Self(0x02)), ("eapol", Self(0x03)), ("lldp", Self(0x0e))];
    /// PAUSE and other control of the link itself (IEEE 802.3 annex 31A).
    const CONTROL: Self = Self(0x01);

    /// Returns the last byte of the protocol's group address.
    pub fn last(self) -> u8 {
        self.0
    }

    fn read(text: &str) -> Result<Self, String> {
        let group = |mac: ringway_switch::Mac| match mac.octets() {
            [0x01, 0x80, 0xc2, 0x00, 0x00, last] => (last < 16).then_some(Self(last)),
            _ => None,
        };
        let known = Self::WORDS.into_iter().find(|(word, _)| *word == text).map(|(_, known)| known);
        match known.or_else(|| text.parse().ok().and_then(group)) {
            Some(Self::CONTROL) => {
                Err(format!("{text} has frames for the link itself, as PAUSE: no bridge forwards them"))
            }
            Some(known) => Ok(known),
            None => Err(format!("unknown value {text:?}; write {RESERVED}")),
        }
    }
}

impl fmt::Display for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::WORDS.into_iter().find(|(_, known)| known == self) {
            Some((word, _)) => f.write_str(word),
            None => write!(f, "01:80:c2:00:00:{:02x}", self.0),
        }
    }
}

/// What `forward_reserved` can be.
const RESERVED: &str = "a list of \"stp\", \"lacp\", \"eapol\", \"lldp\", and groups like \"01:80:c2:00:00:08\"";

/// The form of `forward_reserved`.
#[derive(Clone, Copy, Debug)]
struct ReservedList;

impl Form for ReservedList {
    type Value = BTreeSet<Reserved>;

    fn read(&self, keys: &Keys<'_>, key: &'static str, _: Option<&Self::Value>) -> Option<Self::Value> {
        let list = keys.parsed_list(key, RESERVED, Reserved::read)?;
        Some(list.into_iter().map(|(reserved, _)| reserved).collect())
    }

    fn write(&self, value: &Self::Value) -> Json {
        value.iter().map(ToString::to_string).collect()
    }

    fn shape(&self) -> Shape {
        Shape::text("[PROTOCOL,...]", RESERVED).class(Class::Texts)
    }
}

/// Bounds of `mac_entries`.
const MAC_ENTRIES: std::ops::RangeInclusive<u32> = 64..=1 << 20;

keys! {
    /// Settings of one switch.
    pub struct Switch {
        forwarding: Forwarding = Forwarding::Learning, ForwardingForm, Live, "How destinations are found: by learned addresses, by the addresses bound to ports (map), or by a program of yours.", "A program is a table: program = \"FILE.wasm\", config = \"TEXT\" or config_file = \"FILE\", on_fault = \"learning\" or \"drop\". The guide's page on forwarding programs has the interface.";
        ageing: Duration = Duration::from_secs(300), Ageing, Live, "Learned addresses are forgotten after this time without a frame from them, in whole seconds; 0s: never.";
        mac_entries: u32 = 16384, PowerOfTwo, Live, "Size of the MAC table, a power of two; with another size the switch learns anew.";
        mac_limit: u32 = 4096, Integer(1..=*MAC_ENTRIES.end()), Live, "Most addresses learned behind one port, up to mac_entries.";
        broadcast: Flood = Flood::Flood, FLOOD, Live, "Where frames to everybody go.";
        multicast: Flood = Flood::Flood, FLOOD, Live, "Where frames to groups go.";
        unknown_unicast: Flood = Flood::Flood, FLOOD, Live, "Where frames to a station without a known port go; a map switch drops them.";
        forward_reserved: BTreeSet<Reserved> = BTreeSet::new(), ReservedList, Live, "Protocols of bridges that go to other ports like multicast: stp, lacp, eapol, lldp, or a group of 01:80:c2:00:00:00 to 0f; otherwise they are dropped (bridge_reserved).";
    }
    groups {
        /// What may pass, by which addresses are bound to ports.
        rules: RuleKeys,
    }
}

keys! {
    /// The rules of a switch for frames to single stations: true for those that may pass.
    #[derive(Copy)]
    pub struct RuleKeys {
        local: bool = true, Choice(&RULES), Live, "Frames between addresses that are bound to ports.";
        outbound: bool = true, Choice(&RULES), Live, "Frames from a bound address to one that is not.";
        inbound: bool = true, Choice(&RULES), Live, "Frames from an address that is not bound to one that is.";
        transit: bool = true, Choice(&RULES), Live, "Frames between addresses that are not bound.";
    }
}

impl RuleKeys {
    /// Returns the rules as ringway-switch takes them.
    pub fn get(self) -> Rules {
        let Self { local, outbound, inbound, transit } = self;
        Rules { local, outbound, inbound, transit }
    }
}

impl Switch {
    /// Reads `[switch.NAME]`; keys that are not written have the values of `default`.
    pub fn read_section(keys: Keys<'_>, default: &Self) -> Self {
        let mut switch = default.clone();
        switch.read(&keys);
        let is_map = switch.forwarding == Forwarding::Map;
        if is_map != (default.forwarding == Forwarding::Map) && !keys.understood("unknown_unicast") {
            switch.unknown_unicast = if is_map { Flood::Drop } else { Flood::Flood };
        }
        switch.validate(&keys);
        keys.finish();
        switch
    }
}

impl Validate for Switch {
    fn validate(&mut self, keys: &Keys<'_>) {
        if self.mac_limit > self.mac_entries {
            if keys.understood("mac_limit") {
                let (what, right) = (
                    format!("{} is out of range", self.mac_limit),
                    format!("write a whole number from 1 to {}", self.mac_entries),
                );
                keys.wrong("mac_limit", keys.span_of_value("mac_limit"), what, right);
            }
            self.mac_limit = self.mac_entries;
        }
        // A map switch has no other destination for an address without a port.
        if self.forwarding == Forwarding::Map && self.unknown_unicast != Flood::Drop {
            let span = keys.span_of_value("unknown_unicast");
            let what = format!("\"{}\" cannot be in a map switch, whose map is the whole truth", self.unknown_unicast);
            keys.wrong("unknown_unicast", span, what, "write \"drop\" or leave it out");
        }
    }
}

/// The form of `ageing`: the MAC table counts seconds.
#[derive(Clone, Copy, Debug)]
struct Ageing;

impl Ageing {
    fn time() -> Time {
        Time(Duration::ZERO..=Duration::from_secs(1_000_000))
    }
}

impl Form for Ageing {
    type Value = Duration;

    fn read(&self, keys: &Keys<'_>, key: &'static str, now: Option<&Duration>) -> Option<Duration> {
        let ageing = Self::time().read(keys, key, now)?;
        if ageing.subsec_nanos() == 0 {
            return Some(ageing);
        }
        let what = format!("{} is not whole seconds", units::show_duration(ageing));
        let right = match ageing.as_secs() {
            0 => "write 1s or more, or 0s for never".to_owned(),
            below => format!("write {below}s or {}s", below + 1),
        };
        keys.wrong(key, keys.span_of_value(key), what, right);
        None
    }

    fn write(&self, value: &Duration) -> Json {
        Self::time().write(value)
    }

    fn shape(&self) -> Shape {
        Shape::text("TIME", "a duration in whole seconds, like \"300s\"")
    }
}

/// The form of `mac_entries`.
#[derive(Clone, Copy, Debug)]
struct PowerOfTwo;

impl Form for PowerOfTwo {
    type Value = u32;

    fn read(&self, keys: &Keys<'_>, key: &'static str, _: Option<&u32>) -> Option<u32> {
        let n = keys.integer(key, MAC_ENTRIES)?;
        if n.is_power_of_two() {
            return Some(n);
        }
        let (below, above) = (n.next_power_of_two() / 2, n.next_power_of_two());
        let (what, right) = (format!("{n} is not a power of two"), format!("write {below} or {above}"));
        keys.wrong(key, keys.span_of_value(key), what, right);
        None
    }

    fn write(&self, value: &u32) -> Json {
        (*value).into()
    }

    fn shape(&self) -> Shape {
        let whole = Integer(MAC_ENTRIES).shape();
        Shape { text: format!("{} that is a power of two", whole.text), ..whole }
    }
}
