//! Quarantine without memory for a detour. The process's ports share that memory, so no other test is here.

#![cfg(not(loom))]

mod support;

use std::sync::atomic::Ordering;
use std::task::Waker;

use ringway_engine::{Engine, EngineSettings, Idle};
use ringway_switch::{DetourRoom, prepare_detours};
use support::{Lan, wait_until};

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
    others.stations.iter().for_each(|station| station.port.abandon_detour());
    wait_until("a quarantine poller serves the port", || {
        send();
        cost.payer().starts_with("quarantine")
    });
    lan.stations[1].send(2, 7);
    wait_until("others are served", || !lan.stations[2].take().is_empty());
}
