//! What the API says of what runs.

use std::time::{Duration, Instant};

use ringway_engine::PollerReading;
use ringway_ports::vhost_user::State;
use ringway_switch::policy::Egress;
use ringway_switch::{CountersReading, Policy};

use super::live::LivePort;
use super::{Daemon, Refused, limits, unknown};
use crate::api::features::feature_names;
use crate::api::identity::IdentityStatus;
use crate::api::limits::BucketStatus;
use crate::api::switch::SwitchKeys;
use crate::api::types::{
    E1000Status, FdbEntry, MoveStatus, PollerStatus, PortStatus, Status, StreamStatus, SwitchStatus, Traffic,
    VhostUserStatus,
};
use crate::config::e1000::address;
use crate::config::units::{show_duration, show_rate};
use crate::config::{E1000, Kind, Name, Port, Socket, VhostUser};

impl Daemon {
    /// Everything, at about one moment.
    pub fn status(&mut self) -> Status {
        let (readings, age) = (self.engine.readings(), self.engine_started.elapsed());
        self.free.resize(readings.len(), Duration::ZERO);
        let pollers = readings.iter().zip(&mut self.free).map(|(reading, free)| poller_status(reading, age, free));
        let pollers = pollers.collect();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime: self.started.elapsed().as_secs_f64(),
            ports: self.ports(),
            switches: self.switches.iter().map(|(name, switch)| switch_status(name, switch)).collect(),
            buckets: self.bucket_statuses(),
            pollers,
            captures: self.captures.report(),
            faults: self.faults.report(),
        }
    }

    fn ports(&self) -> Vec<PortStatus> {
        let live = self.switches.iter().flat_map(|(switch, s)| s.ports().iter().map(move |p| (switch, p)));
        let mut ports: Vec<PortStatus> = live.map(|(_, (name, port))| live_status(name, port)).collect();
        let is_live =
            |name: &Name, port: &Port| self.switches.get(&port.switch).is_some_and(|s| s.ports().contains_key(name));
        let absent = self.running.config.ports.iter().filter(|(name, port)| !is_live(name, port));
        ports.extend(absent.map(|(name, port)| self.absent_status(name, port)));
        ports.sort_by(|a, b| (&a.switch, &a.name).cmp(&(&b.switch, &b.name)));
        ports
    }

    fn bucket_statuses(&self) -> Vec<BucketStatus> {
        let ports = self.switches.values().flat_map(|s| s.ports().values().map(|port| &port.settings));
        self.buckets.report(&self.running.config.buckets, ports, ringway_engine::nanoseconds())
    }

    fn absent_status(&self, name: &Name, port: &Port) -> PortStatus {
        let left = self.switches.get(&port.switch).and_then(|switch| switch.left(name));
        let policy = left.and_then(|left| left.policy.as_ref());
        let status = match port.kind {
            Kind::Process => settings_status(name, port, "waiting", policy),
            _ => {
                let why = self.lost.get(name).map(|lost| format!("{}; tried again every second", lost.why));
                PortStatus { detail: why, ..settings_status(name, port, "failed", policy) }
            }
        };
        match left {
            Some(left) => counted(status, &left.counters),
            None => status,
        }
    }

    /// The addresses that one switch or all know, by switch and address.
    ///
    /// # Errors
    /// There is no such switch.
    pub fn fdb(&self, switch: Option<&Name>) -> Result<Vec<FdbEntry>, Refused> {
        if let Some(name) = switch.filter(|name| !self.switches.contains_key(*name)) {
            return Err(unknown("switch", name, self.switches.keys()));
        }
        let now = ringway_engine::seconds(Instant::now());
        let wanted = self.switches.iter().filter(|(name, _)| switch.is_none_or(|wanted| wanted == *name));
        let entries = wanted.flat_map(|(switch, live)| {
            live.addresses().into_iter().map(move |address| FdbEntry {
                switch: switch.to_string(),
                vlan: (address.vlan != 0).then_some(address.vlan),
                mac: address.mac.to_string(),
                port: address.port.to_string(),
                age: address.heard.map(|heard| now.saturating_sub(heard).into()),
            })
        });
        let mut entries: Vec<FdbEntry> = entries.collect();
        entries.sort_by(|a, b| (&a.switch, a.vlan, &a.mac).cmp(&(&b.switch, b.vlan, &b.mac)));
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
        settings: SwitchKeys::of(&switch.settings),
        ports: switch.ports().len(),
        moved: switch.moved(),
        moves: moves(switch),
    }
}

fn moves(switch: &super::live::LiveSwitch) -> Vec<MoveStatus> {
    let now = ringway_engine::seconds(Instant::now());
    let mut moves: Vec<MoveStatus> = switch
        .moves()
        .into_iter()
        .map(|(moved, from, to)| MoveStatus {
            vlan: (moved.vlan != 0).then_some(moved.vlan),
            mac: moved.mac.to_string(),
            from: from.map(ToString::to_string),
            to: to.map(ToString::to_string),
            count: moved.count,
            duplicate: moved.is_duplicate,
            age: now.saturating_sub(moved.second).into(),
        })
        .collect();
    moves.sort_by(|a, b| a.age.total_cmp(&b.age).then(a.mac.cmp(&b.mac)));
    moves
}

/// All time that is not busy is free, the present sleep included, which a poller accounts for only when it wakes. So it does for
/// time that it was busy, which looked free before: free time stands still then, as no counter goes down. `free` is what was said
/// last.
fn poller_status(reading: &PollerReading, age: Duration, free: &mut Duration) -> PollerStatus {
    *free = age.saturating_sub(reading.busy).max(*free);
    PollerStatus {
        core: reading.core.and_then(|core| u32::try_from(core).ok()),
        busy: reading.busy.as_secs_f64(),
        free: free.as_secs_f64(),
        passes: reading.passes,
        sleeps: reading.sleeps,
    }
}

fn settings_status(name: &Name, port: &Port, state: &str, policy: Option<&Policy>) -> PortStatus {
    let now = ringway_engine::nanoseconds();
    PortStatus {
        name: name.to_string(),
        switch: port.switch.to_string(),
        kind: port.kind.as_str().to_owned(),
        state: state.to_owned(),
        mac: port.mac.iter().map(ToString::to_string).collect(),
        weight: port.weight,
        ingress: limits::report(&port.ingress, policy.and_then(|p| p.ingress.as_deref()), now),
        egress: limits::report(&port.egress, policy.and_then(|p| p.egress.as_deref()).map(Egress::limit), now),
        storm: limits::report_storm(port, policy.and_then(|p| p.storm.as_deref())),
        isolated: port.isolated,
        identity: IdentityStatus::of(port),
        call_interval: show_duration(port.calls.interval),
        call_above: show_rate(port.calls.above),
        mirror: port.mirror.iter().map(ToString::to_string).collect(),
        mirror_direction: (!port.mirror.is_empty()).then(|| port.mirror_direction.as_str().to_owned()),
        device: port.device.clone(),
        vhost_user: port
            .vhost_user
            .as_ref()
            .zip(port.socket.as_ref())
            .map(|(v, socket)| vhost_user_settings(v, socket)),
        e1000: port
            .e1000
            .as_ref()
            .zip(port.socket.as_ref())
            .map(|(nic, socket)| e1000_settings(name, port, nic, socket)),
        stream: port.socket.as_ref().filter(|_| port.kind == Kind::Stream).map(|socket| StreamStatus {
            socket: socket.path.display().to_string(),
            role: socket.role.as_str().to_owned(),
        }),
        ..PortStatus::default()
    }
}

fn vhost_user_settings(settings: &VhostUser, socket: &Socket) -> VhostUserStatus {
    VhostUserStatus {
        socket: socket.path.display().to_string(),
        role: socket.role.as_str().to_owned(),
        most_queues: settings.queues,
        mtu: settings.mtu,
        offload: settings.offload,
        ..VhostUserStatus::default()
    }
}

fn e1000_settings(name: &Name, port: &Port, nic: &E1000, socket: &Socket) -> E1000Status {
    E1000Status {
        socket: socket.path.display().to_string(),
        model: nic.model.as_str().to_owned(),
        address: ringway_switch::Mac::new(address(name, &port.mac)).to_string(),
        link: nic.link.as_str().to_owned(),
        registers: nic.registers.as_str().to_owned(),
        csb: nic.csb,
        completion_delay: show_duration(nic.completion_delay),
        ..E1000Status::default()
    }
}

fn live_status(name: &Name, live: &LivePort) -> PortStatus {
    let front_end = live.front_end.as_ref();
    let state = match (live.port.fault(), front_end.and_then(|front_end| front_end.state())) {
        (Some(_), _) => "failed",
        (None, None | Some(State::Up)) => "up",
        (None, Some(State::Waiting)) => "waiting",
        (None, Some(State::Connected)) => "connected",
    };
    let settings = settings_status(name, &live.settings, state, live.policy.as_ref());
    let now = front_end.and_then(|front_end| front_end.vhost_user());
    let vhost_user = settings.vhost_user.zip(now).map(|(settings, now)| VhostUserStatus {
        features: feature_names(now.features),
        queues: now.queues,
        ring_size: now.ring_size,
        ..settings
    });
    let now = front_end.and_then(|front_end| front_end.e1000());
    let e1000 = settings.e1000.zip(now).map(|(settings, (now, address))| E1000Status {
        address: ringway_switch::Mac::new(address).to_string(),
        interrupts: now.interrupts.to_owned(),
        transmit_ring: now.transmit_ring,
        receive_ring: now.receive_ring,
        register_reads: now.accesses.reads,
        register_writes: now.accesses.writes,
        tail_writes: now.accesses.tails,
        messages: now.accesses.reads + now.accesses.writes + now.accesses.unmasks,
        interrupts_raised: now.accesses.interrupts,
        ..settings
    });
    counted(PortStatus { poller: Some(live.poller), vhost_user, e1000, ..settings }, &live.counters())
}

fn counted(status: PortStatus, counters: &CountersReading) -> PortStatus {
    PortStatus {
        input: Traffic { frames: counters.in_frames, bytes: counters.in_bytes },
        output: Traffic { frames: counters.out_frames, bytes: counters.out_bytes },
        drops: counters.drops().map(|(reason, count)| (reason.name().to_owned(), count)).collect(),
        kicks: counters.kicks,
        calls: counters.calls,
        ..status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_time_does_not_go_down_when_a_poller_tells_late_how_busy_it_was() {
        let mut free = Duration::ZERO;
        let mut said = |age, busy| {
            let [age, busy] = [age, busy].map(Duration::from_secs);
            let reading = PollerReading { core: None, busy, free: Duration::ZERO, passes: 0, sleeps: 0 };
            poller_status(&reading, age, &mut free).free
        };
        assert_eq!([said(10, 2), said(11, 5), said(13, 5), said(14, 5)], [8.0, 8.0, 8.0, 9.0]);
    }
}
