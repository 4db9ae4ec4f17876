//! Calls of a running engine: when they are made, with moderation and without, whatever happens meanwhile.

#![cfg(not(loom))]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ringway_engine::{Engine, EngineSettings, Idle};
use ringway_switch::Moderation;
use support::{DEADLINE, Lan, Received, Station, lock};

const EVERY_IDLE: [Idle; 3] = [Idle::Sleep, Idle::Adaptive(Duration::from_micros(50)), Idle::Spin];
/// No test waits this long; one that has to would fail.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// Pollers that serve two stations.
fn start(idle: Idle, pollers: usize) -> (Engine, Lan) {
    let settings = EngineSettings { cores: support::cpus(pollers), idle, ..EngineSettings::default() };
    let engine = Engine::start(&settings).expect("pollers");
    let lan = Lan::new(2, usize::MAX);
    engine.publish(lan.topology(|_| 0, |_| 1));
    (engine, lan)
}

fn moderate(station: &Station, interval: Duration) {
    station.port.set_moderation(Moderation { interval, above: None });
}

/// Asleep until something comes.
fn receive(station: &Station) -> Vec<Received> {
    station.receive(DEADLINE).expect("a call").0
}

/// Moderates the second station's calls. Returns when one was made, and one for another frame is pending.
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
        // That was no fault if this took long: once more.
        assert!(began.elapsed() >= interval, "a call before its time");
    }
}

/// What a quarter of the times is below: the others are the machine's.
fn quartile(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 4).copied().unwrap_or_default()
}

#[test]
fn without_moderation_a_sleeping_client_is_called_for_each_frame_at_once() {
    const FRAMES: u64 = 200;
    for idle in EVERY_IDLE {
        let (_engine, lan) = start(idle, 1);
        let mut late = Vec::new();
        for number in 0..FRAMES {
            let station = Arc::clone(&lan.stations[0]);
            let sender = std::thread::spawn(move || station.send(1, number));
            let received = receive(&lan.stations[1]);
            late.push(received[0].at.elapsed());
            assert_eq!(received.len(), 1);
            sender.join().expect("sends");
        }
        let slept = lock(&lan.stations[1].calls).len() as u64;
        assert_eq!(lan.stations[1].port.counters().read().calls, slept);
        assert!(slept > FRAMES / 2, "{idle:?}: {slept} calls");
        let late = quartile(late);
        assert!(late < Duration::from_millis(1), "{idle:?}: three quarters of the calls are {late:?} late");
    }
}

#[test]
fn moderated_calls_are_an_interval_apart_and_tell_of_every_frame_in_time() {
    const FRAMES: u64 = 400;
    let interval = Duration::from_millis(1);
    for idle in EVERY_IDLE {
        let (_engine, lan) = start(idle, 1);
        moderate(&lan.stations[1], interval);
        let station = Arc::clone(&lan.stations[0]);
        // A trickle, several frames per interval, and pauses of several intervals.
        let sender = std::thread::spawn(move || {
            for number in 0..FRAMES {
                station.send(1, number);
                std::thread::sleep(Duration::from_micros(if number % 50 == 49 { 3000 } else { 150 }));
            }
        });
        let (mut next, mut late) = (0, Vec::new());
        while next < FRAMES {
            let (received, slept) = lan.stations[1].receive(DEADLINE).expect("no frame is left untold");
            for frame in received {
                assert_eq!(frame.number, next);
                next += 1;
                if slept {
                    late.push(frame.at.elapsed());
                }
            }
        }
        sender.join().expect("sends");
        let calls = lock(&lan.stations[1].calls).clone();
        for pair in calls.windows(2) {
            let apart = pair[1].0 - pair[0].1;
            assert!(apart >= interval, "{idle:?}: two calls {apart:?} apart");
        }
        assert!(calls.len() > 10 && (calls.len() as u64) < FRAMES / 2, "{idle:?}: {} calls", calls.len());
        let late = quartile(late);
        assert!(
            late < interval + Duration::from_millis(1),
            "{idle:?}: three quarters of the frames are told of {late:?} late"
        );
    }
}

#[test]
fn a_quiet_port_is_called_at_once_though_a_busy_one_would_not_be() {
    let (_engine, lan) = start(Idle::Sleep, 1);
    let [from, to] = [&lan.stations[0], &lan.stations[1]];
    to.port.set_moderation(Moderation { interval: Duration::from_millis(200), above: Some(1_000_000) });
    let began = Instant::now();
    for number in 0..20 {
        from.send(1, number);
        assert_eq!(receive(to).len(), 1);
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(2), "20 frames took {took:?}");
}

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
fn a_client_that_could_not_be_asked_is_asked_again() {
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
