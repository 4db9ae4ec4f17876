//! Inputs whose switch is another one in the poller's next topology.

#![cfg(not(loom))]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringway_engine::{Engine, EngineSettings, Idle, Topology};
use support::client::{Client, topology};

#[test]
fn a_port_is_visited_when_its_switch_gets_another_port_and_that_ports_client_is_called() {
    let (first, second) = (Client::default(), Client::default());
    let engine = Engine::start(&EngineSettings { idle: Idle::Sleep, ..EngineSettings::default() }).expect("a poller");
    let (alone, _) = topology(std::slice::from_ref(&first));
    let source = Arc::clone(&alone.ports[0].source);
    engine.publish(alone);
    let adoptions = || first.adoptions.load(Ordering::Relaxed);
    support::wait_until("the poller serves it", || adoptions() == 1 && engine.is_settled());
    let (mut both, _) = topology(&[first.clone(), second.clone()]);
    both.ports[0].source = source;
    engine.publish(both.clone());
    support::wait_until("the other client is called", || {
        second.calls.iter().all(|calls| calls.load(Ordering::Relaxed) > 0)
    });
    assert_eq!(adoptions(), 2);
    // The same switch again is nothing new.
    engine.publish(Topology { ports: both.ports.clone() });
    support::wait_until("the poller has adopted", || engine.is_settled());
    assert_eq!((adoptions(), second.adoptions.load(Ordering::Relaxed)), (2, 1));
}
