//! Ports at which Ringway itself failed (`internal_error`): they are closed and opened again.
//!
//! The data path notes a role with each panic (`switch/src/defect.rs`), and the role decides what follows
//! (`Role::is_own_doing`):
//! - Only the port's own client can have caused the failure: a second time within a minute, the port stays disabled until an
//!   administrator enables it.
//! - The sender or the receiver can have caused the failure, while one was given the other's frames: no port is disabled,
//!   because a hostile client could then disable its neighbours. Both ports pause, each further time for twice as long.
//!
//! A client that may make ports can use a new name each time. Failures of such ports are therefore also counted for all of
//! them together, switch by switch: after repeated failures no further such ports are made for a while.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ringway_switch::Defect;

use super::faults::Key;
use super::{Daemon, PortRef, Refused};
use crate::config::{Kind, Name};

/// A port whose own client has Ringway fail a second time within this time is disabled.
const WITHIN: Duration = Duration::from_secs(60);
/// The same for all ports of a switch that are not configured: so many times, and no further ones are made for a while.
const MADE_MOST: usize = 4;
/// Most ports that are remembered, of those that clients made.
const REMEMBERED: usize = 1024;

/// The first pause and the longest, and the time after a pause in which there must be no further one for the next to be the
/// first again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);

/// What Ringway did when it failed, and for which port.
#[derive(Debug, Default)]
pub struct Defects {
    /// When Ringway failed last for which port by that port's own client.
    last: BTreeMap<Key, Instant>,
    disabled: BTreeMap<Key, Disabled>,
    paused: BTreeMap<Key, Paused>,
    /// Of ports that are not configured, by switch; none: of all switches that are not configured either.
    made: BTreeMap<Option<Name>, Made>,
}

/// A port that an administrator has to enable.
#[derive(Debug)]
pub(super) struct Disabled {
    /// For users.
    pub(super) why: String,
    /// What it connected.
    pub(super) kind: Kind,
    at: Instant,
}

/// A port that comes back by itself, or did.
#[derive(Debug)]
struct Paused {
    pauses: Pauses,
    /// For users.
    why: String,
}

/// Ports of one switch that are not configured.
#[derive(Debug, Default)]
struct Made {
    /// When their clients had Ringway fail, the last [`MADE_MOST`] times.
    strikes: Vec<Instant>,
    pauses: Pauses,
}

/// A pause that is not over yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pause {
    /// How long it lasts from now on.
    pub(super) left: Duration,
    /// The latest reason, for users.
    pub(super) why: String,
}

/// Pauses, each twice as long as the one before.
#[derive(Debug, Default)]
struct Pauses {
    count: u32,
    /// The end of the last one.
    until: Option<Instant>,
}

impl Pauses {
    /// Begins the next. How long it lasts.
    fn begin(&mut self, now: Instant) -> Duration {
        if self.are_forgotten(now) {
            self.count = 0;
        }
        let pause = (FIRST_PAUSE * (1 << self.count.min(16))).min(LONGEST_PAUSE);
        self.count = self.count.saturating_add(1);
        self.until = Some(now + pause);
        pause
    }

    fn left(&self, now: Instant) -> Option<Duration> {
        let left = self.until?.saturating_duration_since(now);
        (left > Duration::ZERO).then_some(left)
    }

    fn are_forgotten(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now.saturating_duration_since(until) >= FORGOTTEN_AFTER)
    }
}

/// What becomes of a port at which Ringway failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It is made anew at once.
    AtOnce,
    /// It is made anew after this time.
    After(Duration),
    /// It stays disabled.
    Never,
}

impl Defects {
    /// `why`: what happened, for users.
    fn judge(&mut self, key: &Key, defect: Defect, why: &str, now: Instant) -> Verdict {
        if !defect.role.is_own_doing() {
            return Verdict::After(self.pause(key, why, now));
        }
        self.last.retain(|_, at| now.saturating_duration_since(*at) < WITHIN);
        forget_oldest(&mut self.last, |at| Some(*at));
        match self.last.insert(key.clone(), now) {
            None => Verdict::AtOnce,
            Some(_) => Verdict::Never,
        }
    }

    fn pause(&mut self, key: &Key, why: &str, now: Instant) -> Duration {
        self.paused.retain(|_, paused| !paused.pauses.are_forgotten(now));
        if !self.paused.contains_key(key) {
            forget_oldest(&mut self.paused, |paused| paused.pauses.until);
        }
        let paused =
            self.paused.entry(key.clone()).or_insert_with(|| Paused { pauses: Pauses::default(), why: String::new() });
        why.clone_into(&mut paused.why);
        paused.pauses.begin(now)
    }

    /// The pause of a port, while it lasts.
    pub(super) fn pause_of(&self, switch: &Name, port: &Name, now: Instant) -> Option<Pause> {
        let paused = self.paused.get(&(switch.clone(), port.clone()))?;
        Some(Pause { left: paused.pauses.left(now)?, why: paused.why.clone() })
    }

    /// The client of a port that is not configured had Ringway fail. How long no further ones are made, where that goes too far.
    fn judge_made(&mut self, switch: Option<Name>, now: Instant) -> Option<Duration> {
        let recent = |at: &Instant| now.saturating_duration_since(*at) < WITHIN;
        self.made.retain(|_, made| made.strikes.iter().any(recent) || !made.pauses.are_forgotten(now));
        let made = self.made.entry(switch).or_default();
        made.strikes.retain(recent);
        if made.strikes.len() == MADE_MOST {
            made.strikes.remove(0);
        }
        made.strikes.push(now);
        (made.strikes.len() == MADE_MOST || !made.pauses.are_forgotten(now)).then(|| made.pauses.begin(now))
    }

    /// How long no further ports are made on a switch, or on those that are not configured.
    pub(super) fn pause_of_made(&self, switch: Option<Name>, now: Instant) -> Option<Duration> {
        self.made.get(&switch)?.pauses.left(now)
    }

    fn disable(&mut self, key: &Key, kind: Kind, why: String, is_configured: impl Fn(&Key) -> bool) {
        let made = || self.disabled.iter().filter(|(key, _)| !is_configured(key));
        if made().count() >= REMEMBERED
            && let Some(oldest) = made().min_by_key(|(_, disabled)| disabled.at).map(|(key, _)| key.clone())
        {
            self.disabled.remove(&oldest);
        }
        self.disabled.insert(key.clone(), Disabled { why, kind, at: Instant::now() });
    }

    /// Whether and why a port is disabled.
    pub(super) fn disabled(&self, switch: &Name, port: &Name) -> Option<&Disabled> {
        self.disabled.get(&(switch.clone(), port.clone()))
    }

    /// All that are disabled.
    pub(super) fn all_disabled(&self) -> impl Iterator<Item = (&Key, &Disabled)> {
        self.disabled.iter()
    }

    /// An administrator says otherwise. Whether it was disabled, or pauses.
    pub(super) fn forgive(&mut self, key: &Key) -> bool {
        self.last.remove(key);
        let paused = self.paused.remove(key).is_some_and(|paused| paused.pauses.left(Instant::now()).is_some());
        self.disabled.remove(key).is_some() || paused
    }

    /// A configured port is now on another switch: that alone does not enable it, nor end its pause.
    pub(super) fn moved(&mut self, from: Key, to: Key) {
        if from == to {
            return;
        }
        if let Some(disabled) = self.disabled.remove(&from) {
            self.disabled.insert(to.clone(), disabled);
        }
        if let Some(paused) = self.paused.remove(&from) {
            self.paused.insert(to, paused);
        }
    }
}

/// Makes room for one more.
fn forget_oldest<T>(all: &mut BTreeMap<Key, T>, at: impl Fn(&T) -> Option<Instant>) {
    if all.len() >= REMEMBERED
        && let Some(oldest) = all.iter().min_by_key(|(_, one)| at(one)).map(|(key, _)| key.clone())
    {
        all.remove(&oldest);
    }
}

impl Daemon {
    /// Ringway failed at this port, which is gone: decides whether it comes back. `text`: what happened.
    pub(super) fn judge_defect(&mut self, key: &Key, kind: Kind, defect: Defect, text: &str) {
        let (switch, port) = key;
        let now = Instant::now();
        if defect.role.is_own_doing() && !self.is_configured(switch, port) {
            self.judge_made(switch, now);
        }
        match self.defects.judge(key, defect, text, now) {
            Verdict::AtOnce => self.lose_for(switch, port, text.to_owned(), Duration::ZERO),
            Verdict::After(pause) => {
                if let Some(line) = self.line(key, &format!(" pauses for {pause:?}")) {
                    tracing::warn!("{line}");
                }
                self.lose_for(switch, port, text.to_owned(), pause);
            }
            Verdict::Never => {
                tracing::error!(
                    "port {switch}:{port} is disabled: Ringway failed twice within {WITHIN:?} when it served it; \
                     to enable it: ringway port enable {switch}:{port}"
                );
                let configured = &self.running.config.ports;
                let is_configured =
                    |(switch, port): &Key| configured.get(port).is_some_and(|port| port.switch == *switch);
                self.defects.disable(key, kind, text.to_owned(), is_configured);
                self.lost.remove(port);
            }
        }
    }

    /// Counts what ports do that are not configured, all of a switch together.
    fn judge_made(&mut self, switch: &Name, now: Instant) {
        let row = self.row_of_made(switch);
        let place = row.as_ref().map_or("switches that are not configured".to_owned(), |name| format!("switch {name}"));
        if let Some(pause) = self.defects.judge_made(row, now) {
            tracing::error!(
                "no further ports are made on {place} for {pause:?}: Ringway failed again and again when it served such ports"
            );
        }
    }

    /// Where the ports of this switch are counted that are not configured.
    pub(super) fn row_of_made(&self, switch: &Name) -> Option<Name> {
        self.running.config.switches.contains_key(switch).then(|| switch.clone())
    }

    /// Enables a port that was disabled because Ringway failed at it, or ends its pause.
    ///
    /// # Errors
    /// There is no such port.
    pub fn enable_port(&mut self, port: &PortRef) -> Result<Vec<String>, Refused> {
        let key = self.find(port)?;
        if !self.defects.forgive(&key) {
            return Ok(Vec::new());
        }
        let (switch, name) = &key;
        tracing::info!("port {switch}:{name} is enabled");
        let mut changes = vec![format!("enabled port {name}")];
        let settings = self.running.config.ports.get(name).filter(|port| port.switch == *switch);
        if settings.is_some_and(|port| port.kind() != Kind::Process) {
            self.lose_for(switch, name, "it was disabled, or paused".to_owned(), Duration::ZERO);
            self.reopen();
            if let Some(lost) = self.lost.get(name) {
                changes.push(format!("it is not there yet: {}; tried again every second", lost.why));
            }
        }
        Ok(changes)
    }
}

#[cfg(test)]
mod tests {
    use ringway_switch::{Place, Role};

    use super::*;

    fn key(port: &str) -> Key {
        ("lan0".parse().unwrap(), port.parse().unwrap())
    }

    fn defect(role: Role) -> Defect {
        Defect { role, place: Place::UNKNOWN }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_port_is_disabled_by_its_own_clients_second_defect_within_a_minute_and_never_by_what_it_shares_with_others() {
        let mut defects = Defects::default();
        let start = Instant::now();
        let mut judge = |port, role, at| defects.judge(&key(port), defect(role), "", start + seconds(at));
        assert_eq!(judge("a", Role::Source, 0), Verdict::AtOnce);
        assert_eq!(judge("b", Role::Source, 1), Verdict::AtOnce, "another port's is no matter");
        assert_eq!(judge("a", Role::Thread, 59), Verdict::Never);
        assert_eq!(judge("b", Role::Source, 61), Verdict::AtOnce, "a minute has passed");
        assert_eq!(judge("b", Role::Source, 62), Verdict::Never);
        for (port, role) in [("sender", Role::Sender), ("receiver", Role::Receiver)] {
            for (at, pause) in (70..).zip([1, 2, 4, 8, 16, 32, 60, 60]) {
                assert_eq!(judge(port, role, at), Verdict::After(seconds(pause)), "{port}");
            }
            assert_eq!(judge(port, Role::Source, 100), Verdict::AtOnce, "what others had a part in does not count");
        }
    }

    #[test]
    fn pauses_grow_while_they_follow_each_other_and_begin_anew_after_five_minutes_without() {
        let mut defects = Defects::default();
        let (mut now, key) = (Instant::now(), key("p"));
        // The next comes as soon as it may.
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(defects.pause(&key, "why", now), seconds(pause));
            let left = defects.pause_of(&key.0, &key.1, now).expect("a pause");
            assert_eq!(left, Pause { left: seconds(pause), why: "why".to_owned() });
            now += seconds(pause);
            assert_eq!(defects.pause_of(&key.0, &key.1, now), None, "it is over");
        }
        now += FORGOTTEN_AFTER - seconds(1);
        assert_eq!(defects.pause(&key, "", now), seconds(60));
        now += seconds(60) + FORGOTTEN_AFTER;
        assert_eq!(defects.pause(&key, "", now), seconds(1));
        // An administrator ends it, and its row.
        assert!(defects.forgive(&key) && !defects.forgive(&key));
        assert_eq!(defects.pause(&key, "", now), seconds(1));
    }

    #[test]
    fn ports_under_ever_new_names_are_counted_together_by_switch() {
        let (mut defects, start) = (Defects::default(), Instant::now());
        let lan0: Option<Name> = Some("lan0".parse().unwrap());
        for at in [0, 10, 20] {
            assert_eq!(defects.judge_made(lan0.clone(), start + seconds(at)), None);
        }
        assert_eq!(defects.judge_made(None, start + seconds(30)), None, "other switches are counted by themselves");
        assert_eq!(defects.judge_made(lan0.clone(), start + seconds(61)), None, "a minute has passed since the first");
        let mut now = start + seconds(62);
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(defects.judge_made(lan0.clone(), now), Some(seconds(pause)), "each further one");
            assert_eq!(defects.pause_of_made(lan0.clone(), now), Some(seconds(pause)));
            assert_eq!(defects.pause_of_made(None, now), None);
            now += seconds(pause);
            assert_eq!(defects.pause_of_made(lan0.clone(), now), None);
        }
        assert_eq!(defects.judge_made(lan0, now + FORGOTTEN_AFTER), None, "forgotten");
        assert_eq!(defects.made.len(), 1, "so are the others");
    }

    #[test]
    fn a_port_that_moves_to_another_switch_pauses_on() {
        let mut defects = Defects::default();
        let (from, to) = (key("p"), ("lan1".parse::<Name>().unwrap(), "p".parse::<Name>().unwrap()));
        defects.pause(&from, "", Instant::now());
        defects.moved(from.clone(), to.clone());
        let pauses = |(switch, port): &Key| defects.pause_of(switch, port, Instant::now()).is_some();
        assert_eq!([pauses(&from), pauses(&to)], [false, true]);
    }

    #[test]
    fn what_is_remembered_of_ports_that_clients_made_is_bounded() {
        let mut defects = Defects::default();
        let configured = key("configured");
        defects.disable(&configured, Kind::Tap, String::new(), |_| true);
        for number in 0..3 * REMEMBERED {
            let key = key(&format!("p{number}"));
            defects.judge(&key, defect(Role::Source), "", Instant::now());
            defects.judge(&key, defect(Role::Receiver), "", Instant::now());
            defects.disable(&key, Kind::Process, String::new(), |key| *key == configured);
        }
        let remembered = [defects.last.len(), defects.paused.len(), defects.disabled.len()];
        assert_eq!(remembered, [REMEMBERED, REMEMBERED, REMEMBERED + 1]);
        assert!(defects.disabled(&configured.0, &configured.1).is_some(), "clients cannot enable it");
    }
}
