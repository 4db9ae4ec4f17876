//! Deaths of the switch, and the ports that are blamed for them.
//!
//! A death is blamed on the port that the dying thread served, if it read the memory and the messages of that port's client alone
//! ([`ringway_keeper::page`]). A port that is blamed twice within a minute is set aside, and so is the one that a switch was opening again
//! when it died before it served: nobody is served by it until an administrator enables it, or changes its settings. Where the dying thread
//! gave frames of one port to another, either client can be the cause, and neither port is set aside: a hostile client could have its
//! neighbours set aside. Both pause from the second time on, as after a panic ([`defects`](super::defects)). A pause begins when the
//! successor serves, however long its start takes.
//!
//! What is known is with the keeper, as text: each switch adds the death of the one before. A client may have taken over the switch that
//! wrote the text, so nothing in it is longer, or more often there, than this module would write it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use ringway_api::{patience, types};
use ringway_keeper::Link;
use ringway_keeper::page::LABEL_MOST;
use ringway_runtime::serving::{Blame, Left};
use rustix::time::{ClockId, clock_gettime};

use super::backoff::{Backoff, LONGEST, Last};
use super::defects::TWICE_WITHIN;
use super::faults::Key;

/// The name of the text.
const NAME: &str = "deaths";
/// Most deaths with blamed ports, most ports that are set aside, and most that pause, that are remembered.
const REMEMBERED: usize = 256;
/// Most ports that a death is blamed on.
const SUSPECTS: usize = 2;
/// Most bytes of the reason for which a port is set aside.
const WHY_MOST: usize = 256;
/// In the text, the end of a pause that has still to begin.
const DUE: &str = "due";

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

/// Of a port that is set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Aside {
    /// The reason, for users: one line.
    pub(super) why: String,
    /// The time of [`now`] when it was set aside.
    at: Duration,
}

/// What is known of deaths since the keeper started.
#[derive(Debug, Default)]
pub struct Deaths {
    /// Numbers by cause.
    causes: BTreeMap<String, u64>,
    last: Option<Death>,
    /// Deaths with ports, the last ones.
    blamed: Vec<Death>,
    /// Ports that are set aside.
    pub(super) aside: BTreeMap<String, Aside>,
    /// The pauses of ports, where either of two ports can have ended the switch.
    pauses: BTreeMap<String, Backoff<Duration>>,
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

/// The label of a port.
pub(super) fn label_of((switch, port): &Key) -> String {
    format!("{switch}:{port}")
}

/// The switch and the name in the label of a port; none of an end of a pipe.
pub(super) fn key_of(label: &str) -> Option<Key> {
    let (switch, port) = label.split_once(':')?;
    Some((switch.parse().ok()?, port.parse().ok()?))
}

/// The port in the label of an end of a pipe: `SWITCH:PORT{ID` or `SWITCH:PORT}ID`.
pub(super) fn port_of_end(label: &str) -> Option<Key> {
    key_of(&label[..label.find(['{', '}'])?])
}

fn is_label(label: &str) -> bool {
    let is_of_port = || key_of(label).is_some() || port_of_end(label).is_some();
    label.len() <= LABEL_MOST && !label.contains(char::is_control) && is_of_port()
}

/// The cause in the words of metrics.
fn cause(end: &str) -> String {
    let is_numbered = |word: &str, numbers: std::ops::RangeInclusive<u8>| {
        let number = end.strip_prefix(word).and_then(|number| number.parse().ok());
        number.is_some_and(|number| numbers.contains(&number) && end == format!("{word}{number}"))
    };
    let is_known = end == "hang" || is_numbered("signal ", 1..=64) || is_numbered("status ", 0..=u8::MAX);
    if is_known { end } else { "other" }.to_owned()
}

/// One line of at most [`WHY_MOST`] bytes.
fn line_of(text: &str) -> String {
    let mut line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    line.truncate(line.floor_char_boundary(WHY_MOST));
    line
}

impl Deaths {
    /// What predecessors knew, and the death of the last one, if it died. The keeper has both when this returns. To be called before
    /// [`ringway_runtime::serving::begin`], which empties the page.
    #[must_use]
    pub fn of(keeper: &Link) -> Self {
        let text = keeper.inherit_bytes(NAME).unwrap_or_default();
        let mut deaths = Self::read(&String::from_utf8_lossy(&text), now());
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

    /// Adds a death, and what follows from it for the ports.
    pub(super) fn add(&mut self, end: &str, blame: Blame, never_served: bool, now: Duration) {
        let (ports, is_certain) = match blame {
            Blame::Nobody => (Vec::new(), false),
            Blame::Port(port) => (vec![port], true),
            Blame::Either(ports) => (ports, false),
        };
        let death = Death { cause: cause(end), at: now, ports, is_certain };
        let count = self.causes.entry(death.cause.clone()).or_default();
        *count = count.saturating_add(1);
        self.is_new = true;
        self.last = Some(death.clone());
        let ports = death.ports.clone();
        if ports.is_empty() {
            return;
        }
        self.blamed.push(death);
        let more = self.blamed.len().saturating_sub(REMEMBERED);
        self.blamed.drain(..more);
        // An end of a pipe is gone with the switch, and the next one may have any other name.
        for port in ports.into_iter().filter(|port| key_of(port).is_some()) {
            let is_twice = self.has_died_of(&port, is_certain, now) >= 2;
            if !is_certain {
                self.pause_again(&port, is_twice, now);
            } else if is_twice || never_served {
                self.leaves_out = never_served;
                let why = if never_served {
                    format!("the switch died ({end}) while it opened the port again")
                } else {
                    format!(
                        "the switch died twice within {TWICE_WITHIN:?} while it served the port, the last time of {end}"
                    )
                };
                self.aside.insert(port, Aside { why: line_of(&why), at: now });
            }
        }
    }

    /// How often the switch has died of the port lately.
    fn has_died_of(&self, port: &str, is_certain: bool, now: Duration) -> usize {
        let is_recent = |death: &&Death| now.saturating_sub(death.at) < patience(TWICE_WITHIN);
        let is_of_port = |death: &&Death| death.is_certain == is_certain && death.ports.iter().any(|of| of == port);
        self.blamed.iter().filter(is_recent).filter(is_of_port).count()
    }

    /// The next pause of a port is due, if the switch has died of it twice or if there were pauses lately.
    fn pause_again(&mut self, port: &str, is_twice: bool, now: Duration) {
        self.pauses.retain(|_, pauses| !pauses.is_reset(now));
        if !is_twice && !self.pauses.contains_key(port) {
            return;
        }
        self.pauses.entry(port.to_owned()).or_default().prepare(now);
        if self.pauses.len() > REMEMBERED
            && let Some(oldest) = self.pauses.iter().min_by_key(|(_, pauses)| pauses.last).map(|(port, _)| port.clone())
        {
            self.pauses.remove(&oldest);
        }
    }

    /// Returns true if the port is left out that the switch before this one was opening when it died: what else it left need not be given up.
    #[must_use]
    pub fn leave_out(&self) -> bool {
        self.leaves_out
    }

    /// Forgets the oldest ports that are set aside, if they are too many: first those that are not configured, whose names clients choose.
    pub(super) fn forget_some(&mut self, is_configured: impl Fn(&str) -> bool) {
        while self.aside.len() > REMEMBERED
            && let Some(oldest) = self.aside.iter().min_by_key(|(port, aside)| (is_configured(port), aside.at))
        {
            let oldest = oldest.0.clone();
            self.aside.remove(&oldest);
        }
    }

    /// Forgets which deaths a port is blamed for.
    pub(super) fn forget(&mut self, port: &str) {
        self.blamed.retain_mut(|death| {
            death.ports.retain(|of| of != port);
            !death.ports.is_empty()
        });
        self.aside.remove(port);
        self.pauses.remove(port);
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
        let deaths = self.blamed.iter().map(|death| ("death", death));
        for (word, Death { cause, at, ports, is_certain }) in deaths.chain(self.last.iter().map(|last| ("last", last)))
        {
            let _ = writeln!(text, "{word}\t{cause}\t{}\t{is_certain}\t{}", at.as_nanos(), ports.join("\t"));
        }
        for (port, Aside { why, at }) in &self.aside {
            let _ = writeln!(text, "aside\t{port}\t{why}\t{}", at.as_nanos());
        }
        for (port, pauses) in &self.pauses {
            let until = match pauses.last {
                Last::Never => continue,
                Last::Until(until) => until.as_nanos().to_string(),
                Last::Due => DUE.to_owned(),
            };
            let _ = writeln!(text, "pause\t{port}\t{}\t{until}", pauses.count);
        }
        text
    }

    /// Reads what can be understood.
    fn read(text: &str, now: Duration) -> Self {
        let time = |nanoseconds: &str| Some(Duration::from_nanos(nanoseconds.parse().ok()?));
        let past = |nanoseconds: &str| time(nanoseconds).filter(|at| *at <= now);
        let mut deaths = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.splitn(8, '\t').collect();
            match words[..] {
                ["cause", of, count] if cause(of) == of => {
                    deaths.causes.extend(count.parse().ok().map(|count| (of.to_owned(), count)));
                }
                [word @ ("death" | "last"), of, at, is_certain, ref ports @ ..] => {
                    let (Some(at), Ok(is_certain)) = (past(at), is_certain.parse::<bool>()) else { continue };
                    let ports = ports.iter().filter(|port| is_label(port)).take(SUSPECTS);
                    let ports: Vec<_> = ports.map(|port| (*port).to_owned()).collect();
                    let is_certain = is_certain && ports.len() == 1;
                    let death = Death { cause: cause(of), at, ports, is_certain };
                    // An earlier version had no line for the last one.
                    deaths.last = Some(death.clone());
                    if word == "death" && !death.ports.is_empty() && deaths.blamed.len() < REMEMBERED {
                        deaths.blamed.push(death);
                    }
                }
                // One more may have come just before the end of the one that wrote it.
                ["aside", port, why, ref at @ ..] if deaths.aside.len() <= REMEMBERED => {
                    let at = at.first().and_then(|at| past(at)).unwrap_or_default();
                    if is_label(port) && key_of(port).is_some() {
                        deaths.aside.insert(port.to_owned(), Aside { why: line_of(why), at });
                    }
                }
                ["pause", port, count, until] if deaths.pauses.len() < REMEMBERED => {
                    let last = match until {
                        DUE => Some(Last::Due),
                        until => time(until).filter(|until| *until <= now + LONGEST).map(Last::Until),
                    };
                    let (Ok(count), Some(last)) = (count.parse(), last) else { continue };
                    if is_label(port) && key_of(port).is_some() {
                        deaths.pauses.insert(port.to_owned(), Backoff { count, last });
                    }
                }
                _ => {}
            }
        }
        deaths
    }

    /// The deaths with ports, and of each whether the switch before this one died it.
    pub(super) fn blamed(&self) -> impl Iterator<Item = (&Death, bool)> {
        self.blamed.iter().map(|death| (death, self.news() == Some(death)))
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
        let count = self.causes.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
        types::Deaths { count, causes: self.causes.clone(), last }
    }

    /// The ports that pause at this time, and their pauses.
    pub(super) fn pauses(&self, now: Duration) -> impl Iterator<Item = (&str, Backoff<Duration>)> {
        let present = self.pauses.iter().filter(move |(_, pauses)| pauses.left(now).is_some());
        present.map(|(port, pauses)| (&**port, *pauses))
    }

    /// Starts the pauses that are due.
    pub(super) fn start_pauses(&mut self, now: Duration) {
        self.pauses.values_mut().for_each(|pauses| pauses.start(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str) -> Blame {
        Blame::Port(format!("lan0:{name}"))
    }

    fn either(names: &[&str]) -> Blame {
        Blame::Either(names.iter().map(|name| format!("lan0:{name}")).collect())
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    const HOUR: Duration = Duration::from_secs(3600);

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
            assert_eq!(aside(either(&["b", "c"]), at), ["lan0:a"]);
        }
    }

    #[test]
    fn a_start_that_dies_leaves_out_the_port_that_it_was_opening() {
        let mut deaths = Deaths::default();
        deaths.add("status 70", port("a"), true, seconds(1));
        assert!(deaths.leave_out());
        assert!(deaths.aside["lan0:a"].why.contains("(status 70) while it opened the port again"), "{deaths:?}");
        for blame in [Blame::Nobody, either(&["a", "b"]), port("a{1")] {
            let mut deaths = Deaths::default();
            deaths.add("signal 11", blame, true, seconds(1));
            assert!(!deaths.leave_out() && deaths.aside.is_empty());
        }
    }

    #[test]
    fn ports_that_are_set_aside_are_bounded_and_those_whose_names_clients_choose_give_way_first() {
        let mut deaths = Deaths::default();
        let is_configured = |label: &str| label == "lan0:configured";
        deaths.add("hang", port("configured"), true, seconds(1));
        for number in 0..2 * REMEMBERED as u64 {
            // Each switch reads what the one before has written.
            deaths = Deaths::read(&deaths.text(), HOUR);
            deaths.add("hang", port(&format!("p{number}")), true, seconds(2 + number));
            assert!(deaths.leave_out(), "{number}");
            deaths.forget_some(is_configured);
            assert!(deaths.aside.contains_key(&format!("lan0:p{number}")), "the newest");
        }
        assert_eq!(deaths.aside.len(), REMEMBERED);
        assert!(deaths.aside.contains_key("lan0:configured"));
        assert!(!deaths.aside.contains_key("lan0:p256"), "the oldest that clients chose");
    }

    #[test]
    fn ends_of_pipes_take_no_place_of_ports_and_do_not_pause() {
        let mut deaths = Deaths::default();
        for id in 0..10 {
            for at in 0..2 {
                deaths.add("signal 6", port(&format!("p{{{id}")), false, seconds(at));
                deaths.add("signal 6", either(&[&format!("p}}{id}")]), false, seconds(at));
            }
        }
        assert!(deaths.aside.is_empty() && deaths.pauses.is_empty() && deaths.blamed.len() == 40, "{deaths:?}");
        let name = |text: &str| text.parse().expect("a name");
        assert_eq!(port_of_end("lan0:p}1"), Some((name("lan0"), name("p"))));
        assert_eq!([port_of_end("lan0:p"), port_of_end("lan0:{1"), key_of("lan0:p{1")], [None, None, None]);
    }

    #[test]
    fn two_suspects_pause_from_the_second_death_on_and_longer_each_time() {
        let (mut deaths, mut now) = (Deaths::default(), seconds(1000));
        // A switch dies so long after the last pause. The start of its successor takes half a minute.
        let mut pauses = |later: u64| {
            now += seconds(later);
            deaths = Deaths::read(&deaths.text(), now);
            deaths.add("signal 11", either(&["a", "b"]), false, now);
            now += seconds(30);
            assert!(deaths.pauses(now).all(|(_, pauses)| pauses.last == Last::Due), "it has not begun");
            deaths.start_pauses(now);
            let left: Vec<_> = deaths.pauses(now).map(|(_, pauses)| pauses.left(now)).collect();
            assert!(left.is_empty() || left.len() == 2 && left[0] == left[1], "{left:?}");
            let left = left.first().copied().flatten();
            now += left.unwrap_or_default();
            assert_eq!(deaths.pauses(now).count(), 0, "it is over");
            left.map(|left| left.as_secs())
        };
        assert_eq!(pauses(0), None);
        let all: Vec<_> = (0..8).map(|_| pauses(0)).collect();
        assert_eq!(all, [1, 2, 4, 8, 16, 32, 60, 60].map(Some));
        assert_eq!(pauses(299), Some(60), "not forgotten since the last pause ended");
        assert_eq!([pauses(300), pauses(29), pauses(30)], [None, Some(1), Some(2)], "the first again");
    }

    #[test]
    fn what_a_port_is_blamed_for_is_forgotten_for_that_port_alone() {
        let mut deaths = Deaths::default();
        for at in [1, 2] {
            deaths.add("signal 6", port("a"), false, seconds(at));
            deaths.add("signal 6", either(&["a", "b"]), false, seconds(at));
        }
        let last = deaths.last.clone();
        deaths.forget("lan0:a");
        deaths = Deaths::read(&deaths.text(), HOUR);
        assert_eq!(deaths.last, last, "what is reported stays");
        let labels = |deaths: &Deaths| deaths.pauses(seconds(2)).map(|(port, _)| port.to_owned()).collect::<Vec<_>>();
        assert_eq!((deaths.aside.len(), labels(&deaths)), (0, vec!["lan0:b".to_owned()]));
        deaths.add("signal 6", port("a"), false, seconds(3));
        deaths.add("signal 6", either(&["a"]), false, seconds(3));
        assert_eq!((deaths.aside.len(), labels(&deaths)), (0, vec!["lan0:b".to_owned()]), "the first time since then");
    }

    #[test]
    fn what_was_written_is_read() {
        let mut deaths = Deaths::default();
        deaths.add("signal 9", Blame::Nobody, false, seconds(3));
        deaths.add("hang", port("a"), true, seconds(4));
        for at in [5, 6] {
            deaths.add("signal 11", either(&["a", "b{1"]), false, seconds(at));
        }
        deaths.start_pauses(seconds(7));
        deaths.add("signal 11", either(&["b"]), false, seconds(8));
        deaths.add("signal 11", either(&["b"]), false, seconds(8));
        deaths.add("it could not be started: x\ty\nz", port("c"), true, Duration::from_nanos(9_000_000_001));
        let read = Deaths::read(&deaths.text(), HOUR);
        assert_eq!(read.text(), deaths.text());
        assert_eq!((&read.last, &read.blamed), (&deaths.last, &deaths.blamed));
        assert_eq!((&read.aside, &read.pauses), (&deaths.aside, &deaths.pauses));
        assert_eq!((read.aside.len(), read.pauses.len()), (2, 2));
        let causes = [("hang", 1), ("other", 1), ("signal 11", 4), ("signal 9", 1)];
        assert_eq!(read.causes, causes.map(|(cause, count)| (cause.to_owned(), count)).into());
        deaths.add("signal 9", Blame::Nobody, false, seconds(10));
        assert_eq!(Deaths::read(&deaths.text(), HOUR).last, deaths.last, "one that nobody is blamed for");
    }

    #[test]
    fn what_an_earlier_version_wrote_is_read() {
        let text =
            "cause\tsignal 9\t2\ndeath\tsignal 11\t5\ttrue\tlan0:a\ndeath\tsignal 9\t7\tfalse\t\naside\tlan0:a\twhy\n";
        let read = Deaths::read(text, HOUR);
        assert_eq!((read.blamed.len(), read.status().count), (1, 2));
        assert_eq!(read.aside["lan0:a"].why, "why");
        let last = read.last.expect("a death");
        assert_eq!((&*last.cause, last.at, last.ports.len()), ("signal 9", Duration::from_nanos(7), 0));
    }

    #[test]
    fn what_was_forged_is_bounded() {
        let long = "x".repeat(1 << 20);
        let mut text = format!("death\ncause\tx\ny\ndeath\tx\tx\tx\ncause\t{long}\t1\naside\tlan0:a\t{long}\n");
        for signal in -1000..100_000 {
            let _ = writeln!(text, "cause\tsignal {signal}\t{}\ncause\tstatus {signal}\t1", u64::MAX);
        }
        let _ = writeln!(text, "last\t{long}\t1\ttrue\tlan0:{long}\tlan0:b\tlan0:c{{1\tlan0:d\tlan0:e");
        for n in 0..10 * REMEMBERED {
            let _ = writeln!(
                text,
                "aside\tlan0:p{n}\tx\ndeath\thang\t1\ttrue\tlan0:p{n}\npause\tlan0:p{n}\t{}\tdue",
                u32::MAX
            );
        }
        let mut deaths = Deaths::read(&text, HOUR);
        assert_eq!((deaths.aside.len(), deaths.blamed.len()), (REMEMBERED + 1, REMEMBERED));
        assert_eq!((deaths.pauses.len(), deaths.causes.len()), (REMEMBERED, 64 + 256));
        assert_eq!(deaths.aside["lan0:a"].why.len(), WHY_MOST);
        deaths.add("signal 11", either(&["p1"]), false, HOUR);
        assert_eq!((deaths.status().count, deaths.causes["signal 11"]), (u64::MAX, u64::MAX));
        deaths.start_pauses(HOUR);
        assert!(deaths.pauses(HOUR + LONGEST).next().is_none());
        let last = |text: &str| Deaths::read(text, HOUR).last;
        let two = last("last\thang\t1\ttrue\tlan0:b\tlan0:c{1\tlan0:d\tlan0:e").expect("a death");
        assert_eq!((&*two.ports, two.is_certain), (&["lan0:b".to_owned(), "lan0:c{1".to_owned()][..], false));
        let long = last(&format!("last\t{long}\t1\ttrue\tlan0:{long}\tb\tlan0:p{{{long}")).expect("a death");
        assert_eq!((&*long.cause, long.ports.len()), ("other", 0));
        // Of the future.
        let later = HOUR.as_nanos() + 1;
        assert_eq!(last(&format!("last\thang\t{later}\ttrue\tlan0:b")), None);
        let until = (HOUR + LONGEST).as_nanos() + 1;
        assert!(Deaths::read(&format!("pause\tlan0:b\t1\t{until}"), HOUR).pauses.is_empty());
    }
}
