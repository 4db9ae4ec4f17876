//! Limits of what a port may send and receive: rate limits, buckets that ports share, and storm control.

use serde_json::Value as Json;

use crate::keys::form::{Bits, Choice, Form, Frames, Integer, Optional, Size, Text};
use crate::keys::{Keys, Name, Shape, Table, Validate, keys, units};

/// Bounds of rates in bits per second.
const BITS: std::ops::RangeInclusive<u64> = 8_000..=400_000_000_000;
/// Bounds of rates in frames per second.
const FRAMES: std::ops::RangeInclusive<u64> = 1..=1_000_000_000;
/// Bounds of bursts in bytes: at least a frame of the usual MTU.
const BURST: std::ops::RangeInclusive<u64> = 1514..=1 << 30;
/// Largest burst in frames.
const FRAMES_BURST_MAX: u32 = 1_000_000_000;
/// Smallest default bursts: bytes and frames.
const LEAST_BURST: (u64, u64) = (16 << 10, 32);
/// Smallest default burst of a limit that shapes: the longest frame, which TCP sends to a device at once.
const LEAST_SHAPED_BURST: u64 = 64 << 10;

/// What happens to frames above a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// The frames are dropped.
    Drop,
    /// The frames wait in their sender's ring.
    Wait,
    /// Some frames wait in their sender's ring. The oldest of more are dropped.
    Shape,
}

impl Excess {
    /// The words of the configuration.
    pub const WORDS: [(&'static str, Self); 3] = [("drop", Self::Drop), ("wait", Self::Wait), ("shape", Self::Shape)];

    /// The word of the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Wait => "wait",
            Self::Shape => "shape",
        }
    }
}

/// A bucket's name.
const BUCKET: Text<Name> =
    Text { word: "NAME", wanted: "a bucket's name", read: str::parse, write: ToString::to_string };

keys! {
    /// A limit as configured. The default limits nothing.
    pub struct Limit {
        rate: Option<u64> = None, Optional(Bits(BITS)), Live, "Bits of frames per second, without FCS, preamble and gap; with a bucket, the rate that is guaranteed.";
        ceiling: Option<u64> = None, Optional(Bits(BITS)), Live, "With a bucket: the highest rate, with what the bucket lends; by default all that the bucket has.";
        burst: Option<u64> = None, Optional(Size(BURST)), Live, "Bytes that may pass at once; by default what passes in 20 ms, at least 64KiB; in 10 ms and 16KiB with on_excess=drop or wait.";
        frames: Option<u64> = None, Optional(Frames(FRAMES)), Live, "Frames per second.";
        frames_burst: Option<u32> = None, Optional(Integer(1..=FRAMES_BURST_MAX)), Live, "Frames that may pass at once; by default what passes in 10 ms, at least 32.";
        bucket: Option<Name> = None, Optional(BUCKET), Live, "The [bucket.NAME] that the limit shares with others.";
        on_excess: Option<Excess> = None, Optional(Choice(&Excess::WORDS)), Live, "What happens to frames above the limit: shape (wait for up to 50 ms, then the oldest are dropped; default with a rate and no bucket), drop (default otherwise), or wait in the sender's ring.";
    }
}

impl Validate for Limit {
    fn validate(&mut self, keys: &Keys<'_>) {
        let has = |key| keys.has(key);
        // Keys that were set before count as present. Mistakes are noted only for keys of this change.
        let has_rate = has("rate") || self.rate.is_some();
        let has_frames = has("frames") || self.frames.is_some();
        let has_bucket = has("bucket") || self.bucket.is_some();
        let has_ceiling = has("ceiling") || self.ceiling.is_some();
        if has("ceiling") && !has_bucket {
            let span = keys.span_of_value("ceiling");
            keys.wrong("ceiling", span, "there is no bucket to lend it", "write rate, or name a bucket");
        }
        if let (Some(rate), Some(ceiling)) = (self.rate, self.ceiling)
            && ceiling < rate
            && (keys.understood("rate") || keys.understood("ceiling"))
        {
            let right = format!("write {} or more", units::show_bits(rate));
            keys.wrong("ceiling", keys.span_of_value("ceiling"), "it is less than the rate", right);
        }
        if has("burst") && !has_rate && !has_ceiling {
            let span = keys.span_of_value("burst");
            keys.wrong("burst", span, "there is no rate that it belongs to", "write rate, or leave it out");
        }
        frames_burst_has_frames(keys, has_frames);
        if has("on_excess") && !has_rate && !has_frames && !has_bucket {
            let span = keys.span_of_value("on_excess");
            keys.wrong("on_excess", span, "there is no limit", "write rate, frames or bucket");
        }
    }
}

impl Limit {
    /// Returns true if the limit limits something.
    pub fn is_some(&self) -> bool {
        self.rate.is_some() || self.frames.is_some() || self.bucket.is_some()
    }

    /// What happens to frames above the limit: by default, a limit with a rate of its own shapes, and others drop.
    pub fn excess(&self) -> Excess {
        let has_own_rate = self.rate.is_some() && self.bucket.is_none();
        self.on_excess.unwrap_or(if has_own_rate { Excess::Shape } else { Excess::Drop })
    }

    /// Returns the burst in bytes at this rate: the configured one, or that of 20 ms. Pollers may be late by as much, and TCP does
    /// not send what a full bucket loses. A limit that drops or waits has that of 10 ms.
    pub fn burst_at(&self, rate: u64) -> u64 {
        let default = || match self.excess() {
            Excess::Shape => (rate / 8 / 50).max(LEAST_SHAPED_BURST),
            Excess::Drop | Excess::Wait => default_burst(rate),
        };
        self.burst.unwrap_or_else(default)
    }

    /// Returns the burst in frames at this rate: the configured one, or that of 10 ms.
    pub fn frames_burst_at(&self, frames: u64) -> u64 {
        self.frames_burst.map_or_else(|| default_frames_burst(frames), u64::from)
    }
}

/// Notes a burst of frames without a rate of frames.
fn frames_burst_has_frames(keys: &Keys<'_>, has_frames: bool) {
    if keys.has("frames_burst") && !has_frames {
        let (span, right) = (keys.span_of_value("frames_burst"), "write frames, or leave it out");
        keys.wrong("frames_burst", span, "there is no rate of frames that it belongs to", right);
    }
}

keys! {
    /// `[bucket.NAME]`: a limit that several ports share.
    pub struct BucketKeys {
        rate: Option<u64> = None, Optional(Bits(BITS)), Live, "Bits of frames per second, without FCS, that the ports have together; required.";
        burst: Option<u64> = None, Optional(Size(BURST)), Live, "Bytes that may pass at once; by default what passes in 10 ms, at least 16KiB.";
        frames: Option<u64> = None, Optional(Frames(FRAMES)), Live, "Frames per second; by default as many as there are.";
        frames_burst: Option<u32> = None, Optional(Integer(1..=FRAMES_BURST_MAX)), Live, "Frames that may pass at once; by default what passes in 10 ms, at least 32.";
    }
}

/// A bucket with its defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Bits per second.
    pub rate: u64,
    /// Bytes that may pass at once.
    pub burst: u64,
    /// Frames per second, and frames that may pass at once.
    pub frames: Option<(u64, u64)>,
}

impl Bucket {
    /// Reads `[bucket.NAME]`.
    pub fn read(keys: Keys<'_>) -> Option<Self> {
        let mut read = BucketKeys::default();
        read.read(&keys);
        if !keys.has("rate") {
            keys.missing("rate", "write what its ports may have together: rate = \"1Gbit\"");
        }
        frames_burst_has_frames(&keys, keys.has("frames"));
        keys.finish();
        let BucketKeys { rate, burst, frames, frames_burst } = read;
        let rate = rate?;
        let frames =
            frames.map(|frames| (frames, frames_burst.map_or_else(|| default_frames_burst(frames), u64::from)));
        Some(Self { rate, burst: burst.unwrap_or_else(|| default_burst(rate)), frames })
    }

    /// Returns the keys that read as this bucket, without those that follow from others.
    pub fn keys(&self) -> BucketKeys {
        let Self { rate, burst, frames } = *self;
        BucketKeys {
            rate: Some(rate),
            burst: Some(burst).filter(|burst| *burst != default_burst(rate)),
            frames: frames.map(|(frames, _)| frames),
            frames_burst: frames.and_then(|(frames, burst)| {
                // More than can be written is the default of a high rate.
                u32::try_from(burst).ok().filter(|_| burst != default_frames_burst(frames))
            }),
        }
    }
}

/// The form of a class's rate: frames or bits per second.
#[derive(Clone, Copy, Debug)]
struct EitherRate;

impl Form for EitherRate {
    type Value = Rate;

    fn read(&self, keys: &Keys<'_>, key: &'static str, _: Option<&Rate>) -> Option<Rate> {
        keys.parsed(key, "a rate like \"1kpps\" or \"10Mbit\"", Rate::read)
    }

    fn write(&self, value: &Rate) -> Json {
        value.to_string().into()
    }

    fn shape(&self) -> Shape {
        let (low, high) = (units::show_bits(*BITS.start()), units::show_bits(*BITS.end()));
        Shape::text(
            "RATE",
            format!("a rate in frames per second from 1pps to 1Gpps, or in bits per second from {low} to {high}"),
        )
    }
}

keys! {
    /// Storm control as configured. The default limits nothing.
    pub struct Storm {
        broadcast: Option<Rate> = None, Optional(EitherRate), Live, "Frames to everybody.";
        multicast: Option<Rate> = None, Optional(EitherRate), Live, "Frames to groups.";
        unknown_unicast: Option<Rate> = None, Optional(EitherRate), Live, "Frames to one station whose port is not known.";
        burst: Option<u64> = None, Optional(Size(BURST)), Live, "Bytes of each class with a rate of bits that may pass at once; by default what passes in 10 ms, at least 16KiB.";
        frames_burst: Option<u32> = None, Optional(Integer(1..=FRAMES_BURST_MAX)), Live, "Frames of each class with a rate of frames that may pass at once; by default what passes in 10 ms, at least 32.";
    }
}

impl Validate for Storm {
    fn validate(&mut self, keys: &Keys<'_>) {
        let classes = ["broadcast", "multicast", "unknown_unicast"];
        // A burst may belong to a class whose rate has a mistake.
        let are_read = classes.iter().all(|class| !keys.has(class) || keys.understood(class));
        for (key, of, is_bits) in [("burst", "bits", true), ("frames_burst", "frames", false)] {
            let mut rates = classes.iter().filter_map(|class| self.rate_of(class));
            let has_rate = rates.any(|rate| matches!(rate, Rate::Bits(_)) == is_bits);
            if keys.has(key) && are_read && !has_rate {
                let what = format!("there is no rate of {of} that it belongs to");
                keys.wrong(key, keys.span_of_value(key), what, format!("write a rate of {of}, or leave it out"));
            }
            if !keys.has(key) && are_read && !has_rate {
                // Of a rate that has just become one of another kind, or none.
                if is_bits { self.burst = None } else { self.frames_burst = None }
            }
        }
    }
}

impl Storm {
    fn rate_of(&self, class: &str) -> Option<Rate> {
        match class {
            "broadcast" => self.broadcast,
            "multicast" => self.multicast,
            _ => self.unknown_unicast,
        }
    }

    /// Returns the burst of a class with this rate, in frames or bytes.
    pub fn burst_at(&self, rate: Rate) -> u64 {
        match rate {
            Rate::Frames(frames) => self.frames_burst.map_or_else(|| default_frames_burst(frames), u64::from),
            Rate::Bits(bits) => self.burst.unwrap_or_else(|| default_burst(bits)),
        }
    }

    /// Returns true if a class is limited.
    pub fn is_some(&self) -> bool {
        *self != Self::default()
    }
}

/// A rate in frames or bits per second.
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

fn default_burst(rate: u64) -> u64 {
    (rate / 8 / 100).max(LEAST_BURST.0)
}

fn default_frames_burst(frames: u64) -> u64 {
    (frames / 100).max(LEAST_BURST.1)
}
