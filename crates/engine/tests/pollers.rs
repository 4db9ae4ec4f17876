//! Several pollers: ports spread over them and moved while frames flow, and a poller's time shared by weight.

#![cfg(not(loom))]

mod support;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringway_engine::{Engine, EngineSettings, Idle};
use support::{DEADLINE, Lan, Station, lock};

fn start(idle: Idle, pollers: usize) -> Engine {
    let settings = EngineSettings { cores: support::cpus(pollers), idle, ..EngineSettings::default() };
    Engine::start(&settings).expect("pollers")
}

const MOVES: usize = 100;
const FRAMES_PER_MOVE: u64 = 100;
const FRAMES: u64 = FRAMES_PER_MOVE * MOVES as u64;

/// Sends to each station of `to`, only a little ahead of the moves, so that pollers sleep at times.
fn send(station: &Station, to: &[u16], moves: &AtomicUsize) {
    for number in 0..FRAMES {
        if number % FRAMES_PER_MOVE == 0 {
            support::wait_until("ports have moved", || {
                moves.load(Ordering::Relaxed) as u64 >= number / FRAMES_PER_MOVE
            });
        }
        to.iter().for_each(|&to| station.send(to, number));
    }
}

/// Receives until every flow has arrived complete and in order.
fn receive(station: &Station, flows: usize) {
    let mut next: HashMap<u16, u64> = HashMap::new();
    while next.len() < flows || next.values().any(|&next| next < FRAMES) {
        let (received, _) = station.receive(DEADLINE).expect("a call for the next frame");
        for frame in received {
            let next = next.entry(frame.from).or_default();
            assert_eq!(frame.number, *next, "from {} to {}", frame.from, station.number);
            *next += 1;
        }
    }
}

#[test]
fn ports_that_move_between_pollers_lose_repeat_and_reorder_nothing() {
    for idle in [Idle::Sleep, Idle::Adaptive(Duration::from_micros(50))] {
        for pollers in 2..=4 {
            let engine = start(idle, pollers);
            let lan = Lan::new(4, usize::MAX);
            engine.publish(lan.topology(usize::from, |_| 1));
            let moves = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                let others = |station: &Station| (0..4).filter(|&n| n != station.number).collect::<Vec<u16>>();
                for station in &lan.stations {
                    let (to, moves) = (others(station), &moves);
                    scope.spawn(move || send(station, &to, moves));
                    scope.spawn(move || receive(station, 3));
                }
                for turn in 1..=MOVES {
                    // Poller numbers are modulo the number of pollers.
                    engine.publish(lan.topology(|port| usize::from(port) * turn + turn, |_| 1));
                    support::wait_until("pollers have adopted", || engine.is_settled());
                    moves.store(turn, Ordering::Relaxed);
                }
            });
            for station in &lan.stations {
                let counters = station.port.counters().read();
                assert_eq!((counters.in_frames, counters.out_frames), (3 * FRAMES, 3 * FRAMES));
                assert_eq!(counters.drops().count(), 0);
                assert_eq!(station.take(), [], "no frame comes after the last");
            }
        }
    }
}

#[test]
fn a_parked_port_that_moves_is_heard_by_its_new_poller() {
    for idle in [Idle::Sleep, Idle::Adaptive(Duration::from_micros(50))] {
        let engine = start(idle, 3);
        let lan = Lan::new(2, usize::MAX);
        for number in 0..200 {
            let poller = number as usize % 3;
            engine.publish(lan.topology(|_| poller, |_| 1));
            support::wait_until("pollers have adopted", || engine.is_settled());
            let before = lan.stations[0].arms.load(Ordering::Relaxed);
            lan.stations[0].send(1, number);
            let (received, _) = lan.stations[1].receive(DEADLINE).expect("a call");
            assert_eq!(received[0].number, number);
            support::wait_until("the port is parked", || lan.stations[0].arms.load(Ordering::Relaxed) > before);
        }
    }
}

/// Checks that two flooding ports alternate, and that each of their turns has the given number of batches.
fn check_turns(lan: &Lan, turns: [usize; 2], what: &str) {
    let order = lan.order(4000);
    // The first and the last turn may be incomplete.
    let runs: Vec<&[u16]> = order.chunk_by(|one, other| one == other).collect();
    for (at, run) in runs.iter().enumerate().skip(1).take(runs.len() - 2) {
        assert_eq!(run.len(), turns[usize::from(run[0])], "{what}: turn {at}, of port {}", run[0]);
    }
}

#[test]
fn a_port_that_ends_its_batches_early_has_whole_turns_all_the_same() {
    let engine = start(Idle::Spin, 1);
    let lan = Lan::new(3, 0);
    lan.stations[..2].iter().for_each(|station| *lock(&station.floods) = Some(2));
    // Half a batch.
    lan.stations[1].ends.store(128, Ordering::Relaxed);
    engine.publish(lan.topology(|_| 0, |_| 1));
    support::wait_until("the poller has adopted", || engine.is_settled());
    check_turns(&lan, [1, 2], "a batch and two halves");
}

#[test]
fn a_pollers_batches_are_shared_by_weight() {
    for idle in [Idle::Spin, Idle::Adaptive(Duration::from_micros(50)), Idle::Sleep] {
        let engine = start(idle, 1);
        // The third station reads nothing and has room for nothing, so the test counts the frames that are taken.
        let lan = Lan::new(3, 0);
        lan.stations[..2].iter().for_each(|station| *lock(&station.floods) = Some(2));
        for weights in [[1, 3, 1], [1, 1, 1], [5, 2, 1]] {
            engine.publish(lan.topology(|_| 0, |port| weights[usize::from(port)]));
            support::wait_until("the poller has adopted", || engine.is_settled());
            check_turns(&lan, [0, 1].map(|n: usize| weights[n] as usize), &format!("{idle:?} {weights:?}"));
        }
        drop(engine);
        let frames = |n: usize| lan.stations[n].port.counters().read().in_frames;
        assert!(frames(0) > 256 * 2000 && frames(1) > 256 * 2000);
    }
}
