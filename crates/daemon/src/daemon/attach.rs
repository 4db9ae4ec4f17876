//! Clients of process ports attach and detach.
//!
//! Attaching waits, without the daemon's lock and within bounds, until all pollers use the topology with the new port: the
//! client then misses nothing that is sent to it from then on. Attaching is never refused because parts of the configuration
//! disagree.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringway_abi::attach::Request;
use ringway_config::keys::units::show_size;
use ringway_config::{Create, Kind, Name, Port, Switch};
use ringway_engine::{Client, Source};
use ringway_port::PortIo;
use ringway_port_process::{self as process, ClientId, ExternalMemory, Grant, Host, Process};

use super::defects::Pause;
use super::live::{LiveSwitch, Monitored, NewPort};
use super::netmap::regions::Regions;
use super::settle::SETTLE_WITHIN;
use super::state::{Daemon, SharedDaemon, choose_poller, lock};
use crate::inject;

/// Longest wait for the pollers after one of them was late.
const SETTLE_LATE: Duration = Duration::from_millis(10);

/// The daemon as the attach server and the threads that register see it.
#[derive(Clone)]
pub struct AttachHost {
    daemon: SharedDaemon,
    /// A poller did not take over the last change in time. A client can delay its poller.
    is_late: Arc<AtomicBool>,
    /// The memories that netmap ports lie in.
    regions: Arc<Mutex<Regions>>,
}

impl AttachHost {
    /// The attach server's view of this daemon.
    pub fn new(daemon: SharedDaemon) -> Self {
        Self { daemon, is_late: Arc::default(), regions: Arc::default() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Daemon> {
        lock(&self.daemon)
    }

    /// The memories. Not to be held while the memory of a client is touched.
    pub(super) fn regions(&self) -> MutexGuard<'_, Regions> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, without the daemon's lock, until all pollers use the published topology. The wait is short while a poller is late.
    pub(super) fn settle(&mut self) {
        let is_late = self.is_late.load(Ordering::Relaxed);
        let deadline = Instant::now() + if is_late { SETTLE_LATE } else { SETTLE_WITHIN };
        loop {
            let is_settled = self.lock().is_settled();
            self.is_late.store(!is_settled, Ordering::Relaxed);
            if is_settled || Instant::now() >= deadline {
                return;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

impl Host for AttachHost {
    fn check(&mut self, request: &Request) -> Result<(), String> {
        let wanted = Wanted::by(request)?;
        self.lock().reserve(wanted).map(|_| ())
    }

    fn attach(
        &mut self,
        client: ClientId,
        process: Process,
        request: Request,
        memory: Option<Arc<ExternalMemory>>,
    ) -> Result<Grant, String> {
        let wanted = Wanted::by(&request)?;
        let Reservation { wanted, colour, existed, mac: _ } = self.lock().reserve(wanted)?;
        let label = wanted.label();
        let layout = request.layout(colour).map_err(|e| e.to_string())?;
        let lasts = memory.is_none() && self.lock().keeper.is_kept();
        let opened =
            if lasts { process::open_lasting(&label, layout) } else { process::open_with(&label, layout, memory) };
        let (sides, ends) = opened.map_err(|e| format!("the switch cannot make {label}: {e}"))?;
        if existed {
            // The port has limits of its predecessor, which only one port may use at a time.
            self.settle();
        }
        let mac = self.lock().admit((client, process), &wanted, sides)?;
        // Until then a poller in the middle of its round does not deliver to this port.
        self.settle();
        Ok(Grant { ends, colour, mac })
    }

    fn take_over(
        &mut self,
        client: ClientId,
        process: Process,
        request: &Request,
        colour: u32,
        port: PortIo,
    ) -> Result<(), String> {
        inject::at(&format!("{}:{}.take-over", request.switch, request.port));
        let mut daemon = self.lock();
        daemon.was_not_changed(request)?;
        let Reservation { wanted, .. } = daemon.reserve(Wanted::by(request)?)?;
        daemon.next_colour = daemon.next_colour.max(colour.wrapping_add(1));
        daemon.admit((client, process), &wanted, port).map(drop)
    }

    fn taken_over(&mut self) {
        self.lock().taken_over();
        self.settle();
    }

    fn detach(&mut self, client: ClientId) {
        self.lock().detach(client);
    }
}

/// A port that a client asks for.
pub(super) struct Wanted {
    pub(super) switch: Name,
    pub(super) name: Name,
    /// Bytes of its rings and buffers, and of the memory that its client brings.
    pub(super) bytes: u64,
    /// See [`ringway_switch::Member::any_source`].
    pub(super) any_source: bool,
    /// The port is a monitor of this port.
    pub(super) monitor: Option<Monitored>,
}

impl Wanted {
    fn by(request: &Request) -> Result<Self, String> {
        let own = request.layout(0).map_err(|e| e.to_string())?.bytes as u64;
        let bytes = own.saturating_add(request.external.map_or(0, |external| external.bytes));
        Ok(Self {
            switch: request.switch.parse()?,
            name: request.port.parse()?,
            bytes,
            any_source: false,
            monitor: None,
        })
    }

    /// Returns `SWITCH:PORT`.
    fn label(&self) -> String {
        format!("{}:{}", self.switch, self.name)
    }
}

/// A port that a client may attach to.
pub(super) struct Reservation {
    pub(super) wanted: Wanted,
    /// The colour of the memory's layout.
    pub(super) colour: u32,
    /// The port had a client before.
    pub(super) existed: bool,
    /// The address that is bound to the port.
    pub(super) mac: [u8; 6],
}

/// Returns the time in milliseconds, rounded up.
fn whole_ms(wait: Duration) -> u128 {
    wait.as_nanos().div_ceil(1_000_000)
}

impl Daemon {
    /// Checks that a client may attach.
    pub(super) fn reserve(&mut self, wanted: Wanted) -> Result<Reservation, String> {
        inject::at("attach");
        let Wanted { switch, name, .. } = &wanted;
        let settings = self.settings_for(switch, name)?;
        self.within_limits(&wanted)?;
        if let Some((wait, faults)) = self.faults.wait(&(switch.clone(), name.clone()), Instant::now()) {
            let wait = wait.as_millis();
            return Err(format!(
                "{switch}:{name} has had {faults} faults in a row, the last a moment ago: attach again in {wait} ms"
            ));
        }
        let colour = self.next_colour;
        self.next_colour = self.next_colour.wrapping_add(1);
        let existed = self.switches.get(switch).is_some_and(|live| live.suspended(name).is_some());
        Ok(Reservation { colour, existed, mac: bound_mac(&settings), wanted })
    }

    /// Makes the port of a client, after the same checks. Returns the address that is bound to the port.
    pub(super) fn admit(
        &mut self,
        (client, process): (ClientId, Process),
        wanted: &Wanted,
        sides: PortIo,
    ) -> Result<[u8; 6], String> {
        let (switch, name, label) = (wanted.switch.clone(), wanted.name.clone(), wanted.label());
        let settings = self.settings_for(&switch, &name)?;
        self.within_limits(wanted)?;
        if let Some(Monitored { port, .. }) =
            wanted.monitor.as_ref().filter(|to| self.live(&switch, &to.port).is_none())
        {
            return Err(format!("the monitored port {switch}:{port} has gone"));
        }
        let poller = choose_poller(&settings, &self.switches, self.engine.pollers());
        let mac = bound_mac(&settings);
        let sides = inject::sides(&label, sides);
        let port = Arc::new(ringway_switch::Port::new(label, sides.output, sides.bell));
        let source = Arc::new(Source::new(sides.input, sides.signal));
        // What stalls in the memory of one of its ports may stall in all. Processes of other PID namespaces have no number here.
        process.into_iter().for_each(|process| source.set_client(Client::of_process(process.get())));
        let new = NewPort {
            settings,
            port,
            source,
            poller,
            client: Some(client),
            front_end: None,
            namespace: None,
            any_source: wanted.any_source,
            monitor: wanted.monitor.clone(),
        };
        if !self.switches.contains_key(&switch) {
            let live = LiveSwitch::new(switch.clone(), Switch::default()).map_err(|e| e.to_string())?;
            self.switches.insert(switch.clone(), live);
        }
        if let Some(live) = self.switches.get_mut(&switch) {
            live.insert(name.clone(), new);
        }
        self.clients.insert(client, (switch, name));
        self.publish();
        Ok(mac)
    }

    /// Closes the port of a client that has gone.
    pub(super) fn detach(&mut self, client: ClientId) {
        let Some((switch, name)) = self.clients.remove(&client) else { return };
        self.detach_port(&switch, &name);
        self.remove_unused_switch(&switch);
        self.publish();
    }

    /// Returns the settings of the port that a client asks for, or the reason why it may not have the port.
    pub(super) fn settings_for(&self, switch: &Name, name: &Name) -> Result<Port, String> {
        let label = format!("{switch}:{name}");
        let configured = self.running.config.ports.get(name).filter(|port| port.switch == *switch);
        if let Some(port) = configured.filter(|port| port.kind() != Kind::Process) {
            // The remedy comes first: a client gets only about 200 bytes of the text.
            let kind = port.kind().as_str();
            return Err(format!(
                "{label} is a {kind} port: attach to another name, or to mirror:{name} to see its frames"
            ));
        }
        if self.switches.get(switch).is_some_and(|s| s.ports().contains_key(name)) {
            return Err(format!("{label} is in use: attach to another name"));
        }
        if let Some(disabled) = self.defects.disabled(switch, name) {
            // The remedy comes first: a client gets only about 200 bytes of the text.
            let (state, why) = (disabled.state(), &disabled.why);
            return Err(format!("{label} is {state}; to enable it: ringway port enable {label} ({why})"));
        }
        let now = Instant::now();
        if let Some(Pause { left, why }) = self.defects.pause_of(switch, name, now) {
            return Err(format!("{label} pauses: attach again in {} ms ({why})", whole_ms(left)));
        }
        if let Some(port) = configured {
            return Ok(port.clone());
        }
        let config = &self.running.config;
        let allowed = match config.attach.create {
            Create::Switches => true,
            Create::Ports => self.switches.contains_key(switch),
            Create::Nothing => false,
        };
        if !allowed {
            let what = if self.switches.contains_key(switch) { "port" } else { "switch" };
            let setting = config.attach.create.as_str();
            return Err(format!("there is no {what} for {label}, and [attach] create = \"{setting}\" makes none"));
        }
        self.may_make(switch, &label).or_else(|why| {
            let key = (switch.clone(), name.clone());
            if self.outlives_death_of_others(&key) { Ok(()) } else { Err(why) }
        })?;
        Ok(Port::new(switch.clone(), Kind::Process, name))
    }

    /// Checks that clients may make further ports, and pipes, on this switch.
    pub(super) fn may_make(&self, switch: &Name, label: &str) -> Result<(), String> {
        let Some(left) = self.defects.dynamic_pause(self.dynamic_defects_row(switch), Instant::now()) else {
            return Ok(());
        };
        let wait = whole_ms(left);
        Err(format!(
            "{label} is not configured: attach again in {wait} ms, or to a port that is, as Ringway failed again and \
             again within a minute when it served ports that clients made"
        ))
    }

    /// Checks the limits of `[attach]` and of the switch.
    pub(super) fn within_limits(&self, wanted: &Wanted) -> Result<(), String> {
        let limits = &self.running.config.attach;
        // Ends that were closed have memory and descriptors until they have left.
        let clients = self.clients.len() + self.pipes.ends() + process::unclosed_pipes();
        if clients >= limits.max_ports as usize {
            return Err(format!("{clients} clients are attached: [attach] max_ports allows no more"));
        }
        if self.switches.get(&wanted.switch).is_some_and(|s| !s.has_room()) {
            return Err(format!("switch {} is full: it has {} ports", wanted.switch, ringway_switch::MAX_PORTS));
        }
        if wanted.bytes > limits.max_memory {
            let (wanted, most) = (show_size(wanted.bytes), show_size(limits.max_memory));
            return Err(format!("the port would take {wanted} of memory: [attach] max_memory allows {most}"));
        }
        Ok(())
    }
}

/// Returns the address that is bound to the port, or zeroes.
fn bound_mac(settings: &Port) -> [u8; 6] {
    settings.mac.first().map_or([0; 6], |mac| mac.get().octets())
}
