//! Slots and their buffers: each test runs one case of `slots.c`.

use std::path::PathBuf;
use std::sync::OnceLock;

use ringway_scenes::Daemon;

use super::{CONFIG, compiled, run};

fn case(name: &str) {
    static PROGRAM: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    run(compiled(&PROGRAM, "slots"), &Daemon::start(CONFIG), name);
}

#[test]
fn a_bridge_of_two_ports_swaps_buffers() {
    case("swap");
}

#[test]
fn extra_buffers_can_be_sent_and_take_others_in_their_place() {
    case("extra");
}

#[test]
fn indirect_buffers_frames_of_several_slots_and_time_stamps_work() {
    case("slots");
}

#[test]
fn a_ring_with_bad_positions_is_reset_and_poll_says_so() {
    case("bad-ring");
}

#[test]
fn frames_without_an_address_pass_from_netmap_ports() {
    case("no-address");
}

#[test]
fn nothing_is_learned_from_frames_with_ns_no_learn() {
    case("no-learn");
}
