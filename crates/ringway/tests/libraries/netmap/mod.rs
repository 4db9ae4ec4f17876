//! Programs that are written to netmap's interface run under the preload library, against the daemon.
//!
//! Each test runs one case of `cases.c`, which checks what it gets and ends with an error at the first mistake.

mod epoll;
mod jumps;
mod pipes;
mod sharing;
mod slots;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use ringway_scenes::{Daemon, Said};
use ringway_testing::child::{Ended, lines};
use ringway_testing::{PATIENCE, skip, until};

mod waits;

const CONFIG: &str = "[switch.lan0]\n[switch.lan1]\n[switch.vale0]\n";

/// The preload library. Cargo builds it for the tests of its own package, into the folder of all test programs.
fn library() -> PathBuf {
    let path = std::env::current_exe().expect("this program has a path").with_file_name("libringway_netmap.so");
    assert!(path.exists(), "{} is not built: cargo test -p ringway-netmap, with this profile", path.display());
    path
}

/// The program of the cases, compiled once for this process.
fn cases() -> &'static Path {
    static PROGRAM: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    compiled(&PROGRAM, "cases")
}

/// Returns the program of this name, compiled once for this process.
fn compiled(program: &'static OnceLock<(tempfile::TempDir, PathBuf)>, name: &str) -> &'static Path {
    let compile = || {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/libraries/netmap/{name}.c"));
        let mut compiler = Command::new("cc");
        // With checked forms of poll, open and others, as distributions build programs.
        compiler.args(["-O2", "-D_FORTIFY_SOURCE=2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&program);
        let output = compiler.arg(source).output().expect("a C compiler");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (folder, program)
    };
    &program.get_or_init(compile).1
}

/// A command under the preload library. Tests under strace name the library to it.
fn preloaded(program: impl AsRef<std::ffi::OsStr>, daemon: &Daemon) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library()).env("RINGWAY_ATTACH_SOCKET", daemon.socket("attach.sock"));
    command.env_remove("RINGWAY_FAMILY");
    command
}

/// Runs a case of a program.
fn run(program: &Path, daemon: &Daemon, name: &str) {
    let said = Said::from(preloaded(program, daemon).arg(name).output().unwrap());
    assert_eq!(said.code, Some(0), "case {name}: {}", said.err);
}

fn case(daemon: &Daemon, name: &str) {
    run(cases(), daemon, name);
}

fn alone(name: &str) {
    case(&Daemon::start(CONFIG), name);
}

#[test]
fn frames_pass_by_ioctls_and_busy_loops() {
    alone("ioctl");
}

#[test]
fn poll_wakes_for_frames_and_for_room_and_ends_in_time() {
    alone("poll");
}

#[test]
fn ppoll_waits_for_netmap_and_other_descriptors_together() {
    alone("ppoll");
}

#[test]
fn select_and_pselect_wake_for_frames_and_write_the_time_that_is_left() {
    alone("select");
}

#[test]
fn a_level_triggered_epoll_set_reports_frames_and_other_descriptors() {
    alone("epoll-level");
}

#[test]
fn an_edge_triggered_epoll_set_reports_each_arrival_once() {
    alone("epoll-edge");
}

#[test]
fn two_threads_have_a_ring_each_by_descriptors_of_their_own() {
    alone("threads");
}

#[test]
fn a_child_and_then_its_parent_go_on_with_the_same_rings() {
    alone("fork");
}

#[test]
fn a_descriptor_that_was_passed_over_a_socket_serves_its_receiver() {
    alone("passed");
}

#[test]
fn a_program_goes_on_with_a_descriptor_that_it_inherited() {
    alone("exec");
    // The daemon has bound the socket by another path.
    let (daemon, dir) = (Daemon::start(CONFIG), tempfile::tempdir().unwrap());
    let link = dir.path().join("link.sock");
    std::os::unix::fs::symlink(daemon.socket("attach.sock"), &link).unwrap();
    let mut command = preloaded(cases(), &daemon);
    let said = Said::from(command.arg("exec").env("RINGWAY_ATTACH_SOCKET", link).output().unwrap());
    assert_eq!(said.code, Some(0), "{}", said.err);
}

#[test]
fn duplicates_share_a_file_and_closing_unknown_descriptors_breaks_nothing() {
    alone("dup");
}

#[test]
fn frames_that_a_program_has_synchronised_arrive_however_it_ends() {
    alone("last");
}

#[test]
fn monitors_hear_what_a_port_sends_and_receives_where_the_administrator_allows_them() {
    case(&Daemon::start(&format!("{CONFIG}[attach]\nmonitors = true\n")), "monitors");
}

#[test]
fn all_who_wait_for_one_descriptor_wake_up() {
    alone("waiters");
}

#[test]
fn the_legacy_requests_register_a_port() {
    alone("legacy");
}

#[test]
fn flags_bind_one_direction_and_keep_poll_from_sending() {
    alone("flags");
}

#[test]
fn another_program_gets_ebusy_until_the_first_is_killed() {
    alone("busy");
}

#[test]
fn each_request_that_cannot_be_had_and_each_mistake_has_its_errno() {
    alone("refused");
}

#[test]
fn ports_can_be_asked_about_and_listed() {
    alone("info");
}

#[test]
fn a_program_that_leaves_without_closing_leaves_no_port() {
    let daemon = Daemon::start(CONFIG);
    case(&daemon, "exit");
    until("the port is gone", || daemon.status()["ports"] == serde_json::json!([]));
    case(&daemon, "exit");
}

/// Kills the daemon when the case says that it waits.
fn daemon_is_killed_under(program: &Path, name: &str) {
    let daemon = Daemon::start(CONFIG);
    let mut command = preloaded(program, &daemon);
    let child = command.arg(name).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = Ended(child.unwrap());
    let said = lines(child.stdout.take().unwrap());
    assert_eq!(said.recv_timeout(PATIENCE).unwrap(), "waiting");
    daemon.kill();
    let output = Said::from(child.output());
    assert_eq!(output.code, Some(0), "{}", output.err);
}

#[test]
fn a_program_that_waits_sees_pollerr_and_enxio_when_the_daemon_is_killed() {
    daemon_is_killed_under(cases(), "killed");
}

#[test]
fn a_program_that_never_sleeps_sees_enxio_when_the_daemon_is_killed() {
    daemon_is_killed_under(cases(), "killed-busy");
}

#[test]
fn a_busy_loop_makes_no_system_calls_and_a_poll_without_frames_at_most_two() {
    let daemon = Daemon::start(CONFIG);
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let mut command = Command::new("strace");
    command.arg("-ttt").arg("-o").arg(&trace).arg("-E").arg(format!("LD_PRELOAD={}", library().display()));
    command.arg("-E").arg(format!("RINGWAY_ATTACH_SOCKET={}", daemon.socket("attach.sock").display()));
    let Ok(output) = command.arg(cases()).arg("counted").output() else { skip!("needs strace") };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let trace = std::fs::read_to_string(trace).unwrap();
    let parts: Vec<&str> = trace.split("getppid()").collect();
    assert_eq!(parts.len(), 4, "{trace}");
    let calls = |part: &str| part.lines().skip(1).filter(|line| line.contains('(')).count();
    // Seconds of a part: the call that ends it has its time at the beginning of its line.
    let time = |part: &str| part.lines().last().unwrap().trim().parse::<f64>().unwrap();
    let seconds = |part: usize| (time(parts[part]) - time(parts[part - 1])).ceil() as usize;
    // 200,000 synchronisations; in each second without a frame, each descriptor's connection is looked at once, in two calls. A kick of a
    // switch that has just gone to sleep is none that the loop makes.
    let (busy, most) = (calls(parts[1]), 20 + 4 * seconds(1));
    assert!(busy <= most, "{busy} system calls in the busy loop, {most} may be: {}", parts[1]);
    let (polls, most) = (calls(parts[2]), 20 + 4 * seconds(2));
    assert!((10..=most).contains(&polls), "{polls} system calls in 10 polls, {most} may be: {}", parts[2]);
}

#[test]
fn programs_that_never_open_netmap_run_as_without_the_library() {
    let daemon = Daemon::start(CONFIG);
    let bash = ["bash", "-c", "exec 7>/dev/null; echo x | cat; read y < <(echo z); echo $y; ulimit -n >&7"];
    let python = "import os, select, socket, subprocess, mmap\n\
        a, b = socket.socketpair()\n\
        e = select.epoll(); e.register(b, select.EPOLLIN | select.EPOLLET); a.send(b'x')\n\
        print(len(e.poll(5)), select.select([b], [], [], 5)[0] == [b], os.dup2(a.fileno(), 99))\n\
        print(subprocess.check_output(['echo', 'out'], close_fds=True), len(mmap.mmap(-1, 4096)))\n\
        socket.send_fds(a, [b'y'], [0, 1]); print(socket.recv_fds(b, 9, 2)[0])\n\
        os.closerange(50, 100)\n";
    let python = ["python3", "-c", python];
    let gcc = ["sh", "-c", "echo 'int main(void){return 0;}' | cc -x c -c -o /dev/null - && echo compiled"];
    let qemu = ["qemu-system-x86_64", "--version"];
    for words in [&bash[..], &python, &gcc, &qemu] {
        let (program, arguments) = (words[0], &words[1..]);
        let Ok(plain) = Command::new(program).args(arguments).output() else {
            skip::note(format!("needs {program}"));
            continue;
        };
        let under = preloaded(program, &daemon).args(arguments).output().unwrap();
        assert!(plain.status.success(), "{program}: {}", String::from_utf8_lossy(&plain.stderr));
        assert_eq!(Said::from(under).out, Said::from(plain).out, "{program}");
    }
}
