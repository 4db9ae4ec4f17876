//! Clients come and go, each with its port.

use std::sync::{Arc, Mutex, PoisonError};

use ringway_abi::Layout;
use ringway_abi::attach::Request;
use ringway_engine::Source;
use ringway_ports::process::{self, ClientId, Grant, Host};

use super::live::{LiveSwitch, NewPort};
use super::{Daemon, place};
use crate::config::units::show_size;
use crate::config::{Create, Kind, Name, Port, Switch};

/// The daemon as the attach server sees it.
pub struct AttachHost(pub Arc<Mutex<Daemon>>);

impl Host for AttachHost {
    fn attach(&mut self, client: ClientId, request: Request) -> Result<Grant, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).attach(client, &request)
    }

    fn detach(&mut self, client: ClientId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).detach(client);
    }
}

impl Daemon {
    fn attach(&mut self, client: ClientId, request: &Request) -> Result<Grant, String> {
        let switch: Name = request.switch.parse()?;
        let name: Name = request.port.parse()?;
        let settings = self.settings_for(&switch, &name)?;
        self.within_limits(request)?;
        let poller = place(&settings, &self.switches, self.engine.pollers());

        let colour = self.next_colour;
        let label = format!("{switch}:{name}");
        let (sides, ends) =
            process::open(&label, request.shape, colour).map_err(|e| format!("the switch cannot make {label}: {e}"))?;
        self.next_colour = self.next_colour.wrapping_add(1);

        let created = !self.switches.contains_key(&switch);
        let mac = settings.mac.first().map_or([0; 6], |mac| mac.get().octets());
        let port = Arc::new(ringway_switch::Port::new(label, sides.output, sides.bell));
        let source = Arc::new(Source::new(sides.input, sides.signal));
        let new = NewPort { settings, port, source, poller, client: Some(client), front_end: None };
        if created {
            let live = LiveSwitch::new(switch.clone(), Switch::default()).map_err(|e| e.to_string())?;
            self.switches.insert(switch.clone(), live);
        }
        // Limits that it had before are drawn on by one at a time.
        self.settle();
        if let Some(live) = self.switches.get_mut(&switch) {
            live.insert(name.clone(), new);
        }
        self.clients.insert(client, (switch, name));
        self.publish();
        // A poller in the middle of its round would still deliver without this port what is sent to it from now on.
        self.settle();
        Ok(Grant { ends, colour, mac })
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
        let config = &self.running.config;
        match config.ports.get(name).filter(|port| port.switch == *switch) {
            Some(port) if port.kind == Kind::Process => return Ok(port.clone()),
            Some(port) => return Err(format!("{label} is a {} port: attach to another name", port.kind.as_str())),
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
