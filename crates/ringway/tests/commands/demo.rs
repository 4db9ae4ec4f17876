//! `ringway demo` shows all documented results, and leaves nothing behind at any kind of end.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use ringway_scenes::{PATIENCE, ringway, until_some};
use ringway_testing::child::{Ended, lines};
use ringway_testing::skip::is_root;
use ringway_testing::{skip, until, whole};
use rustix::process::{Pid, Signal, kill_process};

/// Longest time of a short demo. Only a hanging demo takes longer, even on a machine that is ten times slower.
const LONGEST: Duration = Duration::from_secs(1200);

/// An unprivileged user.
const NOBODY: u32 = 65_534;

/// A running demo. Dropping it kills the demo.
struct Demo {
    child: Ended,
    lines: Receiver<String>,
    /// The parent of the demo's temporary directory.
    temporary: tempfile::TempDir,
}

impl Demo {
    fn start() -> Demo {
        Self::start_by(ringway())
    }

    fn start_by(command: Command) -> Demo {
        Self::start_with(command, &[], &["demo", "--seconds", "5", "--fetch-kernel"])
    }

    fn start_with(mut command: Command, variables: &[(&str, &Path)], arguments: &[&str]) -> Demo {
        let temporary = tempfile::tempdir().unwrap();
        std::fs::set_permissions(temporary.path(), Permissions::from_mode(0o777)).unwrap();
        command.args(arguments).env("TMPDIR", temporary.path()).envs(variables.iter().copied());
        let mut child = Ended(command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap());
        let lines = lines(child.stdout.take().unwrap());
        Demo { child, lines, temporary }
    }

    /// Waits for a line that begins with `start`.
    fn says(&self, start: &str) {
        while !self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no line {start:?}")).starts_with(start) {}
    }

    /// Returns the demo's running descendant processes.
    fn offspring(&self) -> BTreeSet<i32> {
        let mut found = BTreeSet::from([i32::try_from(self.child.id()).unwrap()]);
        let children = |pid: &i32| -> Vec<i32> {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
            lists.collect::<String>().split_whitespace().map(|pid| pid.parse().unwrap()).collect()
        };
        loop {
            let more: BTreeSet<i32> = found.iter().flat_map(children).collect();
            let before = found.len();
            found.extend(more);
            if found.len() == before {
                return found;
            }
        }
    }

    /// Waits for the end of the demo. Returns its exit status and the output since the last read.
    fn finish(&mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + LONGEST;
        let mut said = String::new();
        loop {
            match self.lines.recv_timeout(Duration::from_millis(100)) {
                Ok(line) => said += &(line + "\n"),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => assert!(Instant::now() < deadline, "the demo does not end: {said}"),
            }
        }
        (self.child.wait().unwrap().code(), said)
    }

    /// Checks that the demo's namespaces, its directory and these processes are gone.
    fn assert_nothing_left(&self, processes: &BTreeSet<i32>) {
        for end in ["left", "right"] {
            let name = format!("ringway-demo-{}-{end}", self.child.id());
            assert!(!Path::new("/run/netns").join(&name).exists(), "namespace {name} is left");
        }
        assert_eq!(std::fs::read_dir(self.temporary.path()).unwrap().count(), 0, "the demo's directory is left");
        // What a dead switch leaves to others to end needs a processor for that.
        let is_gone = |pid| !Path::new(&format!("/proc/{pid}")).exists();
        until(&format!("processes {processes:?} are gone"), || processes.iter().all(is_gone));
    }
}

/// Returns true if virtual machines can be started.
fn has_guests() -> bool {
    std::env::var_os("RINGWAY_NO_QEMU").is_none()
}

/// Reports the parts of a demo that cannot be tested on this machine.
fn note_what_is_missing() {
    if !is_root() {
        skip::note("the demo's network namespaces need root");
    }
    if !has_guests() {
        skip::note("the demo's guests are left out, as RINGWAY_NO_QEMU is set");
    }
}

#[test]
fn a_whole_demo_shows_figures_and_leaves_nothing() {
    note_what_is_missing();
    let mut demo = Demo::start();
    demo.says("gen loop: ");
    let processes = demo.offspring();
    // Unless this test stood still until the demo was over.
    let is_over = demo.child.try_wait().unwrap().is_some();
    assert!(processes.len() >= 2 || is_over, "the demo and its switch: {processes:?}");
    let (code, said) = demo.finish();
    assert_eq!(code, Some(0), "{said}");
    let (_, report) = said.split_once("What came out:\n").expect(&said);
    let line = |what: &str| report.lines().find(|line| line.trim_start().starts_with(what)).expect(&said);
    assert!(line("process ports").contains("Mframe/s of 60 bytes; "), "{said}");
    assert!(line("idle").contains(" % of one CPU"), "{said}");
    if has_guests() {
        assert!(line("two VMs").contains("CPU emulated by QEMU, Linux 6."), "{said}");
        assert!(line("VM to VM ping").contains("  0 of "), "{said}");
        assert!(line("VM to VM TCP").ends_with(" Gbit/s; 8 MiB each way came unaltered"), "{said}");
        assert!(said.contains("vm1 sends "), "the demo shows no counters while it runs: {said}");
    }
    if is_root() {
        assert!(line("ping").contains("  0 of 50 lost; round trip "), "{said}");
        assert!(line("iperf3").contains(" Gbit/s over TCP"), "{said}");
    }
    assert!(said.contains(" gen loop lan0:a lan0:b --duration 5s\n"), "the command to type is missing: {said}");
    demo.assert_nothing_left(&processes);
}

#[test]
fn ctrl_c_ends_it_at_once_and_leaves_nothing() {
    note_what_is_missing();
    // One part of each kind of what the demo starts (the switch's own programs, programs in namespaces, guests that boot and guests that
    // run), or all of them.
    let mut parts = whole(vec!["gen loop: "], vec!["gen loop: ", "idle: "]);
    if is_root() {
        parts.extend(whole(vec!["iperf3: "], vec!["ping: a namespace", "iperf3: "]));
    }
    if has_guests() {
        parts.extend(whole(vec!["boot: ", "tcp: "], vec!["boot: ", "ping: vm1", "tcp: "]));
    }
    for part in parts {
        // Another demo, if this test stood still until the first one was over.
        let (demo, processes, code, said) = until_some("a demo is interrupted", || {
            let mut demo = Demo::start();
            demo.says(part);
            let processes = demo.offspring();
            demo.child.signal(Signal::INT);
            let (code, said) = demo.finish();
            (code != Some(0)).then_some((demo, processes, code, said))
        });
        assert_eq!(code, Some(130), "{part}{said}");
        assert!(said.contains("stopped; nothing is left behind"), "{part}{said}");
        assert!(!said.contains("Now yours"), "{part}{said}");
        demo.assert_nothing_left(&processes);
    }
}

#[test]
fn without_root_it_shows_the_process_ports_and_says_what_root_would_add() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = ringway();
    if is_root() {
        // Another user may have no access to the build directory.
        let [copy, laboratory] = ["ringway", "ringway-lab"].map(|name| dir.path().join(name));
        std::fs::copy(env!("CARGO_BIN_EXE_ringway"), &copy).unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_ringway-lab"), &laboratory).unwrap();
        for path in [dir.path(), &copy, &laboratory] {
            std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        command = Command::new(copy);
        command.current_dir("/").uid(NOBODY).gid(NOBODY);
    }
    let mut demo = Demo::start_by(command);
    let (code, said) = demo.finish();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("root would add two network namespaces on TAP ports"), "{said}");
    assert!(said.contains("Mframe/s of 60 bytes"), "{said}");
    assert_eq!(std::fs::read_dir(demo.temporary.path()).unwrap().count(), 0, "the demo's directory is left");
}

#[test]
fn without_qemu_it_names_the_package_and_shows_the_rest() {
    if !is_root() {
        skip!("needs root");
    }
    if !has_guests() {
        skip!("guests are left out, as RINGWAY_NO_QEMU is set");
    }
    // In a new mount namespace, another file hides QEMU.
    let mut command = Command::new("unshare");
    let script = "mount --bind /dev/null \"$(command -v qemu-system-x86_64)\" && exec \"$@\"";
    command.args(["--mount", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_ringway")]);
    let mut demo = Demo::start_by(command);
    let (code, said) = demo.finish();
    assert_eq!(code, Some(0), "{said}");
    let why = "two VMs        not shown: qemu-system-x86_64 is not there: install the Debian package qemu-system-x86\n";
    assert!(said.contains(why), "{said}");
    assert!(said.contains("Mframe/s of 60 bytes"), "{said}");
}

#[test]
fn without_a_kernel_it_says_how_to_get_one_and_shows_the_rest() {
    if !has_guests() {
        skip!("guests are left out, as RINGWAY_NO_QEMU is set");
    }
    let empty = tempfile::tempdir().unwrap();
    let mut demo = Demo::start_with(ringway(), &[("RINGWAY_GUEST_KERNELS", empty.path())], &["demo", "--seconds", "5"]);
    let (code, said) = demo.finish();
    assert_eq!(code, Some(0), "{said}");
    let why = "two VMs        not shown: no kernel for them is here; \"ringway demo --fetch-kernel\"";
    assert!(said.contains(why) && said.contains("linux-image-amd64"), "{said}");
    assert!(said.contains("Mframe/s of 60 bytes"), "{said}");
}

#[test]
fn a_switch_that_dies_ends_the_demo_with_what_failed() {
    // Another demo, if this test stood still until the ports of the first one had done their part.
    let (demo, processes, code, said) = until_some("a switch dies in time", || {
        let mut demo = Demo::start();
        demo.says("gen loop: ");
        let processes = demo.offspring();
        let is_killed = end_switch(&processes).is_some();
        let (code, said) = demo.finish();
        let is_in_time = is_killed && said.contains("process ports  FAILED: ");
        is_in_time.then_some((demo, processes, code, said))
    });
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("idle           FAILED: the switch has ended"), "{said}");
    demo.assert_nothing_left(&processes);
}

/// Kills the switch of a demo for good: its keeper, if it still runs.
fn end_switch(processes: &BTreeSet<i32>) -> Option<()> {
    let is_keeper = |pid: &&i32| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.contains("\0run\0") && !line.starts_with("ringway-switch")
    };
    let keeper = processes.iter().find(is_keeper)?;
    kill_process(Pid::from_raw(*keeper)?, Signal::KILL).ok()
}
