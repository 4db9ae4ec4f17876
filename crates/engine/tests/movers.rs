//! Movers: what a poller does with them.

#![cfg(not(loom))]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringway_engine::{Engine, EngineSettings, Idle, Topology};
use ringway_switch::{PortFault, Role};
use support::client::{Client, attach_movers, movers};
use support::lock;

#[test]
fn a_mover_is_visited_when_it_gets_another_peer_and_that_peers_client_is_called() {
    let (first, second) = (Client::default(), Client::default());
    let engine = Engine::start(&EngineSettings { idle: Idle::Sleep, ..EngineSettings::default() }).expect("a poller");
    let (alone, _) = movers(std::slice::from_ref(&first));
    let source = Arc::clone(&alone.ports[0].source);
    engine.publish(alone);
    let adoptions = || first.adoptions.load(Ordering::Relaxed);
    support::wait_until("the poller serves it", || adoptions() == 1 && engine.is_settled());
    let (mut both, _) = movers(&[first.clone(), second.clone()]);
    both.ports[0].source = source;
    engine.publish(both.clone());
    support::wait_until("the other client is called", || {
        second.calls.iter().all(|calls| calls.load(Ordering::Relaxed) > 0)
    });
    assert_eq!(adoptions(), 2);
    // The same peer again is nothing new.
    engine.publish(Topology { ports: both.ports.clone() });
    support::wait_until("the poller has adopted", || engine.is_settled());
    assert_eq!((adoptions(), second.adoptions.load(Ordering::Relaxed)), (2, 1));
}

#[test]
fn a_visit_ends_when_the_mover_has_moved_what_one_visit_may() {
    let sides = [Client::default(), Client::default()];
    let (_engine, _ports) = attach_movers(&sides, Idle::Spin);
    // Between two looks at the other mover the poller visits this one once, and the other one is looked at in every round.
    let (looks, collects) = (|| sides[1].looks.load(Ordering::SeqCst), || sides[0].collects.load(Ordering::SeqCst));
    sides[0].moves.store(true, Ordering::Relaxed);
    // The visits are counted in the time between the two readings of the looks, however long this thread stands still in between.
    let looks_before = looks();
    let before = collects();
    support::wait_until("many visits", || collects() > before + 10_000);
    let passes = collects() - before;
    let looks = looks() - looks_before;
    assert!(passes < 16 * looks, "{passes} visits of one mover, {looks} looks at the other one");
}

/// Returns the role in which a port was retired.
fn role(fault: Option<PortFault>) -> Option<Role> {
    match fault {
        Some(PortFault::InternalError(defect)) => Some(defect.role),
        _ => None,
    }
}

#[test]
fn frames_are_counted_at_both_clients_and_the_one_that_got_them_is_called() {
    let sides = [Client::default(), Client::default()];
    let (_engine, ports) = attach_movers(&sides, Idle::Spin);
    let called = || sides[1].calls[0].load(Ordering::Relaxed);
    support::wait_until("the other client is called for the new topology", || called() == 1);
    for frames in 1..=3 {
        let before = called();
        sides[0].has_frame.store(true, Ordering::Release);
        support::wait_until("the other client is called", || called() > before);
        let counters = ports.iter().map(|port| port.counters().read());
        let counted: Vec<_> = counters.map(|counters| (counters.in_frames, counters.out_frames)).collect();
        assert_eq!(counted, [(frames, 0), (0, frames)]);
    }
}

#[test]
fn a_panic_in_a_visit_retires_the_movers_client_and_one_in_a_call_the_client_that_was_called() {
    let (sides, others) = ([Client::default(), Client::default()], [Client::default(), Client::default()]);
    let engine = Engine::start(&EngineSettings { idle: Idle::Sleep, ..EngineSettings::default() }).expect("a poller");
    let ((mut all, ports), (more, other_ports)) = (movers(&sides), movers(&others));
    all.ports.extend(more.ports);
    engine.publish(all);
    support::wait_until("the movers are served", || engine.is_settled());
    sides[0].panics.store(true, Ordering::Relaxed);
    others[1].call_panics.store(true, Ordering::Relaxed);
    for client in [&sides[0], &others[0]] {
        client.moves.store(true, Ordering::Relaxed);
        client.kick();
    }
    support::wait_until("the first mover's client is retired", || ports[0].fault().is_some());
    support::wait_until("the client that was called is retired", || other_ports[1].fault().is_some());
    let roles = [&ports[0], &ports[1], &other_ports[0], &other_ports[1]].map(|port| role(port.fault()));
    assert_eq!(roles, [Some(Role::Source), None, None, Some(Role::Receiver)]);
    assert_eq!(lock(&sides[0].dropped_by).as_deref(), Some("poller0"), "what it holds is not used again");
    // The mover that called goes on.
    let before = other_ports[0].counters().read().in_frames;
    support::wait_until("its frames are moved", || other_ports[0].counters().read().in_frames > before + 10);
    assert_eq!(*lock(&others[0].dropped_by), None);
}

#[test]
fn a_mover_whose_client_broke_the_rules_ends_and_the_reaper_drops_it() {
    let sides = [Client::default(), Client::default()];
    let (engine, ports) = attach_movers(&sides, Idle::Sleep);
    support::wait_until("the movers are served", || engine.is_settled());
    sides[0].is_faulty.store(true, Ordering::Relaxed);
    sides[0].has_frame.store(true, Ordering::Relaxed);
    sides[0].kick();
    support::wait_until("the port has a fault", || ports[0].fault().is_some());
    assert_eq!((ports[0].fault(), ports[1].fault()), (Some(PortFault::EndlessFrame), None));
    assert_eq!(ports[1].counters().read().out_frames, 1, "what was moved before is counted");
    engine.publish(Topology::default());
    support::wait_until("the mover is closed", || engine.is_released());
    assert_eq!(lock(&sides[0].dropped_by).as_deref(), Some("reaper"));
}

#[test]
fn a_mover_whose_memory_stalls_its_poller_is_slow_and_its_peer_is_not() {
    let sides = [Client::default(), Client::default()];
    let engine = Engine::start(&EngineSettings { idle: Idle::Spin, ..EngineSettings::default() }).expect("a poller");
    let (topology, _ports) = movers(&sides);
    let sources = [0, 1].map(|at: usize| Arc::clone(&topology.ports[at].source));
    engine.publish(topology);
    support::wait_until("the movers are served", || engine.is_settled());
    sides[0].moving.stall.store(5_000_000, Ordering::Relaxed);
    sides[0].moves.store(true, Ordering::Relaxed);
    support::wait_until("it is in quarantine", || sources[0].slow().quarantined);
    support::wait_until("a quarantine poller serves it", || sides[0].moving.payer().starts_with("quarantine"));
    let before = sides[0].collects.load(Ordering::Relaxed);
    support::wait_until("it is visited", || sides[0].collects.load(Ordering::Relaxed) > before + 2);
    assert_eq!(sources[1].slow().charged_visits, 0);
}
