//! Faults of ports: remembered, counted and logged. Each port has room of its own, so that no port's noise displaces what is
//! known of another.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use ringway_switch::PortFault;

use super::Daemon;
use crate::api::types;
use crate::config::Name;

/// How many faults of one port are remembered: the latest.
const REMEMBERED: usize = 32;
/// Of how many ports that are not configured. Clients choose the names of ports that they make, so that these have to be bounded;
/// beyond that, the one is forgotten whose last fault is longest ago.
const MADE_MAX: usize = 64;
/// Lines that a port may have logged at once, and the time after which it may have one more.
const LINES: u32 = 8;
const LINE_EVERY: Duration = Duration::from_secs(5);
/// The same for all ports together that are not configured.
const MADE_LINES: u32 = 64;
const MADE_LINE_EVERY: Duration = Duration::from_millis(500);

/// Faults in a row after which the next client of a port has to wait, the first and the longest wait, and the time without a fault
/// that ends the row.
const PATIENT: u32 = 256;
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
const ROW_ENDS: Duration = Duration::from_secs(10);

/// A port, by switch and name.
pub type Key = (Name, Name);

/// What is remembered.
#[derive(Debug, Default)]
pub struct Faults {
    ports: BTreeMap<Key, OfPort>,
    /// Of all ports since the daemon started, also of those that are forgotten: by reason, and for a defect of Ringway its place.
    totals: BTreeMap<(&'static str, String), u64>,
    /// Of ports that are not configured.
    made_lines: Lines<MADE_LINES>,
}

#[derive(Debug, Default)]
struct OfPort {
    is_configured: bool,
    /// Latest first.
    latest: VecDeque<Record>,
    counts: BTreeMap<&'static str, u64>,
    /// Faults, each within [`ROW_ENDS`] of the one before.
    in_a_row: u32,
    lines: Lines<LINES>,
}

#[derive(Debug)]
struct Record {
    reason: &'static str,
    detail: String,
    at: Instant,
}

/// A port's share of the log, as a token bucket.
#[derive(Debug)]
struct Lines<const MOST: u32> {
    left: u32,
    since: Option<Instant>,
    /// What was not logged since the last line that was.
    withheld: u64,
}

impl<const MOST: u32> Default for Lines<MOST> {
    fn default() -> Self {
        Self { left: MOST, since: None, withheld: 0 }
    }
}

impl<const MOST: u32> Lines<MOST> {
    /// Whether there may be one more line; how many were withheld before it.
    fn take(&mut self, every: Duration, now: Instant) -> Option<u64> {
        let since = *self.since.get_or_insert(now);
        let more = now.saturating_duration_since(since).as_nanos() / every.as_nanos();
        if more > 0 {
            self.left = u32::try_from(more).unwrap_or(MOST).saturating_add(self.left).min(MOST);
            self.since = Some(now);
        }
        if self.left == 0 {
            self.withheld += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.withheld))
    }
}

impl Faults {
    /// What the API says of them, latest first.
    pub fn report(&self) -> Vec<types::Fault> {
        let one = |((switch, port), record): (&Key, &Record)| types::Fault {
            port: port.to_string(),
            switch: switch.to_string(),
            reason: record.reason.to_owned(),
            detail: record.detail.clone(),
            age: record.at.elapsed().as_secs_f64(),
        };
        let mut all: Vec<_> =
            self.ports.iter().flat_map(|(key, of)| of.latest.iter().map(move |record| (key, record))).collect();
        all.sort_by_key(|(_, record)| std::cmp::Reverse(record.at));
        all.into_iter().map(one).collect()
    }

    /// How often ports had which fault, by switch and name.
    pub fn counts(&self) -> BTreeMap<(String, String), BTreeMap<String, u64>> {
        let one = |((switch, port), of): (&Key, &OfPort)| {
            let counts = of.counts.iter().map(|(reason, count)| ((*reason).to_owned(), *count));
            ((switch.to_string(), port.to_string()), counts.collect())
        };
        self.ports.iter().map(one).collect()
    }

    /// How often there was which fault, since the daemon started.
    pub fn totals(&self) -> Vec<types::FaultCount> {
        let one = |((reason, place), count): (&(&'static str, String), &u64)| types::FaultCount {
            reason: (*reason).to_owned(),
            place: (!place.is_empty()).then(|| place.clone()),
            count: *count,
        };
        self.totals.iter().map(one).collect()
    }

    /// Remembers one that happened now. `place`: the line of Ringway's source, where it is a defect of Ringway.
    pub fn note(
        &mut self,
        key: &Key,
        is_configured: bool,
        reason: &'static str,
        detail: String,
        place: Option<String>,
    ) {
        *self.totals.entry((reason, place.unwrap_or_default())).or_default() += 1;
        let of = self.of(key, is_configured);
        let at = Instant::now();
        let is_next = of.latest.front().is_some_and(|last| at.saturating_duration_since(last.at) < ROW_ENDS);
        of.in_a_row = if is_next { of.in_a_row.saturating_add(1) } else { 1 };
        of.latest.truncate(REMEMBERED - 1);
        of.latest.push_front(Record { reason, detail, at });
        *of.counts.entry(reason).or_default() += 1;
    }

    /// How long the next client of a port has to wait, and after how many faults in a row.
    pub fn wait(&self, key: &Key, now: Instant) -> Option<(Duration, u32)> {
        let of = self.ports.get(key).filter(|of| of.in_a_row > PATIENT)?;
        let wait = (FIRST_WAIT * (1 << (of.in_a_row - PATIENT - 1).min(16))).min(LONGEST_WAIT);
        let left = wait.saturating_sub(now.saturating_duration_since(of.latest.front()?.at));
        (left > Duration::ZERO).then_some((left, of.in_a_row))
    }

    /// Whether a line about the port may be logged now; how many were not since the last.
    pub fn may_log(&mut self, key: &Key, is_configured: bool) -> Option<u64> {
        let now = Instant::now();
        let withheld = self.of(key, is_configured).lines.take(LINE_EVERY, now)?;
        if is_configured {
            return Some(withheld);
        }
        Some(withheld + self.made_lines.take(MADE_LINE_EVERY, now)?)
    }

    fn of(&mut self, key: &Key, is_configured: bool) -> &mut OfPort {
        if !self.ports.contains_key(key) && !is_configured {
            self.forget_one();
        }
        let of = self.ports.entry(key.clone()).or_default();
        of.is_configured = is_configured;
        of
    }

    /// Makes room for one more port that is not configured.
    fn forget_one(&mut self) {
        let made = || self.ports.iter().filter(|(_, of)| !of.is_configured);
        if made().count() < MADE_MAX {
            return;
        }
        let quietest = made().min_by_key(|(_, of)| of.latest.front().map(|record| record.at));
        if let Some(key) = quietest.map(|(key, _)| key.clone()) {
            self.ports.remove(&key);
        }
    }
}

impl Daemon {
    /// Takes away every port that has a fault. What a configured one had is tried again. Whether there was one.
    pub fn end_faulty(&mut self) -> bool {
        let faulty = self.switches.iter().flat_map(|(switch, s)| {
            s.ports().iter().filter_map(move |(name, live)| {
                Some(((switch.clone(), name.clone()), live.settings.kind(), live.port.fault()?))
            })
        });
        let faulty: Vec<_> = faulty.collect();
        let is_any = !faulty.is_empty();
        for (key, kind, fault) in faulty {
            let detail = fault.to_string();
            let line = self.line(&key, &format!(" ended: {detail}"));
            self.end_port(&key.0, &key.1, &detail);
            let place = match fault {
                PortFault::InternalError(defect) => {
                    if let Some(line) = line {
                        tracing::error!("{line}");
                    }
                    self.judge_defect(&key, kind, defect, &detail);
                    Some(
                        defect
                            .place
                            .file_and_line()
                            .map_or("unknown".to_owned(), |(file, line)| format!("{file}:{line}")),
                    )
                }
                _ => {
                    if let Some(line) = line {
                        tracing::warn!("{line}");
                    }
                    self.lose(&key.0, &key.1, detail.clone());
                    None
                }
            };
            self.note_fault(&key, fault.name(), detail, place);
        }
        is_any
    }

    /// Remembers a fault of a port.
    pub(super) fn note_fault(&mut self, key: &Key, reason: &'static str, detail: String, place: Option<String>) {
        let is_configured = self.is_configured(&key.0, &key.1);
        self.faults.note(key, is_configured, reason, detail, place);
    }

    /// What to log about a port, unless too much was: the text, with the number of lines that were withheld before it.
    pub(super) fn line(&mut self, key: &Key, text: &str) -> Option<String> {
        let is_configured = self.is_configured(&key.0, &key.1);
        let withheld = self.faults.may_log(key, is_configured)?;
        let (switch, port) = key;
        let more =
            if withheld > 0 { format!(" ({withheld} lines about such ports were left out)") } else { String::new() };
        Some(format!("port {switch}:{port}{text}{more}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(port: &str) -> Key {
        ("lan0".parse().unwrap(), port.parse().unwrap())
    }

    fn reasons(faults: &Faults, port: &str) -> Vec<String> {
        faults.report().into_iter().filter(|fault| fault.port == port).map(|fault| fault.detail).collect()
    }

    #[test]
    fn no_ports_noise_pushes_out_what_is_known_of_another() {
        let mut faults = Faults::default();
        faults.note(&key("quiet"), true, "memory_lost", "once".into(), None);
        faults.note(&key("guest"), false, "memory_lost", "once".into(), None);
        for number in 0..1000 {
            faults.note(&key("noisy"), true, "bad", number.to_string(), None);
            faults.note(&key("noisy-guest"), false, "bad", number.to_string(), None);
        }
        assert_eq!([reasons(&faults, "quiet"), reasons(&faults, "guest")], [["once"], ["once"]]);
        let latest: Vec<String> = (1000 - REMEMBERED..1000).rev().map(|number| number.to_string()).collect();
        assert_eq!([reasons(&faults, "noisy"), reasons(&faults, "noisy-guest")], [latest.clone(), latest]);
        assert_eq!(faults.counts()[&("lan0".into(), "noisy".into())], BTreeMap::from([("bad".to_owned(), 1000)]));
        // Clients may choose any number of names.
        for number in 0..1000 {
            faults.note(&key(&format!("made{number}")), false, "bad", String::new(), None);
        }
        assert_eq!(faults.ports.len(), 2 + MADE_MAX);
        assert_eq!(reasons(&faults, "quiet"), ["once"], "clients cannot push out a configured port");
        assert_eq!(faults.totals().iter().map(|total| total.count).sum::<u64>(), 3002);
    }

    #[test]
    fn the_next_client_waits_after_many_faults_in_a_row_and_those_of_other_ports_do_not() {
        let mut faults = Faults::default();
        let wait = |faults: &Faults, port: &str, later: Duration| {
            let last = faults.ports.get(&key(port)).and_then(|of| of.latest.front()).map(|last| last.at);
            faults.wait(&key(port), last.unwrap_or_else(Instant::now) + later).map(|(wait, _)| wait)
        };
        for _ in 0..PATIENT {
            assert_eq!(wait(&faults, "bad", Duration::ZERO), None);
            faults.note(&key("bad"), true, "bad", String::new(), None);
        }
        for times in [1, 2, 4, 8, 16, 32, 50, 50] {
            faults.note(&key("bad"), true, "bad", String::new(), None);
            assert_eq!(wait(&faults, "bad", Duration::ZERO), Some(times * FIRST_WAIT));
            assert_eq!(wait(&faults, "bad", times * FIRST_WAIT), None);
        }
        faults.note(&key("good"), true, "bad", String::new(), None);
        assert_eq!(wait(&faults, "good", Duration::ZERO), None);
    }

    #[test]
    fn a_flood_is_logged_now_and_then_and_others_are_logged_beside_it() {
        let mut faults = Faults::default();
        let logged =
            |faults: &mut Faults, port: &str| (0..1000).filter(|_| faults.may_log(&key(port), true).is_some()).count();
        assert_eq!(logged(&mut faults, "noisy"), LINES as usize);
        assert_eq!(logged(&mut faults, "other"), LINES as usize);
        let made = (0..1000).filter(|number| faults.may_log(&key(&format!("made{number}")), false).is_some()).count();
        assert!(made >= MADE_LINES as usize && made < 500, "{made}");
        let mut lines = Lines::<2>::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let every = Duration::from_secs(1);
        let taken = [0, 0, 0, 0, 1, 1, 9, 9, 9].map(|seconds| lines.take(every, at(seconds)));
        assert_eq!(taken, [Some(0), Some(0), None, None, Some(2), None, Some(1), Some(0), None]);
    }
}
