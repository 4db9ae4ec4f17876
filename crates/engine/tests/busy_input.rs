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
