//! `ringway gen` against a real daemon, and its capture files against tcpdump.

use std::path::Path;
use std::process::{Command, Stdio};

use ringway_scenes::{Daemon, PATIENCE_VARIABLE, Said, ringway, until};
use ringway_testing::child::Ended;
use serde_json::Value;

/// A running `ringway gen`. Dropping it ends the command.
struct Gen(Ended);

impl Gen {
    /// Starts the command, and waits until its port is attached.
    fn start(daemon: &Daemon, port: &str, args: &[&str]) -> Gen {
        let mut command = ringway();
        command.arg("--runtime-dir").arg(daemon.runtime_dir()).arg("gen").args(args);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let started = Gen(Ended(child));
        until("the port is attached", || !daemon.port(port).is_null());
        started
    }

    fn signal(&self, signal: rustix::process::Signal) {
        self.0.signal(signal);
    }

    /// Waits for the end of the command.
    fn said(self) -> Said {
        self.0.output().into()
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("not JSON ({error}): {text}"))
}

/// Returns the output of `tcpdump -r` for a file, one line per frame.
fn tcpdump(file: &Path) -> Vec<String> {
    let mut command = Command::new("tcpdump");
    command.args(["-t", "-n", "-e", "-r"]).arg(file);
    let said: Said = command.output().expect("tcpdump is not there: make deps installs it").into();
    assert_eq!(said.code, Some(0), "{}", said.err);
    said.out.lines().map(str::to_owned).collect()
}

#[test]
fn what_is_sent_is_received_exactly_and_counted_by_name() {
    let daemon = Daemon::start("");
    // The ring holds all frames, so that none is lost if the receiver has to wait for a CPU.
    let receiver = Gen::start(
        &daemon,
        "b",
        &[
            "rx",
            "lan0:b",
            "--check",
            "full",
            "--from-start",
            "--count",
            "8000",
            "--strict",
            "--announce",
            "--json",
            "--slots",
            "8192",
        ],
    );
    until("b's address is known", || daemon.ok(&["fdb"]).lines().count() == 2);
    let sent = daemon.ok(&[
        "gen", "tx", "lan0:a", "--dst", "lan0:b", "--size", "imix", "--flows", "4", "--rate", "40kpps", "--count",
        "8000", "--json",
    ]);
    let sent = json(&sent);
    assert_eq!((&sent["sent"]["frames"], &sent["ended"]), (&8000.into(), &"frames".into()));
    for name in ["bytes", "seconds", "frames_per_second", "bits_per_second"] {
        assert!(sent["sent"][name].is_number(), "sent.{name}");
    }
    let said = receiver.said();
    assert_eq!(said.code, Some(0), "{}{}", said.err, said.out);
    let received = json(&said.out);
    assert_eq!(received["received"]["bytes"], sent["sent"]["bytes"]);
    let check = &received["check"];
    assert_eq!((&check["frames"], &check["flows"]), (&8000.into(), &12.into()), "3 sizes of 4 flows");
    for fault in ["lost", "reordered", "duplicated", "stale", "corrupted", "foreign", "unsequenced", "untracked"] {
        assert_eq!(check[fault], 0, "{fault}");
    }
}

#[test]
fn a_strict_receiver_fails_when_frames_are_missing() {
    let daemon = Daemon::start("");
    // No frame is sent.
    let said = daemon.ringway(&["gen", "rx", "lan0:b", "--duration", "50ms", "--strict"]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("ringway gen rx: no frame came"), "{}", said.err);
    // Fewer frames than `--count` come.
    let receiver = Gen::start(&daemon, "b", &["rx", "lan0:b", "--count", "10", "--idle", "1s", "--strict"]);
    daemon.ok(&["gen", "tx", "lan0:a", "--count", "3"]);
    let said = receiver.said();
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("3 frames came, --count asks for 10"), "{}", said.err);
    // Sequence numbers repeat.
    let receiver =
        Gen::start(&daemon, "b", &["rx", "lan0:b", "--count", "20", "--strict", "--check", "full", "--slots", "64"]);
    daemon.ok(&["gen", "tx", "lan0:a", "--count", "20", "--fill", "once", "--slots", "4"]);
    let said = receiver.said();
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("16 duplicated"), "{}", said.err);
}

#[test]
fn a_loop_reports_every_frame_of_both_directions() {
    let daemon = Daemon::start("");
    let args = ["--size", "590", "--check", "full", "--duration", "300ms", "--json"];
    let report = json(&daemon.ok(&[&["gen", "loop", "lan0:a", "lan0:b", "--both"], &args[..]].concat()));
    let stations = report["stations"].as_array().unwrap();
    let (mut sent, mut received) = (0, 0);
    for (station, name) in stations.iter().zip(["lan0:a", "lan0:b"]) {
        assert_eq!(station["port"], name);
        assert!(station["sent"].as_u64() > Some(0) && station["received"].as_u64() > Some(0), "{station}");
        assert_eq!((&station["check"]["corrupted"], &station["check"]["reordered"]), (&0.into(), &0.into()));
        sent += station["sent"].as_u64().unwrap();
        received += station["received"].as_u64().unwrap();
    }
    assert_eq!(report["lost"].as_u64(), Some(sent - received), "{report}");
    assert_eq!(report["ended"], "duration");
    assert!(report["received"]["frames_per_second"].as_f64() > Some(0.0));
    // One direction, with output as text.
    let text = daemon.ok(&["gen", "loop", "lan0:a", "lan0:b", "--fill", "once", "--duration", "100ms"]);
    assert!(text.contains("time is up\nof ") && text.contains("lan0:b: "), "{text}");
}

#[test]
fn a_loop_ends_after_as_many_frames_of_each_direction_as_it_is_told() {
    let daemon = Daemon::start("");
    let words = ["gen", "loop", "lan0:a", "lan0:b", "--count", "1001", "--batch", "64", "--json"];
    for (more, sent) in [(&[][..], [1001, 0]), (&["--both"], [1001, 1001]), (&["--fill", "once"], [1001, 0])] {
        let report = json(&daemon.ok(&[&words[..], more].concat()));
        let counts = report["stations"].as_array().unwrap().iter().map(|station| station["sent"].as_u64().unwrap());
        assert_eq!(counts.collect::<Vec<u64>>(), sent, "{report}");
        assert_eq!((&report["ended"], &report["lost"]), (&"frames".into(), &0.into()), "{report}");
    }
}

#[test]
fn a_loop_says_when_its_ports_cannot_reach_each_other() {
    let daemon = Daemon::start("");
    // With the limit of users, who do not wait for five minutes.
    let mut command = ringway();
    command.env_remove(PATIENCE_VARIABLE).arg("--runtime-dir").arg(daemon.runtime_dir());
    let said: Said = command.args(["gen", "loop", "lan0:a", "lan1:b", "--duration", "1s"]).output().unwrap().into();
    assert_eq!(said.code, Some(1));
    assert!(
        said.err.contains("a frame from lan1:b did not arrive at lan0:a: they must be on one switch"),
        "{}",
        said.err
    );
}

#[test]
fn round_trips_are_measured_and_silence_is_an_error() {
    let daemon = Daemon::start("");
    let pong = Gen::start(&daemon, "b", &["pong", "lan0:b", "--count", "201", "--json"]);
    let text = daemon.ok(&["gen", "ping", "lan0:a", "--count", "1", "--timeout", "300s"]);
    assert!(text.starts_with("1 sent, 1 received, 0 lost"), "a broadcast has no answer: {text}");
    let args =
        ["gen", "ping", "lan0:a", "--dst", "lan0:b", "--count", "200", "--size", "1514", "--timeout", "300s", "--json"];
    let times = json(&daemon.ok(&args));
    assert_eq!((&times["sent"], &times["received"], &times["lost"]), (&200.into(), &200.into(), &0.into()));
    let at = |name: &str| times[name].as_u64().unwrap_or_else(|| panic!("{name}"));
    assert!(0 < at("min_ns") && at("min_ns") <= at("median_ns") && at("median_ns") <= at("p99_ns"), "{times}");
    assert!(at("p99_9_ns") <= at("max_ns") && times["mean_ns"].is_f64());
    assert_eq!(json(&pong.said().out)["returned"]["frames"], 201);

    let said = daemon.ringway(&["gen", "ping", "lan0:a", "--dst", "lan0:b", "--count", "1", "--timeout", "50ms"]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("is \"ringway gen pong\" running?"), "{}", said.err);
}

#[test]
fn a_replayed_file_arrives_as_tcpdump_reads_it() {
    let (daemon, dir) = (Daemon::start(""), tempfile::tempdir().unwrap());
    let (first, second) = (dir.path().join("first.pcap"), dir.path().join("second.pcapng"));
    let record = |file: &Path, count: &str| {
        Gen::start(&daemon, "b", &["rx", "lan0:b", "--count", count, "--write", file.to_str().unwrap()])
    };
    let recorder = record(&first, "50");
    daemon.ok(&["gen", "tx", "lan0:a", "--size", "60-109", "--count", "50", "--src", "02:00:00:00:00:0a"]);
    assert_eq!(recorder.said().code, Some(0));
    let frames = tcpdump(&first);
    assert_eq!(frames.len(), 50);
    let wanted = "02:00:00:00:00:0a > ff:ff:ff:ff:ff:ff, ethertype IPv4 (0x0800), length 109: ";
    assert!(frames[49].starts_with(wanted), "{}", frames[49]);

    let recorder = record(&second, "100");
    let args = ["gen", "tx", "lan0:a", "--pcap", first.to_str().unwrap(), "--loops", "2", "--timing", "max", "--json"];
    let sent = json(&daemon.ok(&args));
    assert_eq!((&sent["sent"]["frames"], &sent["ended"]), (&100.into(), &"frames".into()));
    assert_eq!(recorder.said().code, Some(0));
    assert_eq!(tcpdump(&second), [&frames[..], &frames[..]].concat());
}

#[test]
fn an_interrupted_run_ends_with_its_report() {
    let daemon = Daemon::start("");
    for (args, what) in [
        (&["tx", "lan0:a", "--rate", "1kpps", "--json"][..], "sent"),
        (&["rx", "lan0:a", "--json"], "received"),
        (&["pong", "lan0:a", "--json"], "returned"),
    ] {
        let running = Gen::start(&daemon, "a", args);
        running.signal(rustix::process::Signal::INT);
        let said = running.said();
        assert_eq!(said.code, Some(0), "{args:?}: {}", said.err);
        let report = json(&said.out);
        assert_eq!(report["ended"], "stopped", "{args:?}");
        assert!(report[what]["frames"].is_u64(), "{args:?}");
        until("the port is gone", || daemon.port("a").is_null());
    }
}

#[test]
fn a_switch_that_ends_ends_the_run_with_a_reason() {
    for args in [&["tx", "lan0:a", "--rate", "1pps"][..], &["tx", "lan0:a"], &["rx", "lan0:a"], &["pong", "lan0:a"]] {
        let mut daemon = Daemon::start("");
        let running = Gen::start(&daemon, "a", args);
        assert!(daemon.stop().success());
        let said = running.said();
        // 2: the switch ended while it was being asked for the port.
        let is_refused = said.code == Some(2) && said.err.contains("the switch refused: the switch is shutting down");
        assert!(said.code == Some(1) || is_refused, "{args:?}: {}{}", said.out, said.err);
        let told = said.err.contains("shutting down") || said.err.contains("the switch ended the port");
        assert!(told, "{args:?}: {}", said.err);
    }
}

#[test]
fn mistakes_exit_2_and_say_what_would_be_right() {
    let daemon = Daemon::start("");
    let _taken = daemon.attach("lan0:taken").unwrap();
    for (args, wanted) in [
        (&["tx", "lan0"][..], "give SWITCH:PORT"),
        (&["tx", "lan0:taken"], "lan0:taken is in use"),
        (&["tx", "lan0:a", "--rate", "5"], "10Gbit"),
        (&["tx", "lan0:a", "--size", "13"], "bytes from 14 to 65535"),
        (&["tx", "lan0:a", "--size", "9000", "--buffer-size", "128"], "takes 71 slots of 128 bytes, and can have 64"),
        (&["tx", "lan0:a", "--buffer-size", "100"], "a multiple of 64"),
        (&["tx", "lan0:a", "--slots", "3"], "4 to 32768"),
        (&["tx", "lan0:a", "--core", "4000"], "this process may use CPU 0"),
        (&["tx", "lan0:a", "--src", "broadcast"], "must be even"),
        (&["tx", "lan0:a", "--dst", "lan0"], "or SWITCH:PORT"),
        (&["tx", "lan0:a", "--count", "0"], "above 0"),
        (&["tx", "lan0:a", "--duration", "5"], "like \"300s\""),
        (&["tx", "lan0:a", "--fill", "once", "--size", "60,61"], "needs one --size"),
        (&["tx", "lan0:a", "--pcap", "/proc/self/cmdline"], "not a pcap or pcapng file"),
        (&["tx", "lan0:a", "--pcap", "x", "--size", "60"], "cannot be used with"),
        (&["tx", "lan0:a", "--loops", "2"], "--pcap"),
        (&["ping", "lan0:a", "--size", "27"], "at least 28 bytes"),
        (&["loop", "lan0:a", "lan0:b", "--fill", "once", "--check", "full"], "only --check count"),
        (&["loop", "lan0:a"], "required arguments"),
        (&["send"], "unrecognized subcommand"),
    ] {
        let said = daemon.ringway(&[&["gen"], args].concat());
        assert_eq!(said.code, Some(2), "{args:?}: {}", said.err);
        assert!(said.err.contains(wanted), "{args:?}: {}", said.err);
        assert_eq!(said.out, "", "{args:?}");
    }
}

#[test]
fn without_a_switch_it_says_how_to_start_one() {
    let dir = tempfile::tempdir().unwrap();
    for args in [&["tx", "lan0:a"][..], &["loop", "lan0:a", "lan0:b"]] {
        let said: Said = ringway().arg("--runtime-dir").arg(dir.path()).arg("gen").args(args).output().unwrap().into();
        assert_eq!(said.code, Some(1));
        assert!(said.err.contains("start one with \"ringway run\""), "{}", said.err);
    }
}

#[test]
fn every_form_explains_itself_with_an_example() {
    for form in ["tx", "rx", "ping", "pong", "loop"] {
        let said: Said = ringway().args(["gen", form, "--help"]).output().unwrap().into();
        assert_eq!(said.code, Some(0));
        assert!(said.out.contains("Example") && said.out.contains(&format!("\n  ringway gen {form} lan0:")), "{form}");
    }
}

#[test]
fn frames_to_a_port_by_its_name_go_to_the_address_that_is_bound_there() {
    let config = "[switch.lan0]\n[port.b]\nswitch = \"lan0\"\nkind = \"process\"\nmac = [\"02:00:00:00:00:0b\"]\n\
                  [port.nic]\nswitch = \"lan0\"\nkind = \"e1000\"\nmac = [\"02:00:00:00:00:0c\"]\n";
    let daemon = Daemon::start(config);
    let mut bystander = daemon.attach("lan0:bystander").unwrap();
    let _b = daemon.attach("lan0:b").unwrap();
    let nic = daemon.runtime_dir().join("nic.sock");
    // No port has the address made of the name, so a learning switch would flood frames to it.
    for to in ["lan0:b", "lan0:nic", nic.to_str().unwrap()] {
        daemon.ok(&["gen", "tx", "lan0:a", "--dst", to, "--count", "10"]);
        assert_eq!(ringway_scenes::receive(&mut bystander, std::time::Duration::ZERO), None, "{to}");
        assert_eq!(daemon.port("bystander")["out"]["frames"], 0, "{to}");
    }
    until("the frames are counted", || daemon.port("b")["out"]["frames"] == 10);
}
