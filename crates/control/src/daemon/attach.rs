//! Clients of process ports: attaching and leaving.
//!
//! Attaching waits, without the daemon's lock and within bounds, until all pollers use the topology with the new port: the
//! client then misses nothing that is sent to it from then on. Attaching is never refused because parts of the configuration
//! disagree.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringway_abi::Layout;
use ringway_abi::attach::Request;
use ringway_engine::Source;
use ringway_ports::Sides;
use ringway_ports::process::{self, ClientId, Grant, Host};

use super::change::SETTLE_WITHIN;
use super::defects::Pause;
use super::live::{LiveSwitch, NewPort};
use super::{Daemon, place};
use crate::config::units::show_size;
use crate::config::{Create, Kind, Name, Port, Switch};
use crate::inject;

/// Longest wait for pollers, while one of them is late.
const SETTLE_LATE: Duration = Duration::from_millis(10);

/// The daemon as the attach server sees it.
pub struct AttachHost {
    daemon: Arc<Mutex<Daemon>>,
    /// A poller did not take over a change in time, as a client can make it do.
    is_late: bool,
}

impl AttachHost {
    /// That of this daemon.
    pub fn new(daemon: Arc<Mutex<Daemon>>) -> Self {
        Self { daemon, is_late: false }
    }

    fn lock(&self) -> MutexGuard<'_, Daemon> {
        self.daemon.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all pollers use what was published, without the daemon's lock, and not again and again for one that does not.
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
        let wish = self.lock().may_attach(&request)?;
        let (sides, ends) = process::open(&wish.label, request.shape, wish.colour)
            .map_err(|e| format!("the switch cannot make {}: {e}", wish.label))?;
        if wish.was_there {
            // Limits that it had before are drawn on by one at a time.
            self.settle();
        }
        let colour = wish.colour;
        let mac = self.lock().admit(client, &request, wish, sides)?;
        // A poller in the middle of its round would still deliver without this port what is sent to it from now on.
        self.settle();
        Ok(Grant { ends, colour, mac })
    }

    fn detach(&mut self, client: ClientId) {
        self.lock().detach(client);
    }
}

/// A port that a client may have.
struct Wish {
    /// `SWITCH:PORT`.
    label: String,
    colour: u32,
    /// Others had the port before.
    was_there: bool,
}

/// In milliseconds; whoever waits for so many has waited long enough.
fn whole_ms(wait: Duration) -> u128 {
    wait.as_nanos().div_ceil(1_000_000)
}

impl Daemon {
    /// Whether a client may have what it asks for.
    fn may_attach(&mut self, request: &Request) -> Result<Wish, String> {
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
        let was_there = self.switches.get(&switch).is_some_and(|live| live.left(&name).is_some());
        Ok(Wish { label: format!("{switch}:{name}"), colour, was_there })
    }

    /// Takes in the port of a client, if it still may have it. Gives the address that is bound to the port.
    fn admit(
        &mut self,
        client: ClientId,
        request: &Request,
        Wish { label, .. }: Wish,
        sides: Sides,
    ) -> Result<[u8; 6], String> {
        let (switch, name): (Name, Name) = (request.switch.parse()?, request.port.parse()?);
        let settings = self.settings_for(&switch, &name)?;
        self.within_limits(request)?;
        let poller = place(&settings, &self.switches, self.engine.pollers());
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

    fn detach(&mut self, client: ClientId) {
        let Some((switch, name)) = self.clients.remove(&client) else { return };
        self.take_out(&switch, &name);
        self.forget_if_unused(&switch);
        self.publish();
    }

    /// The settings of the port that a client asks for, if it may have it.
    fn settings_for(&self, switch: &Name, name: &Name) -> Result<Port, String> {
        let label = format!("{switch}:{name}");
        if self.switches.get(switch).is_some_and(|s| s.ports().contains_key(name)) {
            return Err(format!("{label} is in use: attach to another name"));
        }
        if let Some(disabled) = self.defects.disabled(switch, name) {
            // What is to be done comes first: a client is told about 200 bytes.
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
        if let Some(left) = self.defects.pause_of_made(self.row_of_made(switch), now) {
            let wait = whole_ms(left);
            return Err(format!(
                "{label} is not configured: attach again in {wait} ms, or to a port that is, as Ringway failed again and \
                 again within a minute when it served ports that clients made"
            ));
        }
        Ok(Port::new(switch.clone(), Kind::Process, name))
    }

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
