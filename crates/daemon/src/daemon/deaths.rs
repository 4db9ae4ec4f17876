//! Deaths of the switch, and the ports that are blamed for them.
//!
//! A death is blamed on the port that the dying thread served, if it read the memory and the messages of that port's client alone
//! ([`ringway_keeper::page`]). A port that is blamed twice within a minute is set aside, and so is the one that a switch was opening again
//! when it died before it served: nobody is served by it until an administrator enables it, or changes its settings. Where the dying thread
//! gave frames of one port to another, either client can be the cause, and neither port is set aside: a hostile client could have its
//! neighbours set aside. Both pause, as after a panic ([`defects`](super::defects)).
//!
//! What is known is with the keeper, as text: each switch adds the death of the one before.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use ringway_api::{patience, types};
use ringway_keeper::Link;
use ringway_runtime::serving::{Blame, Left};
use rustix::time::{ClockId, clock_gettime};

use super::defects::TWICE_WITHIN;

/// The name of the text.
const NAME: &str = "deaths";
/// Most deaths with blamed ports, and most ports that are set aside, that are remembered.
const REMEMBERED: usize = 256;
/// Pauses of two suspects: the first, the longest, and the time without a death after which the next one is the first again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);

/// A death.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Death {
    /// `signal 11`, `status 70`, `hang`, or `other`.
    pub(super) cause: String,
    /// The time of [`now`] when the successor started.
    pub(super) at: Duration,
    /// The blamed port, or those of which either can be the cause.
    pub(super) ports: Vec<String>,
    /// The port alone can be the cause.
    pub(super) is_certain: bool,
}

/// What is known of deaths since the keeper started.
#[derive(Debug, Default)]
pub struct Deaths {
    /// Numbers by cause.
    causes: BTreeMap<String, u64>,
    last: Option<Death>,
    /// Deaths with ports, the last ones.
    pub(super) blamed: Vec<Death>,
    /// Ports that are set aside, and why.
    pub(super) aside: BTreeMap<String, String>,
    /// The switch before this one has died.
    is_new: bool,
    /// The port that the switch before this one was opening is left out now.
    leaves_out: bool,
    /// The text that the keeper has.
    kept: String,
}

/// The time of a clock that all processes of this machine have.
pub(super) fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The cause in the words of metrics.
fn cause(end: &str) -> String {
    let is_known = end == "hang" || end.starts_with("signal ") || end.starts_with("status ");
    if is_known { end } else { "other" }.to_owned()
}

impl Deaths {
    /// What predecessors knew, and the death of the last one, if it died. The keeper has both when this returns. To be called before
    /// [`ringway_runtime::serving::begin`], which empties the page.
    #[must_use]
    pub fn of(keeper: &Link) -> Self {
        let text = keeper.inherit_bytes(NAME).unwrap_or_default();
        let mut deaths = Self::read(&String::from_utf8_lossy(&text));
        let Some(predecessor) = keeper.predecessor().filter(|predecessor| !predecessor.handed_over()) else {
            deaths.keep(keeper);
            return deaths;
        };
        let never_served = predecessor.failed > 0;
        let page = keeper.page().and_then(|page| page.try_clone_to_owned().ok());
        let left = page.and_then(|page| Left::read(&page).ok());
        let blame = left.map_or(Blame::Nobody, |left| left.blame(&predecessor.end, never_served));
        deaths.add(&predecessor.end, blame, never_served, now());
        deaths.keep(keeper);
        deaths
    }

    /// Adds a death, and sets a port aside that has caused enough.
    fn add(&mut self, end: &str, blame: Blame, never_served: bool, now: Duration) {
        let (ports, is_certain) = match blame {
            Blame::Nobody => (Vec::new(), false),
            Blame::Port(port) => (vec![port], true),
            Blame::Either(ports) => (ports, false),
        };
        let death = Death { cause: cause(end), at: now, ports, is_certain };
        *self.causes.entry(death.cause.clone()).or_default() += 1;
        self.is_new = true;
        self.last = Some(death.clone());
        let Some(port) = death.ports.first().cloned() else { return };
        self.blamed.push(death);
        let more = self.blamed.len().saturating_sub(REMEMBERED);
        self.blamed.drain(..more);
        let is_recent = |death: &&Death| now.saturating_sub(death.at) < patience(TWICE_WITHIN);
        let times = self.blamed.iter().filter(is_recent).filter(|death| death.is_certain && death.ports[0] == port);
        let is_twice = times.count() >= 2;
        if !is_certain || !is_twice && !never_served || self.aside.len() >= REMEMBERED {
            return;
        }
        self.leaves_out = never_served;
        let why = if never_served {
            format!("the switch died ({end}) while it opened the port again")
        } else {
            format!("the switch died twice within {TWICE_WITHIN:?} while it served the port, the last time of {end}")
        };
        self.aside.insert(port, why);
    }

    /// Returns true if the port is left out that the switch before this one was opening when it died: what else it left need not be given up.
    #[must_use]
    pub fn leave_out(&self) -> bool {
        self.leaves_out
    }

    /// Has the keeper hold what is known, if it does not.
    pub(super) fn keep(&mut self, keeper: &Link) {
        let text = self.text();
        if text == self.kept {
            return;
        }
        match keeper.keep_bytes(NAME, text.as_bytes()) {
            Ok(()) => self.kept = text,
            Err(why) => ringway_runtime::warn_limited(&format!("deaths of the switch would be forgotten: {why}")),
        }
    }

    /// A line for each cause, death and port, with tabs between words.
    fn text(&self) -> String {
        let mut text = String::new();
        for (cause, count) in &self.causes {
            let _ = writeln!(text, "cause\t{cause}\t{count}");
        }
        let unblamed = self.last.iter().filter(|last| last.ports.is_empty());
        for Death { cause, at, ports, is_certain } in self.blamed.iter().chain(unblamed) {
            let _ = writeln!(text, "death\t{cause}\t{}\t{is_certain}\t{}", at.as_nanos(), ports.join("\t"));
        }
        for (port, why) in &self.aside {
            let _ = writeln!(text, "aside\t{port}\t{why}");
        }
        text
    }

    /// Reads what can be understood: another switch wrote it.
    fn read(text: &str) -> Self {
        let mut deaths = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split('\t').collect();
            match words[..] {
                ["cause", cause, count] => {
                    deaths.causes.extend(count.parse().ok().map(|count| (cause.to_owned(), count)));
                }
                ["death", cause, at, is_certain, ref ports @ ..] => {
                    let (Ok(at), Ok(is_certain)) = (at.parse(), is_certain.parse()) else { continue };
                    let ports: Vec<_> =
                        ports.iter().filter(|port| !port.is_empty()).map(|port| (*port).to_owned()).collect();
                    let death = Death { cause: cause.to_owned(), at: Duration::from_nanos(at), ports, is_certain };
                    deaths.last = Some(death.clone());
                    if !death.ports.is_empty() && deaths.blamed.len() < REMEMBERED {
                        deaths.blamed.push(death);
                    }
                }
                ["aside", port, why] if deaths.aside.len() < REMEMBERED => {
                    deaths.aside.insert(port.to_owned(), why.to_owned());
                }
                _ => {}
            }
        }
        deaths
    }

    /// The death of the switch before this one, if it died.
    pub(super) fn news(&self) -> Option<&Death> {
        self.last.as_ref().filter(|_| self.is_new)
    }

    /// The deaths, for the API.
    pub(super) fn status(&self) -> types::Deaths {
        let last = self.last.as_ref().map(|death| types::Death {
            cause: death.cause.clone(),
            age: now().saturating_sub(death.at).as_secs_f64(),
            ports: death.ports.clone(),
            certain: death.is_certain,
        });
        types::Deaths { count: self.causes.values().sum(), causes: self.causes.clone(), last }
    }

    /// The ports that pause at this time, as the switch died of one of them at least twice: for how long, and how many of their pauses there were.
    pub(super) fn pauses(&self, now: Duration) -> BTreeMap<String, (Duration, u32)> {
        let mut pauses = BTreeMap::new();
        let uncertain = || self.blamed.iter().filter(|death| !death.is_certain);
        for port in uncertain().flat_map(|death| &death.ports) {
            let of_port: Vec<_> =
                uncertain().filter(|death| death.ports.contains(port)).map(|death| death.at).collect();
            let Some([before, last]) = of_port.last_chunk() else { continue };
            if last.saturating_sub(*before) >= patience(TWICE_WITHIN) {
                continue;
            }
            let in_a_row = of_port.iter().filter(|at| last.saturating_sub(**at) < FORGOTTEN_AFTER).count();
            let number = u32::try_from(in_a_row).unwrap_or(u32::MAX).saturating_sub(2);
            let pause = (FIRST_PAUSE * (1 << number.min(16))).min(LONGEST_PAUSE);
            let left = (*last + pause).saturating_sub(now);
            if left > Duration::ZERO {
                pauses.insert(port.clone(), (left, number + 1));
            }
        }
        pauses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str) -> Blame {
        Blame::Port(format!("lan0:{name}"))
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_port_is_set_aside_by_its_second_death_within_a_minute_and_never_by_one_that_another_may_have_caused() {
        let mut deaths = Deaths::default();
        let mut aside = |blame, at| {
            deaths.add("signal 11", blame, false, seconds(at));
            deaths.aside.keys().cloned().collect::<Vec<_>>()
        };
        assert!(aside(port("a"), 1000).is_empty() && aside(port("b"), 1001).is_empty());
        assert!(aside(port("a"), 1061).is_empty(), "a minute has passed");
        assert!(aside(Blame::Nobody, 1062).is_empty());
        assert_eq!(aside(port("a"), 1119), ["lan0:a"]);
        for at in 2000..2100 {
            let either = Blame::Either(vec!["lan0:b".to_owned(), "lan0:c".to_owned()]);
            assert_eq!(aside(either, at), ["lan0:a"]);
        }
    }

    #[test]
    fn a_start_that_dies_leaves_out_the_port_that_it_was_opening() {
        let mut deaths = Deaths::default();
        deaths.add("status 70", port("a"), true, seconds(1));
        assert!(deaths.leave_out());
        assert!(deaths.aside["lan0:a"].contains("(status 70) while it opened the port again"), "{deaths:?}");
        let mut deaths = Deaths::default();
        deaths.add("signal 11", Blame::Nobody, true, seconds(1));
        assert!(!deaths.leave_out() && deaths.aside.is_empty());
    }

    #[test]
    fn two_suspects_pause_from_the_second_death_on_and_longer_each_time() {
        let mut deaths = Deaths::default();
        let mut pauses = |at| {
            let either = Blame::Either(vec!["lan0:a".to_owned(), "lan0:b".to_owned()]);
            deaths.add("signal 11", either, false, seconds(at));
            let pauses = deaths.pauses(seconds(at));
            assert_eq!(pauses.get("lan0:a"), pauses.get("lan0:b"));
            pauses.get("lan0:a").copied()
        };
        let all: Vec<_> = (0..9).map(|time| pauses(1000 + time)).collect();
        let wanted = [0, 1, 2, 4, 8, 16, 32, 60, 60].iter().zip(0..);
        let wanted = wanted.map(|(pause, number)| (*pause > 0).then(|| (seconds(*pause), number)));
        assert_eq!(all, wanted.collect::<Vec<_>>());
        assert_eq!(pauses(5000), None, "the first again");
        assert_eq!(pauses(5030).map(|(pause, _)| pause), Some(seconds(1)));
    }

    #[test]
    fn what_was_written_is_read_and_what_was_forged_is_bounded() {
        let mut deaths = Deaths::default();
        deaths.add("signal 9", Blame::Nobody, false, seconds(3));
        deaths.add("hang", port("a"), true, seconds(4));
        deaths.add("it could not be started: x\ty", Blame::Nobody, false, Duration::from_nanos(5_000_000_001));
        let read = Deaths::read(&deaths.text());
        assert_eq!(read.text(), deaths.text());
        assert_eq!((&read.last, &read.blamed, &read.aside), (&deaths.last, &deaths.blamed, &deaths.aside));
        let causes = [("hang", 1), ("other", 1), ("signal 9", 1)].map(|(cause, count)| (cause.to_owned(), count));
        assert_eq!(read.causes, causes.into());
        let many: String = (0..10 * REMEMBERED).map(|n| format!("aside\tp{n}\tx\ndeath\tx\t1\ttrue\tp{n}\n")).collect();
        let read = Deaths::read(&format!("death\ncause\tx\ny\ndeath\tx\tx\tx\n{many}"));
        assert_eq!((read.aside.len(), read.blamed.len(), read.causes.len()), (REMEMBERED, REMEMBERED, 0));
    }
}
