//! Calls of a running engine, with and without moderation: each call is made.

#![cfg(not(loom))]

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ringway_engine::{Engine, EngineSettings, Idle};
use ringway_switch::Moderation;
use support::{DEADLINE, Lan, Received, Station, lock};

const EVERY_IDLE: [Idle; 3] = [Idle::Sleep, Idle::Adaptive(Duration::from_micros(50)), Idle::Spin];
/// Longer than the deadline of any test.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// An engine whose first poller serves two stations.
fn start(idle: Idle, pollers: usize) -> (Engine, Lan) {
    let settings = EngineSettings { cores: support::cpus(pollers), idle, ..EngineSettings::default() };
    let engine = Engine::start(&settings).expect("pollers");
    let lan = Lan::new(2, usize::MAX);
    engine.publish(lan.topology(|_| 0, |_| 1));
    (engine, lan)
}

fn moderate(station: &Station, interval: Duration) {
    station.port.set_moderation(Moderation::Fixed { interval, above: None });
}

/// Sleeps until frames come, and returns them.
fn receive(station: &Station) -> Vec<Received> {
    station.receive(DEADLINE).expect("a call").0
}

/// Moderates the calls of the second station. Returns when one call was made and the call for another frame is pending.
fn leave_one_pending(lan: &Lan, interval: Duration) {
    let [from, to] = [&lan.stations[0], &lan.stations[1]];
    moderate(to, interval);
    loop {
        let began = Instant::now();
        for number in 0..2 {
            to.ask();
            let before = to.port.counters().read().out_frames;
            from.send(1, number);
            support::wait_until("the frame is delivered", || to.port.counters().read().out_frames > before);
            if number == 0 {
                assert!(to.is_called(DEADLINE));
            }
        }
        if !to.is_called(Duration::from_millis(20)) {
            return;
        }
        // There was time for two calls, so the setup is repeated.
        assert!(began.elapsed() >= interval, "the call came too early");
    }
}

#[test]
fn without_moderation_a_sleeping_client_is_called_for_each_frame() {
    const FRAMES: u64 = 200;
    for idle in EVERY_IDLE {
        let (_engine, lan) = start(idle, 1);
        let [from, to] = [&lan.stations[0], &lan.stations[1]];
        for number in 0..FRAMES {
            to.ask();
            from.send(1, number);
            assert!(to.is_called(DEADLINE), "{idle:?}: no call for frame {number}");
            assert_eq!(to.take().len(), 1);
        }
        // A call is counted after it was made.
        support::wait_until("each call is counted", || to.port.counters().read().calls == FRAMES);
        assert_eq!(lock(&to.calls).len() as u64, FRAMES, "{idle:?}");
    }
}

#[test]
fn moderated_calls_are_an_interval_apart_and_announce_every_frame() {
    const FRAMES: u64 = 400;
    const BURST: u64 = 50;
    let interval = Duration::from_millis(1);
    for idle in EVERY_IDLE {
        let (_engine, lan) = start(idle, 1);
        let [from, to] = [&lan.stations[0], &lan.stations[1]];
        moderate(to, interval);
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            // Bursts of several frames per interval. A burst is sent when the previous one has arrived.
            scope.spawn(|| {
                for number in 0..FRAMES {
                    if number % BURST == 0 {
                        support::wait_until("the last burst arrives", || next.load(Ordering::Relaxed) == number);
                    }
                    from.send(1, number);
                }
            });
            while next.load(Ordering::Relaxed) < FRAMES {
                for frame in receive(to) {
                    assert_eq!(frame.number, next.fetch_add(1, Ordering::Relaxed));
                }
            }
        });
        for pair in lock(&to.calls).windows(2) {
            let apart = pair[1].0 - pair[0].1;
            assert!(apart >= interval, "{idle:?}: two calls {apart:?} apart");
        }
    }
}

#[test]
fn a_quiet_port_is_called_for_each_frame_though_a_busy_one_would_not_be() {
    let (_engine, lan) = start(Idle::Sleep, 1);
    let [from, to] = [&lan.stations[0], &lan.stations[1]];
    // Without `above`, no second call would come.
    to.port.set_moderation(Moderation::Fixed { interval: FOR_EVER, above: Some(1_000_000) });
    let arms = || from.arms.load(Ordering::Relaxed);
    support::wait_until("the sender's port is armed", || arms() > 0);
    for number in 0..20 {
        let before = arms();
        to.ask();
        from.send(1, number);
        assert!(to.is_called(DEADLINE), "no call for frame {number}");
        assert_eq!(to.take().len(), 1);
        // The poller reads the clock before it arms, so the next frame comes after this call.
        support::wait_until("the sender's port is armed again", || arms() > before);
    }
}

/// A client that takes what comes, and then one that waits for each frame.
#[test]
fn a_pending_call_is_made_when_its_poller_ends() {
    for idle in EVERY_IDLE {
        let (engine, lan) = start(idle, 1);
        leave_one_pending(&lan, FOR_EVER);
        drop(engine);
        assert!(lan.stations[1].is_called(DEADLINE), "{idle:?}");
    }
}

#[test]
fn a_shorter_interval_holds_for_calls_that_are_pending_already() {
    for idle in EVERY_IDLE {
        for interval in [Duration::from_millis(1), Duration::ZERO] {
            let (engine, lan) = start(idle, 1);
            leave_one_pending(&lan, FOR_EVER);
            moderate(&lan.stations[1], interval);
            engine.publish(lan.topology(|_| 0, |_| 1));
            assert!(lan.stations[1].is_called(DEADLINE), "{idle:?}");
        }
    }
}

#[test]
fn a_pending_call_is_made_though_both_ports_move_or_go() {
    for idle in EVERY_IDLE {
        for number in 0..4 {
            let (engine, lan) = start(idle, 2);
            leave_one_pending(&lan, Duration::from_millis(300));
            match number {
                0 => engine.publish(lan.topology(|_| 1, |_| 1)),
                1 => engine.publish(lan.topology(|port| usize::from(port == 1), |_| 1)),
                2 => engine.publish(lan.topology(|port| usize::from(port == 0), |_| 1)),
                _ => {
                    let mut topology = lan.topology(|_| 1, |_| 1);
                    topology.ports.remove(0);
                    engine.publish(topology);
                }
            }
            assert!(lan.stations[1].is_called(DEADLINE), "{idle:?}");
        }
    }
}

#[test]
fn a_client_whose_wish_could_not_be_read_is_asked_again() {
    for idle in EVERY_IDLE {
        for interval in [Duration::ZERO, Duration::from_millis(1)] {
            let (_engine, lan) = start(idle, 1);
            moderate(&lan.stations[1], interval);
            lan.stations[1].busy.store(20, Ordering::SeqCst);
            lan.stations[1].ask();
            lan.stations[0].send(1, 0);
            assert!(lan.stations[1].is_called(DEADLINE), "{idle:?}");
        }
    }
}
