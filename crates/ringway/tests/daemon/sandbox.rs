//! The switch has no privileges, and gets what administrators have allowed.

use std::path::Path;

use ringway_scenes::{Daemon, until};
use ringway_testing::child::{children, signal};
use ringway_testing::file::directory;
use rustix::process::Signal;

use super::api::ask;

/// The line of a process's status that begins like this.
fn status_of(process: u32, field: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.expect("the field").trim().to_owned()
}

fn opener(daemon: &Daemon) -> Option<u32> {
    children(daemon.keeper(), "ringway-opener").first().copied()
}

fn add_stream(daemon: &Daemon, name: &str, socket: &Path) -> (u16, String) {
    let body = serde_json::json!({ "name": name, "switch": "lan0", "kind": "stream", "socket": socket });
    ask(daemon, "POST /v1/ports", &body.to_string())
}

#[test]
fn the_switch_has_no_privilege_and_neither_has_its_successor() {
    let daemon = Daemon::start("[switch.lan0]\n");
    for _ in 0..2 {
        let switch = daemon.pid();
        // The first thing that it does without: its control socket is there once it serves.
        daemon.status();
        for field in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            assert_eq!(status_of(switch, field), "0000000000000000", "{field}");
        }
        assert_eq!([status_of(switch, "NoNewPrivs"), status_of(switch, "Seccomp")], ["1", "2"]);
        for task in std::fs::read_dir(format!("/proc/{switch}/task")).expect("its threads") {
            let status = std::fs::read_to_string(task.expect("a thread").path().join("status")).unwrap_or_default();
            // One that has ended meanwhile has no status.
            assert!(status.is_empty() || status.contains("CapEff:\t0000000000000000"), "{status}");
        }
        daemon.kill_switch();
    }
}

#[test]
fn a_socket_that_nobody_has_allowed_is_refused_by_name_and_a_command_allows_it_also_after_a_restart() {
    let elsewhere = directory();
    let path = |name: &str| elsewhere.path().join(name);
    let mut daemon = Daemon::start("[switch.lan0]\n");
    let (status, answer) = add_stream(&daemon, "p", &path("p.sock"));
    assert!(status == 422 && answer.contains("no administrator has allowed it"), "{status} {answer}");
    assert!(!path("p.sock").exists());
    daemon.complains("the switch may not have socket");
    daemon.ok(&["port", "add", "p", "switch=lan0", "kind=stream", &format!("socket={}", path("p.sock").display())]);
    assert!(path("p.sock").exists());
    // What was granted stays so, also for requests.
    daemon.ok(&["port", "del", "p"]);
    assert!(!path("p.sock").exists(), "the opener removes it");
    assert_eq!(add_stream(&daemon, "p", &path("p.sock")).0, 200);
    daemon.kill_switch();
    daemon.until_state("p", "waiting");
    assert!(path("p.sock").exists());
    assert!(daemon.stop().success());
    assert!(!path("p.sock").exists());
    daemon.replace();
    daemon.until_state("p", "waiting");
    assert!(path("p.sock").exists(), "its grant outlasts the daemon");
}

#[test]
fn what_the_file_names_is_allowed_from_its_reload_on() {
    let elsewhere = directory();
    let daemon = Daemon::start("[switch.lan0]\n");
    let path = elsewhere.path().join("p.sock");
    daemon.reload(&format!("[switch.lan0]\n[port.p]\nswitch = \"lan0\"\nkind = \"stream\"\nsocket = {path:?}\n"));
    daemon.until_state("p", "waiting");
    daemon.reload("[switch.lan0]\n");
    until("the socket has gone", || !path.exists());
    assert_eq!(add_stream(&daemon, "q", &elsewhere.path().join("q.sock")).0, 422);
    daemon.reload("[privileged]\nrequests = \"any\"\n[switch.lan0]\n");
    assert_eq!(add_stream(&daemon, "q", &elsewhere.path().join("q.sock")).0, 200);
}

#[test]
fn an_opener_that_dies_is_replaced_and_one_that_does_not_answer_costs_those_who_ask_only() {
    let daemon = Daemon::start("[switch.lan0]\n");
    let first = opener(&daemon).expect("there is one");
    signal(first, Signal::KILL);
    until("there is another one", || opener(&daemon).is_some_and(|other| other != first));
    daemon.complains("another one is started");
    until("it is asked", || daemon.ringway(&["port", "add", "p", "switch=lan0", "kind=stream"]).code == Some(0));
    let second = opener(&daemon).expect("there is one");
    signal(second, Signal::STOP);
    let said = daemon.ringway(&["port", "add", "r", "switch=lan0", "kind=stream"]);
    assert!(said.code != Some(0) && said.err.contains("has not answered"), "{}", said.err);
    assert!(daemon.attach("lan0:client").is_ok());
    signal(second, Signal::CONT);
}
