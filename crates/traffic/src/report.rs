//! Results, for people and for programs. The field names are part of the command's JSON output: do not rename them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The number of frames asked for was reached, or the source has no more.
    Frames,
    /// The time asked for has passed.
    Duration,
    /// Nothing was received for the idle time asked for.
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

/// Frames and bytes over a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Frames.
    pub frames: u64,
    /// Bytes of these frames, without FCS, preamble and gap.
    pub bytes: u64,
    /// Time they took.
    pub seconds: f64,
    /// Frames each second.
    pub frames_per_second: f64,
    /// Bits of these frames each second.
    pub bits_per_second: f64,
}

impl Throughput {
    /// Rates from counts.
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

/// How a run stands, given to the progress callback about once a second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Since the start.
    pub total: Throughput,
    /// Since the previous call.
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
    /// What was sent.
    pub sent: Throughput,
    /// Times that there was no room and the sender had to wait.
    pub full: u64,
    /// Why it ended.
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
    /// What was received, over the time from the first frame to the last.
    pub received: Throughput,
    /// The whole time of the run.
    pub elapsed_seconds: f64,
    /// What the frames turned out to be.
    pub check: CheckReport,
    /// Why it ended.
    pub ended: Ended,
}

impl fmt::Display for RxReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "received {}; {}\n{}", self.received, self.ended, self.check)
    }
}

/// What the received frames turned out to be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// Frames received, of any kind.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Flows seen, over all senders.
    pub flows: u64,
    /// Numbers missing below the highest of each flow. Frames lost at the very end of a flow cannot show here.
    pub lost: u64,
    /// Frames that came after a later one of their flow.
    pub reordered: u64,
    /// Frames that came again.
    pub duplicated: u64,
    /// Frames so far behind their flow that late and duplicate cannot be told apart; if late, `lost` includes them.
    pub stale: u64,
    /// Test frames whose header, length or payload is not what was sent.
    pub corrupted: u64,
    /// Frames that are no test frames.
    pub foreign: u64,
    /// Test frames too short to carry a sequence number.
    pub unsequenced: u64,
    /// Test frames of more flows than are followed.
    pub untracked: u64,
}

impl CheckReport {
    /// Whether nothing was lost, reordered, duplicated or altered, and nothing foreign came.
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
    /// Replies that came after their time was up.
    pub late: u64,
    /// Replies that are not what was sent.
    pub corrupted: u64,
    /// Other frames received.
    pub foreign: u64,
    /// Shortest round trip.
    pub min_ns: u64,
    /// Half took no longer.
    pub median_ns: u64,
    /// Mean round trip.
    pub mean_ns: f64,
    /// 90 % took no longer.
    pub p90_ns: u64,
    /// 99 % took no longer.
    pub p99_ns: u64,
    /// 99.9 % took no longer.
    pub p99_9_ns: u64,
    /// Longest round trip.
    pub max_ns: u64,
    /// Why it ended.
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
    /// Why it ended.
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
    /// Sent by all sources within the window.
    pub sent: Throughput,
    /// Received by all sinks within the window.
    pub received: Throughput,
    /// One entry per station, in order.
    pub stations: Vec<StationReport>,
    /// Why it ended.
    pub ended: Ended,
}

/// One station's part of a [`PumpReport`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StationReport {
    /// Sent within the window.
    pub sent: Throughput,
    /// Received within the window.
    pub received: Throughput,
    /// Found by its checker since the pump was made.
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
