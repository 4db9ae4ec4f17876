//! Locks that threads leave by jumps out of signal handlers, meet in signal handlers, or lose to others.
//!
//! Each test runs one case of `jumps.c`.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ringway_scenes::Daemon;
use ringway_testing::skip;

use super::{CONFIG, compiled, daemon_is_killed_under, run};

fn program() -> &'static Path {
    static PROGRAM: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    compiled(&PROGRAM, "jumps")
}

fn case(name: &str) {
    run(program(), &Daemon::start(CONFIG), name);
}

#[test]
fn a_synchronisation_that_is_left_before_its_kick_is_made_up_for_by_the_next_one() {
    case("left-kick");
}

#[test]
fn a_poll_without_a_limit_sees_the_frame_in_a_ring_that_its_thread_has_left_locked() {
    case("left-poll");
}

#[test]
fn an_epoll_wait_without_a_limit_sees_the_frame_in_a_ring_that_its_thread_has_left_locked() {
    case("left-epoll");
}

#[test]
fn an_epoll_wait_without_a_limit_sees_the_frame_in_a_set_that_its_thread_has_left_locked() {
    case("left-set");
}

#[test]
fn a_lock_of_another_stack_is_not_taken_for_one_that_was_left() {
    case("other-stack");
}

#[test]
fn a_handler_on_its_own_stack_takes_a_lock_that_its_thread_has_left() {
    case("own-stack");
}

#[test]
fn a_thread_that_has_lost_its_lock_does_not_release_it_for_the_next_holder() {
    case("lost-lock");
}

#[test]
fn a_child_of_a_raw_clone_waits_for_the_lock_of_its_parents_thread() {
    case("raw-clone");
}

#[test]
fn a_set_that_a_handler_makes_while_its_thread_works_with_the_place_is_ebusy_and_has_no_old_descriptors() {
    case("made-in-handler");
}

#[test]
fn a_descriptor_that_a_handler_closes_while_its_thread_works_with_the_set_is_not_the_next_file_of_its_number() {
    case("renumbered");
}

#[test]
fn an_edge_triggered_set_reports_a_frame_whose_arrival_was_noted_by_a_synchronisation_that_was_left() {
    case("left-arrival");
}

#[test]
fn a_wait_reports_nothing_of_a_set_that_takes_the_place_of_its_own_at_any_instruction() {
    case("replaced");
}

#[test]
fn a_wait_that_ends_leaves_a_thread_alone_that_sleeps_in_a_set_that_has_taken_the_place() {
    case("replaced-asleep");
}

#[test]
fn a_descriptor_that_is_added_during_a_wait_is_no_error_before_the_daemon_was_asked_about_it() {
    case("added-unknown");
}

#[test]
fn an_edge_triggered_set_reports_a_frame_that_another_thread_was_counting_during_the_last_report() {
    case("counted-meanwhile");
}

#[test]
fn a_thread_waits_for_the_lock_of_a_raw_clones_child() {
    case("raw-child");
}

#[test]
fn a_process_looks_up_its_namespace_once_and_asks_about_no_thread_if_it_does_not_know_it() {
    if !rustix::process::geteuid().is_root() {
        skip!("needs root for chroot");
    }
    case("no-proc");
}

#[test]
fn a_handler_leaves_a_set_alone_with_which_its_thread_works_for_longer_than_a_second() {
    case("long-work");
}

#[test]
fn a_child_that_was_forked_while_a_thread_worked_with_a_closed_set_has_its_place_at_once() {
    case("forked-in-set");
}

#[test]
fn a_descriptor_that_is_closed_while_it_is_added_to_a_set_is_ebadf() {
    case("closed-in-change");
}

#[test]
fn a_child_that_a_handler_forks_in_a_synchronisation_does_not_release_its_parents_ring() {
    case("forked-in-sync");
}

#[test]
fn a_child_that_a_handler_forks_while_its_thread_works_with_a_set_leaves_the_set_to_that_thread() {
    case("handler-forks");
}

#[test]
fn a_child_that_a_handler_forks_in_a_wait_for_a_ring_takes_it_and_releases_it() {
    case("forked-waiting");
}

#[test]
fn a_child_that_a_handler_forks_in_a_request_leaves_the_answer_to_its_parent() {
    case("forked-in-request");
}

#[test]
fn a_child_that_a_handler_forks_quietly_while_its_thread_works_with_a_set_releases_the_set() {
    case("quiet-fork");
}

#[test]
fn a_child_that_a_handler_forks_quietly_in_a_request_ends_it_after_its_parent_has_the_answer_and_asks_again() {
    case("quiet-fork-in-request");
}

#[test]
fn a_child_in_another_namespace_knows_it_where_the_kernel_empties_no_memory_in_a_fork() {
    if !rustix::process::geteuid().is_root() {
        skip!("needs root for PID namespaces");
    }
    case("no-wipe");
}

#[test]
fn a_wait_without_a_limit_sleeps_without_one_after_the_daemons_end_was_reported() {
    daemon_is_killed_under(program(), "ended");
}
