//! Old topologies are released by the reaper thread.

#![cfg(not(loom))]

mod support;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use ringway_engine::{Engine, EngineSettings, Idle, Topology};
use ringway_switch::{Batch, Forward, MacMap, Member, Switch};
use support::client::{Client, topology};
use support::{Lan, lock};

/// A forwarding function that notes the thread that drops it.
struct Noting {
    map: MacMap,
    threads: Arc<Mutex<Vec<String>>>,
}

impl Forward for Noting {
    fn forward(&self, batch: &mut Batch<'_>, from: &Member, switch: &Switch, now: u32) {
        self.map.forward(batch, from, switch, now);
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        let thread = std::thread::current();
        lock(&self.threads).push(thread.name().unwrap_or("unknown").to_owned());
    }
}

#[test]
fn neither_a_poller_nor_the_publishing_thread_releases_removed_ports() {
    for idle in [Idle::Spin, Idle::Sleep] {
        let settings = EngineSettings { cores: support::cpus(3), idle, ..EngineSettings::default() };
        let engine = Engine::start(&settings).expect("pollers");
        let threads = Arc::default();
        for _ in 0..50 {
            let noting = |map| -> Box<dyn Forward> { Box::new(Noting { map, threads: Arc::clone(&threads) }) };
            let lan = Lan::forwarded(3, usize::MAX, 0, |_| None, noting);
            engine.publish(lan.topology(usize::from, |_| 1));
            support::wait_until("pollers have adopted", || engine.is_settled());
            drop(lan);
            engine.publish(Topology::default());
            support::wait_until("the old topology is released", || engine.is_released());
        }
        assert_eq!(*lock(&threads), ["reaper"; 50]);
    }
}

#[test]
fn no_poller_closes_the_input_of_a_port_that_has_a_fault() {
    let settings = EngineSettings { idle: Idle::Sleep, ..EngineSettings::default() };
    let engine = Engine::start(&settings).expect("pollers");
    let lan = Lan::new(2, usize::MAX);
    let station = Arc::clone(&lan.stations[0]);
    station.is_faulty.store(true, Ordering::Relaxed);
    engine.publish(lan.topology(usize::from, |_| 1));
    drop(lan);
    station.send(1, 0);
    support::wait_until("the port has a fault", || station.port.fault().is_some());
    engine.publish(Topology::default());
    support::wait_until("the port is closed", || engine.is_released());
    assert_eq!(lock(&station.dropped_by).as_deref(), Some("reaper"));
}

#[test]
fn a_poller_that_stands_still_keeps_no_port_that_it_never_served() {
    let engine = Engine::start(&EngineSettings { idle: Idle::Sleep, ..EngineSettings::default() }).expect("a poller");
    let (stuck, late) = (Client::default(), Client::default());
    let gate = lock(&stuck.gate);
    stuck.is_held.store(true, Ordering::Relaxed);
    let (served, _ports) = topology(std::slice::from_ref(&stuck));
    engine.publish(served.clone());
    support::wait_until("the poller stands still in a port", || stuck.collects.load(Ordering::Relaxed) > 0);
    for _ in 0..3 {
        let (mut both, ports) = topology(std::slice::from_ref(&late));
        both.ports.extend(served.ports.iter().cloned());
        engine.publish(both);
        engine.publish(served.clone());
        drop(ports);
        support::wait_until("a port that came and went is released", || late.references() == 1);
    }
    assert!(!engine.is_settled(), "the poller has adopted nothing");
    stuck.is_held.store(false, Ordering::Relaxed);
    drop(gate);
    support::wait_until("everything is released", || engine.is_released());
}
