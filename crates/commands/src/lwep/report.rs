//! What the commands report.

use std::fmt;

use hdrhistogram::Histogram;
use ringway_link::{Counts, Link};
use ringway_lwep::{Counters, Endpoint};
use serde::Serialize;

use crate::out;

/// Longest round trip that the histogram resolves.
const LONGEST_NS: u64 = 60_000_000_000;

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// All that --count asks for is done.
    Count,
    /// The time is up.
    Duration,
    /// Stopped by a signal.
    Stopped,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Count => "all done",
            Self::Duration => "time is up",
            Self::Stopped => "stopped",
        })
    }
}

/// Round trips.
pub struct Times(Histogram<u64>);

/// Their distribution, in nanoseconds.
#[derive(Debug, Serialize)]
pub struct RoundTrips {
    min: u64,
    p50: u64,
    mean: f64,
    p90: u64,
    p99: u64,
    p999: u64,
    max: u64,
    /// The same, by the names that `ringway gen ping` has for them.
    min_ns: u64,
    median_ns: u64,
    mean_ns: f64,
    p90_ns: u64,
    p99_ns: u64,
    p99_9_ns: u64,
    max_ns: u64,
}

impl Times {
    /// Nothing measured.
    pub fn new() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("1 ns to 60 s is a valid range"))
    }

    /// Adds a round trip.
    pub fn record(&mut self, nanoseconds: u64) {
        // Saturates at the longest time of the histogram.
        self.0.saturating_record(nanoseconds);
    }

    /// Returns how many there were.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Returns their distribution.
    pub fn summary(&self) -> RoundTrips {
        let at = |quantile| self.0.value_at_quantile(quantile);
        RoundTrips {
            min: self.0.min(),
            p50: at(0.5),
            mean: self.0.mean(),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: self.0.max(),
            min_ns: self.0.min(),
            median_ns: at(0.5),
            mean_ns: self.0.mean(),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p99_9_ns: at(0.999),
            max_ns: self.0.max(),
        }
    }
}

impl fmt::Display for RoundTrips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: u64| ns as f64 / 1e3;
        write!(
            f,
            "round trip in us: min {:.2}, median {:.2}, mean {:.2}, p90 {:.2}, p99 {:.2}, p99.9 {:.2}, max {:.2}",
            us(self.min),
            us(self.p50),
            self.mean / 1e3,
            us(self.p90),
            us(self.p99),
            us(self.p999),
            us(self.max)
        )
    }
}

/// Messages and bytes over some time.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Rate {
    messages: u64,
    bytes: u64,
    seconds: f64,
    messages_per_second: f64,
    bytes_per_second: f64,
}

impl Rate {
    /// Computes the rates.
    pub fn new(messages: u64, bytes: u64, nanoseconds: u64) -> Self {
        let seconds = nanoseconds as f64 / 1e9;
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let (messages_per_second, bytes_per_second) = (rate(messages), rate(bytes));
        Self { messages, bytes, seconds, messages_per_second, bytes_per_second }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} messages, {} bytes in {}: {}messages/s, {}bytes/s",
            self.messages,
            self.bytes,
            out::time(self.seconds),
            out::Scaled(self.messages_per_second),
            out::Scaled(self.bytes_per_second)
        )
    }
}

/// What an endpoint and its link have counted.
#[derive(Debug, Serialize)]
pub struct Counted {
    counters: serde_json::Map<String, serde_json::Value>,
    link: serde_json::Map<String, serde_json::Value>,
}

/// Returns the fields of a struct by name.
macro_rules! named {
    ($type:ident, $value:expr, $($field:ident),+) => {{
        let $type { $($field),+ } = $value;
        [$((stringify!($field), $field)),+].map(|(name, count)| (name.to_owned(), count.into())).into_iter().collect()
    }};
}

impl Counted {
    /// Reads the counters.
    pub fn of<L: Link>(endpoint: &mut Endpoint<L>) -> Self {
        Self {
            counters: named!(
                Counters,
                *endpoint.counters(),
                messages_sent,
                messages_received,
                frames_sent,
                frames_received,
                repeated,
                timeouts,
                duplicates,
                foreign,
                malformed,
                other_version,
                bad_checksum,
                no_connection,
                outside_window,
                bad_acknowledgement,
                no_buffer,
                refused,
                unanswered
            ),
            link: named!(Counts, endpoint.link().counts(), kicks, calls, accesses, dropped, lost, unsent),
        }
    }
}

impl fmt::Display for Counted {
    /// All that is not zero.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = self.counters.iter().chain(&self.link).filter(|(_, count)| count.as_u64() != Some(0));
        let words: Vec<String> = seen.map(|(name, count)| format!("{name} {count}")).collect();
        f.write_str(&words.join(", "))
    }
}

/// Writes a result as text or as JSON.
pub fn report<R: Serialize + fmt::Display>(result: &R, json: bool) {
    let _ = if json { out::print_json(result) } else { out::print(&format!("{result}\n")) };
}
