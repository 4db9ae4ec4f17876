//! Quarantine without memory for a detour. The process's ports share that memory, so no other test is here.

#![cfg(not(loom))]

mod support;

use std::sync::atomic::Ordering;
use std::task::Waker;

use ringway_engine::{Engine, EngineSettings, Idle};
use ringway_switch::{DetourRoom, prepare_detours};
use support::{DEADLINE, Lan, kept, lock, wait_until};

#[test]
fn a_port_that_found_no_memory_for_its_quarantine_gets_some_later() {
    let settings = EngineSettings { idle: Idle::Sleep, ..EngineSettings::default() };
    let (engine, lan) = (Engine::start(&settings).expect("a poller"), Lan::new(4, usize::MAX));
    engine.publish(lan.topology(|_| 0, |_| 1));
    // Others have all of it.
    let others = Lan::new(300, 0);
    let begins = |n: &usize| {
        assert!(prepare_detours(), "memory");
        others.stations[*n].port.begin_detour(Waker::noop().clone(), DetourRoom::Prepared, || ())
    };
    assert!((0..300).take_while(begins).count() < 300, "their number is bounded");
    let cost = &lan.stations[0].costs[0];
    cost.stall.store(60_000_000, Ordering::Relaxed);
    let send = || {
        if lan.stations[0].unsent() == 0 {
            lan.stations[0].send(3, 0);
        }
    };
    wait_until("the port is to be in quarantine", || {
        send();
        lan.slow(0).quarantined
    });
    let paid = cost.paid.load(Ordering::SeqCst);
    wait_until("its poller visits it again", || {
        send();
        cost.paid.load(Ordering::SeqCst) > paid + 1
    });
    assert!(cost.payer().starts_with("poller"));
    cost.stall.store(0, Ordering::Relaxed);
    // The port of another client keeps a thread, and is opened. That gives nobody else a detour without memory.
    let other = &lan.stations[1].costs[0];
    let (stay, keeper) = kept::stay();
    *lock(&other.keep) = Some(stay);
    lan.stations[1].send(2, 1);
    wait_until("a thread is relieved", || !engine.take_relieved().is_empty());
    drop(keeper);
    wait_until("the other port is charged", || lan.slow(1).charged_visits > 0);
    lan.stations[1].send(2, 2);
    wait_until("it is open", || lan.stations[1].unsent() == 0);
    lan.stations[3].send(0, 1);
    let received = lan.stations[0].receive(DEADLINE).map(|(received, _)| received.len());
    assert_eq!(received, Some(1));
    lan.stations[2].take();
    cost.stall.store(60_000_000, Ordering::Relaxed);
    others.stations.iter().for_each(|station| station.port.abandon_detour());
    wait_until("a quarantine poller serves the port", || {
        send();
        cost.payer().starts_with("quarantine")
    });
    lan.stations[1].send(2, 7);
    wait_until("others are served", || !lan.stations[2].take().is_empty());
}
