//! Failures of Ringway itself (`internal_error`), by port. The port is closed; this module decides whether and when it is opened
//! again.
//!
//! The data path notes a role with each panic (`switch/src/defect.rs`), and the role decides what follows
//! (`Role::is_attributable`):
//! - Only the port's own client can have caused the failure: the port is opened again at once. At the second failure within a minute
//!   it is disabled until an administrator enables it.
//! - The sender or the receiver can have caused the failure, during delivery from one to the other: no port is disabled, because a
//!   hostile client could then disable its neighbours. Both ports pause, each further time for twice as long.
//!
//! A client that may make dynamic ports can use a new name each time. Ringway therefore also counts failures at dynamic ports for all such ports
//! of a switch together, also those that others can have caused: after repeated failures, clients make no further dynamic ports for a while.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ringway_api::patience;
use ringway_config::keys::Name;
use ringway_config::kinds::Kind;
use ringway_switch::Defect;

use super::backoff::Backoff;
use super::faults::Key;

/// A port is disabled by the second failure that its own client causes within this time.
pub(super) const TWICE_WITHIN: Duration = Duration::from_secs(60);
/// The number of failures within [`TWICE_WITHIN`] at the dynamic ports of a switch, after which no further ones are made for a while.
const DYNAMIC_MOST: usize = 4;
/// Most dynamic ports that are remembered.
const REMEMBERED: usize = 1024;

/// The failures by port, and what follows from them.
#[derive(Debug, Default)]
pub struct Defects {
    /// The last failure at each port that its own client caused.
    last: BTreeMap<Key, Instant>,
    disabled: BTreeMap<Key, Disabled>,
    paused: BTreeMap<Key, Paused>,
    /// Failures at dynamic ports, by switch. `None` stands for all switches that are not configured.
    dynamic: BTreeMap<Option<Name>, DynamicDefects>,
}

/// A port that an administrator has to enable.
#[derive(Debug)]
pub(super) struct Disabled {
    /// The switch died of it ([`deaths`](super::deaths)): it is set aside. Otherwise it has failed in this process.
    is_set_aside: bool,
    /// The failure, for users.
    pub(super) why: String,
    /// The kind of the port.
    pub(super) kind: Kind,
    at: Instant,
}

/// A port that is opened again after a pause.
#[derive(Debug)]
struct Paused {
    pauses: Backoff,
    /// The latest failure, for users.
    why: String,
}

/// Failures at the dynamic ports of one switch.
#[derive(Debug, Default)]
struct DynamicDefects {
    /// The times of the last [`DYNAMIC_MOST`] failures that their own clients can have caused.
    times: Vec<Instant>,
    pauses: Backoff,
}

/// The rest of a pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pause {
    /// The time until its end.
    pub(super) left: Duration,
    /// The latest failure, for users.
    pub(super) why: String,
}

/// The consequence of a failure for its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The port is opened again at once.
    Reopen,
    /// The port is opened again after this time.
    Pause(Duration),
    /// The port stays closed until an administrator enables it.
    Disable,
}

impl Disabled {
    /// The state of the port, for users.
    pub(super) fn state(&self) -> &'static str {
        if self.is_set_aside { "set aside" } else { "disabled" }
    }
}

impl Defects {
    /// Decides what follows from a failure at a port. `why` says what happened, for users.
    pub(super) fn judge(&mut self, key: &Key, defect: Defect, why: &str, now: Instant) -> Verdict {
        if !defect.role.is_attributable() {
            return Verdict::Pause(self.pause(key, why, now));
        }
        self.last.retain(|_, at| now.saturating_duration_since(*at) < patience(TWICE_WITHIN));
        forget_oldest(&mut self.last, |at| *at);
        match self.last.insert(key.clone(), now) {
            None => Verdict::Reopen,
            Some(_) => Verdict::Disable,
        }
    }

    /// Begins a pause of a port and returns its length.
    fn pause(&mut self, key: &Key, why: &str, now: Instant) -> Duration {
        self.paused.retain(|_, paused| !paused.pauses.is_reset(now));
        if !self.paused.contains_key(key) {
            forget_oldest(&mut self.paused, |paused| paused.pauses.last);
        }
        let paused =
            self.paused.entry(key.clone()).or_insert_with(|| Paused { pauses: Backoff::default(), why: String::new() });
        why.clone_into(&mut paused.why);
        paused.pauses.begin(now)
    }

    /// Returns the present pause of a port.
    pub(super) fn pause_of(&self, switch: &Name, port: &Name, now: Instant) -> Option<Pause> {
        let paused = self.paused.get(&(switch.clone(), port.clone()))?;
        Some(Pause { left: paused.pauses.left(now)?, why: paused.why.clone() })
    }

    /// Counts a failure that the client of a dynamic port can have caused. Returns the time for which no further dynamic ports are made, if
    /// there were too many failures.
    pub(super) fn count_dynamic(&mut self, switch: Option<Name>, now: Instant) -> Option<Duration> {
        self.counted_dynamic(switch, now).map(|pauses| pauses.begin(now))
    }

    /// The same of a failure that ended the process before: the pause is due.
    pub(super) fn count_dynamic_at_start(&mut self, switch: Option<Name>, at: Instant) {
        self.counted_dynamic(switch, at).into_iter().for_each(|pauses| pauses.prepare(at));
    }

    /// Counts a failure. Returns the switch's pauses, if another pause has to follow.
    fn counted_dynamic(&mut self, switch: Option<Name>, now: Instant) -> Option<&mut Backoff> {
        let recent = |at: &Instant| now.saturating_duration_since(*at) < patience(TWICE_WITHIN);
        self.dynamic.retain(|_, counted| counted.times.iter().any(recent) || !counted.pauses.is_reset(now));
        let counted = self.dynamic.entry(switch).or_default();
        counted.times.retain(recent);
        if counted.times.len() == DYNAMIC_MOST {
            counted.times.remove(0);
        }
        counted.times.push(now);
        (counted.times.len() == DYNAMIC_MOST || !counted.pauses.is_reset(now)).then_some(&mut counted.pauses)
    }

    /// Returns the time for which no further dynamic ports are made on a switch. `None` stands for all switches that are not
    /// configured.
    pub(super) fn dynamic_pause(&self, switch: Option<Name>, now: Instant) -> Option<Duration> {
        self.dynamic.get(&switch)?.pauses.left(now)
    }

    /// Sets a port aside, of which the switch has died.
    pub(super) fn set_aside(&mut self, key: &Key, kind: Kind, why: String) {
        self.disabled.insert(key.clone(), Disabled { is_set_aside: true, why, kind, at: Instant::now() });
    }

    /// Returns the ports that are set aside.
    pub(super) fn all_set_aside(&self) -> impl Iterator<Item = &Key> {
        self.disabled.iter().filter(|(_, disabled)| disabled.is_set_aside).map(|(key, _)| key)
    }

    /// Goes on with the pauses of a port that began before this process, or are due.
    pub(super) fn go_on_pausing(&mut self, key: &Key, why: &str, pauses: Backoff) {
        self.paused.insert(key.clone(), Paused { pauses, why: why.to_owned() });
    }

    /// Starts the pauses that are due.
    pub(super) fn start_pauses(&mut self, now: Instant) {
        self.paused.values_mut().for_each(|paused| paused.pauses.start(now));
        self.dynamic.values_mut().for_each(|counted| counted.pauses.start(now));
    }

    /// Disables a port.
    pub(super) fn disable(&mut self, key: &Key, kind: Kind, why: String, is_configured: impl Fn(&Key) -> bool) {
        let dynamic = || self.disabled.iter().filter(|(key, _)| !is_configured(key));
        if dynamic().count() >= REMEMBERED
            && let Some(oldest) = dynamic().min_by_key(|(_, disabled)| disabled.at).map(|(key, _)| key.clone())
        {
            self.disabled.remove(&oldest);
        }
        let disabled = Disabled { is_set_aside: false, why, kind, at: Instant::now() };
        self.disabled.insert(key.clone(), disabled);
    }

    /// Returns why a port is disabled, if it is.
    pub(super) fn disabled(&self, switch: &Name, port: &Name) -> Option<&Disabled> {
        self.disabled.get(&(switch.clone(), port.clone()))
    }

    /// Returns all disabled ports.
    pub(super) fn all_disabled(&self) -> impl Iterator<Item = (&Key, &Disabled)> {
        self.disabled.iter()
    }

    /// Forgets the failures at a port. Returns true if the port was disabled or paused.
    pub(super) fn clear(&mut self, key: &Key) -> bool {
        self.last.remove(key);
        let paused = self.paused.remove(key).is_some_and(|paused| paused.pauses.left(Instant::now()).is_some());
        self.disabled.remove(key).is_some() || paused
    }

    /// Takes note that a configured port is on another switch now. It stays disabled or paused.
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

/// Removes the oldest entry of a full map.
fn forget_oldest<T, At: Ord>(all: &mut BTreeMap<Key, T>, at: impl Fn(&T) -> At) {
    if all.len() >= REMEMBERED
        && let Some(oldest) = all.iter().min_by_key(|(_, one)| at(one)).map(|(key, _)| key.clone())
    {
        all.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use ringway_switch::{PanicLocation, Role};

    use super::super::backoff::FORGOTTEN_AFTER;
    use super::*;

    fn key(port: &str) -> Key {
        ("lan0".parse().unwrap(), port.parse().unwrap())
    }

    fn defect(role: Role) -> Defect {
        Defect { role, place: PanicLocation::UNKNOWN }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_port_is_disabled_by_its_own_clients_second_defect_within_a_minute_and_never_by_what_it_shares_with_others() {
        let mut defects = Defects::default();
        let start = Instant::now();
        let mut judge = |port, role, at| defects.judge(&key(port), defect(role), "", start + seconds(at));
        assert_eq!(judge("a", Role::Source, 0), Verdict::Reopen);
        assert_eq!(judge("b", Role::Source, 1), Verdict::Reopen, "another port's is no matter");
        assert_eq!(judge("a", Role::Thread, 59), Verdict::Disable);
        assert_eq!(judge("b", Role::Source, 61), Verdict::Reopen, "a minute has passed");
        assert_eq!(judge("b", Role::Source, 62), Verdict::Disable);
        for (port, role) in [("sender", Role::Sender), ("receiver", Role::Receiver)] {
            for (at, pause) in (70..).zip([1, 2, 4, 8, 16, 32, 60, 60]) {
                assert_eq!(judge(port, role, at), Verdict::Pause(seconds(pause)), "{port}");
            }
            assert_eq!(judge(port, Role::Source, 100), Verdict::Reopen, "what others had a part in does not count");
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
        assert!(defects.clear(&key) && !defects.clear(&key));
        assert_eq!(defects.pause(&key, "", now), seconds(1));
    }

    #[test]
    fn ports_under_ever_new_names_are_counted_together_by_switch() {
        let (mut defects, start) = (Defects::default(), Instant::now());
        let lan0: Option<Name> = Some("lan0".parse().unwrap());
        for at in [0, 10, 20] {
            assert_eq!(defects.count_dynamic(lan0.clone(), start + seconds(at)), None);
        }
        assert_eq!(defects.count_dynamic(None, start + seconds(30)), None, "other switches are counted by themselves");
        assert_eq!(
            defects.count_dynamic(lan0.clone(), start + seconds(61)),
            None,
            "a minute has passed since the first"
        );
        let mut now = start + seconds(62);
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(defects.count_dynamic(lan0.clone(), now), Some(seconds(pause)), "each further one");
            assert_eq!(defects.dynamic_pause(lan0.clone(), now), Some(seconds(pause)));
            assert_eq!(defects.dynamic_pause(None, now), None);
            now += seconds(pause);
            assert_eq!(defects.dynamic_pause(lan0.clone(), now), None);
        }
        assert_eq!(defects.count_dynamic(lan0, now + FORGOTTEN_AFTER), None, "forgotten");
        assert_eq!(defects.dynamic.len(), 1, "so are the others");
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
