//! From the running configuration to another, whole or not at all.
//!
//! A change is made to a candidate: a copy of the switches that shares the ports with the running ones. Pollers see nothing of the
//! candidate until it is published. Everything that can fail (a device, a thread) happens to the candidate: dropping it undoes the
//! change.
//!
//! A socket cannot be bound twice. If a new port is to have a socket that a running port gives up, that step is deferred until
//! nothing else can fail any more: the old port is closed, the new port opened. If that fails, the old port is opened again.
//! The waits for the end of the old port, and of a new one before an old one is opened again, 100 ms at most each, are waits with the
//! daemon's lock held. The other one is for the closer when a port's socket is opened: 10 ms at most.
//!
//! A client may have a port with the name of a port that is added. The configured port displaces the client's: clients choose their names, and
//! could otherwise have an administrator's change refused.
//!
//! MAC tables are swept on the control thread once a change is published: until then the running topology uses the table.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringway_api::patience;
use ringway_config::diff::{Action, diff};
use ringway_config::{Access, Config, Create, Kind, Name, Port, ProgramKeys, Switch};
use ringway_engine::Engine;
use ringway_port_process::ClientId;
use ringway_runtime::fatal;
use ringway_switch::policy::{Bound, Domain, Rules};
use ringway_switch::{MacTable, View};

use super::devices::OpeningDevice;
use super::faults::Key;
use super::front_end::FrontEnd;
use super::limits::Buckets;
use super::live::{LivePort, LiveSwitch, NewPort};
use super::open::{self, Place};
use super::programs::{LoadedProgram, WantedProgram, is_same_program};
use super::refused::Refused;
use super::state::{Daemon, choose_poller, start_engine};
use super::wanted_device::WantedDevice;

/// Longest wait for ports to close the sockets that new ports are to have.
const CLOSED_WITHIN: Duration = Duration::from_millis(100);

/// The fault of a client's port whose name a configured port has taken.
const DISPLACED: &str = "displaced";

/// The switches as they are after a change that is not complete yet.
struct Candidate {
    switches: BTreeMap<Name, LiveSwitch>,
    buckets: Buckets,
    engine: Option<Engine>,
    /// Who may connect to the sockets of new ports.
    access: Access,
    /// New ports of devices.
    devices: Vec<(Name, Port)>,
    /// The daemon starts without these ports, whose devices and sockets cannot be had: the reasons.
    missing: Vec<(Name, Name, String)>,
    /// Ports that pause: switch and name.
    paused: Vec<(Name, Name)>,
    /// Devices of these ports that are being opened, for longer than the start waits.
    opening: Vec<(Name, OpeningDevice)>,
    /// New ports whose socket a running port has to close first.
    deferred: Vec<(Name, Port)>,
    /// Ports of clients whose names new ports have.
    displaced: Vec<(Key, LivePort)>,
}

impl Daemon {
    /// Makes `target` run. `about` is the prefix of the keys that the request concerns. Returns a line for each step.
    ///
    /// # Errors
    /// Parts of the configuration disagree, or something cannot be had; nothing has changed.
    pub(super) fn apply(&mut self, target: Config, about: &str) -> Result<Vec<String>, Refused> {
        if self.is_ending {
            return Err(Refused::Conflict("the daemon ends".to_owned()));
        }
        let (before, after) = (self.dynamic_ports(&self.running.config), self.dynamic_ports(&target));
        self.running.check(&before, &target, &after, about)?;
        let loaded = self.programs_for(&target)?;
        let actions = diff(&self.running.config, &target);
        self.carry_out(target, &actions, loaded)
    }

    /// Takes the steps to `target`, which has been checked. A step may also concern a client's port, which is in no configuration. Returns a
    /// line for each.
    ///
    /// # Errors
    /// Something cannot be had; nothing has changed.
    pub(super) fn carry_out(
        &mut self,
        target: Config,
        actions: &[Action],
        loaded: Vec<(Name, LoadedProgram)>,
    ) -> Result<Vec<String>, Refused> {
        let doubts_before = self.doubts();
        let (switches, buckets) = (self.switches.clone(), self.buckets.clone());
        let access = target.sockets.ports.clone();
        let mut candidate = Candidate::new(switches, buckets, access);
        // Sockets come last: what comes before them leaves nothing in the file system if the change is tried again.
        let (sockets, others): (Vec<&Action>, Vec<&Action>) = actions.iter().partition(|action| has_socket(action));
        for action in others {
            self.apply_action(&mut candidate, &target, action)?;
        }
        self.add_devices(&mut candidate)?;
        for action in sockets {
            self.apply_action(&mut candidate, &target, action)?;
        }
        self.open_deferred(&mut candidate)?;
        let mut steps: Vec<String> = actions.iter().map(ToString::to_string).collect();
        for (name, program) in loaded {
            let Some(switch) = candidate.switches.get_mut(&name) else { continue };
            if switch.program().is_none_or(|before| !before.is_same(&program)) {
                steps.push(format!("loaded the program of switch {name}"));
                switch.set_program(program);
            }
            self.programs.missing.forget(&name);
        }

        let changed = |(switch, name): &&Key| {
            actions.iter().any(|action| match action {
                Action::ChangePort { name: of, from, .. } => of == name && from.switch == *switch,
                Action::RemovePort(of, old) => of == name && old.switch == *switch,
                _ => false,
            })
        };
        let put_back: Vec<Key> = self.defects.all_set_aside().filter(changed).cloned().collect();
        put_back.iter().for_each(|key| _ = self.forget_defects(key));
        for action in actions {
            // A client may have caused what is remembered of a port that was none of the administrator's.
            if let Action::AddPort(name, port) = action
                && !self.is_starting
                && !self.running.config.ports.contains_key(name)
                && port.kind() != Kind::Process
            {
                self.forget_defects(&(port.switch.clone(), name.clone()));
            }
        }
        for (name, old) in &self.running.config.ports {
            if let Some(new) = target.ports.get(name) {
                self.defects.moved((old.switch.clone(), name.clone()), (new.switch.clone(), name.clone()));
            }
        }
        let before = std::mem::replace(&mut self.switches, candidate.switches);
        self.buckets = candidate.buckets;
        self.running.config = target;
        let ports = &self.running.config.ports;
        self.faults.note_configured(|(switch, name)| ports.get(name).is_some_and(|port| port.switch == *switch));
        if let Some(engine) = candidate.engine {
            self.replace_engine(engine);
        }
        self.bound_memory();
        self.drop_stale_retries();
        let switches = &self.running.config.switches;
        self.programs.missing.keep(|switch, keys| {
            let wanted = switches.get(switch).and_then(|switch| switch.forwarding.program());
            wanted.is_some_and(|wanted| is_same_program(wanted, keys))
        });
        self.note_missing_ports(candidate.missing);
        // Those whose pause has not ended meanwhile are opened later.
        let paused = candidate.paused.into_iter();
        paused.for_each(|(switch, name)| self.retry_after(&switch, &name, "it has paused".to_owned(), Duration::ZERO));
        self.reopening.extend(candidate.opening);
        self.update_front_ends();
        steps.extend(candidate.displaced.into_iter().map(|(key, live)| self.end_displaced(&key, &live)));
        self.detach_removed_clients(&before);
        let switches: Vec<Name> = self.switches.keys().cloned().collect();
        switches.iter().for_each(|switch| self.remove_unused_switch(switch));
        self.publish();
        self.close_removed_front_ends(before);
        let now_at = |(switch, name): Key| {
            let switch = self.running.config.ports.get(&name).map_or(switch, |port| port.switch.clone());
            (switch, name)
        };
        self.put_back(put_back.into_iter().map(now_at).collect());
        self.let_go_of_unwanted();
        steps.extend(self.new_doubts(&doubts_before));
        Ok(steps)
    }

    /// Returns the programs that switches get by a change to `target`.
    ///
    /// # Errors
    /// Programs have to be loaded first; a switch has got another program while this one was loaded.
    fn programs_for(&self, target: &Config) -> Result<Vec<(Name, LoadedProgram)>, Refused> {
        let pollers = target.engine.pollers();
        let (mut loaded, mut wanted) = (Vec::new(), Vec::new());
        for (name, settings) in &target.switches {
            let Some(keys) = settings.forwarding.program() else { continue };
            let live = self.switches.get(name);
            let before = live.and_then(|live| Some((live.settings.forwarding.program()?, live.program()?)));
            let is_current = before
                .is_some_and(|(running, program)| is_same_program(running, keys) && program.instances() == pollers);
            let is_set_again = self.programs.is_reloaded(name);
            // One that is missing comes by itself. At the start all are tried.
            let comes = self.lacks(name, keys) && (live.is_some() || self.programs.missing.is_known(name, keys));
            if comes && !is_set_again || is_current && !is_set_again && !self.programs.reloads_changed() {
                continue;
            }
            if let Some(ready) = self.programs.ready(name, keys, pollers) {
                match ready.instead_of(before.map(|(_, program)| program)) {
                    Some(program) => {
                        loaded.push((name.clone(), program.clone()));
                        continue;
                    }
                    // The same files, by another request or for other pollers: they are read again.
                    None if before.is_some_and(|(running, _)| is_same_program(running, keys)) => {}
                    None => {
                        let what = "has got another forwarding program while this one was loaded";
                        return Err(Refused::Conflict(format!("switch \"{name}\" {what}: to replace it, try again")));
                    }
                }
            }
            wanted.push(WantedProgram {
                before: before.map(|(_, program)| program.clone()),
                unless_same: is_current && !is_set_again,
                ..self.wanted_program(name, keys, pollers)
            });
        }
        if wanted.is_empty() { Ok(loaded) } else { Err(Refused::Load(wanted)) }
    }

    /// Returns what has to be loaded for a switch without a program.
    pub(super) fn wanted_program(&self, name: &Name, keys: &ProgramKeys, pollers: usize) -> WantedProgram {
        WantedProgram {
            switch: name.clone(),
            keys: keys.clone(),
            pollers,
            view: self.switches.get(name).map_or_else(empty_view, LiveSwitch::present_view),
            before: None,
            unless_same: false,
            unless_seen: None,
            runtime: self.programs.runtime(),
        }
    }

    /// Returns the programs that have to be loaded for the start.
    pub(super) fn wanted_at_start(&self) -> Vec<WantedProgram> {
        match self.programs_for(self.running.at_start()) {
            Err(Refused::Load(wanted)) => wanted,
            _ => Vec::new(),
        }
    }

    /// Applies one step to the candidate.
    fn apply_action(&mut self, candidate: &mut Candidate, target: &Config, action: &Action) -> Result<(), Refused> {
        let failed = |e: std::io::Error| Refused::Failed(e.to_string());
        match action {
            Action::RemovePort(name, port) => {
                if let Some(switch) = candidate.switches.get_mut(&port.switch) {
                    switch.remove(name);
                }
            }
            Action::RemoveSwitch(name, _) => match candidate.switches.get_mut(name) {
                // Its clients could have made the switch: it stays as a dynamic one.
                Some(switch) if target.attach.create == Create::Switches && !switch.ports().is_empty() => {
                    switch.change(Switch::default()).map_err(failed)?;
                }
                _ => {
                    candidate.switches.remove(name);
                }
            },
            Action::ChangeEngine { to, .. } => candidate.engine = Some(start_engine(to)?),
            Action::ChangeAttach { .. }
            | Action::ChangeMemory { .. }
            | Action::ChangeSockets { .. }
            | Action::ChangeState { .. } => {}
            Action::SetBucket(name, settings) => {
                candidate.buckets.set(name, settings.as_ref());
                candidate.switches.values_mut().for_each(LiveSwitch::rebuild);
            }
            Action::AddSwitch(name, to) | Action::ChangeSwitch { name, to, .. } => {
                match candidate.switches.get_mut(name) {
                    // Clients may have made the switch before it was configured.
                    Some(switch) => switch.change(to.clone()).map_err(failed)?,
                    None => {
                        let switch = LiveSwitch::new(name.clone(), to.clone()).map_err(failed)?;
                        candidate.switches.insert(name.clone(), switch);
                    }
                }
            }
            Action::ChangePort { name, to, .. } => {
                if let Some(switch) = candidate.switches.get_mut(&to.switch) {
                    switch.set(name, Port::clone(to));
                }
            }
            Action::AddPort(name, port) => self.add_to(candidate, name, port)?,
        }
        Ok(())
    }

    /// Adds a port to the candidate.
    fn add_to(&mut self, candidate: &mut Candidate, name: &Name, settings: &Port) -> Result<(), Refused> {
        let existing = candidate.switches.get_mut(&settings.switch).filter(|s| s.ports().contains_key(name));
        match (existing, settings.kind()) {
            // The client that made the dynamic port keeps it; the port gets the configured settings.
            (Some(switch), Kind::Process) => {
                switch.set(name, settings.clone());
                return Ok(());
            }
            (Some(switch), _) => {
                let live = switch.remove(name);
                candidate.displaced.extend(live.map(|live| ((settings.switch.clone(), name.clone()), live)));
            }
            (None, Kind::Process) => return Ok(()),
            (None, _) => {}
        }
        let removed = self.removed_ports(candidate);
        if let Some((.., old)) = removed.iter().find(|(.., old)| settings.has_same_fixed_keys(&old.settings)) {
            // The device or front end moves to the new port and stays open.
            let LivePort { port, source, front_end, namespace, .. } = old.clone();
            let poller = candidate.choose_poller(self, settings);
            let new = NewPort {
                settings: settings.clone(),
                poller,
                client: None,
                port,
                source,
                front_end,
                namespace,
                any_source: false,
                monitor: None,
            };
            return candidate.insert(name, new);
        }
        let before = self.running.config.ports.get(name).map(|old| &old.switch);
        // At the start, the port was there before the process.
        let old = before.or(Some(&settings.switch).filter(|_| self.is_starting));
        let switches = old.into_iter().flat_map(|old| [old, &settings.switch]);
        if switches.into_iter().any(|switch| self.defects.disabled(switch, name).is_some()) {
            // It stays closed until an administrator enables it.
            return Ok(());
        }
        if self.is_starting && self.defects.pause_of(&settings.switch, name, Instant::now()).is_some() {
            // It is opened after its pause.
            candidate.paused.push((settings.switch.clone(), name.clone()));
            return Ok(());
        }
        if removed.iter().any(|(.., old)| same_socket(&old.settings, settings, self.running.runtime_dir())) {
            candidate.deferred.push((name.clone(), settings.clone()));
            return Ok(());
        }
        if !settings.settings.is_device() {
            return match self.open(candidate, name, settings) {
                Err(why) if self.is_starting => {
                    candidate.missing.push((settings.switch.clone(), name.clone(), why.to_string()));
                    Ok(())
                }
                opened => candidate.insert(name, opened?),
            };
        }
        candidate.devices.push((name.clone(), settings.clone()));
        Ok(())
    }

    /// Adds the ports whose devices were opened before. Takes none if one is missing: the others are there when the change is tried again.
    fn add_devices(&mut self, candidate: &mut Candidate) -> Result<(), Refused> {
        let devices = std::mem::take(&mut candidate.devices);
        let missing = devices.iter().filter(|(name, settings)| !self.opened.have(name, settings));
        let missing = missing.map(|(name, settings)| self.wanted_device(name, settings, &candidate.access));
        let missing: Vec<WantedDevice> = missing.collect();
        if !missing.is_empty() {
            return Err(Refused::Open(missing));
        }
        for (name, settings) in &devices {
            match self.opened.take(name, settings) {
                Some(Ok(new)) => {
                    let poller = candidate.choose_poller(self, settings);
                    candidate.insert(name, NewPort { poller, ..new })?;
                }
                Some(Err(why)) if self.is_starting => {
                    let (why, opening) = why.into_parts();
                    // It may have what a predecessor left.
                    candidate.opening.extend(opening.map(|opening| (name.clone(), opening)));
                    candidate.missing.push((settings.switch.clone(), name.clone(), why.to_string()));
                }
                Some(Err(why)) => return Err(why.into()),
                None => {}
            }
        }
        Ok(())
    }

    /// Opens the deferred ports after their sockets were closed. If that fails, the old ports are opened again.
    fn open_deferred(&mut self, candidate: &mut Candidate) -> Result<(), Refused> {
        let deferred = std::mem::take(&mut candidate.deferred);
        let mut displaced = self.removed_ports(candidate);
        displaced.retain(|(.., old)| {
            deferred.iter().any(|(_, new)| same_socket(&old.settings, new, self.running.runtime_dir()))
        });
        let now = Instant::now();
        let displaced: Vec<_> = displaced
            .into_iter()
            .map(|(switch, name, old)| (switch, name, old.is_waiting(now), old.front_end))
            .collect();
        self.close_and_wait(displaced.iter().filter_map(|(.., front_end)| front_end.clone()));
        let mut front_ends = Vec::new();
        let opened = deferred.iter().try_for_each(|(name, settings)| {
            let new = self.open(candidate, name, settings)?;
            front_ends.extend(new.front_end.clone());
            candidate.insert(name, new)
        });
        let Err(refused) = opened else { return Ok(()) };
        candidate.switches.clear();
        // They have sockets that the old ports are to have again.
        self.close_and_wait(front_ends.into_iter());
        let lost = displaced.iter().filter_map(|(switch, name, was_waiting, _)| match self.open_again(switch, name) {
            Err(why) => Some(format!(
                "; port {name} has closed its socket for that, and cannot be opened again: {why}; tried again every second"
            )),
            Ok(()) if *was_waiting => None,
            Ok(()) => Some(format!("; the connection of port {name} was ended for that: it waits for another one")),
        });
        let lost: String = lost.collect();
        self.publish();
        // Otherwise a refusal has changed nothing.
        Err(if lost.is_empty() { refused } else { Refused::Failed(format!("{refused}{lost}")) })
    }

    /// Closes front ends, and waits within bounds until their sockets are closed.
    fn close_and_wait(&mut self, front_ends: impl Iterator<Item = Arc<FrontEnd>>) {
        front_ends.for_each(|front_end| self.close_front_end(front_end));
        let deadline = Instant::now() + patience(CLOSED_WITHIN);
        while !self.tasks.are_done() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Replaces the pollers. The old ones return the ports' inputs when they end; the new ones take the inputs when the topology is
    /// published.
    fn replace_engine(&mut self, engine: Engine) {
        let old = std::mem::replace(&mut self.engine, engine);
        // A poller ends after its batch, which a client can delay.
        self.begin().spawn(
            "end-pollers",
            move || drop(old),
            |place| {
                // The inputs of the old pollers may be lost: their ports would be up and serve nobody.
                fatal(&format!("a defect of Ringway, please report it: pollers could not be ended, at {place}"))
            },
        );
        self.engine_started = Instant::now();
        self.reported_free.clear();
        self.late.clear();
        self.stuck.clear();
        let pollers = self.engine.pollers();
        self.switches.values_mut().fold(0, |next, switch| switch.spread_over(pollers, next));
        self.engine_changed.notify_one();
    }

    /// Applies the ports' settings to their front ends.
    fn update_front_ends(&mut self) {
        let Self { switches, tasks, .. } = self;
        for live in switches.values().flat_map(|switch| switch.ports().values()) {
            if let Some(front_end) = &live.front_end {
                front_end.set(&live.settings.settings, || tasks.begin());
            }
        }
    }

    /// Closes the front ends of `before` whose ports are removed.
    fn close_removed_front_ends(&mut self, before: BTreeMap<Name, LiveSwitch>) {
        let front_ends = |switches: &BTreeMap<Name, LiveSwitch>| -> Vec<Arc<FrontEnd>> {
            switches.values().flat_map(|s| s.ports().values().filter_map(|port| port.front_end.clone())).collect()
        };
        let kept: HashSet<*const FrontEnd> = front_ends(&self.switches).iter().map(Arc::as_ptr).collect();
        for gone in front_ends(&before).into_iter().filter(|gone| !kept.contains(&Arc::as_ptr(gone))) {
            self.close_front_end(gone);
        }
    }

    /// Ends the client of a port whose name a configured port has taken. Returns the step, for users.
    fn end_displaced(&mut self, key: &Key, live: &LivePort) -> String {
        let (switch, name) = key;
        let kind = self.running.config.ports.get(name).map_or("configured", |port| port.kind().as_str());
        let detail = format!("displaced: {switch}:{name} is a {kind} port now: attach to another name");
        if let Some(client) = live.client {
            self.clients.remove(&client);
            self.end_client(client, &detail);
        }
        if let Some(line) = self.log_line(key, &format!(" of a client ended: {detail}")) {
            tracing::warn!("{line}");
        }
        self.note_fault(key, DISPLACED, detail, None);
        format!("displaced a client's port {name} on switch {switch}")
    }

    /// Detaches the clients of `before` whose ports are removed.
    fn detach_removed_clients(&mut self, before: &BTreeMap<Name, LiveSwitch>) {
        let clients = |switches: &BTreeMap<Name, LiveSwitch>| -> Vec<ClientId> {
            switches.values().flat_map(|s| s.ports().values().filter_map(|port| port.client)).collect()
        };
        let kept: HashSet<ClientId> = clients(&self.switches).into_iter().collect();
        for client in clients(before).into_iter().filter(|client| !kept.contains(client)) {
            // The client of a displaced port was told already.
            if self.clients.remove(&client).is_some() {
                self.end_client(client, "the port was removed");
            }
        }
    }

    fn open(&self, candidate: &Candidate, name: &Name, settings: &Port) -> Result<NewPort, Refused> {
        let poller = candidate.choose_poller(self, settings);
        let (runtime_dir, access, events) = (self.running.runtime_dir(), &candidate.access, &self.events);
        open::port(
            name,
            settings,
            poller,
            &Place { runtime_dir, access, namespace: None, events, keeper: &self.keeper },
        )
    }

    /// Returns the running ports without a fault that are not in the candidate any more: switch, name and port.
    fn removed_ports(&self, candidate: &Candidate) -> Vec<(Name, Name, LivePort)> {
        // At a start this is asked for each port.
        if self.switches.values().all(|switch| switch.ports().is_empty()) {
            return Vec::new();
        }
        let kept: HashSet<_> =
            candidate.switches.values().flat_map(|s| s.ports().values()).map(|new| Arc::as_ptr(&new.port)).collect();
        let all = self.switches.iter().flat_map(|(switch, s)| s.ports().iter().map(move |p| (switch, p)));
        let gone = all.filter(|(_, (_, old))| old.port.fault().is_none() && !kept.contains(&Arc::as_ptr(&old.port)));
        gone.map(|(switch, (name, old))| (switch.clone(), name.clone(), old.clone())).collect()
    }
}

impl Candidate {
    fn new(switches: BTreeMap<Name, LiveSwitch>, buckets: Buckets, access: Access) -> Self {
        Self {
            switches,
            buckets,
            engine: None,
            access,
            devices: Vec::new(),
            missing: Vec::new(),
            paused: Vec::new(),
            opening: Vec::new(),
            deferred: Vec::new(),
            displaced: Vec::new(),
        }
    }

    fn choose_poller(&self, daemon: &Daemon, settings: &Port) -> usize {
        choose_poller(settings, &self.switches, self.engine.as_ref().unwrap_or(&daemon.engine).pollers())
    }

    /// Inserts a port into its switch.
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

/// The view of a switch that is not there yet.
fn empty_view() -> Arc<View> {
    let domain = Domain { bound: Bound::default(), rules: Rules::ALLOW, vlans: false };
    Arc::new(View::new([], 0, Arc::new(MacTable::new(0, 0, [0; 2])), domain))
}

/// Returns true if the step opens a socket.
fn has_socket(action: &Action) -> bool {
    matches!(action, Action::AddPort(_, port) if port.settings.socket().is_some())
}

/// Returns true if both ports have the same socket, whether their paths are relative or absolute.
fn same_socket(a: &Port, b: &Port, runtime_dir: &Path) -> bool {
    let socket = |port: &Port| port.settings.socket().map(|path| runtime_dir.join(path));
    socket(a).is_some_and(|a| Some(a) == socket(b))
}
