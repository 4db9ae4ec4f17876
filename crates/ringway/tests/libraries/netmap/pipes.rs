//! Pipes: between the parts of a process, processes of a family, and independent programs.
//!
//! Each test runs cases of `pipes.c`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use ringway_scenes::{Daemon, Said};
use ringway_testing::child::Ended;
use ringway_testing::until;

use super::{CONFIG, compiled, preloaded, run};

fn program() -> &'static Path {
    static PROGRAM: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    compiled(&PROGRAM, "pipes")
}

fn alone(name: &str) {
    run(program(), &Daemon::start(CONFIG), name);
}

#[test]
fn a_pipe_in_one_process_swaps_buffers_and_drops_nothing() {
    alone("swap");
}

#[test]
fn a_pipe_between_two_processes_of_a_family_wakes_both() {
    alone("fork");
}

#[test]
fn ends_of_pipes_follow_the_rules_of_registrations() {
    alone("ends");
}

#[test]
fn a_pipe_between_independent_programs_copies_every_frame_whichever_opens_it_first() {
    for first in ["sends", "receives"] {
        let daemon = Daemon::start(CONFIG);
        let second = if first == "sends" { "receives" } else { "sends" };
        let start = |name| {
            let child = preloaded(program(), &daemon).arg(name).stderr(Stdio::piped()).spawn();
            (name, Ended(child.unwrap()))
        };
        let first = start(first);
        until("the end is open", || daemon.status()["ports"].as_array().is_some_and(|all| !all.is_empty()));
        // Both may be over at once.
        let programs = [first, start(second)];
        for (name, program) in programs {
            let said = Said::from(program.output());
            assert_eq!(said.code, Some(0), "case {name}: {}", said.err);
        }
    }
}
