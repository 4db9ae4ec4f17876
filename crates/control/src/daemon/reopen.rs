//! Configured ports whose device or socket is lost: opening is tried again every second.

use std::time::{Duration, Instant};

use super::{Daemon, open, place};
use crate::config::{Kind, Name, Port};

/// How often one port is tried.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How many ports are tried in one go.
const TRIES_MAX: usize = 16;

/// Why a port is not there.
#[derive(Debug)]
pub(super) struct Lost {
    /// For users.
    pub(super) why: String,
    again: Instant,
}

impl Daemon {
    /// Notes that a configured port is not there because of `why`. Clients of process ports come by themselves.
    pub(super) fn lose(&mut self, switch: &Name, name: &Name, why: String) {
        self.lose_for(switch, name, why, AGAIN_AFTER);
    }

    /// The same; it is tried again after this time.
    pub(super) fn lose_for(&mut self, switch: &Name, name: &Name, why: String, time: Duration) {
        let mine = |port: &&Port| port.switch == *switch && port.kind() != Kind::Process;
        if self.running.config.ports.get(name).filter(mine).is_some() {
            self.lost.insert(name.clone(), Lost { why, again: Instant::now() + time });
        }
    }

    /// Forgets what is there again, or not wanted any more.
    pub(super) fn forget_found(&mut self) {
        let (switches, ports) = (&self.switches, &self.running.config.ports);
        self.lost.retain(|name, _| {
            ports.get(name).is_some_and(|p| switches.get(&p.switch).is_none_or(|s| !s.ports().contains_key(name)))
        });
    }

    /// Tries to open what was lost, a few ports at a time, those first that have waited longest.
    pub fn reopen(&mut self) {
        let now = Instant::now();
        let mut due: Vec<(Instant, Name)> = Vec::new();
        for (name, lost) in self.lost.iter().filter(|(_, lost)| lost.again <= now) {
            due.push((lost.again, name.clone()));
        }
        due.sort();
        let mut found = false;
        for (_, name) in due.into_iter().take(TRIES_MAX) {
            let Some(settings) = self.running.config.ports.get(&name).cloned() else { continue };
            match self.try_open(&name, &settings) {
                Ok(()) => {
                    if let Some(line) = self.line(&(settings.switch.clone(), name.clone()), " is back") {
                        tracing::info!("{line}");
                    }
                    self.lost.remove(&name);
                    found = true;
                }
                Err(why) => {
                    if self.lost.get(&name).is_none_or(|lost| lost.why != why) {
                        tracing::warn!("port {}:{name} cannot be had: {why}", settings.switch);
                    }
                    self.lost.insert(name, Lost { why, again: now + AGAIN_AFTER });
                }
            }
        }
        if found {
            self.publish();
        }
    }

    /// Opens again a running port that was closed.
    pub(super) fn open_again(&mut self, switch: &Name, name: &Name) {
        if let Some(front_end) = self.take_out(switch, name).and_then(|live| live.front_end) {
            self.retire(front_end);
        }
        let Some(settings) = self.running.config.ports.get(name).cloned() else { return };
        if let Err(why) = self.try_open(name, &settings) {
            tracing::error!("port {switch}:{name} cannot be opened again: {why}");
            self.lose(switch, name, why);
        }
    }

    fn try_open(&mut self, name: &Name, settings: &Port) -> Result<(), String> {
        let poller = place(settings, &self.switches, self.engine.pollers());
        let Some(switch) = self.switches.get_mut(&settings.switch) else { return Err("its switch is gone".to_owned()) };
        if !switch.has_room() {
            return Err("its switch is full".to_owned());
        }
        let opened = open::port(name, settings, poller, self.running.runtime_dir(), &self.events);
        let new = opened.map_err(|refused| refused.to_string())?;
        switch.insert(name.clone(), new);
        Ok(())
    }
}
