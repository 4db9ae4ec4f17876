//! Devices that are taken, gone, or libpcap's.

use std::process::Command;

use ringway_scenes::namespace::Namespace;
use ringway_scenes::{Daemon, Said, binary, until};
use ringway_testing::skip::is_root;
use rustix::process::Signal;

use super::{exec, run, start};

const TCPDUMP: [&str; 5] = ["tcpdump", "-Z", "root", "-i", "lan0:t"];

#[test]
fn the_second_program_on_a_port_is_told_that_it_is_in_use() {
    let daemon = Daemon::start("");
    let first = start(&daemon, "t", &TCPDUMP);
    let said = run(&daemon, &TCPDUMP);
    assert_eq!(said.code, Some(1));
    assert_eq!(said.err, "tcpdump: the switch refused: lan0:t is in use: attach to another name\n");
    first.signal(Signal::TERM);
}

#[test]
fn the_port_of_a_killed_program_is_free() {
    let daemon = Daemon::start("");
    let mut command = Command::new(binary());
    command.arg("--runtime-dir").arg(daemon.runtime_dir()).arg("exec").args(TCPDUMP);
    let mut killed = ringway_testing::child::Ended(command.spawn().unwrap());
    daemon.until_state("t", "up");
    // No process stays between: the killed one is tcpdump itself.
    let name = std::fs::read_to_string(format!("/proc/{}/comm", killed.id())).unwrap();
    assert_eq!(name, "tcpdump\n");
    killed.kill().unwrap();
    killed.wait().unwrap();
    until("the port is gone", || daemon.port("t").is_null());
    let second = start(&daemon, "t", &TCPDUMP);
    second.signal(Signal::TERM);
}

#[test]
fn programs_end_with_a_reason_when_the_daemon_is_gone() {
    let mut daemon = Daemon::start("[switch.lan0]\n[port.p]\nswitch = \"lan0\"\nkind = \"process\"\n");
    let port = start(&daemon, "t", &TCPDUMP);
    let mirror =
        ringway_testing::child::Ended(exec(&daemon, &["tcpdump", "-Z", "root", "-i", "mirror:p"]).spawn().unwrap());
    until("the capture runs", || daemon.status()["captures"].as_array().unwrap().len() == 1);
    assert!(daemon.stop().success());
    for (program, why) in [(port, "pcap_loop: "), (mirror, "pcap_loop: ")] {
        let said: Said = program.output().into();
        assert!(said.code == Some(1) && said.err.contains(why), "{:?} {}", said.code, said.err);
    }
    let said = run(&daemon, &TCPDUMP);
    assert!(said.err.contains("no switch at ") && said.err.contains("start one with \"ringway run\""), "{}", said.err);
    let said = run(&daemon, &["tcpdump", "-D"]);
    assert!(said.code == Some(0) && !said.out.contains("Ringway"), "{}{}", said.out, said.err);
}

#[test]
fn other_devices_are_libpcaps() {
    if !is_root() {
        ringway_testing::skip!("needs root: a namespace");
    }
    let (daemon, space) = (Daemon::start(""), Namespace::new());
    space.ok("ip", &["link", "set", "lo", "up"]);
    let (ringway, dir) = (binary(), daemon.runtime_dir());
    let (ringway, dir) = (ringway.to_str().unwrap(), dir.to_str().unwrap());
    let exec = ["--runtime-dir", dir, "exec", "tcpdump", "-Z", "root", "-n", "-i"];
    let tcpdump = space.start(ringway, &[&exec[..], &["lo", "-c", "2", "icmp"]].concat(), "listening on lo");
    space.ok("ping", &["-c", "1", "127.0.0.1"]);
    let said = tcpdump.finish();
    assert!(said.contains("ICMP echo request") && said.contains("ICMP echo reply"), "{said}");
    for name in ["nothing0", "lan0:a/b", "lan0:a:b", "lan0:"] {
        let said = space.run(ringway, &[&exec[..], &[name]].concat());
        assert!(said.code == Some(1) && said.err.contains("No such device exists"), "{name}: {}", said.err);
    }
    let said = run(&daemon, &["tcpdump", "-I", "-i", "lan0:a"]);
    assert!(said.err.contains("monitor mode"), "{}", said.err);
}
