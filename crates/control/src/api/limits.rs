//! The JSON of limits.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::types::Traffic;

/// What a limit, or a bucket that ports share, came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LimitTally {
    /// Frames that were charged to it.
    #[serde(default)]
    pub passed: Traffic,
    /// Frames that were refused.
    #[serde(default)]
    pub refused: Refused,
    /// Times that frames passed which had waited for it.
    #[serde(default)]
    pub waits: u64,
    /// Seconds for which they had, of all senders together: from when they were seen to wait until they passed.
    #[serde(default)]
    pub waited: f64,
}

/// Frames that were refused, by what was used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refused {
    /// Its bits, or a sender's share of them.
    pub bits: u64,
    /// Its frames, or a sender's share of them.
    pub frames: u64,
    /// Of a port's limit: what the bucket has that it is a part of, or its share of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<u64>,
}

impl Refused {
    /// Whatever was used up.
    pub fn all(&self) -> u64 {
        self.bits + self.frames + self.bucket.unwrap_or(0)
    }
}

/// A limit at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LimitStatus {
    /// Bits of frames (without FCS, preamble and gap) per second, like `1Gbit`; with a bucket those that pass in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// The highest rate, with what a bucket lends.
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
    /// The bucket that it is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<String>,
    /// What happens to what is more: `drop` or `wait`.
    pub on_excess: String,
    /// How full its bucket is, from 0 to 1; null: the port never was there, or no bits are limited.
    pub fill: Option<f64>,
    /// How full its bucket of frames is.
    pub frames_fill: Option<f64>,
    /// What passed it and what did not, since the port has a limit in this direction, whatever clients came and went.
    #[serde(flatten)]
    pub tally: LimitTally,
}

/// Storm control: rates in bits or frames per second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StormStatus {
    /// Of frames to everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<String>,
    /// Of frames to groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multicast: Option<String>,
    /// Of frames to one station whose port is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_unicast: Option<String>,
    /// How much may pass at once.
    #[serde(default)]
    pub bursts: StormBursts,
    /// Frames that passed, since there is storm control, whatever clients came and went.
    #[serde(default)]
    pub passed: StormCounts,
    /// Frames that were refused.
    #[serde(default)]
    pub refused: StormCounts,
}

/// How much of frames to many may pass at once, by class: like `32 frames`, or `16KiB` where the rate is one of bits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StormBursts {
    /// To everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<String>,
    /// To groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multicast: Option<String>,
    /// To one station whose port is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_unicast: Option<String>,
}

/// Frames to many, by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StormCounts {
    /// To everybody.
    pub broadcast: u64,
    /// To groups.
    pub multicast: u64,
    /// To one station whose port is not known.
    pub unknown_unicast: u64,
}

/// A bucket that ports share, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
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
    /// How full it is, from 0 to 1.
    pub fill: Option<f64>,
    /// How full its bucket of frames is, from 0 to 1.
    pub frames_fill: Option<f64>,
    /// How many ports have it.
    pub ports: usize,
    /// What passed it and what did not, since there is such a bucket.
    #[serde(flatten)]
    pub tally: LimitTally,
}
