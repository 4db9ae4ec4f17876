//! Epoll sets: edges, errors and ends, sets of several processes and sets within sets.
//!
//! Each test runs one case of `epoll.c`.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ringway_scenes::Daemon;

use super::{CONFIG, compiled, run};

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
