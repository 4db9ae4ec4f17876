//! What follows from the deaths of predecessors ([`deaths`](super::deaths)): ports are set aside, or pause.

use std::time::{Duration, Instant};

use ringway_config::keys::Name;
use ringway_config::kinds::Kind;

use super::deaths::{Death, Deaths, now};
use super::faults::Key;
use super::state::Daemon;

/// The name of a blamed death among the faults of a port.
const SWITCH_DIED: &str = "switch_died";

/// The switch and the name in a label, if they can be some.
fn key_of(label: &str) -> Option<Key> {
    let (switch, port) = label.split_once(':')?;
    Some((switch.parse().ok()?, port.parse().ok()?))
}

/// Who is blamed, for users.
fn blamed(ports: &[String], is_certain: bool) -> String {
    match ports {
        [] => "no port is blamed for it".to_owned(),
        [port] if is_certain => format!("it served port {port}"),
        [port] => format!("it gave frames to port {port}"),
        [port, others @ ..] => format!("it gave frames of port {port} to port {}", others.join(", ")),
    }
}

impl Daemon {
    /// Does what follows from the deaths of predecessors, before any port is there.
    pub fn use_deaths(&mut self, deaths: Deaths) {
        self.deaths = deaths;
        let aside: Vec<_> = self.deaths.aside.clone().into_iter().collect();
        for (label, why) in aside {
            let Some(key) = key_of(&label) else { continue };
            tracing::error!("port {label} is set aside: {why}; to enable it: ringway port enable {label}");
            let configured = self.running.at_start().ports.get(&key.1).filter(|port| port.switch == key.0);
            let kind = configured.map_or(Kind::Process, |port| port.kind());
            self.defects.set_aside(&key, kind, why);
        }
        let (time, instant) = (now(), Instant::now());
        for (label, (left, number)) in self.deaths.pauses(time) {
            let Some(key) = key_of(&label) else { continue };
            let why = "the switch died more than once while it gave frames to or from the port";
            tracing::warn!("port {label} pauses for {left:?}: {why}");
            self.defects.go_on_pausing(&key, why, number, instant + left);
        }
        // Clients can make ports under ever new names.
        let config = self.running.at_start();
        for Death { at, ports, .. } in self.deaths.blamed.iter().filter(|death| death.is_certain) {
            let Some(at) = instant.checked_sub(time.saturating_sub(*at)) else { continue };
            let is_dynamic = |(switch, name): &Key| config.ports.get(name).is_none_or(|port| port.switch != *switch);
            for (switch, _) in ports.iter().filter_map(|label| key_of(label)).filter(is_dynamic) {
                let row = config.switches.contains_key(&switch).then_some(switch);
                if let Some(pause) = self.defects.count_dynamic(row, at) {
                    tracing::error!(
                        "clients make no further ports for {pause:?}: the switch died of such ports again and again"
                    );
                }
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

    /// Takes note of which ports are set aside now.
    pub(super) fn keep_deaths(&mut self) {
        let aside = self.defects.all_set_aside();
        self.deaths.aside = aside.map(|((switch, name), why)| (format!("{switch}:{name}"), why.to_owned())).collect();
        self.deaths.keep(&self.keeper);
    }

    /// Opens these ports again, which were set aside and whose settings have changed.
    pub(super) fn put_back(&mut self, ports: Vec<(Name, Name)>) {
        if ports.is_empty() {
            return;
        }
        for (switch, name) in ports {
            tracing::info!("port {switch}:{name} is no longer set aside: its settings have changed");
            if self.switches.get(&switch).is_none_or(|live| !live.ports().contains_key(&name)) {
                self.retry_after(&switch, &name, "it was set aside".to_owned(), Duration::ZERO);
            }
        }
        self.keep_deaths();
        self.reopen();
    }
}
