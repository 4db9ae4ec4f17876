//! Ports of the netmap API: several connections of one family share a port, and the ports of a family lie in one region.
//!
//! A port with registrations is in [`Daemon::clients`] by its *leader*: the connection that made it. The leader stands for the
//! port until the last registration goes, also when its own connection has ended before.
//!
//! - `ports`: the ports, their registrations, and the persistent ports. `regions`: the memories that the ports lie in.
//! - The answers to requests are here.

pub(super) mod ports;
pub(super) mod regions;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use ringway_abi::Layout;
use ringway_abi::netmap::{DEFAULT_BUFFER_SIZE, Family, Numbers, PortName, Register, Wish};
use ringway_config::{Create, Name};
use ringway_port_process::{
    Asker, Change, ClientId, Listed, NetmapHost, Process, Refusal, Region, RegionError, RegionPort, Registration,
    unclosed_pipes,
};
use rustix::io::Errno;

use self::ports::{Group, Persistent, User};
use super::attach::{AttachHost, Reservation, Wanted};
use super::live::{LivePort, Monitored};
use super::state::Daemon;

/// Returns the refusal that netmap's programs expect for this error.
pub(super) fn refusal(label: &PortName, error: &RegionError) -> Refusal {
    let errno = match error {
        RegionError::TooLarge { .. } | RegionError::NoRoom(_) | RegionError::NoBuffers { .. } => Errno::NOMEM,
        RegionError::Registrations(_) => Errno::NOMEM,
        RegionError::BufferSize { .. } | RegionError::NoRings | RegionError::Shape(_) => Errno::INVAL,
        RegionError::Busy | RegionError::Closing | RegionError::Returning => Errno::BUSY,
        RegionError::Kernel(error) => Errno::from_io_error(error).unwrap_or(Errno::NOMEM),
    };
    Refusal::new(errno, format!("{label}: {error}"))
}

/// Opens a port or an end in a region. An error may pass while ports and ends that were closed still have memory of the region.
pub(super) fn open_in_region<T>(
    region: &Region,
    name: &PortName,
    open: impl FnOnce() -> Result<T, RegionError>,
) -> Result<T, Refusal> {
    let is_leaving = region.is_leaving();
    open().map_err(|error| Refusal { is_transient: error.is_transient(is_leaving), ..refusal(name, &error) })
}

/// The refusal of a port or an end that is beyond a limit: ends that were closed count until they have left.
pub(super) fn beyond_limits(why: String) -> Refusal {
    Refusal { is_transient: unclosed_pipes() > 0, ..Refusal::new(Errno::NOMEM, why) }
}

/// Checks that a port lies in the memory that the program names, if it names one.
pub(super) fn check_region_of(port: &RegionPort, register: &Register) -> Result<(), Refusal> {
    let (asked, has, name) = (register.region, port.region().id(), &register.name);
    if asked != 0 && asked != has {
        return Err(Refusal::new(Errno::INVAL, format!("memory {asked}: {name} lies in memory {has}")));
    }
    Ok(())
}

/// The refusal of a registration whose port was closed meanwhile.
pub(super) fn has_gone(name: &PortName) -> Refusal {
    Refusal { is_transient: true, ..Refusal::new(Errno::BUSY, format!("{name} was closed: try again")) }
}

pub(super) fn names(name: &PortName) -> Result<(Name, Name), Refusal> {
    let parse = |text: &str| text.parse().map_err(|error: String| Refusal::new(Errno::INVAL, error));
    Ok((parse(&name.switch)?, parse(&name.port)?))
}

impl NetmapHost for AttachHost {
    fn another(&self) -> Box<dyn NetmapHost + Send> {
        Box::new(self.clone())
    }

    fn register(
        &mut self,
        client: ClientId,
        process: Process,
        family: Family,
        register: &Register,
    ) -> Result<Registration, Refusal> {
        if !register.monitor.is_empty() {
            if register.name.pipe.is_some() {
                return Err(Refusal::new(Errno::OPNOTSUPP, format!("{}: a pipe has no monitors", register.name)));
            }
            let (name, monitored) = self.lock().plan_monitor(register)?;
            let wish = Wish { tx_rings: 1, ..register.wish };
            return self.open(client, (family, process), &Register { name, wish, ..register.clone() }, Some(monitored));
        }
        if let Some(end) = &register.name.pipe {
            return self.register_end(client, process, family, register, end);
        }
        if let Some(registration) = self.share(client, family, register)? {
            return Ok(registration);
        }
        match self.open(client, (family, process), register, None) {
            // Another thread may have made the port meanwhile.
            Err(busy) if busy.errno == Errno::BUSY => self.share(client, family, register)?.ok_or(busy),
            opened => opened,
        }
    }

    fn unregister(&mut self, client: ClientId) {
        let mut daemon = self.lock();
        if let Some(leader) = daemon.netmap.leave(client) {
            daemon.detach(leader);
        }
        daemon.leave_pipe(client);
    }

    fn info(&mut self, family: Family, name: &PortName, wish: &Wish) -> Result<Numbers, Refusal> {
        if let Some(end) = &name.pipe {
            return self.info_of_end(family, name, wish, end);
        }
        let sized = self.sized(&family, wish);
        let (reserved, most) = {
            let mut daemon = self.lock();
            if let Some((group, mac)) = daemon.group_of(name)? {
                return Ok(group.port.numbers(name.clone(), mac));
            }
            let most = daemon.running.config.attach.max_region;
            (daemon.check_netmap(name, &sized)?, most)
        };
        let error = |error: RegionError| refusal(name, &error);
        let (region, region_bytes, shape) = match self.regions().of(&family) {
            Some(region) => (region.id(), region.bytes(), region.shape(wish).map_err(error)?),
            None => {
                let (shape, bytes) = Region::plan(wish, most).map_err(error)?;
                (0, bytes, shape)
            }
        };
        Ok(Numbers { name: name.clone(), region, region_bytes, shape, header: wish.header, mac: reserved.mac })
    }

    fn list(&mut self, number: u32) -> Result<Listed, Refusal> {
        self.lock().list_netmap(number)
    }

    fn change(&mut self, asker: Asker, change: &Change) -> Result<(), Refusal> {
        let mut daemon = self.lock();
        match change {
            Change::New(name) => daemon.make_persistent(asker, name),
            Change::Delete(name) => daemon.delete_persistent(asker.user, name),
            Change::Attach(name) => daemon.attach_persistent(asker.user, name),
            Change::Detach(name) => daemon.detach_persistent(asker.user, name),
        }
    }
}

impl AttachHost {
    /// Checks that the program has ports in the memory that it names, if it names one.
    pub(super) fn check_region(&self, family: &Family, register: &Register) -> Result<(), Refusal> {
        let asked = register.region;
        if asked != 0 && self.regions().of(family).is_none_or(|region| region.id() != asked) {
            return Err(Refusal::new(Errno::INVAL, format!("memory {asked}: the program has no ports in it")));
        }
        Ok(())
    }

    /// Returns a wish with the size of the buffers that the family's next port has.
    pub(super) fn sized(&self, family: &Family, wish: &Wish) -> Wish {
        let has = || self.regions().of(family).map_or(DEFAULT_BUFFER_SIZE, |region| region.buffer_size());
        Wish { buffer_size: if wish.buffer_size == 0 { has() } else { wish.buffer_size }, ..*wish }
    }

    /// Registers rings of a port that exists. Returns none if there is no such port.
    fn share(
        &mut self,
        client: ClientId,
        family: Family,
        register: &Register,
    ) -> Result<Option<Registration>, Refusal> {
        let name = &register.name;
        let (shared, mac) = {
            let daemon = self.lock();
            let Some((group, mac)) = daemon.group_of(name)? else { return Ok(None) };
            if group.family != family {
                return Err(Refusal::new(Errno::BUSY, format!("another program has {name}: choose another name")));
            }
            check_region_of(&group.port, register)?;
            (Arc::clone(&group.port), mac)
        };
        // Without the daemon's lock, as it writes to memory of the program.
        let registration = Registration::new(&shared, register, mac).map_err(|error| refusal(name, &error))?;
        let mut daemon = self.lock();
        if daemon.group_of(name)?.is_none_or(|(group, _)| !Arc::ptr_eq(&group.port, &shared)) {
            return Err(has_gone(name));
        }
        let (switch, port) = names(name)?;
        if let Some(leader) = daemon.live(&switch, &port).and_then(|live| live.client) {
            daemon.netmap.join(leader, client);
        }
        Ok(Some(registration))
    }

    /// Makes a port and registers its rings.
    fn open(
        &mut self,
        client: ClientId,
        (family, process): (Family, Process),
        register: &Register,
        monitored: Option<Monitored>,
    ) -> Result<Registration, Refusal> {
        let wanted = |error: &RegionError| refusal(&register.name, error);
        self.check_region(&family, register)?;
        let wish = self.sized(&family, &register.wish);
        let (reservation, most) = self.lock().reserve_netmap(&register.name, &wish)?;
        let Reservation { wanted: mut port, colour, existed, mac } = reservation;
        port.monitor = monitored;
        let region = self.regions().take((family, process), &register.wish, most).map_err(|error| wanted(&error))?;
        let (sides, shared) = open_in_region(&region, &register.name, || region.open(&register.wish, colour))?;
        let registration = Registration::new(&shared, register, mac).map_err(|error| wanted(&error))?;
        if existed {
            // The port has limits of its predecessor, which only one port may use at a time.
            self.settle();
        }
        {
            let mut daemon = self.lock();
            daemon.admit((client, process), &port, sides).map_err(|why| Refusal::new(Errno::BUSY, why))?;
            let group = Group { family, port: shared, members: HashSet::new() };
            daemon.netmap.groups.insert(client, group);
            daemon.netmap.join(client, client);
        }
        // Until then a poller in the middle of its round does not deliver to this port.
        self.settle();
        Ok(registration)
    }
}

impl Daemon {
    /// Returns the name of a new monitor, and what it hears.
    fn plan_monitor(&self, register: &Register) -> Result<(PortName, Monitored), Refusal> {
        let name = &register.name;
        if !self.running.config.attach.monitors {
            return Err(Refusal::new(Errno::PERM, format!("{name}: [attach] monitors = false allows no monitors")));
        }
        let (switch, port) = names(name)?;
        match self.live(&switch, &port) {
            Some(live) if live.is_mirror() => {
                return Err(Refusal::new(Errno::INVAL, format!("{name} is a mirror itself")));
            }
            Some(_) => {}
            None => return Err(Refusal::new(Errno::INVAL, format!("there is no port {name} to monitor"))),
        }
        let is_free = |name: &Name| self.live(&switch, name).is_none() && !self.is_configured(&switch, name);
        let mut names = (0..ringway_switch::MAX_PORTS).filter_map(|number| format!("monitor{number}").parse().ok());
        let Some(free) = names.find(is_free) else {
            return Err(Refusal::new(Errno::NOMEM, format!("switch {switch} has no name left for a monitor")));
        };
        let name = PortName { switch: switch.to_string(), port: free.to_string(), pipe: None };
        Ok((name, Monitored { port, frames: register.monitor }))
    }

    /// Returns the numbers of the slots of a netmap port's rings, if it is live: of a transmit and of a receive ring.
    pub(super) fn slots_of(&self, switch: &Name, port: &Name) -> Option<(u32, u32)> {
        let group = self.netmap.groups.get(&self.live(switch, port)?.client?)?;
        let shape = group.port.layout().shape;
        Some((shape.tx_slots, shape.rx_slots))
    }

    /// Returns the live port of this name.
    pub(super) fn live(&self, switch: &Name, name: &Name) -> Option<&LivePort> {
        self.switches.get(switch)?.ports().get(name)
    }

    /// Returns the netmap port of this name and the address that is bound to it, or none if there is no port.
    ///
    /// # Errors
    /// The port exists and is no netmap port.
    fn group_of(&self, name: &PortName) -> Result<Option<(&Group, [u8; 6])>, Refusal> {
        let (switch, port) = names(name)?;
        let Some(live) = self.live(&switch, &port) else { return Ok(None) };
        let mac = live.settings.mac.first().map_or([0; 6], |mac| mac.get().octets());
        match live.client.and_then(|leader| self.netmap.groups.get(&leader)) {
            Some(group) => Ok(Some((group, mac))),
            None => Err(Refusal::new(Errno::BUSY, format!("{name} is in use: choose another name"))),
        }
    }

    /// Checks that a port of this name and this wish, which [`AttachHost::sized`] has returned, may be made.
    fn check_netmap(&mut self, name: &PortName, wish: &Wish) -> Result<Reservation, Refusal> {
        let (switch, port) = names(name)?;
        let layout =
            Layout::new(wish.shape(wish.buffer_size), 0).map_err(|e| Refusal::new(Errno::INVAL, e.to_string()))?;
        // netmap's programs may send without an address of their own, as pkt-gen does on a port of VALE.
        let wanted = Wanted { switch, name: port, bytes: layout.bytes as u64, any_source: true, monitor: None };
        self.settings_for(&wanted.switch, &wanted.name).map_err(|why| Refusal::new(Errno::NXIO, why))?;
        self.within_limits(&wanted).map_err(beyond_limits)?;
        self.reserve(wanted).map_err(|why| Refusal::new(Errno::AGAIN, why))
    }

    /// Checks that a client may register a port that does not exist, of this wish. Also returns the most bytes of a region.
    fn reserve_netmap(&mut self, name: &PortName, wish: &Wish) -> Result<(Reservation, u64), Refusal> {
        let reservation = self.check_netmap(name, wish)?;
        Ok((reservation, self.running.config.attach.max_region))
    }

    /// Returns the port with this number: live ports, and persistent ones that are attached.
    fn list_netmap(&self, number: u32) -> Result<Listed, Refusal> {
        // Attached persistent ports that nobody has registered, by switch.
        let mut idle: BTreeMap<&Name, Vec<&Name>> = BTreeMap::new();
        for (switch, name) in self.netmap.attached().filter(|(switch, name)| self.live(switch, name).is_none()) {
            idle.entry(switch).or_default().push(name);
        }
        let mut switches: Vec<&Name> = self.switches.keys().chain(idle.keys().copied()).collect();
        switches.sort();
        switches.dedup();
        let mut left = number as usize;
        for (switch_index, switch) in switches.into_iter().enumerate() {
            let live = self.switches.get(switch).into_iter().flat_map(|live| live.ports().keys());
            let ports = live.chain(idle.get(switch).into_iter().flatten().copied());
            let mut count = 0;
            for (port_index, port) in ports.enumerate() {
                if port_index == left {
                    let name = PortName { switch: switch.to_string(), port: port.to_string(), pipe: None };
                    return Ok(Listed { name, switch_index: switch_index as u32, port_index: left as u32 });
                }
                count += 1;
            }
            left -= count;
        }
        Err(Refusal::new(Errno::NOENT, format!("there are not more than {number} ports")))
    }

    fn make_persistent(&mut self, asker: Asker, name: &str) -> Result<(), Refusal> {
        let name: Name = name.parse().map_err(|error: String| Refusal::new(Errno::INVAL, error))?;
        let attach = &self.running.config.attach;
        if attach.create == Create::Nothing {
            let setting = attach.create.as_str();
            return Err(Refusal::new(Errno::PERM, format!("[attach] create = \"{setting}\" makes no ports")));
        }
        let key = (asker.user, name);
        if self.netmap.persistent.contains_key(&key) {
            return Err(Refusal::new(Errno::EXIST, format!("there is a persistent port {} already", key.1)));
        }
        if !self.netmap.has_name_for(asker, attach.max_ports as usize) {
            let text = format!(
                "{} persistent ports: [attach] max_ports allows no more, or none to this user or process",
                self.netmap.persistent.len()
            );
            return Err(Refusal::new(Errno::NOMEM, text));
        }
        self.netmap.persistent.insert(key, Persistent { maker: asker.process, switch: None });
        Ok(())
    }

    /// Whose persistent port this is that `user` speaks of: his own, or for root and the user of the daemon, who answer for the host, anybody's.
    fn owner_of(&self, user: User, name: &Name, is_it: impl Fn(&Persistent) -> bool) -> User {
        let ports = &self.netmap.persistent;
        let answers = user == Some(0) || user == Some(rustix::process::geteuid().as_raw());
        if !answers || ports.get(&(user, name.clone())).is_some_and(&is_it) {
            return user;
        }
        let others = ports.iter().find(|((_, other), port)| other == name && is_it(port));
        others.map_or(user, |((owner, _), _)| *owner)
    }

    fn delete_persistent(&mut self, user: User, name: &str) -> Result<(), Refusal> {
        let name: Name = name.parse().map_err(|error: String| Refusal::new(Errno::INVAL, error))?;
        let key = (self.owner_of(user, &name, |port| port.switch.is_none()), name);
        match self.netmap.persistent.get(&key) {
            None => Err(Refusal::new(Errno::NXIO, format!("this user has no persistent port {}", key.1))),
            Some(Persistent { switch: Some(switch), .. }) => {
                Err(Refusal::new(Errno::BUSY, format!("{} is attached to switch {switch}: detach it first", key.1)))
            }
            Some(Persistent { switch: None, .. }) => {
                self.netmap.persistent.remove(&key);
                Ok(())
            }
        }
    }

    fn attach_persistent(&mut self, user: User, name: &PortName) -> Result<(), Refusal> {
        let (switch, port) = names(name)?;
        if self.live(&switch, &port).is_some() || self.netmap.is_attached(&switch, &port) {
            return Err(Refusal::new(Errno::BUSY, format!("{name} is in use")));
        }
        let key = (user, port);
        match self.netmap.persistent.get(&key).map(|port| &port.switch) {
            Some(Some(has)) => return Err(Refusal::new(Errno::BUSY, format!("{} is attached to switch {has}", key.1))),
            Some(None) => {}
            None => {
                let text = format!(
                    "this user has no persistent port {}: ports of other kinds are attached by the configuration",
                    key.1
                );
                return Err(Refusal::new(Errno::NXIO, text));
            }
        }
        self.settings_for(&switch, &key.1).map_err(|why| Refusal::new(Errno::NXIO, why))?;
        if let Some(port) = self.netmap.persistent.get_mut(&key) {
            port.switch = Some(switch);
        }
        Ok(())
    }

    fn detach_persistent(&mut self, user: User, name: &PortName) -> Result<(), Refusal> {
        let (switch, port) = names(name)?;
        let is_live = self.live(&switch, &port).is_some();
        let owner = self.owner_of(user, &port, |port| port.switch.as_ref() == Some(&switch));
        let persistent = self.netmap.persistent.get_mut(&(owner, port));
        match persistent.filter(|port| port.switch.as_ref() == Some(&switch)) {
            _ if is_live => Err(Refusal::new(Errno::BUSY, format!("{name} is in use"))),
            None => Err(Refusal::new(Errno::NXIO, format!("this user has attached no persistent port {name}"))),
            Some(port) => {
                port.switch = None;
                Ok(())
            }
        }
    }
}
