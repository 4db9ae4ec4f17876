//! The query of a capture request, and the headers of its answer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::mistake::Mistake;
use crate::units;

/// The header with the capture's number.
pub const NUMBER: &str = "ringway-capture";
/// The trailer with the number of frames in the file.
pub const CAPTURED: &str = "ringway-captured";
/// The trailer with the number of frames that are missing because they were not read fast enough.
pub const LOST: &str = "ringway-lost";

/// Smallest and largest buffer, in bytes.
const BUFFERS: (u64, u64) = (256 << 10, 1 << 30);
/// The default buffer, in bytes.
const BUFFER: u64 = 16 << 20;
/// The default length limit: longer than any frame.
const SNAPLEN: u32 = 262_144;

/// The options of a capture. Absent options have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::IntoParams))]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", into_params(parameter_in = Query))]
pub struct CaptureQuery {
    /// Most bytes of each frame, 14 to 262144; default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snaplen: Option<u32>,
    /// Most frames; default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Longest time, like `10s`; default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// `in`: frames from the client; `out`: frames to it; default: `both`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// Whether lost frames are captured, too, with the reason as a comment; default: no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drops: Option<bool>,
    /// Memory for frames that are not read yet, 256KiB to 1GiB; default: 16MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<String>,
}

/// The options of a capture after a check, with their defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureOptions {
    /// Most bytes of each frame.
    pub snaplen: u32,
    /// Most frames.
    pub count: Option<u64>,
    /// Longest time.
    pub duration: Option<Duration>,
    /// The direction of the frames.
    pub direction: CaptureDirection,
    /// Whether lost frames are captured, too.
    pub drops: bool,
    /// Memory for frames that are not read yet, in bytes.
    pub buffer: u64,
}

/// The frames of a port that are captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureDirection {
    /// From the client and to it.
    #[default]
    Both,
    /// From the client.
    In,
    /// To the client.
    Out,
}

impl CaptureQuery {
    /// Checks the query.
    ///
    /// # Errors
    /// The mistakes.
    pub fn read(&self) -> Result<CaptureOptions, Vec<Mistake>> {
        let mut mistakes = Vec::new();
        let mut wrong = |key: &str, what: String| {
            mistakes.push(Mistake { key: key.to_owned(), span: None, what, right: String::new() });
        };
        let snaplen = self.snaplen.unwrap_or(SNAPLEN);
        if !(14..=SNAPLEN).contains(&snaplen) {
            wrong("snaplen", format!("{snaplen} is out of range; write 14 to {SNAPLEN}"));
        }
        let duration = self.duration.as_deref().map(units::duration).transpose();
        let duration = duration.unwrap_or_else(|what| {
            wrong("duration", what);
            None
        });
        let direction = match self.direction.as_deref() {
            None | Some("both") => CaptureDirection::Both,
            Some("in") => CaptureDirection::In,
            Some("out") => CaptureDirection::Out,
            Some(word) => {
                wrong("direction", format!("unknown value {word:?}; write \"both\", \"in\" or \"out\""));
                CaptureDirection::Both
            }
        };
        let buffer = self.buffer.as_deref().map_or(Ok(BUFFER), units::size).and_then(|bytes| {
            let (low, high) = (units::show_size(BUFFERS.0), units::show_size(BUFFERS.1));
            let fits = (BUFFERS.0..=BUFFERS.1).contains(&bytes);
            fits.then_some(bytes).ok_or(format!("{bytes} bytes are out of range; write {low} to {high}"))
        });
        let buffer = buffer.unwrap_or_else(|what| {
            wrong("buffer", what);
            BUFFER
        });
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let drops = self.drops.unwrap_or(false);
        Ok(CaptureOptions { snaplen, count: self.count, duration, direction, drops, buffer })
    }
}
