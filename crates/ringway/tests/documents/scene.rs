//! Runs the shell blocks of a page, in order, in new network, mount, process and (without root) user namespaces.
//!
//! Inside, the user is root, `/run` is an empty tmpfs, and the host's network is not there. So the commands of a page
//! run unchanged, with `/run/ringway` as runtime directory and `ip netns add`. They leave nothing behind: all processes
//! end with the first one. A page that does not start a daemon (`ringway run`) gets one. Background blocks have a
//! standard input that stays open, as a terminal's does.
//!
//! Scripts replace four programs that a test cannot run unchanged ([`STAND_INS`]).

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use ringway_guests::Qemu;
use ringway_scenes::{PATIENCE, PATIENCE_VARIABLE};
use ringway_testing::{skip, whole};

use super::markdown::{Block, Page, Task};
use super::shell;

/// Longest time for one block or condition, in seconds.
const BLOCK_WITHIN: u32 = 300;

/// Functions of the shell script that runs a page.
const PRELUDE: &str = r#"
set -u
fail() { echo "$*" >&2; for log in "$WORK"/log/*; do echo "--- $log"; tail -n 40 "$log"; done >&2; exit 1; }
# run LINE: the block of this line, to its end.
run() { timeout -k 1 "$WITHIN" bash -e -o pipefail "$WORK/block/$1" >"$WORK/log/$1" 2>&1 </dev/null || fail "line $1: exit status $?"; }
# type_q LINE: the block of this line, to its end, in a terminal. The user types at a human's pace: `script` neither reads nor
# writes any more when what is typed ahead fills the terminal.
type_q() { while sleep 0.1 && echo q; do :; done | timeout -k 1 "$WITHIN" script -qec "bash -e -o pipefail $WORK/block/$1" "$WORK/log/$1" >/dev/null 2>&1 || fail "line $1: exit status $?"; }
# start LINE: the block of this line, beside what follows.
start() { bash -e -o pipefail "$WORK/block/$1" >"$WORK/log/$1" 2>&1 <&9 & }
# until_ LINE CONDITION: goes on when it holds.
until_() { timeout -k 1 "$WITHIN" bash -c "until { $2; } >/dev/null 2>&1; do sleep 0.05; done" || fail "line $1: waited in vain until $2"; }
mount -t tmpfs tmpfs /run || fail "no tmpfs"
ip link set lo up || fail "no loopback"
mkdir "$HOME" && cd "$HOME" || fail "no home"
mkfifo "$WORK/terminal" && exec 9<>"$WORK/terminal" || fail "no terminal"
echo fail >.curlrc
"#;

/// Programs that a script replaces in a page: the name and the script.
const STAND_INS: [(&str, &str); 4] =
    [("qemu-system-x86_64", QEMU), ("cargo", CARGO), ("make", MAKE), ("wireshark", WIRESHARK)];

/// QEMU with `accel=tcg` instead of `accel=kvm`, and without the `...` that stands for a guest's other devices.
const QEMU: &str = r#"#!/bin/bash
args=()
for arg; do
    [ "$arg" = ... ] || args+=("${arg//accel=kvm/accel=tcg}")
done
exec "$QEMU" -display none -serial none -monitor none -no-reboot "${args[@]}"
"#;

/// Cargo in the root of the repository. It resolves the package and its features, but builds and installs nothing.
const CARGO: &str = r#"#!/bin/bash
cd "$ROOT" || exit
PATH=$(dirname "$REAL_CARGO"):$PATH RUSTC_BOOTSTRAP=1 CARGO_HOME=$REAL_CARGO_HOME \
    exec "$REAL_CARGO" "$@" --dry-run -Zunstable-options --offline
"#;

/// Make in the root of the repository. It finds the target and its dependencies, but runs no recipe.
const MAKE: &str = r#"#!/bin/bash
exec /usr/bin/make -C "$ROOT" --dry-run "$@"
"#;

/// tshark instead of Wireshark. It ends after 10 frames.
const WIRESHARK: &str = r#"#!/bin/bash
[ "$1" = -k ] || exit 2
exec tshark -l -n -c 10 "${@:2}"
"#;

/// Programs that a page may use. `make deps` installs all of them.
const PROGRAMS: [&str; 10] =
    ["clang", "curl", "dpdk-testpmd", "jq", "make", "passt", "qemu-system-x86_64", "rustc", "tcpdump", "tshark"];

/// What a page tells readers to measure for seconds, and what its test does instead (`RINGWAY_WHOLE=1`: the same as readers). The switch and
/// the generator keep two processors busy meanwhile.
const SHORTER: [(&str, &str); 8] = [
    ("--duration 10s", "--duration 300ms"),
    ("--duration 5s", "--duration 300ms"),
    ("--duration 2s", "--duration 300ms"),
    ("--count 1M", "--count 20k"),
    ("--count 10k", "--count 1000"),
    ("--rate 1Mpps", "--rate 10kpps"),
    ("--rate 100kpps", "--rate 10kpps"),
    ("top --batch -n 10", "top --batch -n 2"),
];

/// Returns the text of a block as the test runs it. What runs in the background lasts as long as the page says: blocks after it need it.
fn shortened(block: &Block) -> String {
    let is_in_background = matches!(block.task, Task::Background { .. });
    let shorter = |text: String, &(long, short): &(&str, &str)| {
        if is_in_background && long.starts_with("--duration") { text } else { text.replace(long, short) }
    };
    whole(SHORTER.iter().fold(block.text.clone(), shorter), block.text.clone())
}

/// Runs the blocks of the page, except those marked as not run.
pub fn run(page: &Page) {
    let is_shell =
        |block: &&Block| block.language == "sh" || matches!(block.task, Task::File(_)) || !block.setup.is_empty();
    let blocks: Vec<&Block> = page.blocks.iter().filter(is_shell).collect();
    if blocks.iter().all(|block| matches!(block.task, Task::NotRun(_))) {
        return;
    }
    let is_root = rustix::process::geteuid().is_root();
    let commands = || blocks.iter().flat_map(|block| block.setup.iter().chain([&block.text]));
    if std::thread::available_parallelism().unwrap().get() < 2
        && commands().any(|commands| commands.contains("ringway bench headline"))
    {
        skip!("{} does not run: to measure needs two processors", page.path);
    }
    if !is_root && commands().any(|commands| commands.contains("kind=tap")) {
        // The kernel allows only the machine's root to set the length of a device's queue.
        skip!("{} does not run: its TAP ports need root", page.path);
    }
    if let Some(program) = missing_program(&blocks) {
        skip!("{} does not run: {program} is not installed", page.path);
    }
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path();
    for folder in ["bin", "block", "log"] {
        fs::create_dir(work.join(folder)).unwrap();
    }
    symlink(env!("CARGO_BIN_EXE_ringway"), work.join("bin/ringway")).unwrap();
    for (name, text) in STAND_INS {
        script(&work.join("bin").join(name), text);
    }
    script(&work.join("page"), &page_script(&blocks, work));
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    if !is_root {
        command.args(["--user", "--map-root-user"]);
    }
    let path = format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", work.join("bin").display());
    command.arg("bash").arg(work.join("page"));
    command.env_clear().env("PATH", path).env("HOME", work.join("home")).env("LC_ALL", "C.UTF-8");
    command.env(PATIENCE_VARIABLE, PATIENCE.as_secs().to_string());
    command.env("WORK", work).env("WITHIN", BLOCK_WITHIN.to_string()).env("QEMU", qemu(&blocks));
    command.env("ROOT", super::root()).env("REAL_CARGO", env!("CARGO")).env("REAL_CARGO_HOME", cargo_home());
    let output = command.output().expect("unshare is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {}\n{said}", page.path, output.status);
}

/// Returns a program of [`PROGRAMS`] that a block runs and that this machine does not have.
fn missing_program(blocks: &[&Block]) -> Option<&'static str> {
    let is_run = |program: &str| {
        let mut run = blocks.iter().filter(|block| block.language == "sh" && !matches!(block.task, Task::NotRun(_)));
        run.any(|block| {
            let mut commands = block.setup.iter().chain([&block.text]);
            commands
                .any(|text| text.split(|c: char| !c.is_alphanumeric() && !"-_".contains(c)).any(|word| word == program))
        })
    };
    let is_here = |program: &str| ["/usr/sbin", "/usr/bin"].iter().any(|dir| Path::new(dir).join(program).exists());
    PROGRAMS.into_iter().find(|program| is_run(program) && !is_here(program))
}

/// Returns Cargo's folder of packages, as this process uses it.
fn cargo_home() -> PathBuf {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    of("CARGO_HOME").or_else(|| of("HOME").map(|home| home.join(".cargo"))).unwrap_or_default()
}

/// Returns the QEMU that the blocks need. Blocks with vfio-user or `reconnect-ms` need that of Debian 13, which is
/// fetched if the host's QEMU is older.
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

/// Returns the script that runs the blocks.
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
        fs::write(&file, shortened(block)).unwrap();
        let _ = match &block.task {
            Task::NotRun(_) => Ok(()),
            Task::File(name) => writeln!(script, "cp \"$WORK/block/{line}\" '{name}'"),
            Task::Run if block.language == "sh" => writeln!(script, "run {line}"),
            Task::Run => Ok(()),
            Task::Terminal => writeln!(script, "type_q {line}"),
            Task::Background { until: None } => writeln!(script, "start {line}"),
            Task::Background { until: Some(until) } => {
                writeln!(script, "start {line}\nuntil_ {line} '{}'", until.replace('\'', r"'\''"))
            }
        };
    }
    // The daemon still runs at the end of the page.
    script.push_str("ringway status >\"$WORK/log/status\" 2>&1 || fail 'the daemon has ended'\nexit 0\n");
    script
}

/// Returns true if the block starts a daemon.
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
