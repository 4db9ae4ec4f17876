//! What becomes of ports that have faults, or at which Ringway itself failed: they are closed, logged, and opened again where that
//! is allowed.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use ringway_config::keys::{Name, PortRef};
use ringway_config::kinds::Kind;
use ringway_switch::{Defect, PanicLocation, PortFault};

use super::blame::place_of;
use super::defects::{TWICE_WITHIN, Verdict};
use super::events::Event;
use super::faults::Key;
use super::refused::Refused;
use super::state::Daemon;

impl Daemon {
    /// Closes every port that has a fault, and schedules the configured ones to be opened again. Returns true if there was one.
    pub fn end_faulty(&mut self) -> bool {
        let faulty = self.switches.iter().flat_map(|(switch, s)| {
            s.ports().iter().filter_map(move |(name, live)| {
                Some(((switch.clone(), name.clone()), live.settings.kind(), live.port.fault()?))
            })
        });
        let faulty: Vec<_> = faulty.collect();
        let is_any = !faulty.is_empty() | self.end_faulty_pipes();
        let mut shared = HashSet::new();
        for (key, kind, fault) in faulty {
            let detail = fault.to_string();
            let line = self.log_line(&key, &format!(" ended: {detail}"));
            self.close_port(&key.0, &key.1, &detail);
            let place = match fault {
                PortFault::InternalError(defect) => {
                    if let Some(line) = line {
                        tracing::error!("{line}");
                    }
                    self.handle_defect(&key, kind, defect, &detail, &mut shared);
                    let place = defect.place.file_and_line().map(|(file, line)| format!("{file}:{line}"));
                    Some(place.unwrap_or_else(|| "unknown".to_owned()))
                }
                _ => {
                    if let Some(line) = line {
                        tracing::warn!("{line}");
                    }
                    self.retry_later(&key.0, &key.1, detail.clone());
                    None
                }
            };
            self.note_fault(&key, fault.name(), detail, place);
        }
        is_any
    }

    /// Decides whether a port comes back at which Ringway failed. The port is closed already. `text` says what happened. `shared`: the failures that
    /// were counted before and that ended several ports.
    fn handle_defect(
        &mut self,
        key: &Key,
        kind: Kind,
        defect: Defect,
        text: &str,
        shared: &mut HashSet<(Option<Name>, PanicLocation)>,
    ) {
        let (switch, port) = key;
        let now = Instant::now();
        let mut is_new = || shared.insert((self.dynamic_defects_row(switch), defect.place));
        if !self.is_configured(switch, port) && (defect.role.is_attributable() || is_new()) {
            self.count_dynamic_defect(switch, now);
        }
        match self.defects.judge(key, defect, text, now) {
            Verdict::Reopen => self.retry_after(switch, port, text.to_owned(), Duration::ZERO),
            Verdict::Pause(pause) => {
                if let Some(line) = self.log_line(key, &format!(" pauses for {pause:?}")) {
                    tracing::warn!("{line}");
                }
                self.retry_after(switch, port, text.to_owned(), pause);
            }
            Verdict::Disable => {
                tracing::error!(
                    "port {switch}:{port} is disabled: Ringway failed twice within {TWICE_WITHIN:?} when it served it; \
                     to enable it: ringway port enable {switch}:{port}"
                );
                let configured = &self.running.config.ports;
                let is_configured =
                    |(switch, port): &Key| configured.get(port).is_some_and(|port| port.switch == *switch);
                self.defects.disable(key, kind, text.to_owned(), is_configured);
                self.retries.remove(port);
            }
        }
    }

    /// Counts a failure at a dynamic port, for all dynamic ports of its switch together.
    pub(super) fn count_dynamic_defect(&mut self, switch: &Name, now: Instant) {
        let row = self.dynamic_defects_row(switch);
        let place = place_of(row.as_ref());
        if let Some(pause) = self.defects.count_dynamic(row, now) {
            tracing::error!(
                "no further ports are made on {place} for {pause:?}: Ringway failed again and again when it served such ports"
            );
        }
    }

    /// Returns the row in which failures at this switch's dynamic ports are counted: its own, or the one of all switches that are not
    /// configured.
    pub(super) fn dynamic_defects_row(&self, switch: &Name) -> Option<Name> {
        self.running.config.switches.contains_key(switch).then(|| switch.clone())
    }

    /// Enables a port that is disabled because Ringway failed at it, or set aside because the switch died of it, or ends its pause.
    ///
    /// # Errors
    /// There is no such port.
    pub fn enable_port(&mut self, port: &PortRef) -> Result<Vec<String>, Refused> {
        let key = self.resolve(port)?;
        let (switch, name) = &key;
        let is_closed = self.defects.disabled(switch, name).is_some()
            || self.defects.pause_of(switch, name, Instant::now()).is_some();
        let settings = self.running.config.ports.get(name).filter(|port| port.switch == *switch);
        if let Some(settings) = settings.filter(|port| is_closed && port.settings.is_device())
            && !self.opened.have(name, settings)
        {
            return Err(Refused::Open(vec![self.wanted_device(name, settings, &self.running.config.sockets.ports)]));
        }
        if !self.forget_defects(&key) {
            return Ok(Vec::new());
        }
        tracing::info!("port {switch}:{name} is enabled");
        let mut changes = vec![format!("enabled port {name}")];
        let settings = self.running.config.ports.get(name).filter(|port| port.switch == *switch);
        if settings.is_some_and(|port| port.kind() != Kind::Process) {
            self.retry_after(switch, name, "it was disabled, or paused".to_owned(), Duration::ZERO);
            self.reopen();
            if let Some(retry) = self.retries.get(name) {
                changes.push(format!("it is not there yet: {}; tried again every second", retry.why));
            }
        }
        Ok(changes)
    }

    /// Takes note of the events of front ends. Returns true if Ringway failed on a port's own thread: that port has a fault now.
    pub fn note_events(&mut self) -> bool {
        if !self.reopening.is_empty() {
            // A device may be open now.
            self.reopen();
        }
        let mut failed = false;
        for (id, events) in self.events.take() {
            let Some(key) = self.port_of(id) else { continue };
            for event in events {
                failed |= matches!(event, Event::Failed(_));
                self.note_event(&key, event);
            }
        }
        failed
    }

    fn note_event(&mut self, key: &Key, event: Event) {
        let (text, fault) = match event {
            Event::Failed(defect) => {
                let live = self.switches.get(&key.0).and_then(|switch| switch.ports().get(&key.1));
                // The port ends like one at which a poller failed.
                live.inspect(|live| live.port.retire(defect, 0));
                return;
            }
            Event::Connected(true) => (": a front end has connected".to_owned(), None),
            Event::Connected(false) => (": the front end has gone".to_owned(), None),
            Event::Fault { reason, detail } => {
                (format!(": the front end loses its connection: {detail}"), Some((reason, detail)))
            }
            Event::Refused { reason, detail } => {
                (format!(": the front end was refused something: {detail}"), Some((reason, detail)))
            }
        };
        if let Some(line) = self.log_line(key, &text) {
            match fault {
                None => tracing::info!("{line}"),
                Some(_) => tracing::warn!("{line}"),
            }
        }
        if let Some((reason, detail)) = fault {
            self.note_fault(key, reason, detail, None);
        }
    }

    /// Returns the port whose front end has this number.
    fn port_of(&self, id: u64) -> Option<Key> {
        let mut all = self.switches.iter().flat_map(|(switch, s)| s.ports().iter().map(move |p| (switch, p)));
        let (switch, (port, _)) = all.find(|(_, (_, live))| live.front_end.as_ref().is_some_and(|f| f.id() == id))?;
        Some((switch.clone(), port.clone()))
    }

    /// Remembers a fault of a port. `place`: the line of Ringway's source, for a defect of Ringway.
    pub(super) fn note_fault(&mut self, key: &Key, reason: &'static str, detail: String, place: Option<String>) {
        let is_configured = self.is_configured(&key.0, &key.1);
        self.faults.note(key, is_configured, (reason, place), detail, Instant::now());
    }

    /// Returns the log line about a port, with the number of lines that were withheld before it, or `None` if the port has logged too
    /// much.
    pub(super) fn log_line(&mut self, key: &Key, text: &str) -> Option<String> {
        let is_configured = self.is_configured(&key.0, &key.1);
        let withheld = self.faults.may_log(key, is_configured, Instant::now())?;
        let (switch, port) = key;
        let more =
            if withheld > 0 { format!(" ({withheld} lines about such ports were left out)") } else { String::new() };
        Some(format!("port {switch}:{port}{text}{more}"))
    }
}
