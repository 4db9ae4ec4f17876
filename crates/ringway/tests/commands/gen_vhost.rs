//! `ringway gen --vhost-user` through DPDK's testpmd and through a daemon: every frame must arrive unchanged.

use std::path::PathBuf;
use std::process::Stdio;

use ringway_scenes::testpmd::Testpmd;
use ringway_scenes::{Daemon, Said, ringway, until, whole};
use ringway_testing::child::Ended;
use serde_json::Value;

/// Each ring format, with its negotiable features.
const DRIVERS: [&[&str]; 7] = [
    &[],
    &["--in-order"],
    &["--event-idx"],
    &["--mergeable", "--event-idx", "--in-order"],
    &["--packed"],
    &["--packed", "--in-order"],
    &["--packed", "--mergeable", "--event-idx"],
];

/// DPDK's testpmd, which forwards every frame between its two vhost ports. Dropping it ends the program.
struct Loop {
    testpmd: Testpmd,
    dir: tempfile::TempDir,
}

impl Loop {
    /// Starts testpmd with these settings for both ports, for example `,client=1`.
    fn start(settings: &str) -> Loop {
        let dir = tempfile::tempdir().unwrap();
        let port = |number: usize, socket: &str| {
            format!("net_vhost{number},iface={}{settings}", dir.path().join(socket).display())
        };
        let mut testpmd =
            Testpmd::start(&[port(0, "a"), port(1, "b")], &["--forward-mode=io", "--total-num-mbufs=8192"]);
        testpmd.says("Press enter to exit");
        Loop { testpmd, dir }
    }

    /// Waits until a driver connects to the second port, or disconnects.
    fn second_changes(&mut self) {
        self.testpmd.says("Port 1: link state change event");
    }

    /// Returns `--vhost-user SOCKET` for both ports.
    fn ports(&self) -> [String; 4] {
        arguments(["a", "b"].map(|name| self.dir.path().join(name)))
    }
}

/// Returns `--vhost-user SOCKET` for two sockets.
fn arguments(sockets: [PathBuf; 2]) -> [String; 4] {
    let [a, b] = sockets.map(|socket| socket.to_str().unwrap().to_owned());
    [String::from("--vhost-user"), a, String::from("--vhost-user"), b]
}

/// Starts a daemon with two vhost-user ports on one switch.
fn daemon() -> Daemon {
    let port = |name| format!("[port.{name}]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n");
    Daemon::start(&format!("[switch.lan0]\n{}{}", port("vm1"), port("vm2")))
}

fn sockets(daemon: &Daemon) -> [PathBuf; 2] {
    ["vm1.sock", "vm2.sock"].map(|name| daemon.runtime_dir().join(name))
}

fn gen_says<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Said {
    ringway().arg("gen").args(args).output().unwrap().into()
}

/// Runs `gen loop ARGS` in both directions, and checks every frame. Returns the report.
fn looped(args: &[&str]) -> Value {
    let all = ["--both", "--check", "full", "--flows", "3", "--duration", whole("100ms", "300ms"), "--json"];
    let said = gen_says([&["loop"], args, &all].concat());
    assert_eq!(said.code, Some(0), "gen loop {args:?}: {}", said.err);
    let report: Value = serde_json::from_str(&said.out).unwrap();
    for station in report["stations"].as_array().unwrap() {
        let check = &station["check"];
        assert!(check["frames"].as_u64() > Some(0), "{args:?}: {report}");
        for fault in ["reordered", "duplicated", "stale", "corrupted", "foreign", "unsequenced"] {
            assert_eq!(check[fault], 0, "{args:?}: {fault}: {report}");
        }
    }
    report
}

fn refs(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// Waits until the daemon has counted each frame: those of the reports, and in each run two or more that announce the ports' addresses. Each
/// frame that came is given to the other port, or counted as dropped.
fn all_are_counted(daemon: &Daemon, sent: u64, received: u64, runs: u64) {
    let ports = || ["vm1", "vm2"].map(|port| daemon.port(port));
    let frames = |port: &Value, way: &str| port[way]["frames"].as_u64().unwrap();
    let dropped =
        |port: &Value| port["drops"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum::<u64>();
    until("all frames are counted", || {
        let ports = ports();
        let sum = |count: &dyn Fn(&Value) -> u64| ports.iter().map(count).sum::<u64>();
        let (came, given, lost) = (sum(&|port| frames(port, "in")), sum(&|port| frames(port, "out")), sum(&dropped));
        assert!(came < sent + 4 * runs + 100, "{came} frames came, {sent} of them in the reports");
        came >= sent + 2 * runs && came == given + lost && came - sent == given - received + lost
    });
}

#[test]
fn every_frame_goes_through_testpmd_with_every_kind_of_ring() {
    let testpmd = Loop::start("");
    let ports = testpmd.ports();
    for driver in DRIVERS {
        for size in ["60", "1514"] {
            let report = looped(&[&refs(&ports)[..], driver, &["--size", size]].concat());
            assert_eq!(report["lost"], 0, "{driver:?}: {report}");
        }
        // Buffers are written once, so received frames can only be counted.
        let once =
            [&["loop"], &refs(&ports)[..], driver, &["--fill", "once", "--duration", "100ms", "--strict"]].concat();
        let said = gen_says(once);
        assert_eq!(said.code, Some(0), "{driver:?}: {}", said.err);
    }
}

#[test]
fn testpmd_may_be_the_one_that_connects() {
    let testpmd = Loop::start(",client=1");
    let report = looped(&[&refs(&testpmd.ports())[..], &["--listen"]].concat());
    assert_eq!(report["lost"], 0, "{report}");
}

#[test]
fn round_trips_and_merged_frames_go_through_testpmd() {
    let mut testpmd = Loop::start("");
    let ports = testpmd.ports();
    let (near, far) = (&ports[..2], &ports[2..]);
    for driver in [&[][..], &["--packed", "--event-idx"]] {
        let pong = Started::of(&[&["pong"], &refs(far)[..], driver, &["--count", "100"]].concat());
        testpmd.second_changes();
        let ping =
            [&["ping"], &refs(near)[..], driver, &["--count", "100", "--dst", &far[1], "--timeout", "300s", "--json"]]
                .concat();
        let said = gen_says(ping);
        assert_eq!(said.code, Some(0), "{}", said.err);
        let times: Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!((&times["sent"], &times["received"]), (&100.into(), &100.into()), "{times}");
        assert_eq!(pong.said().code, Some(0));
        testpmd.second_changes();

        // Each frame takes three or four receive buffers.
        let small = ["--mergeable", "--buffer-size", "448", "--ring", "4096"];
        let checked = ["--check", "full", "--from-start", "--strict", "--count", "500", "--json"];
        let receiver = Started::of(&[&["rx"], &refs(far)[..], driver, &small, &checked].concat());
        testpmd.second_changes();
        let sender = [&["tx"], &refs(near)[..], driver, &["--size", "1400-1514", "--count", "500", "--rate", "5kpps"]];
        let said = gen_says(sender.concat());
        assert_eq!(said.code, Some(0), "{}", said.err);
        let said = receiver.said();
        assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
        testpmd.second_changes();
    }
}

#[test]
fn every_frame_goes_through_a_switch_and_is_counted_there() {
    let daemon = daemon();
    let ports = arguments(sockets(&daemon));
    let (mut sent, mut received, mut runs) = (0, 0, 0);
    for driver in DRIVERS {
        for size in ["60", "1514"] {
            let report = looped(&[&refs(&ports)[..], driver, &["--size", size]].concat());
            assert_eq!(report["lost"], 0, "{driver:?}: {report}");
            let sum = |what: &str| -> u64 {
                let stations = report["stations"].as_array().unwrap();
                stations.iter().map(|station| station[what].as_u64().unwrap()).sum()
            };
            (sent, received, runs) = (sent + sum("sent"), received + sum("received"), runs + 1);
        }
    }
    all_are_counted(&daemon, sent, received, runs);
}

#[test]
fn a_process_port_and_a_driver_are_on_one_switch() {
    let daemon = daemon();
    let [_, socket] = sockets(&daemon);
    let directory = daemon.runtime_dir();
    let args = ["--runtime-dir", directory.to_str().unwrap(), "gen", "loop", "lan0:a", "--vhost-user"];
    let rest = ["--both", "--check", "full", "--size", "700", "--duration", "200ms", "--strict"];
    let said: Said = ringway().args(args).arg(&socket).args(rest).output().unwrap().into();
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
}

#[test]
fn a_switch_that_ends_ends_the_run_with_a_reason() {
    for form in ["rx", "pong", "tx"] {
        let mut daemon = daemon();
        let [socket, _] = sockets(&daemon);
        let running = Started::of(&[form, "--vhost-user", socket.to_str().unwrap()]);
        daemon.until_state("vm1", "up");
        assert!(daemon.stop().success());
        let said = running.said();
        assert_eq!(said.code, Some(1), "{form}: {}{}", said.out, said.err);
        let told = said.err.contains("is gone") || said.err.contains("the switch ended the port");
        assert!(told, "{form}: {}", said.err);
    }
}

#[test]
fn mistakes_are_told_with_what_would_be_right() {
    let dir = tempfile::tempdir().unwrap();
    let nobody = dir.path().join("nobody.sock");
    let nobody = nobody.to_str().unwrap();
    for (args, code, wanted) in [
        (&["tx", "--vhost-user", nobody][..], 1, "no vhost-user back end at "),
        (&["rx", "--vhost-user", nobody, "--ring", "100"], 2, "a power of two from 2 to 32768 is needed"),
        (&["rx", "--vhost-user", nobody, "--buffer-size", "100"], 2, "a multiple of 64 from 64 to 65536 is needed"),
        (
            &["tx", "--vhost-user", nobody, "--size", "4000"],
            2,
            "a frame of 4000 bytes, a buffer of 2304: raise --buffer-size",
        ),
        (&["tx", "lan0:a", "--packed"], 2, "--vhost-user <SOCKET>"),
        (
            &["tx", "lan0:a", "--vhost-user", nobody],
            2,
            "give one SWITCH:PORT, one --vhost-user or --e1000 SOCKET, or one --pci ADDRESS",
        ),
        (
            &["rx", "--vhost-user", nobody, "--vhost-user", nobody],
            2,
            "give one SWITCH:PORT, one --vhost-user or --e1000 SOCKET, or one --pci ADDRESS",
        ),
        (&["loop", "--vhost-user", nobody], 2, "give two ports"),
        (&["loop", "lan0:a", "lan0:b", "--vhost-user", nobody], 2, "give two ports"),
        (&["ping"], 2, "required arguments"),
    ] {
        let said = gen_says(args);
        assert_eq!(said.code, Some(code), "{args:?}: {}", said.err);
        assert!(said.err.contains(wanted), "{args:?}: {}", said.err);
        assert_eq!(said.out, "", "{args:?}");
    }
}

/// A running `ringway gen`. Dropping it ends the command.
struct Started(Ended);

impl Started {
    /// Starts the command. Other processes find its device as soon as it is attached.
    fn of(args: &[&str]) -> Started {
        let mut command = ringway();
        command.arg("gen").args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        Started(Ended(command.spawn().unwrap()))
    }

    /// Waits for the end of the command.
    fn said(self) -> Said {
        self.0.output().into()
    }
}
