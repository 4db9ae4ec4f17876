//! What the library costs a program, in instructions: `examples/cost.c` and `examples/cost.rs`, `examples/lwep-cost.c` and
//! `examples/lwep_cost.rs` under callgrind.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ringway_scenes::{Daemon, binary};
use ringway_testing::child::Ended;
use ringway_testing::file::directory;
use ringway_testing::skip;
use ringway_testing::skip::is_installed;

use crate::built::{library, output, root};

const FRAMES: u64 = 25_600;

/// Instructions of the functions whose names begin with `work_`, which send and receive.
fn instructions(daemon: &Daemon, dir: &Path, program: &Path, way: &[&str]) -> u64 {
    let counts = dir.join("counts");
    let mut command = Command::new("valgrind");
    command.args(["-q", "--tool=callgrind", "--toggle-collect=work_*"]);
    command.arg(format!("--callgrind-out-file={}", counts.display())).arg(program);
    command.arg(daemon.socket("attach.sock")).arg(FRAMES.to_string()).args(way).env("LD_LIBRARY_PATH", library());
    let output = Ended(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()).output();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    let counts = std::fs::read_to_string(counts).unwrap();
    let total = counts.lines().find_map(|line| line.strip_prefix("totals: ")).expect("callgrind's total");
    total.trim().parse().unwrap()
}

fn compile(dir: &Path, name: &str) -> PathBuf {
    let (program, source) = (dir.join(name), root().join("crates/c/examples").join(name).with_extension("c"));
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(source);
    output(cc.arg("-I").arg(root().join("crates/c/include")).arg("-L").arg(library()).arg("-lringway"));
    program
}

#[test]
fn an_lwep_message_costs_a_program_in_c_hardly_more_instructions_than_one_in_rust() {
    if !is_installed("valgrind") {
        skip!("needs valgrind");
    }
    let (daemon, dir) = (Daemon::start(""), directory());
    let (program, twin) = (compile(dir.path(), "lwep-cost"), binary().parent().unwrap().join("examples/lwep_cost"));
    // What one end or the other finds at a time varies from run to run, and so do the instructions: by a few for a message.
    for (way, more) in [("batch", 50), ("single", 120)] {
        let count = |program: &Path| instructions(&daemon, dir.path(), program, &["8", way]) / FRAMES;
        let (c, rust) = (count(&program), count(&twin));
        assert!(c > 100 && c <= rust + more, "{way}: a program in C: {c} instructions, in Rust: {rust}");
    }
}

#[test]
fn a_batch_costs_a_program_in_c_no_more_instructions_than_one_in_rust() {
    if !is_installed("valgrind") {
        skip!("needs valgrind");
    }
    let (daemon, dir) = (Daemon::start(""), directory());
    let program = compile(dir.path(), "cost");
    let twin = binary().parent().unwrap().join("examples/cost");

    let count = |program: &Path, way| instructions(&daemon, dir.path(), program, &[way]);
    let rust = count(&twin, "slots").min(count(&twin, "places"));
    for way in ["runs", "slots"] {
        let c = count(&program, way);
        // Something was counted: a frame takes more than ten instructions.
        assert!(c > FRAMES * 10, "{c}");
        assert!(c * 100 <= rust * 102, "{way}: a program in C: {c} instructions, in Rust: {rust}");
    }
    let (c, rust) = (count(&program, "copies"), count(&twin, "copies"));
    assert!(c * 100 <= rust * 102, "copies: a program in C: {c} instructions, in Rust: {rust}");
}
