//! What follows from the deaths of predecessors ([`deaths`](super::deaths)): ports are set aside, or pause.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ringway_config::Config;
use ringway_config::keys::Name;
use ringway_config::kinds::Kind;

use super::deaths::{Aside, Death, Deaths, key_of, label_of, now, port_of_end};
use super::defects::Defects;
use super::faults::Key;
use super::state::Daemon;

/// The name of a blamed death among the faults of a port.
const SWITCH_DIED: &str = "switch_died";

/// Who is blamed, for users.
fn blamed(ports: &[String], is_certain: bool) -> String {
    match ports {
        [] => "no port is blamed for it".to_owned(),
        [port] if is_certain => format!("it served port {port}"),
        [port] => format!("it gave frames to port {port}"),
        [port, others @ ..] => format!("it gave frames of port {port} to port {}", others.join(", ")),
    }
}

/// Where the ports of a row of the counts of dynamic ports are, for users.
pub(super) fn place_of(row: Option<&Name>) -> String {
    row.map_or_else(|| "switches that are not configured".to_owned(), |name| format!("switch {name}"))
}

/// Counts each death at the dynamic ports that can have caused it, once for all of a switch: clients can make ports, and pipes, under ever new
/// names. Returns the rows of the switches. `now`: by both clocks.
fn count_dynamic(
    defects: &mut Defects,
    deaths: &Deaths,
    config: &Config,
    now: (Duration, Instant),
) -> BTreeSet<Option<Name>> {
    let is_dynamic = |(switch, name): &Key| config.ports.get(name).is_none_or(|port| port.switch != *switch);
    let row = |label: &String| {
        let key = port_of_end(label).or_else(|| key_of(label).filter(is_dynamic));
        key.map(|(switch, _)| config.switches.contains_key(&switch).then_some(switch))
    };
    let mut all = BTreeSet::new();
    for (Death { at, ports, .. }, is_new) in deaths.blamed() {
        let Some(at) = now.1.checked_sub(now.0.saturating_sub(*at)) else { continue };
        for row in ports.iter().filter_map(row).collect::<BTreeSet<_>>() {
            if is_new {
                defects.count_dynamic_at_start(row.clone(), at);
            } else {
                defects.count_dynamic(row.clone(), at);
            }
            all.insert(row);
        }
    }
    all
}

impl Daemon {
    /// Does what follows from the deaths of predecessors, before any port is there.
    pub fn use_deaths(&mut self, deaths: Deaths) {
        self.deaths = deaths;
        let config = self.running.at_start();
        let is_configured = |(switch, name): &Key| config.ports.get(name).is_some_and(|port| port.switch == *switch);
        self.deaths.forget_some(|label| key_of(label).is_some_and(|key| is_configured(&key)));
        self.deaths.keep(&self.keeper);
        for (label, Aside { why, .. }) in &self.deaths.aside {
            let Some(key) = key_of(label) else { continue };
            tracing::error!("port {label} is set aside: {why}; to enable it: ringway port enable {label}");
            let kind =
                config.ports.get(&key.1).filter(|_| is_configured(&key)).map_or(Kind::Process, |port| port.kind());
            self.defects.set_aside(&key, kind, why.clone());
        }
        let (time, instant) = (now(), Instant::now());
        for (label, pauses) in self.deaths.pauses(time) {
            let Some(key) = key_of(label) else { continue };
            let why = "the switch died more than once while it gave frames to or from the port";
            tracing::warn!("port {label} pauses for {:?}: {why}", pauses.left(time).unwrap_or_default());
            let pauses = pauses.by(|until| instant + until.saturating_sub(time));
            self.defects.go_on_pausing(&key, why, pauses);
        }
        let rows = count_dynamic(&mut self.defects, &self.deaths, config, (time, instant));
        for row in rows {
            if let Some(pause) = self.defects.dynamic_pause(row.clone(), instant) {
                let place = place_of(row.as_ref());
                tracing::error!(
                    "clients make no further ports on {place} for {pause:?}: the switch died of such ports again and again"
                );
            }
        }
        let Some(Death { cause, ports, is_certain, .. }) = self.deaths.news().cloned() else { return };
        let text = format!("the switch died ({cause}) while {}", blamed(&ports, is_certain));
        if !ports.is_empty() {
            tracing::error!("{text}");
        }
        for key in ports.iter().filter_map(|label| key_of(label)) {
            self.note_fault(&key, SWITCH_DIED, text.clone(), None);
        }
    }

    /// The switch serves: pauses that are due begin.
    pub fn begin_pauses(&mut self) {
        self.deaths.start_pauses(now());
        self.defects.start_pauses(Instant::now());
        self.open_paused_later();
        self.deaths.keep(&self.keeper);
    }

    /// Forgets failures at a port, and deaths of the switch that it is blamed for. Returns true if it was disabled, set aside or paused.
    pub(super) fn forget_defects(&mut self, key: &Key) -> bool {
        let was_closed = self.defects.clear(key);
        self.deaths.forget(&label_of(key));
        self.deaths.keep(&self.keeper);
        was_closed
    }

    /// Returns true if this port of a client comes from a switch that died, and is not one of those that are blamed for it.
    pub(super) fn outlives_death_of_others(&self, key: &Key) -> bool {
        let is_blamed = |death: &Death| death.ports.contains(&label_of(key));
        self.is_taking_over && !self.deaths.news().is_some_and(is_blamed)
    }

    /// Opens these ports again, which were set aside and whose settings have changed.
    pub(super) fn put_back(&mut self, ports: Vec<(Name, Name)>) {
        let is_any = !ports.is_empty();
        for (switch, name) in ports {
            tracing::info!("port {switch}:{name} is no longer set aside: its settings have changed");
            if self.switches.get(&switch).is_none_or(|live| !live.ports().contains_key(&name)) {
                self.retry_after(&switch, &name, "it was set aside".to_owned(), Duration::ZERO);
            }
        }
        if is_any {
            self.reopen();
        }
    }
}

#[cfg(test)]
mod tests {
    use ringway_config::{Port, Switch};
    use ringway_runtime::serving::Blame;

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    /// Ends the switch at these ports, one after the other within a second. Returns the pauses of `lan0` and of switches that are not configured,
    /// in seconds.
    fn pauses_after(blames: &[Blame]) -> [Option<u64>; 2] {
        let mut config = Config::default();
        config.switches.insert(name("lan0"), Switch::default());
        config.ports.insert(name("configured"), Port::new(name("lan0"), Kind::Process, &name("configured")));
        let (mut deaths, mut defects) = (Deaths::default(), Defects::default());
        let now = (Duration::from_secs(1000), Instant::now());
        for (blame, ms) in blames.iter().zip(0..) {
            deaths.add("signal 6", blame.clone(), false, now.0 - Duration::from_secs(1) + Duration::from_millis(ms));
        }
        count_dynamic(&mut defects, &deaths, &config, now);
        let pause = |row| defects.dynamic_pause(row, now.1 + Duration::from_secs(500)).map(|left| left.as_secs());
        [Some(name("lan0")), None].map(pause)
    }

    fn either(labels: &[&str]) -> Blame {
        Blame::Either(labels.iter().map(|label| (*label).to_owned()).collect())
    }

    #[test]
    fn deaths_at_dynamic_ports_are_counted_whoever_else_can_have_caused_them_and_once_for_each_switch() {
        let certain = |label: &str| Blame::Port(label.to_owned());
        let all: Vec<_> = (0..5).map(|number| either(&["lan0:configured", &format!("lan0:n{number}")])).collect();
        assert_eq!(pauses_after(&all[..3]), [None, None]);
        assert_eq!(pauses_after(&all[..4]), [Some(1), None], "it is due");
        assert_eq!(pauses_after(&all), [Some(2), None]);
        let both: Vec<_> = (0..4).map(|number| either(&[&format!("lan0:n{number}"), "lan0:m"])).collect();
        assert_eq!([pauses_after(&both[..2]), pauses_after(&both)], [[None; 2], [Some(1), None]]);
        let mixed = [certain("lan0:n1"), either(&["lan0:n2"]), certain("lan0:n3"), either(&["lan9:x", "lan0:n4"])];
        assert_eq!(pauses_after(&mixed), [Some(1), None]);
        let elsewhere: Vec<_> = (0..4).map(|number| either(&[&format!("new{number}:p")])).collect();
        assert_eq!(pauses_after(&elsewhere), [None, Some(1)]);
        assert_eq!(pauses_after(&[const { Blame::Nobody }; 9]), [None, None]);
        let configured = [const { "lan0:configured" }; 9].map(|label| either(&[label]));
        assert_eq!(pauses_after(&configured), [None, None]);
    }

    #[test]
    fn deaths_at_ends_of_pipes_are_counted_at_their_switch_also_where_the_port_is_configured() {
        let ends: Vec<_> = (0..4).map(|id| Blame::Port(format!("lan0:configured{{{id}"))).collect();
        assert_eq!(pauses_after(&ends), [Some(1), None]);
        let ends: Vec<_> = (0..4).map(|id| either(&[&format!("lan0:p}}{id}"), &format!("lan0:p{{{id}")])).collect();
        assert_eq!([pauses_after(&ends[..2]), pauses_after(&ends)], [[None; 2], [Some(1), None]]);
    }
}
