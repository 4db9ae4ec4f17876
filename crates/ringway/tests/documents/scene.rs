//! Runs the shell blocks of a page, in order, in a network, mount, process and (without root) user namespace of the page's own.
//!
//! Inside, the user is root, `/run` is an empty tmpfs, and the host's network is not there. So the commands of a page run as they
//! are written, with `/run/ringway` as runtime directory and `ip netns add`, and leave nothing behind: all processes end with the
//! first one. A page that starts no daemon itself (`ringway run`) gets one. `qemu-system-x86_64` is a script that runs the real
//! one with `accel=tcg` in place of `accel=kvm`, and leaves out the `...` that stand for a guest's other devices.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use ringway_guests::Qemu;

use super::markdown::{Block, Page, Task};
use super::shell;

/// Longest time for one block or condition, in seconds.
const BLOCK_WITHIN: u32 = 120;

/// Functions of the shell script that runs a page.
const PRELUDE: &str = r#"
set -u
fail() { echo "$*" >&2; for log in "$WORK"/log/*; do echo "--- $log"; tail -n 40 "$log"; done >&2; exit 1; }
# run LINE: the block of this line, to its end.
run() { timeout -k 1 "$WITHIN" bash -e -o pipefail "$WORK/block/$1" >"$WORK/log/$1" 2>&1 </dev/null || fail "line $1: exit status $?"; }
# start LINE: the block of this line, beside what follows.
start() { bash -e -o pipefail "$WORK/block/$1" >"$WORK/log/$1" 2>&1 </dev/null & }
# until_ LINE CONDITION: goes on when it holds.
until_() { timeout -k 1 "$WITHIN" bash -c "until { $2; } >/dev/null 2>&1; do sleep 0.05; done" || fail "line $1: waited in vain until $2"; }
mount -t tmpfs tmpfs /run || fail "no tmpfs"
ip link set lo up || fail "no loopback"
mkdir "$HOME" && cd "$HOME" || fail "no home"
echo fail >.curlrc
"#;

const QEMU: &str = r#"#!/bin/bash
args=()
for arg; do
    [ "$arg" = ... ] || args+=("${arg//accel=kvm/accel=tcg}")
done
exec "$QEMU" -display none -serial none -monitor none -no-reboot "${args[@]}"
"#;

/// Runs every block of the page that is to be run.
pub fn run(page: &Page) {
    let is_shell =
        |block: &&Block| block.language == "sh" || matches!(block.task, Task::File(_)) || !block.setup.is_empty();
    let blocks: Vec<&Block> = page.blocks.iter().filter(is_shell).collect();
    if blocks.iter().all(|block| matches!(block.task, Task::NotRun(_))) {
        return;
    }
    let is_root = rustix::process::geteuid().is_root();
    let mut commands = blocks.iter().flat_map(|block| block.setup.iter().chain([&block.text]));
    if !is_root && commands.any(|commands| commands.contains("kind=tap")) {
        // The kernel allows the length of a device's queue to be set only by the machine's root.
        let _ = writeln!(std::io::stderr(), "documents: {} is not run: its TAP ports need root", page.path);
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path();
    for folder in ["bin", "block", "log"] {
        fs::create_dir(work.join(folder)).unwrap();
    }
    symlink(env!("CARGO_BIN_EXE_ringway"), work.join("bin/ringway")).unwrap();
    script(&work.join("bin/qemu-system-x86_64"), QEMU);
    script(&work.join("page"), &page_script(&blocks, work));
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    if !is_root {
        command.args(["--user", "--map-root-user"]);
    }
    let path = format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", work.join("bin").display());
    command.arg("bash").arg(work.join("page"));
    command.env_clear().env("PATH", path).env("HOME", work.join("home")).env("LC_ALL", "C.UTF-8");
    command.env("WORK", work).env("WITHIN", BLOCK_WITHIN.to_string()).env("QEMU", qemu(&blocks));
    let output = command.output().expect("unshare is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {}\n{said}", page.path, output.status);
}

/// The QEMU that the blocks need: where they use vfio-user or `reconnect-ms`, one of Debian 13 that is fetched if the host's is
/// older.
fn qemu(blocks: &[&Block]) -> PathBuf {
    let has = |text: &str| blocks.iter().any(|block| block.text.contains(text));
    let oldest = match (has("vfio-user-pci"), has("reconnect-ms"), has("qemu-system")) {
        (true, _, _) => (10, 1),
        (_, true, _) => (9, 2),
        (_, _, true) => (0, 0),
        _ => return PathBuf::new(),
    };
    Qemu::at_least(oldest).unwrap_or_else(|why| panic!("{why}")).path
}

/// The script that runs the blocks.
fn page_script(blocks: &[&Block], work: &Path) -> String {
    let mut script = PRELUDE.to_owned();
    if !blocks.iter().any(|block| starts_daemon(block)) {
        script.push_str("ringway run >\"$WORK/log/daemon\" 2>&1 &\nuntil_ 0 'ringway status'\n");
    }
    for block in blocks {
        let line = block.line;
        for setup in &block.setup {
            let _ = writeln!(script, "{{ {setup}\n}} >>\"$WORK/log/setup\" 2>&1 || fail 'setup before line {line}'");
        }
        let file = work.join("block").join(line.to_string());
        fs::write(&file, &block.text).unwrap();
        let _ = match &block.task {
            Task::NotRun(_) => Ok(()),
            Task::File(name) => writeln!(script, "cp \"$WORK/block/{line}\" '{name}'"),
            Task::Run if block.language == "sh" => writeln!(script, "run {line}"),
            Task::Run => Ok(()),
            Task::Background { until: None } => writeln!(script, "start {line}"),
            Task::Background { until: Some(until) } => {
                writeln!(script, "start {line}\nuntil_ {line} '{}'", until.replace('\'', r"'\''"))
            }
        };
    }
    // The daemon goes on at the end of the page.
    script.push_str("ringway status >\"$WORK/log/status\" 2>&1 || fail 'the daemon has ended'\nexit 0\n");
    script
}

/// Whether the block runs a daemon of the page's own.
fn starts_daemon(block: &Block) -> bool {
    let runs = |words: &[String]| {
        words.get(1).is_some_and(|word| word == "run") && !words.iter().any(|word| word == "--check")
    };
    block.language == "sh"
        && !matches!(block.task, Task::NotRun(_))
        && shell::commands(&block.text).iter().any(|(_, words)| runs(words))
}

fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}
