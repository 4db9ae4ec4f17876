//! The JSON of limits, buckets and storm control.

use serde::{Deserialize, Serialize};

use crate::traffic::Traffic;

/// The counters of a limit, or of a bucket that ports share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LimitTally {
    /// Frames that passed.
    #[serde(default)]
    pub passed: Traffic,
    /// Frames that were refused.
    #[serde(default)]
    pub refused: Refused,
    /// Times that waiting frames passed.
    #[serde(default)]
    pub waits: u64,
    /// Their waiting time in seconds, of all senders together: from the first look at the waiting frames until they passed.
    #[serde(default)]
    pub waited: f64,
}

/// Frames that were refused, by the limit that was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Refused {
    /// The limit's bits, or a sender's share of them.
    pub bits: u64,
    /// The limit's frames, or a sender's share of them.
    pub frames: u64,
    /// For a port's limit: the shared bucket, or the port's share of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<u64>,
}

impl Refused {
    /// Returns the number of all refused frames.
    pub fn all(&self) -> u64 {
        self.bits + self.frames + self.bucket.unwrap_or(0)
    }
}

/// A limit at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LimitStatus {
    /// Bits of frames (without FCS, preamble and gap) per second, like `1Gbit`; with a bucket the guaranteed rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// The highest rate, including what a bucket lends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<String>,
    /// Bytes that may pass at once, like `64KiB`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<String>,
    /// Frames per second, like `1.5Mpps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<String>,
    /// Frames that may pass at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames_burst: Option<u64>,
    /// The shared bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<String>,
    /// What happens to frames above the limit: `shape`, `drop` or `wait`.
    pub on_excess: String,
    /// Fill of its bucket of bits, from 0 to 1; null: the port was never open, or bits are not limited.
    pub fill: Option<f64>,
    /// Fill of its bucket of frames, from 0 to 1.
    pub frames_fill: Option<f64>,
    /// Its counters since the port has a limit in this direction. They continue when clients of the port change.
    #[serde(flatten)]
    pub tally: LimitTally,
}

/// Storm control: rates in bits or frames per second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StormStatus {
    /// The rate of broadcast frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<String>,
    /// The rate of multicast frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multicast: Option<String>,
    /// The rate of unicast frames to a station whose port is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_unicast: Option<String>,
    /// The bursts.
    #[serde(default)]
    pub bursts: StormBursts,
    /// Frames that passed since the port has storm control. The counters continue when clients of the port change.
    #[serde(default)]
    pub passed: StormCounts,
    /// Frames that were refused.
    #[serde(default)]
    pub refused: StormCounts,
}

/// The bursts of storm control by class: like `32 frames`, or `16KiB` for a rate in bits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StormBursts {
    /// Broadcast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<String>,
    /// Multicast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multicast: Option<String>,
    /// Unicast to a station whose port is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_unicast: Option<String>,
}

/// Frames to many by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StormCounts {
    /// Broadcast.
    pub broadcast: u64,
    /// Multicast.
    pub multicast: u64,
    /// Unicast to a station whose port is not known.
    pub unknown_unicast: u64,
}

/// A bucket that ports share, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BucketStatus {
    /// Its name.
    pub name: String,
    /// Bits per second.
    pub rate: String,
    /// Bytes that may pass at once.
    pub burst: String,
    /// Frames per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<String>,
    /// Frames that may pass at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames_burst: Option<u64>,
    /// Fill of its bits, from 0 to 1.
    pub fill: Option<f64>,
    /// How full its bucket of frames is, from 0 to 1.
    pub frames_fill: Option<f64>,
    /// The number of ports that use it.
    pub ports: usize,
    /// Its counters since it was made.
    #[serde(flatten)]
    pub tally: LimitTally,
}
