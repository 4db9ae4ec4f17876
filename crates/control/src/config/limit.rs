//! Limits: how much a port may send and be given.

use serde::{Serialize, Serializer};

use super::keys::Keys;
use super::name::Name;
use super::units;

/// Rates in bits per second that can be set.
const BITS: std::ops::RangeInclusive<u64> = 8_000..=400_000_000_000;
/// Rates in frames per second that can be set.
const FRAMES: std::ops::RangeInclusive<u64> = 1..=1_000_000_000;
/// Bursts in bytes that can be set: a frame of the usual MTU at least.
const BURST: std::ops::RangeInclusive<u64> = 1514..=1 << 30;
/// Largest burst in frames that can be set.
const FRAMES_BURST_MAX: u32 = 1_000_000_000;
/// Least default bursts: bytes and frames.
const LEAST_BURST: (u64, u64) = (16 << 10, 32);

/// What happens to what is more than a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Excess {
    /// It is dropped.
    #[default]
    Drop,
    /// It waits in its sender's ring.
    Wait,
}

impl Excess {
    /// As they are written.
    pub const WORDS: [(&'static str, Self); 2] = [("drop", Self::Drop), ("wait", Self::Wait)];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Wait => "wait",
        }
    }
}

/// A limit as it is written; the default is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// Bits of frames (without FCS, preamble and gap) per second. With a `bucket`: those that may pass in any case.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_bits")]
    pub rate: Option<u64>,
    /// With a `bucket`: bits per second that may pass with what it lends; none: all it has.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_bits")]
    pub ceiling: Option<u64>,
    /// Bytes that may pass at once.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_size")]
    pub burst: Option<u64>,
    /// Frames per second.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_frames")]
    pub frames: Option<u64>,
    /// Frames that may pass at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames_burst: Option<u32>,
    /// The bucket that it is a part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<Name>,
    /// What happens to what is more; none: it is dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_excess: Option<Excess>,
}

impl Limit {
    /// Reads `ingress` or `egress`. `{}` is no limit.
    pub fn read(port: &Keys<'_>, key: &'static str) -> Option<Self> {
        let keys = port.table(key, "a limit like { rate = \"1Gbit\" }")?;
        let limit = Self {
            rate: keys.bits("rate", BITS),
            ceiling: keys.bits("ceiling", BITS),
            burst: keys.size("burst", BURST),
            frames: keys.rate("frames", FRAMES),
            frames_burst: frames_burst(&keys),
            bucket: keys.parsed("bucket", "a bucket's name", str::parse),
            on_excess: keys.choice("on_excess", &Excess::WORDS),
        };
        let span = |key| keys.entry(key).and_then(|e| e.node.span.clone());
        let has = |key| keys.entry(key).is_some();
        if has("ceiling") && !has("bucket") {
            keys.wrong("ceiling", span("ceiling"), "there is no bucket to lend it", "write rate, or name a bucket");
        }
        if let (Some(rate), Some(ceiling)) = (limit.rate, limit.ceiling)
            && ceiling < rate
        {
            let right = format!("write {} or more", units::show_bits(rate));
            keys.wrong("ceiling", span("ceiling"), "it is less than the rate", right);
        }
        if has("burst") && !has("rate") && !has("ceiling") {
            keys.wrong("burst", span("burst"), "there is no rate that it belongs to", "write rate, or leave it out");
        }
        if has("on_excess") && !has("rate") && !has("frames") && !has("bucket") {
            keys.wrong("on_excess", span("on_excess"), "there is no limit", "write rate, frames or bucket");
        }
        keys.finish();
        Some(limit)
    }

    /// Whether there is one.
    pub fn is_some(&self) -> bool {
        self.rate.is_some() || self.frames.is_some() || self.bucket.is_some()
    }

    /// Bytes that may pass at once at this rate: what was written, or what passes in 10 ms.
    pub fn burst_at(&self, rate: u64) -> u64 {
        self.burst.unwrap_or_else(|| default_burst(rate))
    }

    /// Frames that may pass at once.
    pub fn frames_burst_at(&self, frames: u64) -> u64 {
        self.frames_burst.map_or_else(|| default_frames_burst(frames), u64::from)
    }
}

/// Reads how many frames may pass at once.
fn frames_burst(keys: &Keys<'_>) -> Option<u32> {
    let entry = keys.entry("frames_burst")?;
    if keys.entry("frames").is_none() {
        let right = "write frames, or leave it out";
        let span = entry.node.span.clone();
        keys.wrong("frames_burst", span, "there is no rate of frames that it belongs to", right);
    }
    keys.integer("frames_burst", 1..=FRAMES_BURST_MAX)
}

/// `[bucket.NAME]`: a limit that several ports share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Bits per second.
    pub rate: u64,
    /// Bytes that may pass at once.
    pub burst: u64,
    /// Frames per second, and how many may pass at once.
    pub frames: Option<(u64, u64)>,
}

impl Bucket {
    /// Reads `[bucket.NAME]`.
    pub fn read(keys: Keys<'_>) -> Option<Self> {
        let rate = keys.bits("rate", BITS);
        if keys.entry("rate").is_none() {
            keys.missing("rate", "write what its ports may have together: rate = \"1Gbit\"");
        }
        let burst = keys.size("burst", BURST);
        let frames = keys.rate("frames", FRAMES);
        let frames_burst = frames_burst(&keys);
        keys.finish();
        let rate = rate?;
        let frames =
            frames.map(|frames| (frames, frames_burst.map_or_else(|| default_frames_burst(frames), u64::from)));
        Some(Self { rate, burst: burst.unwrap_or_else(|| default_burst(rate)), frames })
    }
}

/// Storm control as it is written; the default is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Storm {
    /// Frames to everybody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<Rate>,
    /// Frames to groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multicast: Option<Rate>,
    /// Frames to one station whose port is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_unicast: Option<Rate>,
    /// Bytes of each class with a rate of bits that may pass at once.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_size")]
    pub burst: Option<u64>,
    /// Frames of each class with a rate of frames that may pass at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames_burst: Option<u32>,
}

impl Storm {
    /// Reads `storm`. `{}` is none.
    pub fn read(port: &Keys<'_>) -> Option<Self> {
        let keys = port.table("storm", "limits like { broadcast = \"1kpps\" }")?;
        let rate = |key| keys.parsed(key, "a rate like \"1kpps\" or \"10Mbit\"", Rate::read);
        let storm = Self {
            broadcast: rate("broadcast"),
            multicast: rate("multicast"),
            unknown_unicast: rate("unknown_unicast"),
            burst: keys.size("burst", BURST),
            frames_burst: keys.integer("frames_burst", 1..=FRAMES_BURST_MAX),
        };
        let classes = ["broadcast", "multicast", "unknown_unicast"];
        let is_whole = classes.iter().all(|class| keys.entry(class).is_some() == storm.rate_of(class).is_some());
        for (key, of, is_bits) in [("burst", "bits", true), ("frames_burst", "frames", false)] {
            let mut rates = classes.iter().filter_map(|class| storm.rate_of(class));
            let has_rate = rates.any(|rate| matches!(rate, Rate::Bits(_)) == is_bits);
            if let Some(entry) = keys.entry(key).filter(|_| is_whole && !has_rate) {
                let what = format!("there is no rate of {of} that it belongs to");
                keys.wrong(key, entry.node.span.clone(), what, format!("write a rate of {of}, or leave it out"));
            }
        }
        keys.finish();
        Some(storm)
    }

    fn rate_of(&self, class: &str) -> Option<Rate> {
        match class {
            "broadcast" => self.broadcast,
            "multicast" => self.multicast,
            _ => self.unknown_unicast,
        }
    }

    /// How much of a class with this rate may pass at once: frames or bytes.
    pub fn burst_at(&self, rate: Rate) -> u64 {
        match rate {
            Rate::Frames(frames) => self.frames_burst.map_or_else(|| default_frames_burst(frames), u64::from),
            Rate::Bits(bits) => self.burst.unwrap_or_else(|| default_burst(bits)),
        }
    }

    /// Whether there is any.
    pub fn is_some(&self) -> bool {
        *self != Self::default()
    }
}

/// A rate of one kind or the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Frames per second.
    Frames(u64),
    /// Bits per second.
    Bits(u64),
}

impl Rate {
    fn read(text: &str) -> Result<Self, String> {
        let rate = match (units::rate(text), units::bits(text)) {
            (Ok(frames), _) if FRAMES.contains(&frames) => Ok(Self::Frames(frames)),
            (_, Ok(bits)) if BITS.contains(&bits) => Ok(Self::Bits(bits)),
            (Ok(_), _) | (_, Ok(_)) => Err("out of range"),
            _ => Err("not a rate"),
        };
        rate.map_err(|what| {
            let (low, high) = (units::show_bits(*BITS.start()), units::show_bits(*BITS.end()));
            format!("{text:?} is {what}; write 1pps to 1Gpps, or {low} to {high}")
        })
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&match self {
            Self::Frames(frames) => units::show_rate(*frames),
            Self::Bits(bits) => units::show_bits(*bits),
        })
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn default_burst(rate: u64) -> u64 {
    (rate / 8 / 100).max(LEAST_BURST.0)
}

fn default_frames_burst(frames: u64) -> u64 {
    (frames / 100).max(LEAST_BURST.1)
}

fn write_bits<S: Serializer>(value: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(units::show_bits).serialize(serializer)
}

fn write_size<S: Serializer>(value: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(units::show_size).serialize(serializer)
}

fn write_frames<S: Serializer>(value: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(units::show_rate).serialize(serializer)
}
