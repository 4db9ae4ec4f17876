//! From what runs to what is to run, whole or not at all.
//!
//! Changes are made to a copy of the switches, which shares the ports with what runs; pollers see nothing of it until
//! it is published. Everything that can fail (a device, a thread) happens to the copy: dropping it undoes it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringway_engine::{Engine, Source};
use ringway_ports::process::ClientId;

use super::live::{LivePort, LiveSwitch, NewPort};
use super::{Daemon, Refused, open, start_engine};
use crate::config::diff::{Action, diff};
use crate::config::{Config, Create, Kind, Name, Port, Switch};

/// Longest wait for pollers to let go of a removed device. They do so between two batches.
const SETTLE_WITHIN: Duration = Duration::from_millis(500);

/// A change in the making.
struct Trial {
    switches: BTreeMap<Name, LiveSwitch>,
    engine: Option<Engine>,
}

impl Daemon {
    /// Makes `target` run. Says what was done.
    ///
    /// # Errors
    /// Something cannot be had; nothing has changed.
    pub(super) fn apply(&mut self, target: Config) -> Result<Vec<String>, Refused> {
        let actions = diff(&self.running.config, &target);
        let mut trial = Trial { switches: self.switches.clone(), engine: None };
        for action in &actions {
            self.take(&mut trial, &target, action)?;
        }

        let before = std::mem::replace(&mut self.switches, trial.switches);
        self.running.config = target;
        if let Some(engine) = trial.engine {
            // The old pollers give the ports' inputs back when they end; the new ones take them when published.
            self.engine = engine;
            self.engine_started = Instant::now();
            let pollers = self.engine.pollers();
            self.switches.values_mut().fold(0, |next, switch| switch.spread_over(pollers, next));
            self.engine_changed.notify_one();
        }
        self.end_orphans(&before);
        let unused: Vec<Name> = self.switches.keys().cloned().collect();
        unused.iter().for_each(|switch| self.forget_if_unused(switch));
        self.publish();
        drop(before);
        self.settle();
        Ok(actions.iter().map(ToString::to_string).collect())
    }

    fn take(&self, trial: &mut Trial, target: &Config, action: &Action) -> Result<(), Refused> {
        let failed = |e: std::io::Error| Refused::Failed(e.to_string());
        match action {
            Action::RemovePort(name, port) => {
                if let Some(switch) = trial.switches.get_mut(&port.switch) {
                    switch.remove(name);
                }
            }
            Action::RemoveSwitch(name, _) => match trial.switches.get_mut(name) {
                // To the clients that are on it, it is a switch as any that they could have made.
                Some(switch) if target.attach.create == Create::Switches && !switch.ports().is_empty() => {
                    switch.change(Switch::default()).map_err(failed)?;
                }
                _ => {
                    trial.switches.remove(name);
                }
            },
            Action::ChangeEngine { to, .. } => trial.engine = Some(start_engine(to)?),
            Action::ChangeAttach { .. } => {}
            Action::AddSwitch(name, to) | Action::ChangeSwitch { name, to, .. } => match trial.switches.get_mut(name) {
                // Clients may have brought the switch into being before it was configured.
                Some(switch) => switch.change(to.clone()).map_err(failed)?,
                None => {
                    let switch = LiveSwitch::new(name.clone(), to.clone()).map_err(failed)?;
                    trial.switches.insert(name.clone(), switch);
                }
            },
            Action::ChangePort { name, to, .. } => {
                if let Some(switch) = trial.switches.get_mut(&to.switch) {
                    switch.set(name, to.clone());
                }
            }
            Action::AddPort(name, port) => self.take_port(trial, name, port)?,
        }
        Ok(())
    }

    fn take_port(&self, trial: &mut Trial, name: &Name, settings: &Port) -> Result<(), Refused> {
        let label = format!("{}:{name}", settings.switch);
        let there = trial.switches.get(&settings.switch).and_then(|s| s.ports().get(name));
        match (there, settings.kind) {
            // The client that made the port by attaching keeps it; it has the new settings now.
            (Some(_), Kind::Process) => {
                if let Some(switch) = trial.switches.get_mut(&settings.switch) {
                    switch.set(name, settings.clone());
                }
                return Ok(());
            }
            (Some(_), Kind::Tap) => {
                return Err(Refused::Conflict(format!("a client is attached to {label}: choose another name")));
            }
            (None, Kind::Process) => return Ok(()),
            (None, Kind::Tap) => {}
        }
        let poller = self.idlest_poller();
        let new = match self.same_device(trial, settings) {
            Some(old) => {
                NewPort { settings: settings.clone(), poller, client: None, port: old.port, source: old.source }
            }
            None => {
                let sides = open::device(settings).map_err(Refused::Failed)?;
                let port = Arc::new(ringway_switch::Port::new(label, sides.output, sides.bell));
                let source = Arc::new(Source::new(sides.input, sides.signal));
                NewPort { settings: settings.clone(), port, source, poller, client: None }
            }
        };
        if let Some(switch) = trial.switches.get_mut(&settings.switch) {
            if !switch.has_room() {
                let most = ringway_switch::MAX_PORTS;
                return Err(Refused::Conflict(format!("switch \"{}\" is full: it has {most} ports", settings.switch)));
            }
            switch.insert(name.clone(), new);
        }
        Ok(())
    }

    /// The port that has this device now and gives it up in this trial: a device moves as it is, without closing.
    fn same_device(&self, trial: &Trial, wanted: &Port) -> Option<LivePort> {
        let device = |port: &Port| (port.kind, port.device.clone(), port.netns.clone());
        let all = |switches: &BTreeMap<Name, LiveSwitch>| -> Vec<LivePort> {
            switches.values().flat_map(|s| s.ports().values().cloned()).collect()
        };
        let kept = all(&trial.switches);
        let given_up = |old: &LivePort| {
            device(&old.settings) == device(wanted)
                && old.port.fault().is_none()
                && !kept.iter().any(|k| Arc::ptr_eq(&k.port, &old.port))
        };
        all(&self.switches).into_iter().find(given_up)
    }

    /// Tells the clients of ports that are there no more.
    fn end_orphans(&mut self, before: &BTreeMap<Name, LiveSwitch>) {
        let clients = |switches: &BTreeMap<Name, LiveSwitch>| -> Vec<ClientId> {
            switches.values().flat_map(|s| s.ports().values().filter_map(|port| port.client)).collect()
        };
        let kept: std::collections::HashSet<ClientId> = clients(&self.switches).into_iter().collect();
        for client in clients(before).into_iter().filter(|client| !kept.contains(client)) {
            self.clients.remove(&client);
            self.end_client(client, "the port was removed");
        }
    }

    /// Waits until no poller uses what was removed, so that a device is free when its removal is reported.
    fn settle(&self) {
        let deadline = Instant::now() + SETTLE_WITHIN;
        while !self.engine.is_settled() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}
