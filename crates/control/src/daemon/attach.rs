//! Clients of process ports attach and detach.
//!
//! Attaching waits, without the daemon's lock and within bounds, until all pollers use the topology with the new port: the
//! client then misses nothing that is sent to it from then on. Attaching is never refused because parts of the configuration
//! disagree.

use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use ringway_abi::Layout;
use ringway_abi::attach::Request;
use ringway_engine::Source;
use ringway_ports::PortIo;
use ringway_ports::process::{self, ClientId, Grant, Host};

use super::defects::Pause;
use super::live::{LiveSwitch, NewPort};
use super::settle::SETTLE_WITHIN;
use super::state::{Daemon, SharedDaemon, choose_poller, lock};
use crate::config::{Create, Kind, Name, Port, Switch};
use crate::inject;
use crate::keys::units::show_size;

/// Longest wait for the pollers after one of them was late.
const SETTLE_LATE: Duration = Duration::from_millis(10);

/// The daemon as the attach server sees it.
pub struct AttachHost {
    daemon: SharedDaemon,
    /// A poller did not take over the last change in time. A client can delay its poller.
    is_late: bool,
}

impl AttachHost {
    /// The attach server's view of this daemon.
    pub fn new(daemon: SharedDaemon) -> Self {
        Self { daemon, is_late: false }
    }

    fn lock(&self) -> MutexGuard<'_, Daemon> {
        lock(&self.daemon)
    }

    /// Waits, without the daemon's lock, until all pollers use the published topology. The wait is short while a poller is late.
    fn settle(&mut self) {
        let deadline = Instant::now() + if self.is_late { SETTLE_LATE } else { SETTLE_WITHIN };
        loop {
            let is_settled = self.lock().is_settled();
            self.is_late = !is_settled;
            if !self.is_late || Instant::now() >= deadline {
                return;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

impl Host for AttachHost {
    fn attach(&mut self, client: ClientId, request: Request) -> Result<Grant, String> {
        let Reservation { label, colour, existed } = self.lock().reserve(&request)?;
        let (sides, ends) =
            process::open(&label, request.shape, colour).map_err(|e| format!("the switch cannot make {label}: {e}"))?;
        if existed {
            // The port has limits of its predecessor, which only one port may use at a time.
            self.settle();
        }
        let mac = self.lock().admit(client, &request, label, sides)?;
        // Until then a poller in the middle of its round does not deliver to this port.
        self.settle();
        Ok(Grant { ends, colour, mac })
    }

    fn detach(&mut self, client: ClientId) {
        self.lock().detach(client);
    }
}

/// A port that a client may attach to.
struct Reservation {
    /// `SWITCH:PORT`.
    label: String,
    /// The colour of the memory's layout.
    colour: u32,
    /// The port had a client before.
    existed: bool,
}

/// Returns the time in milliseconds, rounded up.
fn whole_ms(wait: Duration) -> u128 {
    wait.as_nanos().div_ceil(1_000_000)
}

impl Daemon {
    /// Checks that a client may attach.
    fn reserve(&mut self, request: &Request) -> Result<Reservation, String> {
        inject::at("attach");
        let (switch, name): (Name, Name) = (request.switch.parse()?, request.port.parse()?);
        self.settings_for(&switch, &name)?;
        self.within_limits(request)?;
        if let Some((wait, faults)) = self.faults.wait(&(switch.clone(), name.clone()), Instant::now()) {
            let wait = wait.as_millis();
            return Err(format!(
                "{switch}:{name} has had {faults} faults in a row, the last a moment ago: attach again in {wait} ms"
            ));
        }
        let colour = self.next_colour;
        self.next_colour = self.next_colour.wrapping_add(1);
        let existed = self.switches.get(&switch).is_some_and(|live| live.suspended(&name).is_some());
        Ok(Reservation { label: format!("{switch}:{name}"), colour, existed })
    }

    /// Makes the port of a client, after the same checks. Returns the address that is bound to the port.
    fn admit(&mut self, client: ClientId, request: &Request, label: String, sides: PortIo) -> Result<[u8; 6], String> {
        let (switch, name): (Name, Name) = (request.switch.parse()?, request.port.parse()?);
        let settings = self.settings_for(&switch, &name)?;
        self.within_limits(request)?;
        let poller = choose_poller(&settings, &self.switches, self.engine.pollers());
        let mac = settings.mac.first().map_or([0; 6], |mac| mac.get().octets());
        let sides = inject::sides(&label, sides);
        let port = Arc::new(ringway_switch::Port::new(label, sides.output, sides.bell));
        let source = Arc::new(Source::new(sides.input, sides.signal));
        let new = NewPort { settings, port, source, poller, client: Some(client), front_end: None };
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
    fn detach(&mut self, client: ClientId) {
        let Some((switch, name)) = self.clients.remove(&client) else { return };
        self.detach_port(&switch, &name);
        self.remove_unused_switch(&switch);
        self.publish();
    }

    /// Returns the settings of the port that a client asks for, or the reason why it may not have the port.
    fn settings_for(&self, switch: &Name, name: &Name) -> Result<Port, String> {
        let label = format!("{switch}:{name}");
        if self.switches.get(switch).is_some_and(|s| s.ports().contains_key(name)) {
            return Err(format!("{label} is in use: attach to another name"));
        }
        if let Some(disabled) = self.defects.disabled(switch, name) {
            // The remedy comes first: a client gets only about 200 bytes of the text.
            let why = &disabled.why;
            return Err(format!("{label} is disabled; to enable it: ringway port enable {label} ({why})"));
        }
        let now = Instant::now();
        if let Some(Pause { left, why }) = self.defects.pause_of(switch, name, now) {
            return Err(format!("{label} pauses: attach again in {} ms ({why})", whole_ms(left)));
        }
        let config = &self.running.config;
        match config.ports.get(name).filter(|port| port.switch == *switch) {
            Some(port) if port.kind() == Kind::Process => return Ok(port.clone()),
            Some(port) => return Err(format!("{label} is a {} port: attach to another name", port.kind().as_str())),
            None => {}
        }
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
        if let Some(left) = self.defects.dynamic_pause(self.dynamic_defects_row(switch), now) {
            let wait = whole_ms(left);
            return Err(format!(
                "{label} is not configured: attach again in {wait} ms, or to a port that is, as Ringway failed again and \
                 again within a minute when it served ports that clients made"
            ));
        }
        Ok(Port::new(switch.clone(), Kind::Process, name))
    }

    /// Checks the limits of `[attach]` and of the switch.
    fn within_limits(&self, request: &Request) -> Result<(), String> {
        let limits = &self.running.config.attach;
        if self.clients.len() >= limits.max_ports as usize {
            return Err(format!("{} clients are attached: [attach] max_ports allows no more", self.clients.len()));
        }
        if self.switches.get(&request.switch.parse()?).is_some_and(|s| !s.has_room()) {
            return Err(format!("switch {} is full: it has {} ports", request.switch, ringway_switch::MAX_PORTS));
        }
        let bytes = Layout::new(request.shape, 0).map_err(|e| e.to_string())?.bytes as u64;
        if bytes > limits.max_memory {
            let (wanted, most) = (show_size(bytes), show_size(limits.max_memory));
            return Err(format!("the port would take {wanted} of memory: [attach] max_memory allows {most}"));
        }
        Ok(())
    }
}
