//! Faults of ports: remembered, counted and logged. Each port has a record of its own, so that many faults of one port displace
//! nothing of another.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use ringway_api::types;
use ringway_config::keys::Name;

/// Most faults that are remembered of one port: the latest.
const REMEMBERED: usize = 32;
/// Most dynamic ports, and ports that were deleted, whose faults are remembered. Clients choose the names of dynamic ports, so their number needs a bound. One more
/// displaces the port whose last fault is longest ago.
const DYNAMIC_MAX: usize = 64;
/// The token bucket of a port's log lines: its size, and the time in which it gains one line.
const LINES: u32 = 8;
const LINE_EVERY: Duration = Duration::from_secs(5);
/// The token bucket of the log lines of all dynamic ports together.
const DYNAMIC_LINES: u32 = 64;
const DYNAMIC_LINE_EVERY: Duration = Duration::from_millis(500);

/// Backoff of attaching to a port: the number of faults in a row that are free, the first and the longest wait after more faults, and
/// the time without a fault that ends the row.
const FREE_FAULTS: u32 = 256;
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
const ROW_ENDS_AFTER: Duration = Duration::from_secs(10);

/// A port, by switch and name.
pub type Key = (Name, Name);

/// The faults of all ports.
#[derive(Debug, Default)]
pub struct Faults {
    ports: BTreeMap<Key, PortFaults>,
    /// Counts since the daemon started, of all ports, including those that are forgotten: by reason, and for a defect of Ringway by
    /// its place.
    totals: BTreeMap<(&'static str, String), u64>,
    dynamic_lines: LogLimit<DYNAMIC_LINES>,
}

/// The faults of one port.
#[derive(Debug, Default)]
struct PortFaults {
    is_configured: bool,
    /// Latest first.
    latest: VecDeque<Record>,
    counts: BTreeMap<&'static str, u64>,
    /// Faults, each within [`ROW_ENDS_AFTER`] of the one before.
    in_a_row: u32,
    lines: LogLimit<LINES>,
}

#[derive(Debug)]
struct Record {
    reason: &'static str,
    detail: String,
    at: Instant,
}

/// A token bucket of log lines.
#[derive(Debug)]
struct LogLimit<const MOST: u32> {
    left: u32,
    since: Option<Instant>,
    /// Lines that were withheld since the last logged one.
    withheld: u64,
}

impl<const MOST: u32> Default for LogLimit<MOST> {
    fn default() -> Self {
        Self { left: MOST, since: None, withheld: 0 }
    }
}

impl<const MOST: u32> LogLimit<MOST> {
    /// Takes one line from the bucket, which gains a line every `every`. Returns the number of lines that were withheld before it, or
    /// `None` if the bucket is empty.
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
    /// Returns the remembered faults for the API, latest first.
    pub fn report(&self) -> Vec<types::Fault> {
        let one = |((switch, port), record): (&Key, &Record)| types::Fault {
            port: port.to_string(),
            switch: switch.to_string(),
            reason: record.reason.to_owned(),
            detail: record.detail.clone(),
            age: record.at.elapsed().as_secs_f64(),
        };
        let mut all: Vec<_> =
            self.ports.iter().flat_map(|(key, faults)| faults.latest.iter().map(move |record| (key, record))).collect();
        all.sort_by_key(|(_, record)| std::cmp::Reverse(record.at));
        all.into_iter().map(one).collect()
    }

    /// Returns the number of faults of each port by reason. The key is switch and name.
    pub fn counts(&self) -> BTreeMap<(String, String), BTreeMap<String, u64>> {
        let one = |((switch, port), faults): (&Key, &PortFaults)| {
            let counts = faults.counts.iter().map(|(reason, count)| ((*reason).to_owned(), *count));
            ((switch.to_string(), port.to_string()), counts.collect())
        };
        self.ports.iter().map(one).collect()
    }

    /// Returns the number of faults since the daemon started, by reason.
    pub fn totals(&self) -> Vec<types::FaultCount> {
        let one = |((reason, place), count): (&(&'static str, String), &u64)| types::FaultCount {
            reason: (*reason).to_owned(),
            place: (!place.is_empty()).then(|| place.clone()),
            count: *count,
        };
        self.totals.iter().map(one).collect()
    }

    /// Remembers a fault that happened at `at`. `place`: the line of Ringway's source, for a defect of Ringway.
    pub fn note(
        &mut self,
        key: &Key,
        is_configured: bool,
        (reason, place): (&'static str, Option<String>),
        detail: String,
        at: Instant,
    ) {
        *self.totals.entry((reason, place.unwrap_or_default())).or_default() += 1;
        let port = self.of_port(key, is_configured);
        let is_next = port.latest.front().is_some_and(|last| at.saturating_duration_since(last.at) < ROW_ENDS_AFTER);
        port.in_a_row = if is_next { port.in_a_row.saturating_add(1) } else { 1 };
        port.latest.truncate(REMEMBERED - 1);
        port.latest.push_front(Record { reason, detail, at });
        *port.counts.entry(reason).or_default() += 1;
    }

    /// Returns how long the next client of a port has to wait, and the number of faults in a row, or `None` if it need not wait.
    pub fn wait(&self, key: &Key, now: Instant) -> Option<(Duration, u32)> {
        let port = self.ports.get(key).filter(|port| port.in_a_row > FREE_FAULTS)?;
        let wait = (FIRST_WAIT * (1 << (port.in_a_row - FREE_FAULTS - 1).min(16))).min(LONGEST_WAIT);
        let left = wait.saturating_sub(now.saturating_duration_since(port.latest.front()?.at));
        (left > Duration::ZERO).then_some((left, port.in_a_row))
    }

    /// Takes one log line about the port. Returns the number of lines withheld before it, or `None` if this line must
    /// be withheld.
    pub fn may_log(&mut self, key: &Key, is_configured: bool, now: Instant) -> Option<u64> {
        let withheld = self.of_port(key, is_configured).lines.take(LINE_EVERY, now)?;
        if is_configured {
            return Some(withheld);
        }
        Some(withheld + self.dynamic_lines.take(DYNAMIC_LINE_EVERY, now)?)
    }

    /// Returns the record of a port, a new one if there is none.
    fn of_port(&mut self, key: &Key, is_configured: bool) -> &mut PortFaults {
        if !self.ports.contains_key(key) && !is_configured {
            self.keep_dynamic(DYNAMIC_MAX - 1);
        }
        let port = self.ports.entry(key.clone()).or_default();
        port.is_configured = is_configured;
        port
    }

    /// Notes which ports are configured now. The faults of ports that were configured before count as those of dynamic ports.
    pub fn note_configured(&mut self, is_configured: impl Fn(&Key) -> bool) {
        for (key, port) in &mut self.ports {
            port.is_configured = is_configured(key);
        }
        self.keep_dynamic(DYNAMIC_MAX);
    }

    /// Forgets the dynamic ports whose last fault is longest ago, until no more than these are left.
    fn keep_dynamic(&mut self, most: usize) {
        let dynamic = self.ports.iter().filter(|(_, port)| !port.is_configured);
        let mut dynamic: Vec<_> =
            dynamic.map(|(key, port)| (port.latest.front().map(|record| record.at), key.clone())).collect();
        if dynamic.len() > most {
            dynamic.sort();
            dynamic[..dynamic.len() - most].iter().for_each(|(_, key)| _ = self.ports.remove(key));
        }
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
        let (mut faults, now) = (Faults::default(), Instant::now());
        faults.note(&key("quiet"), true, ("memory_lost", None), "once".into(), now);
        faults.note(&key("guest"), false, ("memory_lost", None), "once".into(), now);
        for number in 0..1000 {
            faults.note(&key("noisy"), true, ("bad", None), number.to_string(), now);
            faults.note(&key("noisy-guest"), false, ("bad", None), number.to_string(), now);
        }
        assert_eq!([reasons(&faults, "quiet"), reasons(&faults, "guest")], [["once"], ["once"]]);
        let latest: Vec<String> = (1000 - REMEMBERED..1000).rev().map(|number| number.to_string()).collect();
        assert_eq!([reasons(&faults, "noisy"), reasons(&faults, "noisy-guest")], [latest.clone(), latest]);
        assert_eq!(faults.counts()[&("lan0".into(), "noisy".into())], BTreeMap::from([("bad".to_owned(), 1000)]));
        // Clients may choose any number of names.
        for number in 0..1000 {
            faults.note(&key(&format!("dynamic{number}")), false, ("bad", None), String::new(), now);
        }
        assert_eq!(faults.ports.len(), 2 + DYNAMIC_MAX);
        assert_eq!(reasons(&faults, "quiet"), ["once"], "clients cannot push out a configured port");
        assert_eq!(faults.totals().iter().map(|total| total.count).sum::<u64>(), 3002);
        // An administrator makes and deletes any number of ports.
        for number in 0..1000 {
            faults.note(&key(&format!("deleted{number}")), true, ("bad", None), String::new(), now);
        }
        let is_left = |(_, port): &Key| ["quiet", "noisy"].contains(&port.as_str());
        faults.note_configured(is_left);
        assert_eq!(faults.ports.len(), 2 + DYNAMIC_MAX);
        assert_eq!(reasons(&faults, "quiet"), ["once"]);
    }

    #[test]
    fn the_next_client_waits_after_many_faults_in_a_row_and_those_of_other_ports_do_not() {
        let (mut faults, start) = (Faults::default(), Instant::now());
        let note =
            |faults: &mut Faults, port: &str, now| faults.note(&key(port), true, ("bad", None), String::new(), now);
        let wait = |faults: &Faults, port: &str, now| faults.wait(&key(port), now).map(|(wait, _)| wait);
        for _ in 0..FREE_FAULTS {
            assert_eq!(wait(&faults, "bad", start), None);
            note(&mut faults, "bad", start);
        }
        // Each within the time that ends the row.
        let mut now = start;
        for times in [1, 2, 4, 8, 16, 32, 50, 50] {
            now += ROW_ENDS_AFTER - Duration::from_nanos(1);
            note(&mut faults, "bad", now);
            assert_eq!(wait(&faults, "bad", now), Some(times * FIRST_WAIT));
            assert_eq!(wait(&faults, "bad", now + times * FIRST_WAIT), None);
        }
        note(&mut faults, "good", now);
        assert_eq!(wait(&faults, "good", now), None);
        note(&mut faults, "bad", now + ROW_ENDS_AFTER);
        assert_eq!(wait(&faults, "bad", now + ROW_ENDS_AFTER), None, "the row has ended");
    }

    #[test]
    fn a_flood_is_logged_now_and_then_and_others_are_logged_beside_it() {
        let (mut faults, start) = (Faults::default(), Instant::now());
        let logged = |faults: &mut Faults, port: &str| {
            (0..1000).filter(|_| faults.may_log(&key(port), true, start).is_some()).count()
        };
        assert_eq!(logged(&mut faults, "noisy"), LINES as usize);
        assert_eq!(logged(&mut faults, "other"), LINES as usize);
        let mut dynamic = |number: &i32| faults.may_log(&key(&format!("dynamic{number}")), false, start).is_some();
        assert_eq!((0..1000).filter(&mut dynamic).count(), DYNAMIC_LINES as usize);
        let mut lines = LogLimit::<2>::default();
        let at = |seconds| start + Duration::from_secs(seconds);
        let every = Duration::from_secs(1);
        let taken = [0, 0, 0, 0, 1, 1, 9, 9, 9].map(|seconds| lines.take(every, at(seconds)));
        assert_eq!(taken, [Some(0), Some(0), None, None, Some(2), None, Some(1), Some(0), None]);
    }
}
