//! From the running configuration to the wanted one, whole or not at all.
//!
//! Changes are made to a copy of the switches that shares the ports with the running ones; pollers see nothing of the copy
//! until it is published. Everything that can fail (a device, a thread) happens to the copy: dropping the copy undoes the
//! change.
//!
//! A socket cannot be bound twice. If a new port is to have a socket that a running port gives up, that step comes last, when
//! nothing else can fail any more: the old port is closed, the new port opened. If that fails, the old port is opened again.
//! The wait for the old port's end, 100 ms at most, is the only wait with the daemon's lock held.
//!
//! MAC tables are swept on the control thread once a change is published: until then the running topology uses the table.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringway_engine::{Engine, fatal};
use ringway_ports::process::ClientId;

use super::front_end::FrontEnd;
use super::limits::Buckets;
use super::live::{LivePort, LiveSwitch, NewPort};
use super::{Daemon, Refused, open, place, start_engine};
use crate::config::diff::{Action, diff};
use crate::config::{Config, Create, Kind, Name, Port, Switch};

/// Longest wait for pollers to let go of a removed device. They do so between two batches.
pub(super) const SETTLE_WITHIN: Duration = Duration::from_millis(500);

/// Longest wait for ports to close the sockets that new ports are to have. It is the only one with the daemon's lock.
const CLOSED_WITHIN: Duration = Duration::from_millis(100);

/// A change in the making.
struct Trial {
    switches: BTreeMap<Name, LiveSwitch>,
    buckets: Buckets,
    engine: Option<Engine>,
    /// Ports whose socket a running port has, which is to give it up.
    late: Vec<(Name, Port)>,
}

impl Daemon {
    /// Makes `target` run, in which `about` (a prefix of keys) is what was asked for. Says what was done.
    ///
    /// # Errors
    /// Parts of it disagree, or something cannot be had; nothing has changed.
    pub(super) fn apply(&mut self, target: Config, about: &str) -> Result<Vec<String>, Refused> {
        self.running.agree(&self.made(&self.running.config), &target, &self.made(&target), about)?;
        let actions = diff(&self.running.config, &target);
        let (switches, buckets) = (self.switches.clone(), self.buckets.clone());
        let mut trial = Trial { switches, buckets, engine: None, late: Vec::new() };
        for action in &actions {
            self.take(&mut trial, &target, action)?;
        }
        self.take_late(&mut trial)?;

        for (name, old) in &self.running.config.ports {
            if let Some(new) = target.ports.get(name) {
                self.defects.moved((old.switch.clone(), name.clone()), (new.switch.clone(), name.clone()));
            }
        }
        let before = std::mem::replace(&mut self.switches, trial.switches);
        self.buckets = trial.buckets;
        self.running.config = target;
        if let Some(engine) = trial.engine {
            // The old pollers give the ports' inputs back when they end; the new ones take them when published.
            let old = std::mem::replace(&mut self.engine, engine);
            // A poller ends after its batch, which a client can make last.
            self.begin().spawn(
                "end-pollers",
                move || drop(old),
                |place| {
                    // What they served may not have been given back: those ports would only look alive.
                    fatal(&format!("a defect of Ringway, please report it: pollers could not be ended, at {place}"))
                },
            );
            self.engine_started = Instant::now();
            self.free.clear();
            self.stuck.clear();
            let pollers = self.engine.pollers();
            self.switches.values_mut().fold(0, |next, switch| switch.spread_over(pollers, next));
            self.engine_changed.notify_one();
        }
        self.bound_memory();
        self.forget_found();
        self.set_front_ends();
        self.end_orphans(&before);
        let unused: Vec<Name> = self.switches.keys().cloned().collect();
        unused.iter().for_each(|switch| self.forget_if_unused(switch));
        self.publish();
        self.retire_all(before);
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
            Action::ChangeAttach { .. } | Action::ChangeMemory { .. } => {}
            Action::SetBucket(name, settings) => {
                trial.buckets.set(name, settings.as_ref());
                trial.switches.values_mut().for_each(LiveSwitch::rebuild);
            }
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
                    switch.set(name, Port::clone(to));
                }
            }
            Action::AddPort(name, port) => self.take_port(trial, name, port)?,
        }
        Ok(())
    }

    fn take_port(&self, trial: &mut Trial, name: &Name, settings: &Port) -> Result<(), Refused> {
        let there = trial.switches.get_mut(&settings.switch).filter(|s| s.ports().contains_key(name));
        match (there, settings.kind()) {
            // The client that made the port by attaching keeps it; it has the new settings now.
            (Some(switch), Kind::Process) => {
                switch.set(name, settings.clone());
                return Ok(());
            }
            (Some(_), _) => {
                let label = format!("{}:{name}", settings.switch);
                return Err(Refused::Conflict(format!("a client is attached to {label}: choose another name")));
            }
            (None, Kind::Process) => return Ok(()),
            (None, _) => {}
        }
        let given_up = self.given_up(trial);
        if let Some((.., old)) = given_up.iter().find(|(.., old)| settings.has_the_end_of(&old.settings)) {
            // A device, or a front end, moves as it is.
            let LivePort { port, source, front_end, .. } = old.clone();
            let poller = trial.place(self, settings);
            let new = NewPort { settings: settings.clone(), poller, client: None, port, source, front_end };
            return trial.insert(name, new);
        }
        let old = self.running.config.ports.get(name).map(|old| &old.switch);
        if old.into_iter().chain([&settings.switch]).any(|switch| self.defects.disabled(switch, name).is_some()) {
            // Only an administrator enables it, by name.
            return Ok(());
        }
        if given_up.iter().any(|(.., old)| same_socket(&old.settings, settings, self.running.runtime_dir())) {
            trial.late.push((name.clone(), settings.clone()));
            return Ok(());
        }
        let new = self.open(trial, name, settings)?;
        trial.insert(name, new)
    }

    /// Opens the ports whose sockets others give up. When that fails these others are opened again.
    fn take_late(&mut self, trial: &mut Trial) -> Result<(), Refused> {
        let late = std::mem::take(&mut trial.late);
        let mut displaced = self.given_up(trial);
        displaced.retain(|(.., old)| {
            late.iter().any(|(_, new)| same_socket(&old.settings, new, self.running.runtime_dir()))
        });
        for front_end in displaced.iter().filter_map(|(.., old)| old.front_end.clone()) {
            self.retire(front_end);
        }
        let deadline = Instant::now() + CLOSED_WITHIN;
        while !self.chores.are_done() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(200));
        }
        let taken = late.iter().try_for_each(|(name, settings)| {
            let new = self.open(trial, name, settings)?;
            trial.insert(name, new)
        });
        let Err(refused) = taken else { return Ok(()) };
        trial.switches.clear();
        for (switch, name, _) in displaced {
            self.open_again(&switch, &name);
        }
        self.publish();
        Err(refused)
    }

    /// Gives each front end the settings that its port has now.
    fn set_front_ends(&mut self) {
        let Self { switches, chores, .. } = self;
        for live in switches.values().flat_map(|switch| switch.ports().values()) {
            if let Some(front_end) = &live.front_end {
                front_end.set(&live.settings.settings, || chores.begin());
            }
        }
    }

    /// Ends the front ends of `before` that are not there any more.
    fn retire_all(&mut self, before: BTreeMap<Name, LiveSwitch>) {
        let front_ends = |switches: &BTreeMap<Name, LiveSwitch>| -> Vec<Arc<FrontEnd>> {
            switches.values().flat_map(|s| s.ports().values().filter_map(|port| port.front_end.clone())).collect()
        };
        let kept: HashSet<*const FrontEnd> = front_ends(&self.switches).iter().map(Arc::as_ptr).collect();
        for gone in front_ends(&before).into_iter().filter(|gone| !kept.contains(&Arc::as_ptr(gone))) {
            self.retire(gone);
        }
    }

    fn open(&self, trial: &Trial, name: &Name, settings: &Port) -> Result<NewPort, Refused> {
        let poller = trial.place(self, settings);
        open::port(name, settings, poller, self.running.runtime_dir(), &self.events)
    }

    /// Ports that run, without fault, and are not in this trial any more: their switch, name and themselves.
    fn given_up(&self, trial: &Trial) -> Vec<(Name, Name, LivePort)> {
        let kept: HashSet<_> =
            trial.switches.values().flat_map(|s| s.ports().values()).map(|new| Arc::as_ptr(&new.port)).collect();
        let all = self.switches.iter().flat_map(|(switch, s)| s.ports().iter().map(move |p| (switch, p)));
        let gone = all.filter(|(_, (_, old))| old.port.fault().is_none() && !kept.contains(&Arc::as_ptr(&old.port)));
        gone.map(|(switch, (name, old))| (switch.clone(), name.clone(), old.clone())).collect()
    }

    /// Tells the clients of ports that are there no more.
    fn end_orphans(&mut self, before: &BTreeMap<Name, LiveSwitch>) {
        let clients = |switches: &BTreeMap<Name, LiveSwitch>| -> Vec<ClientId> {
            switches.values().flat_map(|s| s.ports().values().filter_map(|port| port.client)).collect()
        };
        let kept: HashSet<ClientId> = clients(&self.switches).into_iter().collect();
        for client in clients(before).into_iter().filter(|client| !kept.contains(client)) {
            self.clients.remove(&client);
            self.end_client(client, "the port was removed");
        }
    }

    /// Whether all pollers use what was published last, but for threads that serve ports in quarantine. What was there before may
    /// last: clients decide.
    pub(super) fn is_settled(&self) -> bool {
        self.engine.is_taken_over()
    }

    /// Whether what was there before is released, too: a device is free then.
    pub(super) fn is_released(&self) -> bool {
        self.engine.is_released()
    }
}

impl Trial {
    fn place(&self, daemon: &Daemon, settings: &Port) -> usize {
        place(settings, &self.switches, self.engine.as_ref().unwrap_or(&daemon.engine).pollers())
    }

    fn insert(&mut self, name: &Name, new: NewPort) -> Result<(), Refused> {
        let Some(switch) = self.switches.get_mut(&new.settings.switch) else { return Ok(()) };
        if !switch.has_room() {
            let (full, most) = (&new.settings.switch, ringway_switch::MAX_PORTS);
            return Err(Refused::Conflict(format!("switch \"{full}\" is full: it has {most} ports")));
        }
        switch.insert(name.clone(), new);
        Ok(())
    }
}

/// Whether both are ports with one socket, however it is written.
fn same_socket(a: &Port, b: &Port, runtime_dir: &Path) -> bool {
    let socket = |port: &Port| port.settings.socket().map(|path| runtime_dir.join(path));
    socket(a).is_some_and(|a| Some(a) == socket(b))
}
