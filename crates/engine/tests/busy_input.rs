//! An input that has frames, and that cannot take them because another thread holds them.

#![cfg(not(loom))]

mod support;

use std::sync::atomic::Ordering;

use ringway_engine::Idle;
use support::client::{Client, attach};

#[test]
fn a_visit_that_moves_nothing_ends_although_the_input_has_more() {
    let sides = [Client::default(), Client::default()];
    let (_engine, ports) = attach(&sides, Idle::Spin);
    sides[0].is_held.store(true, Ordering::Relaxed);
    let looks = sides[0].looks.load(Ordering::Relaxed);
    support::wait_until("the poller finds the held input", || sides[0].looks.load(Ordering::Relaxed) > looks + 2);
    for taken in 1..=3 {
        sides[1].has_frame.store(true, Ordering::Release);
        support::wait_until("the other port has its turn", || ports[1].counters().read().in_frames == taken);
    }
    sides[0].is_held.store(false, Ordering::Relaxed);
}

#[test]
fn a_visit_ends_when_the_input_has_moved_what_one_visit_may() {
    let sides = [Client::default(), Client::default()];
    let (_engine, _ports) = attach(&sides, Idle::Spin);
    // Between two looks at the other port the poller visits this one once, and the other port is looked at in every round.
    let (looks, collects) = (|| sides[1].looks.load(Ordering::SeqCst), || sides[0].collects.load(Ordering::SeqCst));
    sides[0].moves.store(true, Ordering::Relaxed);
    // The passes are counted in the time between the two readings of the looks, however long this thread stands still in between.
    let looks_before = looks();
    let before = collects();
    support::wait_until("many visits", || collects() > before + 10_000);
    let passes = collects() - before;
    let looks = looks() - looks_before;
    assert!(passes < 16 * looks, "{passes} passes of one port, {looks} looks at the other one");
}
