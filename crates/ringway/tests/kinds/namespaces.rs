//! The stacks of network namespaces communicate through TAP ports of the switch, with the usual programs.

use std::time::{Duration, Instant};

use ringway_client::Port;
use ringway_scenes::namespace::{Lan, Namespace, cpu_time, frames};
use ringway_scenes::{Daemon, PATIENCE, ringway, until};
use ringway_testing::child::Ended;
use serde_json::Value;

/// Receives until `enough` returns true.
fn receive_until(port: &mut Port, mut enough: impl FnMut(&[u8]) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    let mut done = false;
    while !done {
        assert!(Instant::now() < deadline, "no frames come");
        port.wait_rx(Duration::from_millis(100)).unwrap();
        port.rx().drain(1, |frame| done = enough(frame));
    }
}

#[test]
fn a_thousand_fast_pings_lose_none() {
    let lan = Lan::new(2);
    lan.spaces[0].ping(1000, &["-i", "0.002", "10.77.0.2"]);
    let port = lan.daemon.port("t1");
    assert!(port["in"]["frames"].as_u64() >= Some(1000) && port["out"]["frames"].as_u64() >= Some(1000), "{port}");
    assert_eq!(port["drops"], serde_json::json!({}));
}

fn iperf(lan: &Lan, more: &[&str]) -> Value {
    let server = lan.spaces[1].start("iperf3", &["-s", "-1", "--forceflush"], "Server listening");
    let args = [&["-c", "10.77.0.2", "-J"], more].concat();
    let said = lan.spaces[0].ok("iperf3", &args);
    server.finish();
    serde_json::from_str(&said).unwrap()
}

#[test]
fn iperf3_streams_cross_by_tcp_in_both_directions_and_by_udp() {
    let lan = Lan::new(2);
    for more in [&["-n", "64M"][..], &["-n", "64M", "-R"]] {
        let received = iperf(&lan, more)["end"]["sum_received"]["bytes"].as_u64().unwrap();
        assert!(received > 32_000_000, "{received} bytes of 64 MiB");
    }
    let carried = |port: &str, way: &str, what: &str| lan.daemon.port(port)[way][what].as_u64().unwrap();
    let bytes = carried("t2", "out", "bytes") + carried("t2", "in", "bytes");
    assert!(bytes > 64_000_000, "the bytes went through the switch: {bytes}");
    // The switch loses no datagram. (The receiver's socket may, if the program is without the processor for too long.)
    let before = carried("t2", "out", "frames");
    let sum = iperf(&lan, &["-u", "-b", "5M", "-l", "1400", "-n", "1400K"])["end"]["sum"].clone();
    let packets = sum["packets"].as_u64().unwrap();
    assert!(packets >= 1000, "{sum}");
    until("the datagrams are counted", || carried("t2", "out", "frames") >= before + packets);
    for port in ["t1", "t2"] {
        assert_eq!(lan.daemon.port(port)["drops"], serde_json::json!({}), "{port}");
    }
}

/// Captures `count` echo requests of 1,042 bytes at both ends. Returns the files of the sender and of the receiver.
fn capture_pings(lan: &Lan, dir: &std::path::Path, count: &str) -> [std::path::PathBuf; 2] {
    let files = ["sent.pcap", "received.pcap"].map(|name| dir.join(name));
    let capture = |at: usize| {
        let (device, file) = (format!("t{}", at + 1), files[at].to_str().unwrap());
        // If tcpdump runs as root, it drops its privileges by default, and then cannot write to the directory.
        let args = ["-Z", "root", "-n", "-i", &device, "-c", count, "-w", file, "icmp[icmptype] = icmp-echo"];
        lan.spaces[at].start("tcpdump", &args, "listening on")
    };
    let captures = [capture(0), capture(1)];
    lan.spaces[0].ping(count.parse().unwrap(), &["-i", "0.002", "-s", "1000", "10.77.0.2"]);
    for capture in captures {
        capture.finish();
    }
    files
}

#[test]
fn tcpdump_sees_at_one_end_what_was_sent_at_the_other_byte_for_byte() {
    let (lan, dir) = (Lan::new(2), tempfile::tempdir().unwrap());
    let [sent, received] = capture_pings(&lan, dir.path(), "50").map(|file| frames(&file));
    assert_eq!((sent.len(), sent.iter().map(Vec::len).sum::<usize>()), (50, 50 * 1042));
    assert!(sent == received, "frames arrive unchanged and in order");
}

#[test]
fn a_capture_made_by_tcpdump_is_replayed_exactly() {
    let (lan, dir) = (Lan::new(2), tempfile::tempdir().unwrap());
    let [file, _] = capture_pings(&lan, dir.path(), "50");
    let want = frames(&file);
    let daemon = Daemon::start("");
    let mut receiver = daemon.attach("lan0:receiver").unwrap();
    daemon.ok(&["gen", "tx", "lan0:sender", "--pcap", file.to_str().unwrap(), "--rate", "max"]);
    let mut got = Vec::new();
    receive_until(&mut receiver, |frame| {
        got.push(frame.to_vec());
        got.len() == want.len()
    });
    assert!(got == want, "the file's frames arrive unchanged and in order");
}

#[test]
fn jumbo_frames_cross_up_to_the_largest_mtu() {
    let lan = Lan::new(2);
    for (mtu, payload) in [("9000", "8900"), ("65521", "65493")] {
        for (space, device) in lan.spaces.iter().zip(["t1", "t2"]) {
            space.ok("ip", &["link", "set", device, "mtu", mtu]);
        }
        // Each request waits for the previous answer, because the sender's socket holds few frames of this size.
        lan.spaces[0].ping(100, &["-A", "-M", "do", "-s", payload, "10.77.0.2"]);
    }
}

#[test]
fn a_deleted_device_ends_its_port_with_a_reason_and_no_other() {
    let lan = Lan::new(3);
    let pings = lan.spaces[0].start_ping(300, &["-i", "0.005", "10.77.0.3"]);
    lan.spaces[1].ok("ip", &["link", "del", "t2"]);
    until("the fault is reported", || {
        let faults = lan.daemon.status()["faults"].clone();
        faults[0]["port"] == "t2" && faults[0]["reason"] == "device_lost"
    });
    assert_eq!(lan.daemon.port("t2")["state"], "failed");
    assert_eq!(lan.daemon.port("t3")["state"], "up");
    pings.finish();
}

#[test]
fn a_device_that_is_down_costs_its_own_frames_and_recovers() {
    let lan = Lan::new(2);
    let ping = |count: &str| lan.spaces[1].run("ping", &["-q", "-c", count, "-i", "0.01", "-W", "1", "10.77.0.1"]);
    until("the receiver answers", || ping("3").code == Some(0));
    lan.spaces[0].ok("ip", &["link", "set", "t1", "down"]);
    assert_eq!(ping("3").code, Some(1), "a device that is down does not answer");
    until("the frames for it are counted", || lan.drops("t1", "receiver_down") >= 3);
    assert_eq!(lan.daemon.port("t1")["state"], "up", "a device that is down is not lost");
    lan.spaces[0].ok("ip", &["link", "set", "t1", "up"]);
    // The stack may first have to drop its failed neighbour entry.
    until("the receiver answers again", || ping("1").code == Some(0));
    lan.spaces[1].ping(100, &["-i", "0.01", "10.77.0.1"]);
}

#[test]
fn devices_go_with_the_daemon_but_persistent_ones_stay() {
    let mut lan = Lan::new(2);
    let [first, second] = [&lan.spaces[0], &lan.spaces[1]];
    first.ok("ip", &["tuntap", "add", "kept", "mode", "tap"]);
    lan.daemon.ok(&["port", "add", "kept", "switch=lan0", "kind=tap", &format!("netns={}", first.name)]);
    first.ok("ip", &["addr", "add", "10.78.0.1/24", "dev", "kept"]);
    second.ok("ip", &["addr", "add", "10.78.0.2/24", "dev", "t2"]);
    second.ping(1, &["10.78.0.1"]);
    assert!(first.ok("ip", &["link", "show", "t1"]).contains("qlen 2000"), "room for bursts");
    assert!(!first.ok("ip", &["link", "show", "kept"]).contains("qlen 2000"), "an existing device keeps its settings");
    assert!(lan.daemon.stop().success());
    let there = [first.has_device("t1"), second.has_device("t2"), first.has_device("kept")];
    assert_eq!(there, [false, false, true]);
}

#[test]
fn a_device_in_use_and_one_of_another_kind_are_refused_with_the_reason() {
    let (lan, other) = (Lan::new(1), Daemon::start("[switch.lan0]\n"));
    let space = &lan.spaces[0];
    space.ok("ip", &["link", "add", "bridge0", "type", "bridge"]);
    let add = |device: &str| {
        let (device, netns) = (format!("device={device}"), format!("netns={}", space.name));
        let said = other.ringway(&["port", "add", "more", "switch=lan0", "kind=tap", &device, &netns]);
        assert_eq!(said.code, Some(1), "{}", said.err);
        said.err
    };
    let busy = add("t1");
    assert!(busy.contains("cannot open TAP device \"t1\": another program uses it"), "{busy}");
    let bridge = add("bridge0");
    assert!(bridge.contains("is no TAP device"), "{bridge}");
    assert!(space.ok("ip", &["-d", "link", "show", "bridge0"]).contains("bridge"), "the bridge is unchanged");
}

#[test]
fn a_user_without_rights_is_told_what_is_needed() {
    let space = Namespace::new();
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    std::fs::write(dir.path().join("c.toml"), "[switch.lan0]\n[port.t1]\nswitch = \"lan0\"\nkind = \"tap\"\n").unwrap();
    // The user may have no access to the build directory.
    let command = dir.path().join("ringway");
    std::fs::copy(ringway().get_program(), &command).unwrap();
    for path in [dir.path(), &command] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let (command, config, run) = (text(&command), text(&dir.path().join("c.toml")), text(&run));
    let args = ["--reuid=65534", "--clear-groups", &command, "run", "--config", &config, "--runtime-dir", &run];
    // Either "ip tuntap add t1 mode tap user USER" or "chmod a+rw /dev/net/tun".
    let _daemon = space.start("setpriv", &args, "tun");
}

#[test]
fn a_broadcast_reaches_every_stack_and_every_process() {
    let lan = Lan::new(3);
    let mut process = lan.daemon.attach("lan0:process").unwrap();
    let captures: Vec<_> = (1..3)
        .map(|at| {
            let device = format!("t{}", at + 1);
            let args = ["-n", "-i", &device, "-c", "3", "ether broadcast and icmp"];
            lan.spaces[at].start("tcpdump", &args, "listening on")
        })
        .collect();
    lan.spaces[0].ok("ping", &["-q", "-b", "-c", "3", "-i", "0.1", "-W", "300", "10.77.0.255"]);
    for stack in &lan.spaces[1..] {
        until("both stacks answer", || stack.snmp("Icmp", "OutEchoReps") == 3);
    }
    until("both stacks' answers arrive", || lan.spaces[0].snmp("Icmp", "InEchoReps") == 6);
    for capture in captures {
        assert!(capture.finish().contains("10.77.0.1 > 10.77.0.255"));
    }
    let mut heard = 0;
    receive_until(&mut process, |frame| {
        heard += usize::from(frame[..6] == [0xff; 6] && frame[23] == 1);
        heard == 3
    });
}

#[test]
fn an_idle_switch_with_tap_ports_uses_no_cpu() {
    let lan = Lan::new(2);
    lan.spaces[0].ping(1, &["10.77.0.2"]);
    // One window of several must pass: others may begin before the poller sleeps, or include other work of the machine.
    until("the daemon uses less than 1 % of a processor", || {
        let (began, before) = (Instant::now(), cpu_time(lan.daemon.pid()));
        std::thread::sleep(Duration::from_secs(2));
        let used = cpu_time(lan.daemon.pid()) - before;
        println!("{used:?} of processor time in {:?}", began.elapsed());
        used * 100 <= began.elapsed()
    });
}

#[test]
fn a_namespace_that_is_made_again_has_its_ports_and_the_old_one_is_let_go() {
    let (space, outside) = (Namespace::new(), Namespace::new());
    // Devices whose other ends the kernel removes when the namespace is gone.
    let fill = || {
        for (device, other) in [("v0", "v1"), ("x0", "x1")] {
            let peer = ["peer", "name", other, "netns", &outside.name];
            space.ok("ip", &[&["link", "add", device, "type", "veth"], &peer[..]].concat());
            space.ok("ip", &["link", "set", device, "up"]);
        }
    };
    let again = || {
        for verb in ["del", "add"] {
            assert!(std::process::Command::new("ip").args(["netns", verb, &space.name]).status().unwrap().success());
        }
    };
    fill();
    let port =
        |name: &str, keys: &str| format!("[port.{name}]\nswitch = \"lan0\"\nnetns = \"{}\"\n{keys}\n", space.name);
    let ports = [
        port("tap", "kind = \"tap\"\ndevice = \"t0\""),
        port("packet", "kind = \"packet\"\ndevice = \"v0\""),
        port("xdp", "kind = \"xdp\"\ndevice = \"x0\"\nmode = \"generic\""),
    ];
    let daemon = Daemon::start(&format!("[switch.lan0]\n{}", ports.concat()));
    let names = ["tap", "packet", "xdp"];
    names.into_iter().for_each(|name| daemon.until_state(name, "up"));
    again();
    until("the old namespace is gone, with its devices", || !outside.has_device("v1") && !outside.has_device("x1"));
    for name in names {
        assert_eq!(daemon.port(name)["faults"]["device_lost"].as_u64(), Some(1), "{name}");
    }
    fill();
    names.into_iter().for_each(|name| daemon.until_state(name, "up"));
    assert!(space.has_device("t0"));
    // The other ports of the daemon are none of this.
    daemon.ok(&["port", "del", "packet"]);
    drop(space);
    daemon.until_state("tap", "failed");
}

#[test]
fn the_namespace_of_a_process_is_not_that_of_a_stranger_with_its_number() {
    let alone = || Ended(std::process::Command::new("unshare").args(["--net", "sleep", "infinity"]).spawn().unwrap());
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    let process = alone();
    let (pid, path) = (process.id(), format!("/proc/{}/ns/net", process.id()));
    until("it has its own", || std::fs::read_link(&path).is_ok_and(|namespace| namespace != own));
    let daemon = Daemon::start("[switch.lan0]\n");
    daemon.ok(&["port", "add", "t0", "switch=lan0", "kind=tap", &format!("netns={path}")]);
    drop(process);
    daemon.until_state("t0", "failed");
    // A process with that number: this test's, or whoever gets it.
    let mut strangers = Vec::new();
    until("it is refused", || {
        if !std::path::Path::new(&path).exists() {
            std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).unwrap();
            strangers.push(alone());
        }
        let port = daemon.port("t0");
        assert_eq!(port["state"], "failed");
        port["detail"].as_str().is_some_and(|detail| detail.contains("the process that had this number has ended"))
    });
    drop(strangers);
    // An administrator may say that another one is meant.
    let process = alone();
    let path = format!("/proc/{}/ns/net", process.id());
    until("it has its own", || std::fs::read_link(&path).is_ok_and(|namespace| namespace != own));
    daemon.ok(&["port", "del", "t0"]);
    daemon.ok(&["port", "add", "t0", "switch=lan0", "kind=tap", &format!("netns={path}")]);
    assert_eq!(daemon.port("t0")["state"], "up");
}

const TUNNELS: [&str; 8] = [
    "vxlan id 7 dstport 4789",
    "vxlan id 7 dstport 4789 udpcsum",
    "geneve id 7",
    "gretap",
    "gretap key 7 csum",
    "gre",
    "ipip",
    "sit",
];

/// Carries TCP through each of these tunnels between two namespaces, whose devices of a switch have the addresses 10.77.0.1 and 10.77.0.2.
fn tunnels(tunnels: &[&str], daemon: &Daemon, spaces: [&Namespace; 2], ports: [&str; 2]) {
    'tunnels: for (number, tunnel) in tunnels.iter().enumerate() {
        let words: Vec<&str> = tunnel.split(' ').collect();
        for (at, space) in spaces.iter().enumerate() {
            let (own, other) = (format!("10.77.0.{}", at + 1), format!("10.77.0.{}", 2 - at));
            let ends =
                if words[0] == "geneve" { vec!["remote", &other] } else { vec!["local", &own, "remote", &other] };
            let added = space.run("ip", &[&["link", "add", "tun", "type", words[0]], &ends[..], &words[1..]].concat());
            // Not every kernel has all of them; VXLAN is what this is for.
            if added.err.contains("Unknown device type") && words[0] != "vxlan" {
                continue 'tunnels;
            }
            assert_eq!(added.code, Some(0), "{tunnel}: {}", added.err);
            // Less than any tunnel takes.
            space.ok("ip", &["link", "set", "tun", "mtu", "1300", "up"]);
            let (address, family) = if words[0] == "sit" {
                (format!("fd00::{}/64", at + 1), "-6")
            } else {
                (format!("10.78.{number}.{}/24", at + 1), "-4")
            };
            if family == "-6" {
                space.ok("sysctl", &["-qw", "net.ipv6.conf.tun.disable_ipv6=0"]);
            }
            space.ok("ip", &[family, "addr", "add", &address, "dev", "tun"]);
        }
        let to = if words[0] == "sit" { "fd00::2".to_owned() } else { format!("10.78.{number}.2") };
        let server = spaces[1].start("iperf3", &["-s", "-1", "--forceflush"], "Server listening");
        let said = spaces[0].ok("iperf3", &["-c", &to, "-J", "-n", "4M"]);
        server.finish();
        let report: Value = serde_json::from_str(&said).unwrap();
        let received = report["end"]["sum_received"]["bytes"].as_u64().unwrap();
        assert!(received > 500_000, "{tunnel}: {received} bytes");
        for port in ports {
            assert!(daemon.port(port)["drops"]["bad_offload"].is_null(), "{tunnel}: {}", daemon.port(port)["drops"]);
        }
        spaces.iter().for_each(|space| drop(space.ok("ip", &["link", "del", "tun"])));
    }
}

#[test]
fn tcp_in_tunnels_crosses_between_devices_of_every_kind() {
    let lan = Lan::new(2);
    tunnels(&TUNNELS, &lan.daemon, [&lan.spaces[0], &lan.spaces[1]], ["t1", "t2"]);
    for kind in ["kind = \"packet\"", "kind = \"xdp\"\nmode = \"generic\""] {
        let (host, spaces) = (Namespace::new(), [Namespace::new(), Namespace::new()]);
        let mut config = "[switch.lan0]\n".to_owned();
        for (at, space) in spaces.iter().enumerate() {
            let device = format!("v{at}");
            host.ok("ip", &["link", "add", &device, "type", "veth", "peer", "name", "eth0", "netns", &space.name]);
            host.ok("ip", &["link", "set", &device, "up"]);
            space.ok("ip", &["link", "set", "eth0", "up"]);
            // A veth device leaves the cutting of what is in a tunnel to its other end, which cannot tell a socket so.
            let tunnels = ["tx-udp_tnl-segmentation", "off", "tx-udp_tnl-csum-segmentation", "off"];
            space.ok(
                "ethtool",
                &[&["-K", "eth0"], &tunnels[..], &["tx-gre-segmentation", "off", "tx-gre-csum-segmentation", "off"]]
                    .concat(),
            );
            space.ok("ethtool", &["-K", "eth0", "tx-ipxip4-segmentation", "off", "tx-ipxip6-segmentation", "off"]);
            space.ok("ip", &["addr", "add", &format!("10.77.0.{}/24", at + 1), "dev", "eth0"]);
            config.push_str(&format!("[port.{device}]\nswitch = \"lan0\"\n{kind}\n"));
        }
        let daemon = Daemon::start_by(&["ip", "netns", "exec", &host.name], &config);
        ["v0", "v1"].into_iter().for_each(|port| daemon.until_state(port, "up"));
        tunnels(&TUNNELS, &daemon, [&spaces[0], &spaces[1]], ["v0", "v1"]);
    }
}

/// Since Linux 6.17, a TAP device gives frames to be cut whose segments are in a UDP tunnel.
#[test]
fn tcp_in_a_udp_tunnel_leaves_a_tap_device_whole_and_is_cut_where_the_receiver_takes_none() {
    let (lan, host, other) = (Lan::new(2), Namespace::new(), Namespace::new());
    let features = lan.spaces[0].ok("ethtool", &["-k", "t1"]);
    if features.contains("tx-udp_tnl-segmentation: off [fixed]") {
        return ringway_testing::skip::note(
            "TAP devices of this kernel take no part in UDP tunnel segmentation: needs Linux 6.17",
        );
    }
    host.ok("ip", &["link", "add", "v0", "type", "veth", "peer", "name", "eth0", "netns", &other.name]);
    host.ok("ip", &["link", "set", "v0", "up"]);
    other.ok("ip", &["link", "set", "eth0", "up"]);
    let netns = format!("netns={}", host.name);
    lan.daemon.ok(&["port", "add", "v0", "switch=lan0", "kind=packet", &netns]);
    lan.daemon.until_state("v0", "up");
    let count = |port: &str, way: &str, what: &str| lan.daemon.port(port)[way][what].as_u64().unwrap();
    for (space, port) in [(&lan.spaces[1], "t2"), (&other, "v0")] {
        if port == "v0" {
            lan.spaces[1].ok("ip", &["addr", "flush", "dev", "t2"]);
            other.ok("ip", &["addr", "add", "10.77.0.2/24", "dev", "eth0"]);
        }
        lan.spaces[0].ok("ip", &["neigh", "flush", "all"]);
        let counts = || [count("t1", "in", "bytes"), count("t1", "in", "frames"), count(port, "out", "frames")];
        let before = counts();
        tunnels(&TUNNELS[..2], &lan.daemon, [&lan.spaces[0], space], ["t1", port]);
        let after = counts();
        let [bytes, came, given] = [0, 1, 2].map(|at| after[at] - before[at]);
        // The tunnel's MTU is 1,300 bytes.
        assert!(bytes / came > 1400, "{bytes} bytes in {came} frames");
        let is_cut = given > came + came / 2;
        assert_eq!(is_cut, port == "v0", "{given} frames of {came}");
    }
}

#[test]
fn a_device_whose_other_end_sends_big_tcp_is_named_with_what_helps() {
    let (host, spaces) = (Namespace::new(), [Namespace::new(), Namespace::new()]);
    let mut config = "[switch.lan0]\n".to_owned();
    for (at, space) in spaces.iter().enumerate() {
        let device = format!("v{at}");
        host.ok("ip", &["link", "add", &device, "type", "veth", "peer", "name", "eth0", "netns", &space.name]);
        host.ok("ip", &["link", "set", &device, "up"]);
        space.ok("sysctl", &["-qw", "net.ipv6.conf.eth0.disable_ipv6=0"]);
        space.ok("ip", &["link", "set", "eth0", "up", "gso_max_size", "185000"]);
        space.ok("ip", &["addr", "add", &format!("fd00::{}/64", at + 1), "dev", "eth0", "nodad"]);
        config.push_str(&format!("[port.{device}]\nswitch = \"lan0\"\nkind = \"packet\"\n"));
    }
    let daemon = Daemon::start_by(&["ip", "netns", "exec", &host.name], &config);
    ["v0", "v1"].into_iter().for_each(|port| daemon.until_state(port, "up"));
    let _server = spaces[1].start("iperf3", &["-s", "--forceflush"], "Server listening");
    until("it is named", || {
        let _ = spaces[0].run("iperf3", &["-c", "fd00::2", "-n", "1M"]);
        let warnings = daemon.status()["warnings"].clone();
        let named = |warning: &Value| {
            let (what, right) = (warning["what"].as_str().unwrap(), warning["right"].as_str().unwrap());
            let helps = right.contains("ip link set dev OTHER_END gso_max_size 65536");
            warning["key"] == "port.v0" && what.contains("device \"v0\"") && what.contains("BIG TCP") && helps
        };
        warnings.as_array().unwrap().iter().any(named)
    });
}
