//! The state of the daemon, and the steps that several operations share: they find a port, take it out, and publish what runs.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringway_config::keys::PortRef;
use ringway_config::kinds::netns::ProcessNamespace;
use ringway_config::port::DynamicPorts;
use ringway_config::{self, Config, Create, Name, Placement};
use ringway_engine::{Engine, EngineSettings, Topology};
use ringway_keeper::Link;
use ringway_memory::Quota;
use ringway_port_process::{ClientId, Disconnector};
use tokio::sync::Notify;

use super::background::{BackgroundTask, BackgroundTasks, log_failed_close};
use super::captures::Captures;
use super::deaths::Deaths;
use super::defects::Defects;
use super::devices::{OpeningDevice, TriedDevices};
use super::events::Events;
use super::faults::Faults;
use super::front_end::FrontEnd;
use super::kept::StateWriter;
use super::large_frames::LargeFrames;
use super::limits::{self, Buckets};
use super::live::{LivePort, LiveSwitch};
use super::netmap::ports::NetmapPorts;
use super::outliving::Counted;
use super::pipes::live::Pipes;
use super::programs::Programs;
use super::refused::Refused;
use super::running::Running;

/// The daemon as its threads and requests share it.
pub type SharedDaemon = Arc<Mutex<Daemon>>;

/// Locks the daemon. A panic of another thread with the lock held ends the process, so that the state is whole here.
pub fn lock(daemon: &Mutex<Daemon>) -> MutexGuard<'_, Daemon> {
    daemon.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The running switches, ports and pollers.
pub struct Daemon {
    pub(super) running: Running,
    pub(super) engine: Engine,
    pub(super) engine_started: Instant,
    /// The free time of each poller as the last status reported it.
    pub(super) reported_free: Vec<Duration>,
    /// The pollers that do not go round their loops, and since when.
    pub(super) late: BTreeMap<usize, Instant>,
    /// Those of them that are reported as stuck.
    pub(super) stuck: Vec<usize>,
    pub(super) engine_changed: Arc<Notify>,
    pub(super) switches: BTreeMap<Name, LiveSwitch>,
    pub(super) buckets: Buckets,
    /// The port of each attached client: switch and name.
    pub(super) clients: HashMap<ClientId, (Name, Name)>,
    /// The clients of ports of the netmap API.
    pub(super) netmap: NetmapPorts,
    /// The pipes of the netmap API.
    pub(super) pipes: Pipes,
    pub(super) disconnector: Option<Disconnector>,
    pub(super) next_colour: u32,
    pub(super) faults: Faults,
    pub(super) defects: Defects,
    pub(super) deaths: Deaths,
    /// Events of front ends, noted by their ports' own threads.
    pub(super) events: Arc<Events>,
    /// Holds what outlives this process.
    pub(super) keeper: Link,
    /// Configured ports whose device or socket is not open.
    pub(super) retries: BTreeMap<Name, Retry>,
    /// The namespaces of configured ports whose devices were in that of a process: they come back in no other one.
    pub(super) processes: BTreeMap<Name, ProcessNamespace>,
    pub(super) large_frames: LargeFrames,
    /// How many ports' namespaces have been looked up, by turns.
    pub(super) looked_up: usize,
    /// Devices of these ports that are being opened.
    pub(super) reopening: BTreeMap<Name, OpeningDevice>,
    /// The devices that were opened for the present change.
    pub(super) opened: TriedDevices,
    /// Nobody is served yet.
    pub(super) is_starting: bool,
    /// What predecessors left and no port waits for is let go.
    pub(super) lets_go: bool,
    /// Ports of a predecessor are still to be made again: none is served before all are there, as frames for the others would be lost.
    pub(super) is_taking_over: bool,
    /// What of counters and addresses is with the keeper.
    pub(super) counted: Counted,
    /// All ports are closed: no change comes after that.
    pub(super) is_ending: bool,
    pub(super) captures: Captures,
    pub(super) programs: Programs,
    /// Where what commands change is kept; none: nowhere.
    pub(super) state: Option<StateWriter>,
    /// What could not be read of it at the start, for users.
    pub(super) state_lost: Option<String>,
    /// Work that changes have begun and that may not have ended.
    pub(super) tasks: BackgroundTasks,
    pub(super) started: Instant,
}

/// A configured port that could not be opened, or was closed because of a fault.
#[derive(Debug)]
pub(super) struct Retry {
    /// The reason, for users.
    pub(super) why: String,
    /// The time of the next attempt.
    pub(super) at: Instant,
}

impl Daemon {
    /// A daemon without switches and ports, with the pollers that `running` asks for.
    ///
    /// # Errors
    /// A CPU or a thread cannot be had.
    pub(super) fn new(running: Running) -> Result<Self, Refused> {
        let engine = start_engine(&running.config.engine)?;
        Ok(Self {
            running,
            engine,
            engine_started: Instant::now(),
            reported_free: Vec::new(),
            late: BTreeMap::new(),
            stuck: Vec::new(),
            engine_changed: Arc::default(),
            switches: BTreeMap::new(),
            buckets: Buckets::default(),
            clients: HashMap::new(),
            netmap: NetmapPorts::default(),
            pipes: Pipes::default(),
            disconnector: None,
            next_colour: 0,
            faults: Faults::default(),
            defects: Defects::default(),
            deaths: Deaths::default(),
            events: Arc::default(),
            keeper: Link::default(),
            retries: BTreeMap::new(),
            processes: BTreeMap::new(),
            large_frames: LargeFrames::default(),
            looked_up: 0,
            reopening: BTreeMap::new(),
            opened: TriedDevices::default(),
            is_starting: true,
            lets_go: false,
            is_taking_over: false,
            counted: Counted::default(),
            is_ending: false,
            captures: Captures::default(),
            programs: Programs::default(),
            state: None,
            state_lost: None,
            tasks: BackgroundTasks::default(),
            started: Instant::now(),
        })
    }

    /// Sets what detaches clients from the attach server.
    pub fn set_disconnector(&mut self, disconnector: Disconnector) {
        self.disconnector = Some(disconnector);
    }

    /// What ports have outlives this process from now on, with this keeper.
    pub fn use_keeper(&mut self, keeper: &Link) {
        self.keeper = keeper.clone();
        self.is_taking_over = keeper.predecessor().is_some();
    }

    /// All ports of a predecessor are there again.
    pub(super) fn taken_over(&mut self) {
        if std::mem::replace(&mut self.is_taking_over, false) {
            self.go_on_counting();
            self.publish();
        }
    }

    /// Has the pollers end their batches and serve nobody any more. Waits at most so long for that.
    pub fn halt(&self, within: Duration) {
        self.engine.halt(within);
    }

    /// Returns the events of front ends.
    pub fn events(&self) -> Arc<Events> {
        Arc::clone(&self.events)
    }

    /// Returns a descriptor that becomes readable when a port has a fault. Each engine has one of its own.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn fault_signal(&self) -> io::Result<OwnedFd> {
        self.engine.faults().try_clone_to_owned()
    }

    /// Returns what is notified when another engine has replaced this one.
    pub fn engine_changed(&self) -> Arc<Notify> {
        Arc::clone(&self.engine_changed)
    }

    /// Returns true if all pollers, except those of the quarantine, use the topology that was published last. The topology before
    /// it may still be in use: clients can delay its release.
    pub(super) fn is_settled(&self) -> bool {
        self.engine.is_taken_over()
    }

    /// Returns true if the topologies before the published one are released. A removed device is closed then.
    pub(super) fn is_released(&self) -> bool {
        self.engine.is_released()
    }

    /// Returns the background tasks that began since the last call, so that the caller can wait for them.
    pub fn take_tasks(&mut self) -> BackgroundTasks {
        std::mem::take(&mut self.tasks)
    }

    /// Registers a background task.
    pub(super) fn begin(&mut self) -> BackgroundTask {
        self.tasks.begin()
    }

    /// Closes the front end of a port that is gone, on a thread of its own.
    pub(super) fn close_front_end(&mut self, front_end: Arc<FrontEnd>) {
        let label = front_end.label().to_owned();
        self.begin().spawn("close", move || front_end.close(), move |place| log_failed_close(&label, place));
    }

    /// Sets the bounds of the memory that all front ends together give.
    pub(super) fn bound_memory(&self) {
        Quota::total().set_limits(limits::of_all_memory(self.running.config.memory));
    }

    pub(super) fn is_configured(&self, switch: &Name, name: &Name) -> bool {
        self.running.config.ports.get(name).is_some_and(|port| port.switch == *switch)
    }

    /// Returns the dynamic ports that remain once `target` runs, with the settings that they have then.
    pub(super) fn dynamic_ports(&self, target: &Config) -> DynamicPorts {
        let goes = |switch: &Name| {
            let is_removed = self.running.config.switches.contains_key(switch) && !target.switches.contains_key(switch);
            is_removed && target.attach.create != Create::Switches
        };
        let is_configured = |switch: &Name, name: &Name| {
            let configs = [&self.running.config, target];
            configs.iter().any(|config| config.ports.get(name).is_some_and(|port| port.switch == *switch))
        };
        let mut dynamic = DynamicPorts::new();
        for (switch, live) in self.switches.iter().filter(|(switch, _)| !goes(switch)) {
            for (name, live) in live.ports().iter().filter(|(name, _)| !is_configured(switch, name)) {
                let mut port = live.settings.clone();
                port.poller = port.poller.within(target.engine.pollers());
                dynamic.insert((switch.clone(), name.clone()), port);
            }
        }
        dynamic
    }

    /// Returns the switch and the name of the one port that `port` names: configured, live or disabled.
    ///
    /// # Errors
    /// There is no such port, several switches have one, or it is an end of a pipe.
    pub(super) fn resolve(&self, port: &PortRef) -> Result<(Name, Name), Refused> {
        if let Some(pipe) = &port.pipe {
            let end = self.resolve_end(port, pipe)?;
            return Err(Refused::Conflict(format!(
                "{end} is an end of a pipe, which has no keys, limits and captures: only \"port del\" works on it"
            )));
        }
        let configured = self.running.config.ports.iter().map(|(name, port)| (&port.switch, name));
        let live = self.switches.iter().flat_map(|(switch, s)| s.ports().keys().map(move |name| (switch, name)));
        let disabled = self.defects.all_disabled().map(|((switch, name), _)| (switch, name));
        let mut found: Vec<_> =
            configured.chain(live).chain(disabled).filter(|(switch, name)| port.matches(switch, name)).collect();
        found.sort();
        found.dedup();
        let (switch, name) = the_one(port, &found, |(switch, name)| format!("{switch}:{name}"))?;
        Ok(((*switch).clone(), (*name).clone()))
    }

    /// Closes a live port at once and detaches its client with this reason.
    pub(super) fn close_port(&mut self, switch: &Name, name: &Name, reason: &str) {
        let Some(live) = self.detach_port(switch, name) else { return };
        if let Some(front_end) = live.front_end {
            self.close_front_end(front_end);
        }
        if let Some(client) = live.client {
            self.clients.remove(&client);
            self.end_client(client, reason);
        }
        self.remove_unused_switch(switch);
        self.publish();
    }

    /// Takes a port out of its switch. A configured port keeps its counters and limits for its return.
    pub(super) fn detach_port(&mut self, switch: &Name, name: &Name) -> Option<LivePort> {
        let stays = self.is_configured(switch, name);
        // Another client may get the name.
        self.counted.soon();
        let switch = self.switches.get_mut(switch)?;
        let live = if stays { switch.suspend(name) } else { switch.remove(name) };
        if let Some(live) = live.as_ref().filter(|_| stays) {
            self.note_namespace(name, live);
        }
        live
    }

    /// Tells a port's client, or all clients with a registration of it, that the port has ended.
    pub(super) fn end_client(&mut self, client: ClientId, reason: &str) {
        let registered = self.netmap.take(client);
        let Some(disconnector) = &self.disconnector else { return };
        match registered {
            Some(clients) => clients.into_iter().for_each(|client| disconnector.end(client, reason.to_owned())),
            None => disconnector.end(client, reason.to_owned()),
        }
    }

    /// Removes a switch that is not configured and has no ports.
    pub(super) fn remove_unused_switch(&mut self, switch: &Name) {
        let unused = self.switches.get(switch).is_some_and(|s| s.ports().is_empty());
        if unused && !self.running.config.switches.contains_key(switch) {
            self.switches.remove(switch);
        }
    }

    /// Ends the monitors whose ports have gone: nothing comes to them any more.
    fn end_monitors(&mut self) {
        let orphans = self.switches.iter().flat_map(|(switch, live)| {
            let is_gone = |port: &Name| !live.ports().contains_key(port);
            let monitors = live.ports().iter().filter_map(|(name, port)| Some((name, &port.monitor.as_ref()?.port)));
            let orphans = monitors.filter(move |(_, port)| is_gone(port));
            orphans.map(move |(name, port)| (switch.clone(), name.clone(), port.clone()))
        });
        for (switch, name, port) in orphans.collect::<Vec<_>>() {
            let Some(live) = self.detach_port(&switch, &name) else { continue };
            if let Some(client) = live.client {
                self.clients.remove(&client);
                self.end_client(client, &format!("the monitored port {switch}:{port} has gone"));
            }
            self.remove_unused_switch(&switch);
        }
    }

    /// Publishes the live switches and ports to the pollers.
    pub(super) fn publish(&mut self) {
        if self.is_taking_over {
            return;
        }
        self.end_monitors();
        let Self { captures, switches, running, .. } = self;
        captures.keep(|switch, name| {
            running.config.ports.get(name).is_some_and(|port| port.switch == *switch)
                || switches.get(switch).is_some_and(|live| live.ports().contains_key(name))
        });
        for (name, switch) in switches {
            switch.show(captures.of(name));
        }
        let ports = self.switches.values_mut().flat_map(|switch| switch.attached(&self.buckets));
        let ports = ports.chain(self.pipes.attached()).collect();
        self.engine.publish(Topology { ports });
        self.switches.values_mut().for_each(LiveSwitch::published);
    }
}

/// Returns the one of these that `port` names.
///
/// # Errors
/// There is none, or there are several.
pub(super) fn the_one<'a, T>(port: &PortRef, found: &'a [T], label: impl Fn(&T) -> String) -> Result<&'a T, Refused> {
    match found {
        [] => Err(Refused::Unknown(format!("there is no port \"{port}\": see \"ringway port list\""))),
        [one] => Ok(one),
        several => {
            let names: Vec<String> = several.iter().map(|one| format!("\"{}\"", label(one))).collect();
            Err(Refused::Conflict(format!("several ports are called \"{port}\": write {}", names.join(" or "))))
        }
    }
}

/// The refusal of a request that names a switch or bucket that does not exist.
pub(super) fn unknown<'a>(what: &str, name: &Name, known: impl Iterator<Item = &'a Name>) -> Refused {
    let known: Vec<String> = known.map(|known| format!("\"{known}\"")).collect();
    let known =
        if known.is_empty() { "there is none yet".to_owned() } else { format!("there are {}", known.join(", ")) };
    Refused::Unknown(format!("there is no {what} \"{name}\": {known}"))
}

/// Returns the poller for a port: the configured one, or the one with the fewest ports of these switches.
pub(super) fn choose_poller(
    settings: &ringway_config::Port,
    switches: &BTreeMap<Name, LiveSwitch>,
    pollers: usize,
) -> usize {
    if let Placement::Poller(number) = settings.poller {
        return number as usize % pollers;
    }
    let mut load = vec![0usize; pollers];
    for port in switches.values().flat_map(|s| s.ports().values()) {
        load[port.poller % pollers] += 1;
    }
    (0..pollers).min_by_key(|&poller| load[poller]).unwrap_or(0)
}

/// Starts the pollers.
///
/// # Errors
/// A CPU or a thread cannot be had.
pub(super) fn start_engine(settings: &ringway_config::Engine) -> Result<Engine, Refused> {
    let settings = EngineSettings {
        cores: settings.cores.iter().map(|&core| core as usize).collect(),
        idle: match settings.idle {
            ringway_config::Idle::Spin => ringway_engine::Idle::Spin,
            ringway_config::Idle::Adaptive => ringway_engine::Idle::Adaptive(settings.spin),
            ringway_config::Idle::Sleep => ringway_engine::Idle::Sleep,
        },
        batch: settings.batch as usize,
        pacing: settings.pacing,
    };
    Engine::start(&settings).map_err(|why| Refused::by_system(format!("cannot start the pollers: {why}"), &why))
}
