//! `ringway gen --e1000`: the driver for e1000 NICs over vfio-user, at the ports of a daemon.

use ringway_scenes::{Daemon, Said, ringway, until};
use serde_json::Value;

/// Starts a daemon with two e1000 ports on one switch, each with these keys.
fn daemon(keys: &str) -> Daemon {
    let port = |name| format!("[port.{name}]\nswitch = \"lan0\"\nkind = \"e1000\"\n{keys}\n");
    Daemon::start(&format!("[switch.lan0]\n{}{}", port("vm1"), port("vm2")))
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
fn every_frame_goes_through_a_switch_in_every_mode_and_is_counted_there() {
    let (old, new) = ("csb = true", "model = \"e1000e\"\nregisters = \"mapped\"");
    for (keys, modes) in
        [(old, &["base", "each", "moderated", "combining", "csb"][..]), (new, &["moderated", "mapped"])]
    {
        let daemon = daemon(keys);
        let [a, b] = ["vm1.sock", "vm2.sock"].map(|name| daemon.runtime_dir().join(name).display().to_string());
        let (mut sent, mut received, mut runs) = (0, 0, 0);
        for mode in modes {
            let ports = ["loop", "--e1000", &a, "--e1000", &b, "--e1000-mode", mode];
            let all = ["--both", "--check", "full", "--size", "700", "--duration", "200ms", "--json"];
            let said = gen_says(&[&ports[..], &all].concat());
            assert_eq!(said.code, Some(0), "{keys} {mode}: {}{}", said.out, said.err);
            let report: Value = serde_json::from_str(&said.out).unwrap();
            runs += 1;
            for station in report["stations"].as_array().unwrap() {
                let count = |key: &str| station[key].as_u64().unwrap();
                assert!(count("received") > 0, "{keys} {mode}: {report}");
                (sent, received) = (sent + count("sent"), received + count("received"));
                // And those that announce the addresses: at least one from each port to the other, and another one after a while without it.
                let driver = &station["driver"];
                let announced = driver["frames"].as_u64().unwrap() - count("sent") - count("received");
                assert!(announced >= 2, "{driver}");
                let tails = driver["tx_tail_writes"].as_u64().unwrap();
                match *mode {
                    "base" | "each" | "moderated" => {
                        assert!((1..announced).contains(&(tails - count("sent"))), "{driver}");
                    }
                    "mapped" => assert_eq!(tails, 0, "{driver}"),
                    _ => assert!(tails < count("sent"), "{mode}: {driver}"),
                }
            }
        }
        all_are_counted(&daemon, sent, received, runs);
        assert!(daemon.port("vm1")["e1000"]["messages"].as_u64() > Some(0));
    }
}

#[test]
fn what_the_device_cannot_do_is_told() {
    let daemon = daemon("model = \"e1000e\"\nregisters = \"trapped\"");
    let socket = daemon.runtime_dir().join("vm1.sock").display().to_string();
    for (mode, wanted) in [
        ("csb", "offers no communication status block (csb = true would)"),
        ("mapped", "lets no ring registers be mapped (registers = \"mapped\" would)"),
    ] {
        let said = gen_says(&["rx", "--e1000", &socket, "--e1000-mode", mode]);
        assert_eq!(said.code, Some(2), "{mode}: {}", said.err);
        assert!(said.err.contains(wanted), "{mode}: {}", said.err);
    }
}

fn gen_says(args: &[&str]) -> Said {
    ringway().arg("gen").args(args).output().unwrap().into()
}

#[test]
fn mistakes_are_told_with_what_would_be_right() {
    let dir = tempfile::tempdir().unwrap();
    let nobody = dir.path().join("nobody.sock");
    let nobody = nobody.to_str().unwrap();
    for (args, code, wanted) in [
        (&["tx", "--e1000", nobody][..], 1, "no vfio-user server at "),
        (&["rx", "--e1000", nobody, "--ring", "100"], 2, "a power of two from 8 to 32768 is needed"),
        (&["rx", "--e1000", nobody, "--buffer-size", "2304"], 2, "a power of two from 256 to 16384 is needed"),
        (&["rx", "--e1000", nobody, "--e1000-interval", "17ms"], 2, "at most 16.7 ms fit into the register"),
        (
            &["tx", "--e1000", nobody, "--size", "4000"],
            2,
            "a frame of 4000 bytes, a buffer of 2048: raise --buffer-size",
        ),
        (&["tx", "lan0:a", "--e1000-mode", "csb"], 2, "--e1000 <SOCKET>"),
        (&["tx", "--e1000", nobody, "--e1000-mode", "fast"], 2, "base, each, moderated, combining, csb, mapped"),
        (
            &["tx", "lan0:a", "--e1000", nobody],
            2,
            "give one SWITCH:PORT, one --vhost-user or --e1000 SOCKET, or one --pci ADDRESS",
        ),
        (&["loop", "--e1000", nobody], 2, "give two ports"),
    ] {
        let said = gen_says(args);
        assert_eq!(said.code, Some(code), "{args:?}: {}", said.err);
        assert!(said.err.contains(wanted), "{args:?}: {}", said.err);
        assert_eq!(said.out, "", "{args:?}");
    }
}
