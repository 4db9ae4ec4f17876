//! The status of the running switches, ports and pollers for the API.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ringway_api::identity::IdentityStatus;
use ringway_api::limits::BucketStatus;
use ringway_api::switch::SwitchKeys;
use ringway_api::types::{
    CallIntervals, FaultCount, FdbEntry, MoveStatus, PollerStatus, PortStatus, Status, SwitchStatus, Traffic,
};
use ringway_config::identity::{PortSet, Vlan};
use ringway_config::keys::Mistake;
use ringway_config::keys::Table;
use ringway_config::keys::units::{show_duration, show_rate};
use ringway_config::kinds::State;
use ringway_config::{Kind, Name, Port, Switch};
use ringway_engine::PollerReading;
use ringway_runtime::serving;
use ringway_switch::policy::Egress;
use ringway_switch::{CountersReading, DropReason, Move, Policy};

use super::defects::{Disabled, Pause};
use super::limits;
use super::live::{LivePort, LiveSwitch};
use super::pipes::live::{EndName, LiveEnd};
use super::programs::LoadedProgram;
use super::refused::Refused;
use super::slow::slow_status;
use super::state::{Daemon, unknown};
use crate::inject;

/// Longest wait of a status for the threads of ports, all ports together.
const REPORT_WITHIN: Duration = Duration::from_millis(20);

/// Seconds after its last move for which an address counts as used at two ports.
const USED_TWICE: u32 = 120;

/// The name in `fault_counts` of system calls that were refused to the switch: the fault is that of no port.
const REFUSED_CALL: &str = "refused_call";

fn refused_calls() -> Option<FaultCount> {
    let (count, _) = serving::refused_calls();
    (count > 0).then(|| FaultCount { reason: REFUSED_CALL.to_owned(), place: None, count })
}

impl Daemon {
    /// Returns the status of everything.
    pub fn status(&mut self) -> Status {
        inject::at("status");
        let (readings, age) = (self.engine.readings(), self.engine_started.elapsed());
        self.reported_free.resize(readings.len(), Duration::ZERO);
        let pollers =
            readings.iter().zip(&mut self.reported_free).map(|(reading, free)| poller_status(reading, age, free));
        let pollers: Vec<PollerStatus> = pollers.collect();
        let pollers = pollers.into_iter().enumerate();
        let pollers = pollers.map(|(number, status)| PollerStatus { stuck: self.stuck.contains(&number), ..status });
        let pollers = pollers.collect();
        let ports = self.ports();
        // What an answer shows is not less after a crash.
        self.keep_counters();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime: self.started.elapsed().as_secs_f64(),
            ports,
            switches: self.switches.iter().map(|(name, switch)| self.switch_status(name, switch)).collect(),
            buckets: self.bucket_statuses(),
            pollers,
            captures: self.captures.report(),
            faults: self.faults.report(),
            fault_counts: self.faults.totals().into_iter().chain(refused_calls()).collect(),
            deaths: self.deaths.status(),
            warnings: self
                .doubts()
                .into_iter()
                .chain(self.loops())
                .chain(self.large_frames.warnings(Instant::now()))
                .chain(self.state_warnings())
                .collect(),
            log_lines_lost: ringway_runtime::log::lost(),
        }
    }

    /// Returns what is doubtful in the configuration as it is now.
    pub(super) fn doubts(&self) -> Vec<Mistake> {
        self.running.doubts(&self.dynamic_ports(&self.running.config))
    }

    fn switch_status(&self, name: &Name, switch: &LiveSwitch) -> SwitchStatus {
        let waits = |(port, settings): &(&Name, &Port)| settings.switch == *name && !switch.ports().contains_key(*port);
        SwitchStatus {
            name: name.to_string(),
            settings: switch_keys(&switch.settings),
            ports: switch.ports().len() + self.running.config.ports.iter().filter(waits).count(),
            moved: switch.moved(),
            moves_held: switch.moves_held(),
            moves: moves(switch),
            program: switch.program().map(LoadedProgram::status).or_else(|| {
                let keys = switch.settings.forwarding.program()?;
                Some(self.programs.missing.status(name, keys))
            }),
        }
    }

    /// Returns the pairs of ports at which the same addresses are heard by turns.
    fn loops(&self) -> Vec<Mistake> {
        let now = ringway_runtime::seconds(Instant::now());
        let mut pairs: BTreeMap<(&Name, &Name, &Name), usize> = BTreeMap::new();
        for (switch, live) in &self.switches {
            let moves = live.moves().into_iter().filter(|(moved, ..)| is_used_twice(moved, now));
            for (one, other) in moves.filter_map(|(_, from, to)| Some((from?, to?))) {
                *pairs.entry((switch, one.min(other), one.max(other))).or_default() += 1;
            }
        }
        let one = |((switch, one, other), count)| Mistake {
            key: format!("switch.{switch}"),
            span: None,
            what: match count {
                1 => format!("an address is in use at both \"{one}\" and \"{other}\""),
                _ => format!("{count} addresses are in use at both \"{one}\" and \"{other}\""),
            },
            right: "two machines have one address, or both ports lead into one network: that is a loop".to_owned(),
        };
        pairs.into_iter().map(one).collect()
    }

    /// Logs the doubts that were not there before a change. Returns a line for each.
    pub(super) fn new_doubts(&self, before: &[Mistake]) -> Vec<String> {
        let new = self.doubts().into_iter().filter(|doubt| !before.contains(doubt));
        new.map(|doubt| {
            tracing::warn!("{doubt}");
            format!("warning: {doubt}")
        })
        .collect()
    }

    fn ports(&self) -> Vec<PortStatus> {
        let live = self.switches.iter().flat_map(|(switch, s)| s.ports().iter().map(move |p| (switch, p)));
        // Ports whose threads do not answer in time are reported as they were seen last.
        let until = Instant::now() + REPORT_WITHIN;
        let mut ports: Vec<PortStatus> = live.map(|(_, (name, port))| live_status(name, port, until)).collect();
        let is_live =
            |name: &Name, port: &Port| self.switches.get(&port.switch).is_some_and(|s| s.ports().contains_key(name));
        let absent = self.running.config.ports.iter().filter(|(name, port)| !is_live(name, port));
        ports.extend(absent.map(|(name, port)| self.absent_status(name, port)));
        ports.extend(self.pipes.ends_in_use().map(|(end, live)| end_status(&end, live)));
        let is_configured =
            |switch: &Name, name: &Name| self.running.config.ports.get(name).is_some_and(|port| port.switch == *switch);
        let disabled = self.defects.all_disabled().filter(|((switch, name), _)| !is_configured(switch, name));
        ports.extend(disabled.map(|((switch, name), disabled)| {
            let settings = Port::new(switch.clone(), disabled.kind, name);
            let status = settings_status(name, &settings, disabled.state(), None);
            PortStatus { detail: Some(disabled_text(switch, name, disabled)), ..status }
        }));
        let mut faults = self.faults.counts();
        for port in &mut ports {
            port.faults = faults.remove(&(port.switch.clone(), port.name.clone())).unwrap_or_default();
        }
        ports.sort_by(|a, b| (&a.switch, &a.name).cmp(&(&b.switch, &b.name)));
        ports
    }

    fn bucket_statuses(&self) -> Vec<BucketStatus> {
        let ports = self.switches.values().flat_map(|s| s.ports().values().map(|port| &port.settings));
        self.buckets.report(&self.running.config.buckets, ports, ringway_runtime::nanoseconds())
    }

    /// Returns the status of a configured port that is not live.
    fn absent_status(&self, name: &Name, port: &Port) -> PortStatus {
        let suspended = self.switches.get(&port.switch).and_then(|switch| switch.suspended(name));
        let policy = suspended.and_then(|port| port.policy.as_ref());
        let disabled = self.defects.disabled(&port.switch, name);
        let pause = self.defects.pause_of(&port.switch, name, Instant::now());
        let status = match port.kind() {
            _ if let Some(disabled) = disabled => {
                let detail = Some(disabled_text(&port.switch, name, disabled));
                PortStatus { detail, ..settings_status(name, port, disabled.state(), policy) }
            }
            _ if pause.is_some() => {
                let detail = pause.as_ref().map(paused_text);
                PortStatus { detail, ..settings_status(name, port, "paused", policy) }
            }
            Kind::Process => settings_status(name, port, "waiting", policy),
            _ => {
                let why = self.retries.get(name).map(|retry| format!("{}; tried again every second", retry.why));
                PortStatus { detail: why, ..settings_status(name, port, "failed", policy) }
            }
        };
        match suspended {
            Some(port) => counted(status, &port.counters),
            None => status,
        }
    }

    /// Returns the addresses that one switch or all switches know, by switch and address.
    ///
    /// # Errors
    /// There is no such switch.
    pub fn fdb(&mut self, switch: Option<&Name>) -> Result<Vec<FdbEntry>, Refused> {
        if let Some(name) = switch.filter(|name| !self.switches.contains_key(*name)) {
            return Err(unknown("switch", name, self.switches.keys()));
        }
        self.keep_addresses();
        let now = ringway_runtime::seconds(Instant::now());
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

    /// Checks that every poller has gone round its loop since the last call. Returns true if all have. Logs the ones that have not for
    /// this time.
    pub fn check_pollers(&mut self, stuck_after: Duration) -> bool {
        let (late, now) = (self.engine.stuck_pollers(), Instant::now());
        self.late.retain(|poller, _| late.contains(poller));
        late.iter().for_each(|poller| _ = self.late.entry(*poller).or_insert(now));
        let is_stuck = |since: &Instant| now.saturating_duration_since(*since) >= stuck_after;
        let stuck: Vec<usize> =
            self.late.iter().filter(|(_, since)| is_stuck(since)).map(|(poller, _)| *poller).collect();
        for poller in stuck.iter().filter(|poller| !self.stuck.contains(poller)) {
            tracing::error!(
                "poller {poller} is stuck: it serves no port, and the switch does not say any more that all is well"
            );
        }
        for poller in self.stuck.iter().filter(|poller| !stuck.contains(poller)) {
            tracing::warn!("poller {poller} goes on");
        }
        self.stuck = stuck;
        self.late.is_empty()
    }

    /// Removes learned addresses that are older than their switch's ageing time.
    pub fn sweep(&mut self) {
        let now = ringway_runtime::seconds(Instant::now());
        self.switches.values_mut().for_each(|switch| switch.sweep(now));
        let live = self.switches.iter().flat_map(|(switch, live)| live.ports().iter().map(move |port| (switch, port)));
        let dropped = live.filter_map(|(switch, (name, port))| {
            let device = port.settings.settings.device()?.to_owned();
            let (_, count) = port.counters().drops().find(|(reason, _)| *reason == DropReason::Oversize)?;
            Some(((switch.clone(), name.clone()), device, count))
        });
        self.large_frames.note(dropped, Instant::now());
        self.keep_counters();
        self.keep_addresses_in_time();
    }
}

fn disabled_text(switch: &Name, name: &Name, disabled: &Disabled) -> String {
    let (state, why) = (disabled.state(), &disabled.why);
    format!("{state}: {why}; to enable it: ringway port enable {switch}:{name}")
}

fn paused_text(pause: &Pause) -> String {
    format!("paused: {}; it works again in {} s", pause.why, pause.left.as_millis().div_ceil(1000))
}

/// Returns true if two ports use an address now. It moves at least once in a hold-down and the minute after it.
fn is_used_twice(moved: &Move, now: u32) -> bool {
    moved.is_duplicate && now.saturating_sub(moved.second) < USED_TWICE
}

fn moves(switch: &LiveSwitch) -> Vec<MoveStatus> {
    let now = ringway_runtime::seconds(Instant::now());
    let mut moves: Vec<MoveStatus> = switch
        .moves()
        .into_iter()
        .map(|(moved, from, to)| MoveStatus {
            vlan: (moved.vlan != 0).then_some(moved.vlan),
            mac: moved.mac.to_string(),
            from: from.map(ToString::to_string),
            to: to.map(ToString::to_string),
            count: moved.count,
            duplicate: is_used_twice(&moved, now),
            held: moved.held,
            age: now.saturating_sub(moved.second).into(),
        })
        .collect();
    moves.sort_by(|a, b| a.age.total_cmp(&b.age).then(a.mac.cmp(&b.mac)));
    moves
}

/// Returns the status of a poller. All time that is not busy is free, including the present sleep, which the poller accounts for when
/// it wakes. A poller also accounts for busy time late, so that time that was reported as free turns out busy: the free time then
/// stands still, as a counter must not go down. `free` is the value that was reported last.
fn poller_status(reading: &PollerReading, age: Duration, free: &mut Duration) -> PollerStatus {
    *free = age.saturating_sub(reading.busy).max(*free);
    PollerStatus {
        core: reading.core.and_then(|core| u32::try_from(core).ok()),
        busy: reading.busy.as_secs_f64(),
        free: free.as_secs_f64(),
        passes: reading.passes,
        sleeps: reading.sleeps,
        shared: reading.shared,
        stuck: false,
    }
}

fn settings_status(name: &Name, port: &Port, state: &str, policy: Option<&Policy>) -> PortStatus {
    let now = ringway_runtime::nanoseconds();
    let mut status = PortStatus {
        name: name.to_string(),
        switch: port.switch.to_string(),
        kind: port.kind().as_str().to_owned(),
        state: state.to_owned(),
        mac: port.mac.iter().map(ToString::to_string).collect(),
        weight: port.weight,
        ingress: limits::report(&port.ingress, policy.and_then(|p| p.ingress.as_deref()), now),
        egress: limits::report(&port.egress, policy.and_then(|p| p.egress.as_deref()).map(Egress::limit), now),
        storm: limits::report_storm(port, policy.and_then(|p| p.storm.as_deref())),
        isolated: port.isolated,
        identity: identity_status(port),
        call_interval: port.calls.interval.to_string(),
        call_above: show_rate(port.calls.above),
        mirror: port.mirror.iter().map(ToString::to_string).collect(),
        mirror_direction: (!port.mirror.is_empty()).then(|| port.mirror_direction.as_str().to_owned()),
        ..PortStatus::default()
    };
    port.settings.own().report(name, &port.mac, &mut status);
    status
}

/// Returns the settings of a switch.
fn switch_keys(switch: &Switch) -> SwitchKeys {
    SwitchKeys(switch.values().into_iter().map(|(key, _, value)| (key.to_owned(), value)).collect())
}

/// Returns the identity of a port as it is configured.
fn identity_status(port: &Port) -> IdentityStatus {
    let identity = &port.identity;
    let (vlan, trunk, native) = match &identity.vlans() {
        Vlan::Unset => (None, None, None),
        Vlan::Access(vlan) => (Some(*vlan), None, None),
        Vlan::Trunk { tagged, native } => (None, Some(tagged.ranges().collect()), *native),
    };
    let checks = identity.checks(&port.mac);
    let guard = [("mac", checks.mac), ("ip", checks.ip), ("dhcp", checks.dhcp), ("ra", checks.ra)];
    let names = |ports: &PortSet| match ports {
        PortSet::All => None,
        PortSet::These(names) => Some(names.iter().map(ToString::to_string).collect()),
    };
    IdentityStatus {
        ip: identity.ip.iter().map(ToString::to_string).collect(),
        guard: guard.iter().filter(|(_, on)| *on).map(|(name, _)| (*name).to_owned()).collect(),
        uplink: identity.uplink,
        uplinks: names(&identity.uplinks),
        allow: names(&identity.allow),
        vlan,
        trunk,
        native,
    }
}

fn live_status(name: &Name, live: &LivePort, until: Instant) -> PortStatus {
    let mut status = settings_status(name, &live.settings, State::Up.as_str(), live.policy.as_ref());
    let seen = live.front_end.as_ref().and_then(|front_end| front_end.report(until, &mut status));
    if live.port.fault().is_some() {
        status.state = "failed".to_owned();
    } else if let Some(state) = seen {
        status.state = state.as_str().to_owned();
    }
    let slow = slow_status(&live.source.slow());
    let [receive, send] = live.port.call_intervals().map(show_duration);
    let call_intervals = CallIntervals { receive, send };
    counted(PortStatus { poller: Some(live.poller), call_intervals, slow, ..status }, &live.counters())
}

/// Returns the status of an end of a pipe: that of a process port, without keys.
fn end_status(end: &EndName, live: &LiveEnd) -> PortStatus {
    let settings = Port::new(end.pipe.switch.clone(), Kind::Process, &end.pipe.port);
    let state = if live.port.fault().is_some() { "failed" } else { State::Up.as_str() };
    let status = settings_status(&end.pipe.port, &settings, state, None);
    counted(PortStatus { name: end.name(), ..status }, &live.port.counters().read())
}

fn counted(status: PortStatus, counters: &CountersReading) -> PortStatus {
    PortStatus {
        input: Traffic { frames: counters.in_frames, bytes: counters.in_bytes },
        output: Traffic { frames: counters.out_frames, bytes: counters.out_bytes },
        drops: counters.drops().map(|(reason, count)| (reason.name().to_owned(), count)).collect(),
        kicks: counters.kicks,
        calls: counters.calls,
        moves_held: counters.moves_held,
        coalesced: counters.coalesced,
        ..status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_no_longer_used_twice_when_it_has_not_moved_for_two_minutes() {
        let owners = [ringway_switch::Owner::new(1, 0), ringway_switch::Owner::new(2, 0)];
        let mac = ringway_switch::Mac::new([2, 0, 0, 0, 0, 1]);
        let moved =
            Move { vlan: 0, mac, from: owners[0], to: owners[1], count: 2, second: 7, is_duplicate: true, held: 9 };
        assert_eq!([7, 126, 127].map(|now| is_used_twice(&moved, now)), [true, true, false]);
        assert!(!is_used_twice(&Move { is_duplicate: false, ..moved }, 7), "a machine that moved");
    }

    #[test]
    fn free_time_does_not_go_down_when_a_poller_tells_late_how_busy_it_was() {
        let mut free = Duration::ZERO;
        let mut said = |age, busy| {
            let [age, busy] = [age, busy].map(Duration::from_secs);
            let reading = PollerReading { core: None, busy, free: Duration::ZERO, passes: 0, sleeps: 0, shared: false };
            poller_status(&reading, age, &mut free).free
        };
        assert_eq!([said(10, 2), said(11, 5), said(13, 5), said(14, 5)], [8.0, 8.0, 8.0, 9.0]);
    }
}
