//! A client that cannot kick a sleeping poller, although the poller asked for kicks.

#![cfg(not(loom))]

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use ringway_engine::Idle;
use support::client::{Client, attach};

#[test]
fn a_sleeping_poller_finds_frames_that_no_kick_announces() {
    for idle in [Idle::Sleep, Idle::Adaptive(Duration::from_micros(50))] {
        let client = Client::default();
        client.is_silent.store(true, Ordering::Relaxed);
        let (engine, ports) = attach(std::slice::from_ref(&client), idle);
        let port = &ports[0];
        for taken in 1..=3 {
            let sleeps = engine.readings()[0].sleeps;
            support::wait_until("the poller sleeps", || engine.readings()[0].sleeps > sleeps + 2);
            client.has_frame.store(true, Ordering::Release);
            support::wait_until("the poller sees the frame", || port.counters().read().in_frames == taken);
        }
        assert_eq!(port.counters().read().kicks, 0);

        // Once the client can kick again, the port is not polled any more.
        client.is_silent.store(false, Ordering::Relaxed);
        client.has_frame.store(true, Ordering::Release);
        support::wait_until("the port is polled once more", || port.counters().read().in_frames == 4);
        // A poller that polls wakes by a timer.
        support::wait_until_it_stays_asleep("poller0");
    }
}
