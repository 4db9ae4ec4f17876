//! Configured ports whose device or socket is not open: the daemon tries to open them again every second. A device is opened by a thread
//! of its own ([`devices`](super::devices)).

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringway_config::{Access, Kind, Name, Port};

use super::live::{LiveSwitch, NewPort};
use super::open::{self, Place};
use super::refused::Refused;
use super::state::{Daemon, Retry, choose_poller};
use super::wanted_device::WantedDevice;

/// Time between two attempts for one port.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Most ports that one call tries to open, and most devices that are being opened.
const TRIES_MAX: usize = 16;

impl Daemon {
    /// What has to be opened for a port with these settings.
    pub(super) fn wanted_device(&self, name: &Name, settings: &Port, access: &Access) -> WantedDevice {
        WantedDevice {
            name: name.clone(),
            settings: settings.clone(),
            runtime_dir: self.running.runtime_dir().to_owned(),
            access: access.clone(),
            namespace: self
                .processes
                .get(name)
                .filter(|of| settings.settings.netns() == Some(&of.path))
                .map(|of| of.namespace.clone()),
            events: Arc::clone(&self.events),
            keeper: self.keeper.clone(),
        }
    }

    /// Schedules a configured port to be opened again, because it was closed for the reason `why`. Process ports need no schedule:
    /// their clients attach again.
    pub(super) fn retry_later(&mut self, switch: &Name, name: &Name, why: String) {
        self.retry_after(switch, name, why, RETRY_AFTER);
    }

    /// The daemon starts without these ports: switch, name and the reason.
    pub(super) fn note_missing_ports(&mut self, missing: Vec<(Name, Name, String)>) {
        if missing.is_empty() {
            return;
        }
        let places = self.running.places();
        for (switch, name, why) in missing {
            let place = places.of("port", &name);
            tracing::warn!("port {switch}:{name}{place} cannot be opened: {why}; it is tried again every second");
            self.retry_later(&switch, &name, why);
        }
    }

    /// Schedules the ports that pause since a predecessor died to be opened after that.
    pub(super) fn open_paused_later(&mut self) {
        let now = Instant::now();
        let ports = self.running.config.ports.iter();
        let paused =
            ports.filter_map(|(name, port)| Some((name, port, self.defects.pause_of(&port.switch, name, now)?)));
        let paused: Vec<_> = paused.map(|(name, port, pause)| (port.switch.clone(), name.clone(), pause)).collect();
        paused.into_iter().for_each(|(switch, name, pause)| self.retry_after(&switch, &name, pause.why, pause.left));
    }

    /// Schedules a configured port to be opened again after this time.
    pub(super) fn retry_after(&mut self, switch: &Name, name: &Name, why: String, time: Duration) {
        let is_meant = |port: &&Port| port.switch == *switch && port.kind() != Kind::Process;
        if self.running.config.ports.get(name).filter(is_meant).is_some() {
            self.retries.insert(name.clone(), Retry { why, at: Instant::now() + time });
        }
    }

    /// Removes the schedules of ports that are open again or not configured any more.
    pub(super) fn drop_stale_retries(&mut self) {
        let (switches, ports) = (&self.switches, &self.running.config.ports);
        self.retries.retain(|name, _| {
            ports.get(name).is_some_and(|p| switches.get(&p.switch).is_none_or(|s| !s.ports().contains_key(name)))
        });
        // Whether it is closed, disabled or open.
        self.processes.retain(|name, of| ports.get(name).is_some_and(|port| port.settings.netns() == Some(&of.path)));
    }

    /// Tries to open the ports that are due, a few at a time, longest waiting first.
    pub fn reopen(&mut self) {
        let now = Instant::now();
        let mut due: Vec<(Instant, Name)> = Vec::new();
        for (name, retry) in self.retries.iter().filter(|(_, retry)| retry.at <= now) {
            due.push((retry.at, name.clone()));
        }
        due.sort();
        let mut is_any_open = false;
        let mut tries = 0;
        for (_, name) in due {
            if tries == TRIES_MAX {
                break;
            }
            let Some(settings) = self.running.config.ports.get(&name).cloned() else { continue };
            let tried = if settings.settings.is_device() {
                self.try_device(&name, &settings)
            } else {
                Some(self.try_open(&name, &settings))
            };
            tries += usize::from(tried.is_some());
            match tried {
                None => {}
                Some(Ok(())) => {
                    if let Some(line) = self.log_line(&(settings.switch.clone(), name.clone()), " is back") {
                        tracing::info!("{line}");
                    }
                    self.retries.remove(&name);
                    is_any_open = true;
                }
                Some(Err(why)) => self.note_closed(name, &settings, why, now + RETRY_AFTER),
            }
        }
        if is_any_open {
            self.publish();
        }
        let retries = &self.retries;
        self.reopening.retain(|name, _| retries.contains_key(name));
        self.let_go_of_unwanted();
    }

    /// Takes note of why a port is still closed, and when it is tried again.
    fn note_closed(&mut self, name: Name, settings: &Port, why: String, at: Instant) {
        if self.retries.get(&name).is_none_or(|retry| retry.why != why) {
            tracing::warn!("port {}:{name} cannot be opened: {why}", settings.switch);
        }
        self.retries.insert(name, Retry { why, at });
    }

    /// Opens the device of a port: takes it if it is open by now, or begins. Returns `None` while it is being opened, or too many are.
    fn try_device(&mut self, name: &Name, settings: &Port) -> Option<Result<(), String>> {
        let opened = match self.opened.take(name, settings) {
            Some(opened) => opened,
            None => {
                if let Err(why) = self.switch_with_room(settings) {
                    // What was left of it stays with the keeper.
                    return Some(Err(why));
                }
                let opening = self.reopening.remove(name).filter(|opening| opening.is_for(settings));
                if opening.is_none() && self.reopening.len() >= TRIES_MAX {
                    return None;
                }
                let mut opening = opening.unwrap_or_else(|| {
                    let access = &self.running.config.sockets.ports;
                    self.wanted_device(name, settings, access).open()
                });
                match opening.look() {
                    Some(opened) => opened,
                    None => {
                        // There is one thread for a port, however long the kernel takes.
                        if let Some(why) = opening.late() {
                            self.note_closed(name.clone(), settings, why, Instant::now());
                        }
                        self.reopening.insert(name.clone(), opening);
                        return None;
                    }
                }
            }
        };
        let poller = choose_poller(settings, &self.switches, self.engine.pollers());
        let inserted = opened.map_err(|why| Refused::from(why).to_string()).and_then(|new| {
            self.switch_with_room(settings)?.insert(name.clone(), NewPort { poller, ..new });
            Ok(())
        });
        Some(inserted)
    }

    /// Returns the switch that a port is opened for, if the switch has room.
    fn switch_with_room(&mut self, settings: &Port) -> Result<&mut LiveSwitch, String> {
        let Some(switch) = self.switches.get_mut(&settings.switch) else { return Err("its switch is gone".to_owned()) };
        if switch.has_room() { Ok(switch) } else { Err("its switch is full".to_owned()) }
    }

    /// Opens ports again that wait for a front end and whose socket somebody has removed. Returns a line for each. A front end that is
    /// connected stays: its port is opened again by a reload after it has gone.
    pub(super) fn restore_sockets(&mut self) -> Vec<String> {
        let is_gone = |settings: &Port| {
            let path = settings.settings.own_socket().map(|socket| self.running.runtime_dir().join(socket));
            path.is_some_and(|path| path.symlink_metadata().is_err_and(|why| why.kind() == ErrorKind::NotFound))
        };
        let live = self.switches.iter().flat_map(|(switch, live)| live.ports().iter().map(move |port| (switch, port)));
        let gone = live.filter(|(_, (_, port))| is_gone(&port.settings) && port.is_waiting(Instant::now()));
        let gone: Vec<(Name, Name)> = gone.map(|(switch, (name, _))| (switch.clone(), name.clone())).collect();
        let opened = |(switch, name): (Name, Name)| match self.open_again(&switch, &name) {
            Ok(()) => format!("opened port {name} again, whose socket was removed"),
            Err(why) => format!(
                "port {name}, whose socket was removed, cannot be opened again: {why}; tried again every second"
            ),
        };
        let lines: Vec<String> = gone.into_iter().map(opened).collect();
        if !lines.is_empty() {
            self.publish();
        }
        lines
    }

    /// Opens a running port again whose socket was closed.
    ///
    /// # Errors
    /// It cannot be opened now: it is tried again.
    pub(super) fn open_again(&mut self, switch: &Name, name: &Name) -> Result<(), String> {
        if let Some(front_end) = self.detach_port(switch, name).and_then(|live| live.front_end) {
            self.close_front_end(front_end);
        }
        let Some(settings) = self.running.config.ports.get(name).cloned() else { return Ok(()) };
        self.try_open(name, &settings).inspect_err(|why| {
            tracing::error!("port {switch}:{name} cannot be opened again: {why}");
            self.retry_later(switch, name, why.clone());
        })
    }

    fn try_open(&mut self, name: &Name, settings: &Port) -> Result<(), String> {
        let poller = choose_poller(settings, &self.switches, self.engine.pollers());
        self.switch_with_room(settings)?;
        let (access, events) = (&self.running.config.sockets.ports, &self.events);
        let place =
            Place { runtime_dir: self.running.runtime_dir(), access, namespace: None, events, keeper: &self.keeper };
        let opened = open::port(name, settings, poller, &place);
        let new = opened.map_err(|refused| refused.to_string())?;
        self.switch_with_room(settings)?.insert(name.clone(), new);
        Ok(())
    }
}
