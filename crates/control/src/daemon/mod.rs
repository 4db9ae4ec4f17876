//! The daemon: the running switches, ports and pollers, and their changes.
//!
//! - [`running`]: the wanted configuration, and the configuration that a request would make of it (pure).
//! - [`live`]: switches and ports that run, as pollers take them.
//! - [`change`]: from one to the other, whole or not at all.
//! - [`chores`]: what a client can make last, without the daemon's lock.
//! - [`attach`]: clients come and go.
//! - `front_end`: the front ends of ports whose peer comes and goes.
//! - `faults`, `defects`: what ports did wrong, and where Ringway itself failed.
//! - `limits`: rates, as pollers keep them.
//! - `reopen`: devices and sockets that were lost.
//! - `capture`: captures that run.
//! - [`report`]: the status for the API.
//! - [`serve`]: the process: sockets, signals, timers.
//!
//! The daemon owns the state: the configuration, the live switches and ports, and the actions that turn one configuration
//! into another (`config/diff.rs`). Everything that changes ports goes through the daemon and ends in one `Engine::publish`:
//! the configuration, the API, clients that attach or leave, faults.
//!
//! One lock guards the [`Daemon`]. The control thread and the attach thread take the lock; pollers never do: pollers get
//! immutable topologies. Nothing that a client can make last happens with the lock held (see [`chores`]). The one wait with
//! the lock is for a socket that a running port has to leave first, 100 ms at most (see [`change`]).

pub mod attach;
mod capture;
pub mod change;
pub mod chores;
mod defects;
mod faults;
mod front_end;
mod limits;
pub mod live;
mod open;
mod port_ref;
mod refused;
mod reopen;
pub mod report;
pub mod running;
pub mod serve;
mod slow;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringway_engine::{Engine, EngineSettings, Topology};
use ringway_memory::Quota;
use ringway_ports::process::{ClientId, Ender};
use tokio::sync::Notify;

pub use port_ref::PortRef;
pub use refused::{Refused, UNAVAILABLE};

use crate::config::check::Made;
use crate::config::node::Node;
use crate::config::{self, Config, Create, Name, Placement};
use capture::Captures;
use chores::Chores;
use defects::Defects;
use faults::Faults;
use front_end::Events;
use limits::Buckets;
use live::{LivePort, LiveSwitch};
use reopen::Lost;
use running::Running;

/// Everything that runs.
pub struct Daemon {
    running: Running,
    engine: Engine,
    engine_started: Instant,
    /// How long each of its pollers was free, as it was last said.
    free: Vec<Duration>,
    /// Which of them did not go round their loops when that was looked at last.
    stuck: Vec<usize>,
    engine_changed: Arc<Notify>,
    switches: BTreeMap<Name, LiveSwitch>,
    buckets: Buckets,
    /// Where each client's port is: switch and name.
    clients: HashMap<ClientId, (Name, Name)>,
    ender: Option<Ender>,
    next_colour: u32,
    faults: Faults,
    defects: Defects,
    /// Of front ends, by their ports' own threads.
    events: Arc<Events>,
    /// Configured ports that have no device or socket at present.
    lost: BTreeMap<Name, Lost>,
    captures: Captures,
    /// What was begun for changes and may not be done yet.
    chores: Chores,
    started: Instant,
}

impl Daemon {
    /// Starts the pollers, makes the configured switches and opens the configured devices.
    ///
    /// # Errors
    /// A CPU, a device or a thread cannot be had.
    pub fn start(running: Running) -> Result<Self, Refused> {
        let target = running.config.clone();
        let engine = start_engine(&target.engine)?;
        let mut daemon = Self {
            running,
            engine,
            engine_started: Instant::now(),
            free: Vec::new(),
            stuck: Vec::new(),
            engine_changed: Arc::default(),
            switches: BTreeMap::new(),
            buckets: Buckets::default(),
            clients: HashMap::new(),
            ender: None,
            next_colour: 0,
            faults: Faults::default(),
            defects: Defects::default(),
            events: Arc::default(),
            lost: BTreeMap::new(),
            captures: Captures::default(),
            chores: Chores::default(),
            started: Instant::now(),
        };
        daemon.running.config = config::Config {
            engine: target.engine.clone(),
            attach: target.attach.clone(),
            memory: target.memory,
            ..config::Config::default()
        };
        if !ringway_memory::bounds_holes() {
            tracing::warn!(
                "userfaultfd(2) cannot be had: front ends can make the daemon allocate memory (holes is without effect)"
            );
        }
        daemon.bound_memory();
        daemon.apply(target, "")?;
        Ok(daemon)
    }

    /// Bounds what all front ends may give together.
    fn bound_memory(&self) {
        Quota::total().set_limits(limits::of_all_memory(self.running.config.memory));
    }

    /// Lets the daemon end clients of this attach server.
    pub fn set_ender(&mut self, ender: Ender) {
        self.ender = Some(ender);
    }

    /// Adds a port, or keeps one that a client made.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn add_port(&mut self, port: &PortRef, keys: &Node) -> Result<Vec<String>, Refused> {
        let target = self.running.with_port(port, keys, &self.made(&self.running.config))?;
        self.apply(target, &format!("port.{}.", port.name))
    }

    /// Changes a port, configured or made by a client. What is changed of the latter lasts as long as it does.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn set_port(&mut self, port: &PortRef, keys: &Node) -> Result<Vec<String>, Refused> {
        let (switch, name) = self.find(port)?;
        if self.is_configured(&switch, &name) {
            let target = self.running.with_change(&name, keys)?;
            return self.apply(target, &format!("port.{name}."));
        }
        let Some(live) = self.switches.get(&switch) else { return Ok(Vec::new()) };
        let Some(old) = live.ports().get(&name).map(|port| port.settings.clone()) else { return Ok(Vec::new()) };
        let new = running::changed(&old, keys)?;
        let now = self.made(&self.running.config);
        let mut then = now.clone();
        then.insert((switch.clone(), name.clone()), new.clone());
        self.running.agree(&now, &self.running.config, &then, &format!("port.{switch}:{name}."))?;
        if new == old {
            return Ok(Vec::new());
        }
        if let Some(live) = self.switches.get_mut(&switch) {
            live.set(&name, new);
        }
        self.publish();
        let keep = format!("ringway port add {switch}:{name} kind=process");
        Ok(vec![format!("changed port {name} until its client goes; to keep it so: {keep}")])
    }

    /// Removes a port, configured or made by a client; the client is told.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn delete_port(&mut self, port: &PortRef) -> Result<Vec<String>, Refused> {
        let (switch, name) = self.find(port)?;
        if self.is_configured(&switch, &name) {
            let target = self.running.without_port(&name)?;
            let changes = self.apply(target, &format!("port.{name}."))?;
            self.defects.forgive(&(switch, name));
            return Ok(changes);
        }
        self.defects.forgive(&(switch.clone(), name.clone()));
        self.end_port(&switch, &name, "the port was deleted");
        Ok(vec![format!("removed port {name}")])
    }

    /// Makes a bucket, or gives it these settings and no others, while its ports send.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn set_bucket(&mut self, name: &Name, keys: &Node) -> Result<Vec<String>, Refused> {
        let target = self.running.with_bucket(name, keys)?;
        self.apply(target, &format!("bucket.{name}."))
    }

    /// Removes a bucket that no port has.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn delete_bucket(&mut self, name: &Name) -> Result<Vec<String>, Refused> {
        let buckets = &self.running.config.buckets;
        if !buckets.contains_key(name) {
            return Err(unknown("bucket", name, buckets.keys()));
        }
        // Of those that clients made, `apply` tells.
        if let Some((port, _)) = self.running.config.ports.iter().find(|(_, port)| port.draws_on(name)) {
            let what = format!(
                "bucket \"{name}\" is part of a limit of port \"{port}\": change that first, with \"port set\""
            );
            return Err(Refused::Conflict(what));
        }
        let target = self.running.without_bucket(name);
        self.apply(target, &format!("bucket.{name}."))
    }

    /// Changes a switch, whoever made it; it is then one that stays.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn set_switch(&mut self, name: &Name, keys: &Node) -> Result<Vec<String>, Refused> {
        let configured = self.running.config.switches.get(name);
        let Some(old) = configured.or_else(|| self.switches.get(name).map(|live| &live.settings)) else {
            return Err(unknown("switch", name, self.switches.keys()));
        };
        let is_made = configured.is_none();
        let target = self.running.with_switch(name, old, keys)?;
        if target.switches.get(name) == Some(old) {
            return Ok(Vec::new());
        }
        let changes = self.apply(target, &format!("switch.{name}."))?;
        Ok(if is_made { vec![format!("changed switch {name}, which now stays without ports, too")] } else { changes })
    }

    /// Reads the configuration file again.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn reload(&mut self) -> Result<Vec<String>, Refused> {
        let reread = self.running.reread()?;
        let changes = self.apply(reread.config.clone(), "")?;
        self.running.reloaded(reread);
        Ok(changes)
    }

    /// Ends every port. Sockets and devices are gone once that has settled.
    pub fn end(&mut self) {
        for switch in std::mem::take(&mut self.switches).into_values() {
            switch
                .ports()
                .values()
                .filter_map(|live| live.front_end.clone())
                .for_each(|front_end| self.retire(front_end));
        }
        self.lost.clear();
        self.publish();
    }

    /// A descriptor that becomes readable when a port has a fault. Another engine has another.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn fault_signal(&self) -> io::Result<OwnedFd> {
        self.engine.faults().try_clone_to_owned()
    }

    /// Tells when there is another engine.
    pub fn engine_changed(&self) -> Arc<Notify> {
        Arc::clone(&self.engine_changed)
    }

    fn is_configured(&self, switch: &Name, name: &Name) -> bool {
        self.running.config.ports.get(name).is_some_and(|port| port.switch == *switch)
    }

    /// The ports that clients made which are there once `target` runs, as they are then.
    fn made(&self, target: &Config) -> Made {
        let goes = |switch: &Name| {
            let is_removed = self.running.config.switches.contains_key(switch) && !target.switches.contains_key(switch);
            is_removed && target.attach.create != Create::Switches
        };
        let is_configured = |switch: &Name, name: &Name| {
            let configs = [&self.running.config, target];
            configs.iter().any(|config| config.ports.get(name).is_some_and(|port| port.switch == *switch))
        };
        let mut made = Made::new();
        for (switch, live) in self.switches.iter().filter(|(switch, _)| !goes(switch)) {
            for (name, live) in live.ports().iter().filter(|(name, _)| !is_configured(switch, name)) {
                let mut port = live.settings.clone();
                port.poller = port.poller.within(target.engine.pollers());
                made.insert((switch.clone(), name.clone()), port);
            }
        }
        made
    }

    /// The one port, configured or live, that is meant.
    fn find(&self, port: &PortRef) -> Result<(Name, Name), Refused> {
        let configured = self.running.config.ports.iter().map(|(name, port)| (&port.switch, name));
        let live = self.switches.iter().flat_map(|(switch, s)| s.ports().keys().map(move |name| (switch, name)));
        let disabled = self.defects.all_disabled().map(|((switch, name), _)| (switch, name));
        let mut found: Vec<_> =
            configured.chain(live).chain(disabled).filter(|(switch, name)| port.means(switch, name)).collect();
        found.sort();
        found.dedup();
        match found.as_slice() {
            [] => Err(Refused::Unknown(format!("there is no port \"{port}\": see \"ringway port list\""))),
            [(switch, name)] => Ok(((*switch).clone(), (*name).clone())),
            several => {
                let names: Vec<String> = several.iter().map(|(switch, name)| format!("\"{switch}:{name}\"")).collect();
                Err(Refused::Conflict(format!("several ports are called \"{port}\": write {}", names.join(" or "))))
            }
        }
    }

    /// Takes a live port away at once and tells its client why.
    fn end_port(&mut self, switch: &Name, name: &Name, reason: &str) {
        let Some(live) = self.take_out(switch, name) else { return };
        if let Some(front_end) = live.front_end {
            self.retire(front_end);
        }
        if let Some(client) = live.client {
            self.clients.remove(&client);
            self.end_client(client, reason);
        }
        self.forget_if_unused(switch);
        self.publish();
    }

    /// Takes a port out that went by itself, or because of its client: where it is configured, it may come back.
    fn take_out(&mut self, switch: &Name, name: &Name) -> Option<LivePort> {
        let stays = self.is_configured(switch, name);
        let switch = self.switches.get_mut(switch)?;
        if stays { switch.leave(name) } else { switch.remove(name) }
    }

    fn end_client(&self, client: ClientId, reason: &str) {
        if let Some(ender) = &self.ender {
            ender.end(client, reason.to_owned());
        }
    }

    /// A switch that only clients wanted goes with its last port.
    fn forget_if_unused(&mut self, switch: &Name) {
        let unused = self.switches.get(switch).is_some_and(|s| s.ports().is_empty());
        if unused && !self.running.config.switches.contains_key(switch) {
            self.switches.remove(switch);
        }
    }

    /// Gives pollers what runs now.
    fn publish(&mut self) {
        let Self { captures, switches, running, .. } = self;
        captures.keep(|switch, name| {
            running.config.ports.get(name).is_some_and(|port| port.switch == *switch)
                || switches.get(switch).is_some_and(|live| live.ports().contains_key(name))
        });
        for (name, switch) in switches {
            switch.show(captures.of(name));
        }
        let ports = self.switches.values_mut().flat_map(|switch| switch.attached(&self.buckets)).collect();
        self.engine.publish(Topology { ports });
        self.switches.values_mut().for_each(LiveSwitch::published);
    }
}

/// There is no such switch, or bucket.
fn unknown<'a>(what: &str, name: &Name, known: impl Iterator<Item = &'a Name>) -> Refused {
    let known: Vec<String> = known.map(|known| format!("\"{known}\"")).collect();
    let known =
        if known.is_empty() { "there is none yet".to_owned() } else { format!("there are {}", known.join(", ")) };
    Refused::Unknown(format!("there is no {what} \"{name}\": {known}"))
}

/// Where a port goes: the poller it is to be on, or that with the fewest ports of these switches.
fn place(settings: &config::Port, switches: &BTreeMap<Name, LiveSwitch>, pollers: usize) -> usize {
    if let Placement::Poller(number) = settings.poller {
        return number as usize % pollers;
    }
    let mut load = vec![0usize; pollers];
    for port in switches.values().flat_map(|s| s.ports().values()) {
        load[port.poller % pollers] += 1;
    }
    (0..pollers).min_by_key(|&poller| load[poller]).unwrap_or(0)
}

fn start_engine(settings: &config::Engine) -> Result<Engine, Refused> {
    let settings = EngineSettings {
        cores: settings.cores.iter().map(|&core| core as usize).collect(),
        idle: match settings.idle {
            config::Idle::Spin => ringway_engine::Idle::Spin,
            config::Idle::Adaptive => ringway_engine::Idle::Adaptive(settings.spin),
            config::Idle::Sleep => ringway_engine::Idle::Sleep,
        },
        batch: settings.batch as usize,
        pacing: settings.pacing,
    };
    Engine::start(&settings).map_err(|why| Refused::by_system(format!("cannot start the pollers: {why}"), &why))
}
