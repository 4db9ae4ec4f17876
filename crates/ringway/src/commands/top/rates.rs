//! Rates between two readings of the status.

use std::collections::BTreeMap;

use ringway_api::PortRef;
use ringway_api::limits::{BucketStatus, LimitStatus};
use ringway_api::types::{PollerStatus, PortStatus, Status, Traffic};
use ringway_commands::out::Scaled;
use serde::Serialize;

/// Rates of everything, per second.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Rates {
    /// Version of the daemon.
    pub version: String,
    /// Seconds since it was ready.
    pub uptime: f64,
    /// Seconds between the readings, by the daemon's clock.
    pub seconds: f64,
    pub pollers: Vec<Poller>,
    pub buckets: Vec<Bucket>,
    pub ports: Vec<Port>,
}

/// One bucket that ports share.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Bucket {
    pub name: String,
    /// Bits per second, like `1Gbit`.
    pub rate: String,
    /// Number of ports that use it.
    pub ports: usize,
    /// Fill level at the last reading, of bits or of frames, whichever is less: from 0 to 1.
    pub fill: f64,
    /// What was charged to it.
    pub passed: Flow,
    /// Frames that it refused, per second.
    pub refused: f64,
}

/// One poller.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Poller {
    pub poller: usize,
    /// The CPU it is pinned to; null: none.
    pub core: Option<u32>,
    /// Share of its time spent on frames, 0 to 1.
    pub busy: f64,
    /// Rounds that moved frames, per second.
    pub passes: f64,
    /// Times it went to sleep, per second.
    pub sleeps: f64,
}

/// One port.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Port {
    pub name: String,
    pub switch: String,
    pub kind: String,
    pub state: String,
    #[serde(rename = "in")]
    pub input: Flow,
    #[serde(rename = "out")]
    pub output: Flow,
    /// Wake-ups by the client, per second.
    pub kicks: f64,
    /// Wake-ups of the client, per second.
    pub calls: f64,
    /// Frames lost per second, by reason; only the reasons for which any were.
    pub drops: BTreeMap<String, f64>,
    /// Fill levels of the buckets of its limits, at the last reading.
    pub fill: Fill,
}

impl Port {
    /// Frames lost per second, for all reasons. (The sum of no floating-point numbers is -0.)
    pub fn dropped(&self) -> f64 {
        self.drops.values().fold(0.0, |sum, rate| sum + rate)
    }
}

/// Fill levels of a port's buckets, of bits or of frames, whichever is less: from 0 to 1; null: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Fill {
    #[serde(rename = "in")]
    pub input: Option<f64>,
    #[serde(rename = "out")]
    pub output: Option<f64>,
}

/// Frames in one direction, per second.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Flow {
    pub frames: f64,
    /// Without FCS, preamble and gap.
    pub bits: f64,
}

impl Rates {
    /// Computes the rates from `before` to `now`, of these ports, or of all ports if none is given. Counters that were not there
    /// before, or that belong to another daemon, begin at 0.
    pub fn between(before: &Status, now: &Status, only: &[PortRef]) -> Rates {
        let nothing = Status::default();
        let before = if now.uptime >= before.uptime { before } else { &nothing };
        let seconds = (now.uptime - before.uptime).max(1e-9);
        let is_meant = |port: &&PortStatus| {
            let named = |wanted: &PortRef| {
                let switch = wanted.switch.as_ref().is_none_or(|switch| switch.as_str() == port.switch);
                let name = PortRef { switch: None, ..wanted.clone() }.to_string();
                switch && name == port.name
            };
            only.is_empty() || only.iter().any(named)
        };
        let ports = now.ports.iter().filter(is_meant).map(|port| {
            let same = |other: &&PortStatus| other.name == port.name && other.switch == port.switch;
            Port::between(before.ports.iter().find(same), port, seconds)
        });
        let pollers = now
            .pollers
            .iter()
            .enumerate()
            .map(|(number, poller)| Poller::between(number, before.pollers.get(number), poller, seconds));
        let buckets = now.buckets.iter().map(|bucket| {
            let before = before.buckets.iter().find(|other| other.name == bucket.name);
            Bucket::between(before, bucket, seconds)
        });
        Rates {
            version: now.version.clone(),
            uptime: now.uptime,
            seconds,
            pollers: pollers.collect(),
            buckets: buckets.collect(),
            ports: ports.collect(),
        }
    }
}

/// The less of both, where there are both.
fn less(bits: Option<f64>, frames: Option<f64>) -> Option<f64> {
    bits.into_iter().chain(frames).min_by(f64::total_cmp)
}

impl Bucket {
    fn between(before: Option<&BucketStatus>, now: &BucketStatus, seconds: f64) -> Bucket {
        let before = before.map(|before| before.tally).unwrap_or_default();
        Bucket {
            name: now.name.clone(),
            rate: now.rate.clone(),
            ports: now.ports,
            fill: less(now.fill, now.frames_fill).unwrap_or(0.0),
            passed: Flow::between(before.passed, now.tally.passed, seconds),
            refused: rate(before.refused.all(), now.tally.refused.all(), seconds),
        }
    }
}

impl Fill {
    fn of(port: &PortStatus) -> Fill {
        let of = |limit: &Option<LimitStatus>| limit.as_ref().and_then(|limit| less(limit.fill, limit.frames_fill));
        Fill { input: of(&port.ingress), output: of(&port.egress) }
    }

    /// `in 12%, out 100%`.
    pub fn text(self) -> String {
        let named = [("in", self.input), ("out", self.output)];
        let parts = named.into_iter().filter_map(|(name, fill)| Some(format!("{name} {:.0}%", fill? * 100.0)));
        parts.collect::<Vec<_>>().join(", ")
    }

    /// The emptiest of them.
    pub fn least(self) -> Option<f64> {
        less(self.input, self.output)
    }
}

/// Difference of a counter. A counter that went back began again at 0.
fn rate(before: u64, now: u64, seconds: f64) -> f64 {
    now.checked_sub(before).unwrap_or(now) as f64 / seconds
}

impl Flow {
    fn between(before: Traffic, now: Traffic, seconds: f64) -> Flow {
        let frames = rate(before.frames, now.frames, seconds);
        Flow { frames, bits: 8.0 * rate(before.bytes, now.bytes, seconds) }
    }
}

impl Port {
    fn between(before: Option<&PortStatus>, now: &PortStatus, seconds: f64) -> Port {
        let nothing = PortStatus::default();
        let before = before.unwrap_or(&nothing);
        let drops = now.drops.iter().map(|(reason, &count)| {
            (reason.clone(), rate(before.drops.get(reason).copied().unwrap_or(0), count, seconds))
        });
        Port {
            name: now.name.clone(),
            switch: now.switch.clone(),
            kind: now.kind.clone(),
            state: now.state.clone(),
            input: Flow::between(before.input, now.input, seconds),
            output: Flow::between(before.output, now.output, seconds),
            kicks: rate(before.kicks, now.kicks, seconds),
            calls: rate(before.calls, now.calls, seconds),
            drops: drops.filter(|(_, rate)| *rate > 0.0).collect(),
            fill: Fill::of(now),
        }
    }

    /// `receiver_full 12 k, runt 1`, most first.
    pub fn reasons(&self) -> String {
        let mut reasons: Vec<(&String, &f64)> = self.drops.iter().collect();
        reasons.sort_by(|a, b| b.1.total_cmp(a.1).then(a.0.cmp(b.0)));
        let reasons: Vec<String> =
            reasons.iter().map(|(reason, rate)| format!("{reason} {}", Scaled(**rate)).trim_end().to_owned()).collect();
        reasons.join(", ")
    }
}

impl Poller {
    fn between(number: usize, before: Option<&PollerStatus>, now: &PollerStatus, seconds: f64) -> Poller {
        let nothing = PollerStatus::default();
        // Another engine counts from 0.
        let before = before.filter(|before| before.busy <= now.busy && before.free <= now.free).unwrap_or(&nothing);
        let (busy, free) = (now.busy - before.busy, now.free - before.free);
        let share = if busy + free > 0.0 { busy / (busy + free) } else { 0.0 };
        Poller {
            poller: number,
            core: now.core,
            busy: share.clamp(0.0, 1.0),
            passes: rate(before.passes, now.passes, seconds),
            sleeps: rate(before.sleeps, now.sleeps, seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_lost_nothing_says_so_without_a_sign() {
        assert_eq!(format!("{}", Port::default().dropped()), "0");
    }

    fn status(uptime: f64, frames: u64, full: u64, busy: f64) -> Status {
        let traffic = Traffic { frames, bytes: 100 * frames };
        let port = PortStatus {
            name: "p".into(),
            switch: "lan0".into(),
            input: traffic,
            drops: [("receiver_full".to_owned(), full), ("runt".to_owned(), 7)].into(),
            ..PortStatus::default()
        };
        let poller = PollerStatus { busy, free: uptime - busy, ..PollerStatus::default() };
        Status { uptime, ports: vec![port], pollers: vec![poller], ..Status::default() }
    }

    #[test]
    fn rates_are_by_the_daemons_clock_and_only_of_what_changed() {
        let rates = Rates::between(&status(10.0, 1000, 0, 1.0), &status(12.0, 5000, 300, 2.5), &[]);
        let port = &rates.ports[0];
        assert_eq!((port.input.frames, port.input.bits), (2000.0, 1_600_000.0));
        assert_eq!((port.reasons().as_str(), port.drops.len()), ("receiver_full 150", 1));
        assert_eq!((rates.seconds, rates.pollers[0].busy), (2.0, 0.75));
    }

    #[test]
    fn of_two_buckets_the_emptier_is_shown() {
        let limit = |fill, frames_fill| Some(LimitStatus { fill, frames_fill, ..LimitStatus::default() });
        let port =
            PortStatus { ingress: limit(Some(0.5), Some(0.25)), egress: limit(None, None), ..PortStatus::default() };
        assert_eq!(Fill::of(&port), Fill { input: Some(0.25), output: None });
        let port = PortStatus { egress: limit(Some(1.0), None), ..port };
        assert_eq!((Fill::of(&port).text().as_str(), Fill::of(&port).least()), ("in 25%, out 100%", Some(0.25)));
    }

    #[test]
    fn another_daemon_or_a_port_made_anew_begins_at_nothing() {
        let rates = Rates::between(&status(100.0, 1000, 0, 50.0), &status(2.0, 10, 0, 1.0), &[]);
        assert_eq!((rates.ports[0].input.frames, rates.pollers[0].busy), (5.0, 0.5));
        let rates = Rates::between(&status(10.0, 1000, 0, 0.0), &status(12.0, 10, 0, 0.0), &[]);
        assert_eq!(rates.ports[0].input.frames, 5.0);
    }

    #[test]
    fn only_the_ports_that_were_named_are_shown() {
        let (before, now) = (status(1.0, 0, 0, 0.0), status(2.0, 0, 0, 0.0));
        let shown = |only: &str| Rates::between(&before, &now, &[only.parse().unwrap()]).ports.len();
        assert_eq!((shown("p"), shown("lan0:p"), shown("lan1:p"), shown("q"), shown("p{1")), (1, 1, 0, 0, 0));
    }
}
