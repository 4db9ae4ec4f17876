//! Epoll sets: edges, errors and ends, sets of several processes and sets within sets.
//!
//! Each test runs one case of `epoll.c`.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ringway_scenes::Daemon;

use super::{CONFIG, compiled, daemon_is_killed_under, run};

fn program() -> &'static Path {
    static PROGRAM: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    compiled(&PROGRAM, "epoll")
}

fn case(name: &str) {
    run(program(), &Daemon::start(CONFIG), name);
}

#[test]
fn an_edge_triggered_set_reports_a_frame_after_a_whole_lap_of_the_ring() {
    case("lap");
}

#[test]
fn a_set_reports_a_ring_with_bad_positions_once() {
    case("bad-ring");
}

#[test]
fn a_program_that_asks_a_set_without_sleeping_sees_epollerr_when_the_daemon_is_killed() {
    daemon_is_killed_under(program(), "killed-busy");
}

#[test]
fn a_netmap_descriptor_that_a_child_adds_to_its_parents_set_is_no_event_of_the_parent() {
    case("forked");
}

#[test]
fn a_set_that_got_netmap_descriptors_within_another_can_be_modified_and_taken_out() {
    case("later");
}

#[test]
fn a_set_that_gets_the_number_of_a_closed_one_has_none_of_its_descriptors() {
    case("reopened");
}

#[test]
fn a_netmap_descriptor_that_another_program_adds_to_a_shared_set_is_no_event_of_this_one() {
    case("executed");
}

#[test]
fn a_wait_by_a_descriptor_that_becomes_another_sets_takes_none_of_its_events() {
    case("closed-copy");
}
