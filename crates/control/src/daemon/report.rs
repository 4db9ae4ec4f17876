//! What the API says of what runs.

use std::time::{Duration, Instant};

use super::live::LivePort;
use super::{Daemon, Refused};
use crate::api::types::{FdbEntry, PollerStatus, PortStatus, Status, SwitchStatus, Traffic};
use crate::config::{Kind, Name, Port};

impl Daemon {
    /// Everything, at about one moment.
    pub fn status(&self) -> Status {
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime: self.started.elapsed().as_secs_f64(),
            ports: self.ports(),
            switches: self.switches.iter().map(|(name, switch)| switch_status(name, switch)).collect(),
            pollers: self.engine.readings().iter().map(|r| poller_status(r, self.engine_started.elapsed())).collect(),
            faults: self.faults.report(),
        }
    }

    fn ports(&self) -> Vec<PortStatus> {
        let live = self.switches.iter().flat_map(|(switch, s)| s.ports().iter().map(move |p| (switch, p)));
        let mut ports: Vec<PortStatus> = live.map(|(_, (name, port))| live_status(name, port)).collect();
        let is_live =
            |name: &Name, port: &Port| self.switches.get(&port.switch).is_some_and(|s| s.ports().contains_key(name));
        let absent = self.running.config.ports.iter().filter(|(name, port)| !is_live(name, port));
        ports.extend(absent.map(|(name, port)| {
            let state = if port.kind == Kind::Process { "waiting" } else { "failed" };
            settings_status(name, port, state)
        }));
        ports.sort_by(|a, b| (&a.switch, &a.name).cmp(&(&b.switch, &b.name)));
        ports
    }

    /// The addresses that one switch or all know, by switch and address.
    ///
    /// # Errors
    /// There is no such switch.
    pub fn fdb(&self, switch: Option<&Name>) -> Result<Vec<FdbEntry>, Refused> {
        if let Some(name) = switch.filter(|name| !self.switches.contains_key(*name)) {
            let known: Vec<String> = self.switches.keys().map(|known| format!("\"{known}\"")).collect();
            let known = if known.is_empty() {
                "there is none yet".to_owned()
            } else {
                format!("there are {}", known.join(", "))
            };
            return Err(Refused::Unknown(format!("there is no switch \"{name}\": {known}")));
        }
        let now = ringway_engine::seconds(Instant::now());
        let wanted = self.switches.iter().filter(|(name, _)| switch.is_none_or(|wanted| wanted == *name));
        let entries = wanted.flat_map(|(switch, live)| {
            live.addresses().into_iter().map(move |(mac, port, heard)| FdbEntry {
                switch: switch.to_string(),
                mac: mac.to_string(),
                port: port.to_string(),
                age: heard.map(|heard| now.saturating_sub(heard).into()),
            })
        });
        let mut entries: Vec<FdbEntry> = entries.collect();
        entries.sort_by(|a, b| (&a.switch, &a.mac).cmp(&(&b.switch, &b.mac)));
        Ok(entries)
    }

    /// Forgets addresses that have not been heard for their switch's ageing time.
    pub fn sweep(&mut self) {
        let now = ringway_engine::seconds(Instant::now());
        self.switches.values_mut().for_each(|switch| switch.sweep(now));
    }
}

fn switch_status(name: &Name, switch: &super::live::LiveSwitch) -> SwitchStatus {
    SwitchStatus {
        name: name.to_string(),
        forwarding: switch.settings.forwarding.as_str().to_owned(),
        ports: switch.ports().len(),
    }
}

/// All time that is not busy is free, the present sleep included, which a poller accounts for only when it wakes.
fn poller_status(reading: &ringway_engine::PollerReading, age: Duration) -> PollerStatus {
    PollerStatus {
        core: reading.core.and_then(|core| u32::try_from(core).ok()),
        busy: reading.busy.as_secs_f64(),
        free: age.saturating_sub(reading.busy).as_secs_f64(),
    }
}

fn settings_status(name: &Name, port: &Port, state: &str) -> PortStatus {
    PortStatus {
        name: name.to_string(),
        switch: port.switch.to_string(),
        kind: port.kind.as_str().to_owned(),
        state: state.to_owned(),
        mac: port.mac.iter().map(ToString::to_string).collect(),
        weight: port.weight,
        isolated: port.isolated,
        device: port.device.clone(),
        ..PortStatus::default()
    }
}

fn live_status(name: &Name, live: &LivePort) -> PortStatus {
    let counters = live.port.counters().read();
    let state = if live.port.fault().is_some() { "failed" } else { "up" };
    PortStatus {
        input: Traffic { frames: counters.in_frames, bytes: counters.in_bytes },
        output: Traffic { frames: counters.out_frames, bytes: counters.out_bytes },
        drops: counters.drops().map(|(reason, count)| (reason.name().to_owned(), count)).collect(),
        kicks: counters.kicks,
        calls: counters.calls,
        ..settings_status(name, &live.settings, state)
    }
}
