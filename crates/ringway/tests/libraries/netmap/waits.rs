//! Waits: epoll sets that change while threads sleep, sets within sets, cancelled threads, and pointers that are wrong.
//!
//! Each test runs one case of `waits.c`.

use std::path::PathBuf;
use std::sync::OnceLock;

use ringway_scenes::Daemon;

use super::{CONFIG, compiled, run};

fn case(name: &str) {
    static PROGRAM: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    run(compiled(&PROGRAM, "waits"), &Daemon::start(CONFIG), name);
}

#[test]
fn a_thread_that_sleeps_in_a_set_hears_of_a_netmap_descriptor_that_is_added() {
    case("added");
}

#[test]
fn a_thread_that_sleeps_in_a_set_hears_of_the_first_netmap_descriptor_of_the_set() {
    case("first");
}

#[test]
fn a_thread_that_sleeps_in_a_set_hears_of_a_descriptor_whose_events_are_modified() {
    case("modified");
}

#[test]
fn poll_of_a_set_reports_netmap_descriptors_and_others_in_it() {
    case("polled");
}

#[test]
fn a_set_within_a_set_reports_frames() {
    case("nested");
}

#[test]
fn two_threads_that_add_the_first_descriptors_at_once_make_one_set() {
    case("race");
}

#[test]
fn descriptors_added_to_what_is_no_set_leave_nothing_behind() {
    case("no-set");
}

#[test]
fn a_ready_descriptor_does_not_keep_others_out_of_a_small_array() {
    case("fair");
}

#[test]
fn a_select_with_more_bits_than_the_kernel_has_descriptors_touches_only_the_sets() {
    case("select");
}

#[test]
fn bad_pointers_give_efault() {
    case("pointers");
}

#[test]
fn a_thread_that_waits_for_netmap_can_be_cancelled() {
    case("cancel");
}

#[test]
fn a_close_range_that_fails_closes_nothing() {
    case("close-range");
}

#[test]
fn memory_that_cannot_be_mapped_is_enomem_and_leaves_the_port_to_others() {
    case("unmapped");
}

#[test]
fn a_select_does_not_end_early_for_a_hangup_that_no_set_asks_for() {
    case("hangup");
}

#[test]
fn a_wait_for_a_closed_descriptor_leaves_the_waits_for_its_successor_alone() {
    case("renewed");
}

#[test]
fn a_descriptor_that_another_process_has_registered_is_no_error_in_a_set_in_which_a_thread_sleeps() {
    case("unknown");
}

#[test]
fn a_wait_for_a_descriptor_that_was_not_registered_leaves_other_waits_alone_and_sees_frames() {
    case("unregistered");
}
