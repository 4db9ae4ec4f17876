//! Ports whose frames a limit holds back.

#![cfg(not(loom))]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ringway_engine::{Engine, EngineSettings, Idle};
use ringway_switch::Policy;
use ringway_switch::policy::{Bucket, Excess, Limit, Rates};
use support::{DEADLINE, Lan};

/// Port 0 may send one frame, and the next after some minutes.
fn slow(port: u16) -> Option<Policy> {
    let mut limit = Limit::new(Rates { bits: Some(Bucket::new(1, 8)), frames: None });
    limit.excess = Excess::Wait;
    (port == 0).then(|| Policy { ingress: Some(Arc::new(limit)), ..Policy::default() })
}

#[test]
fn an_event_of_a_port_whose_frames_wait_is_handled_though_it_is_no_frame() {
    for idle in [Idle::Spin, Idle::Sleep, Idle::Adaptive(Duration::from_micros(50))] {
        let engine = Engine::start(&EngineSettings { idle, ..EngineSettings::default() }).expect("a poller");
        let lan = Lan::with_policies(2, usize::MAX, 0, slow);
        let [from, to] = [&lan.stations[0], &lan.stations[1]];
        engine.publish(lan.topology(|_| 0, |_| 1));
        from.send(1, 0);
        from.send(1, 1);
        assert_eq!(to.receive(DEADLINE).expect("a call").0.len(), 1);
        for seen in 1..=3 {
            if idle != Idle::Spin {
                let sleeps = engine.readings()[0].sleeps;
                from.send(1, 2);
                to.send(0, seen);
                support::wait_until("the poller sleeps again", || engine.readings()[0].sleeps > sleeps);
            }
            from.raise_event();
            support::wait_until("the poller sees the event", || from.seen.load(Ordering::SeqCst) == seen);
        }
        assert!(from.unsent() > 0, "the port's frames wait");
    }
}
