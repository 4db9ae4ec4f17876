//! A poller arms its ports before it sleeps, while another port gets frames.

#![cfg(not(loom))]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ringway_engine::{Engine, EngineSettings, Idle};
use support::{Lan, lock};

/// More rounds than a port without frames stays active.
const PARKED: u64 = 1000;

#[test]
fn a_port_whose_kick_is_taken_while_another_keeps_the_poller_awake_is_armed_again() {
    let engine = Engine::start(&EngineSettings { idle: Idle::Sleep, ..EngineSettings::default() }).expect("a poller");
    // Port 0 is a device, so that the poller reads events while it is awake.
    let lan = Lan::with_devices(3, usize::MAX, 1);
    engine.publish(lan.topology(|_| 0, |_| 1));
    let [busy, parked] = [&lan.stations[1], &lan.stations[2]];
    for round in 0..20 {
        // The busy port keeps the poller awake until the other port is parked, so the busy port is not armed.
        *lock(&busy.floods) = Some(2);
        busy.send(2, u64::MAX - 1);
        parked.send(1, round);
        support::wait_until("the first frame of the later parked port arrives", || {
            parked.take();
            busy.take().iter().any(|frame| frame.number == round)
        });
        let batches = busy.batches.load(Ordering::Relaxed);
        support::wait_until("the port is parked", || {
            parked.take();
            busy.batches.load(Ordering::Relaxed) > batches + PARKED
        });
        // When the parked port is armed, it gets a frame, and so does the busy port, which was armed just before and kicks.
        let [from, to] = [Arc::clone(busy), Arc::clone(parked)];
        *lock(&parked.on_arm) = Some(Box::new(move || {
            from.send(2, u64::MAX);
            to.send(1, u64::MAX);
            // Long enough for the poller to read events next.
            let began = Instant::now();
            while began.elapsed() < Duration::from_micros(100) {}
        }));
        *lock(&busy.floods) = None;
        support::wait_until("both frames arrive", || busy.take().iter().any(|frame| frame.number == u64::MAX));
        support::wait_until_it_stays_asleep("poller0");
        parked.take();
        busy.send(2, round);
        // Whether it arrives is another matter: a poller that lost its processor during the closure charged the parked port for that.
        support::wait_until("the next frame of the armed port is taken, too", || busy.unsent() == 0);
    }
}
