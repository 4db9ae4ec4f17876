//! `[switch.NAME]`: one broadcast domain.

use std::fmt;
use std::time::Duration;

use ringway_switch::policy::Rules;

use super::keys::Keys;
use super::name::Name;
use super::units;

/// How a switch finds a frame's destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forwarding {
    /// Learns which addresses are behind which port.
    #[default]
    Learning,
    /// Goes by the addresses bound to ports (`mac`), and by nothing else.
    Map,
}

impl Forwarding {
    /// As it is written.
    pub const WORDS: [(&'static str, Self); 2] = [("learning", Self::Learning), ("map", Self::Map)];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Learning => "learning",
            Self::Map => "map",
        }
    }
}

/// What becomes of frames that are not for one known port (VALE §3.3.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Flood {
    /// They go to every port but the one they came from.
    #[default]
    Flood,
    /// They are dropped and counted.
    Drop,
    /// They go to this port.
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

/// How `local`, `outbound`, `inbound` and `transit` are written.
pub const RULES: [(&str, bool); 2] = [("allow", true), ("drop", false)];

/// Settings of one switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    /// How destinations are found.
    pub forwarding: Forwarding,
    /// Learned addresses are forgotten when nothing came from them for this long, in whole seconds; zero: never.
    pub ageing: Duration,
    /// Size of the MAC table: a power of two.
    pub mac_entries: u32,
    /// Most addresses learned behind one port.
    pub mac_limit: u32,
    /// Frames to everybody.
    pub broadcast: Flood,
    /// Frames to groups.
    pub multicast: Flood,
    /// Frames to one station whose port is not known.
    pub unknown_unicast: Flood,
    /// What may pass, by who is known.
    pub rules: Rules,
}

impl Default for Switch {
    fn default() -> Self {
        Self {
            forwarding: Forwarding::default(),
            ageing: Duration::from_secs(300),
            mac_entries: 16384,
            mac_limit: 4096,
            broadcast: Flood::Flood,
            multicast: Flood::Flood,
            unknown_unicast: Flood::Flood,
            rules: Rules::ALLOW,
        }
    }
}

impl Switch {
    /// Reads `[switch.NAME]`; what is not written is as in `default`. A `map` switch drops unknown unicast: its map is the
    /// whole truth.
    pub fn read(keys: Keys<'_>, default: &Self) -> Self {
        let flood = |key| keys.parsed(key, "\"flood\", \"drop\" or \"port:NAME\"", Flood::read);
        let rule = |key, default| keys.choice(key, &RULES).unwrap_or(default);
        let forwarding = keys.choice("forwarding", &Forwarding::WORDS).unwrap_or(default.forwarding);
        let unknown = match forwarding {
            same if same == default.forwarding => default.unknown_unicast.clone(),
            Forwarding::Map => Flood::Drop,
            Forwarding::Learning => Flood::Flood,
        };
        let mac_entries = read_mac_entries(&keys).unwrap_or(default.mac_entries);
        let switch = Self {
            forwarding,
            ageing: read_ageing(&keys).unwrap_or(default.ageing),
            mac_entries,
            mac_limit: read_mac_limit(&keys, mac_entries).unwrap_or(default.mac_limit.min(mac_entries)),
            broadcast: flood("broadcast").unwrap_or_else(|| default.broadcast.clone()),
            multicast: flood("multicast").unwrap_or_else(|| default.multicast.clone()),
            unknown_unicast: flood("unknown_unicast").unwrap_or(unknown),
            rules: Rules {
                local: rule("local", default.rules.local),
                outbound: rule("outbound", default.rules.outbound),
                inbound: rule("inbound", default.rules.inbound),
                transit: rule("transit", default.rules.transit),
            },
        };
        if forwarding == Forwarding::Map && switch.unknown_unicast != Flood::Drop {
            let span = keys.entry("unknown_unicast").and_then(|e| e.node.span.clone());
            let what =
                format!("\"{}\" cannot be in a map switch, whose map is the whole truth", switch.unknown_unicast);
            keys.wrong("unknown_unicast", span, what, "write \"drop\" or leave it out");
        }
        keys.finish();
        switch
    }
}

/// The MAC table counts seconds.
fn read_ageing(keys: &Keys<'_>) -> Option<Duration> {
    let ageing = keys.duration("ageing", Duration::ZERO..=Duration::from_secs(1_000_000))?;
    if ageing.subsec_nanos() != 0 {
        let span = keys.entry("ageing").and_then(|e| e.node.span.clone());
        let what = format!("{} is not whole seconds", units::show_duration(ageing));
        let right = match ageing.as_secs() {
            0 => "write 1s or more, or 0s for never".to_owned(),
            below => format!("write {below}s or {}s", below + 1),
        };
        keys.wrong("ageing", span, what, right);
        return None;
    }
    Some(ageing)
}

fn read_mac_entries(keys: &Keys<'_>) -> Option<u32> {
    let n = keys.integer("mac_entries", 64..=1 << 20)?;
    if !n.is_power_of_two() {
        let span = keys.entry("mac_entries").and_then(|e| e.node.span.clone());
        let (below, above) = (n.next_power_of_two() / 2, n.next_power_of_two());
        keys.wrong("mac_entries", span, format!("{n} is not a power of two"), format!("write {below} or {above}"));
        return None;
    }
    Some(n)
}

fn read_mac_limit(keys: &Keys<'_>, mac_entries: u32) -> Option<u32> {
    keys.integer("mac_limit", 1..=mac_entries)
}
