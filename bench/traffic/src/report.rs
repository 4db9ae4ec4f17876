//! Results, for people and for programs. The field names are part of the command's JSON output: do not rename them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The requested number of frames was reached, or the source has no more.
    Frames,
    /// The requested time has passed.
    Duration,
    /// No frame was received for the requested idle time.
    Idle,
    /// There was no room to send for the stall time.
    Stalled,
    /// Stopped from outside.
    Stopped,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ended::Frames => "all frames done",
            Ended::Duration => "time is up",
            Ended::Idle => "nothing more received",
            Ended::Stalled => "no room to send: the other side does not take frames",
            Ended::Stopped => "stopped",
        })
    }
}

/// Frames and bytes over some time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Number of frames.
    pub frames: u64,
    /// Bytes of these frames, without FCS, preamble and gap.
    pub bytes: u64,
    /// The time in seconds.
    pub seconds: f64,
    /// Frames per second.
    pub frames_per_second: f64,
    /// Bits of these frames per second.
    pub bits_per_second: f64,
}

impl Throughput {
    /// Computes the rates.
    #[must_use]
    pub fn new(frames: u64, bytes: u64, seconds: f64) -> Throughput {
        let rate = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
        Throughput {
            frames,
            bytes,
            seconds,
            frames_per_second: rate(frames as f64),
            bits_per_second: rate(bytes as f64 * 8.0),
        }
    }
}

impl fmt::Display for Throughput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} frames, {} bytes in {:.2} s: {}pps, {}bit/s",
            self.frames,
            self.bytes,
            self.seconds,
            Scaled(self.frames_per_second),
            Scaled(self.bits_per_second)
        )
    }
}

/// A number with a decimal prefix: `12.3 M`.
struct Scaled(f64);

impl fmt::Display for Scaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, prefix) = match self.0 {
            v if v >= 1e9 => (v / 1e9, "G"),
            v if v >= 1e6 => (v / 1e6, "M"),
            v if v >= 1e3 => (v / 1e3, "k"),
            v => (v, ""),
        };
        write!(f, "{value:.2} {prefix}")
    }
}

/// State of a run, for the progress callback, about once a second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Counts since the start.
    pub total: Throughput,
    /// Counts since the previous call.
    pub recent: Throughput,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:6.1} s  {} frames  {}pps  {}bit/s",
            self.total.seconds,
            self.total.frames,
            Scaled(self.recent.frames_per_second),
            Scaled(self.recent.bits_per_second)
        )
    }
}

/// Result of [`crate::transmit`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TxReport {
    /// Sent frames.
    pub sent: Throughput,
    /// How often there was no room and the sender had to wait.
    pub full: u64,
    /// Why the run ended.
    pub ended: Ended,
}

impl fmt::Display for TxReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sent {}; no room {} times; {}", self.sent, self.full, self.ended)
    }
}

/// Result of [`crate::receive`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RxReport {
    /// Received frames, over the time from the first frame to the last.
    pub received: Throughput,
    /// Time of the whole run.
    pub elapsed_seconds: f64,
    /// Result of the checks.
    pub check: CheckReport,
    /// Why the run ended.
    pub ended: Ended,
}

impl fmt::Display for RxReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "received {}; {}\n{}", self.received, self.ended, self.check)
    }
}

/// Result of the checks of received frames.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// Frames received, of any kind.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Flows seen, over all senders.
    pub flows: u64,
    /// Sequence numbers missing below the highest of each flow. Losses at the very end of a flow cannot be detected.
    pub lost: u64,
    /// Frames that arrived after a later frame of their flow.
    pub reordered: u64,
    /// Frames that arrived again.
    pub duplicated: u64,
    /// Frames so far behind their flow that late frames and duplicates cannot be distinguished. If a frame was late,
    /// `lost` includes it.
    pub stale: u64,
    /// Test frames whose header, length or payload differs from what was sent.
    pub corrupted: u64,
    /// Frames that are not test frames.
    pub foreign: u64,
    /// Test frames too short for a sequence number.
    pub unsequenced: u64,
    /// Test frames of flows beyond the limit.
    pub untracked: u64,
}

impl CheckReport {
    /// Returns true if no frame was lost, reordered, duplicated or changed, and no foreign frame arrived.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.lost + self.reordered + self.duplicated + self.stale + self.corrupted + self.foreign == 0
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "check: {} flows, {} lost, {} reordered", self.flows, self.lost, self.reordered)?;
        write!(f, ", {} duplicated, {} corrupted, {} foreign", self.duplicated, self.corrupted, self.foreign)?;
        let rare = [(self.stale, "stale"), (self.unsequenced, "unsequenced"), (self.untracked, "untracked")];
        rare.iter().filter(|(count, _)| *count > 0).try_for_each(|(count, what)| write!(f, ", {count} {what}"))
    }
}

/// Result of [`crate::ping`] and [`crate::ping_pair`]; times in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LatencyReport {
    /// Frames sent.
    pub sent: u64,
    /// Round trips completed in time.
    pub received: u64,
    /// Frames without a reply in time.
    pub lost: u64,
    /// Replies that arrived after the timeout.
    pub late: u64,
    /// Replies that differ from what was sent.
    pub corrupted: u64,
    /// Other frames received.
    pub foreign: u64,
    /// Shortest round trip.
    pub min_ns: u64,
    /// Median: half of the round trips took no longer.
    pub median_ns: u64,
    /// Mean round trip.
    pub mean_ns: f64,
    /// 90 % of the round trips took no longer.
    pub p90_ns: u64,
    /// 99 % of the round trips took no longer.
    pub p99_ns: u64,
    /// 99.9 % of the round trips took no longer.
    pub p99_9_ns: u64,
    /// Longest round trip.
    pub max_ns: u64,
    /// Why the run ended.
    pub ended: Ended,
}

impl fmt::Display for LatencyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: u64| ns as f64 / 1e3;
        writeln!(
            f,
            "{} sent, {} received, {} lost, {} late, {} corrupted, {} foreign; {}",
            self.sent, self.received, self.lost, self.late, self.corrupted, self.foreign, self.ended
        )?;
        write!(
            f,
            "round trip in us: min {:.2}, median {:.2}, mean {:.2}, p90 {:.2}, p99 {:.2}, p99.9 {:.2}, max {:.2}",
            us(self.min_ns),
            us(self.median_ns),
            self.mean_ns / 1e3,
            us(self.p90_ns),
            us(self.p99_ns),
            us(self.p99_9_ns),
            us(self.max_ns)
        )
    }
}

/// Result of [`crate::pong`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PongReport {
    /// Frames sent back.
    pub returned: Throughput,
    /// Frames too short or too long to send back.
    pub dropped: u64,
    /// Why the run ended.
    pub ended: Ended,
}

impl fmt::Display for PongReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "returned {}; {} dropped; {}", self.returned, self.dropped, self.ended)
    }
}

/// Result of [`crate::Pump::run`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PumpReport {
    /// Sent by all sources in the window.
    pub sent: Throughput,
    /// Received by all sinks in the window.
    pub received: Throughput,
    /// One entry for each station, in order.
    pub stations: Vec<StationReport>,
    /// Why the run ended.
    pub ended: Ended,
}

/// The part of one station in a [`PumpReport`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StationReport {
    /// Sent in the window.
    pub sent: Throughput,
    /// Received in the window.
    pub received: Throughput,
    /// Result of its checker since the pump was made.
    pub check: CheckReport,
}

impl fmt::Display for PumpReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "sent     {}", self.sent)?;
        write!(f, "received {}; {}", self.received, self.ended)?;
        for (index, station) in self.stations.iter().enumerate().filter(|(_, station)| station.received.frames > 0) {
            write!(f, "\nstation {index}: received {}\n  {}", station.received, station.check)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_time_has_no_infinite_rate() {
        assert_eq!(Throughput::new(5, 300, 0.0).frames_per_second, 0.0);
    }

    #[test]
    fn any_fault_makes_a_check_unclean() {
        let clean =
            CheckReport { frames: 9, bytes: 540, flows: 2, unsequenced: 1, untracked: 1, ..CheckReport::default() };
        assert!(clean.is_clean());
        for fault in ["lost", "reordered", "duplicated", "stale", "corrupted", "foreign"] {
            let mut json = serde_json::to_value(&clean).expect("plain data");
            json[fault] = 1.into();
            let report: CheckReport = serde_json::from_value(json).expect("the same fields");
            assert!(!report.is_clean(), "{fault}");
            assert!(report.to_string().contains(&format!("1 {fault}")), "{report}");
        }
    }

    #[test]
    fn people_and_programs_read_the_same_figures() {
        let sent = Throughput::new(3_000_000, 180_000_000, 2.0);
        let report = TxReport { sent, full: 4, ended: Ended::Duration };
        let text = report.to_string();
        assert!(text.contains("1.50 Mpps, 720.00 Mbit/s"), "{text}");
        let json = serde_json::to_value(&report).expect("plain data");
        assert_eq!(json["sent"]["frames_per_second"], 1_500_000.0);
        assert_eq!(json["ended"], "duration");
        assert_eq!(serde_json::from_value::<TxReport>(json).expect("its own output"), report);
    }
}
