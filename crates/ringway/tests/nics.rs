//! A network device as a port of the switch, by AF_XDP or by a packet socket. The device is one end of a veth
//! pair; the other end is "the wire".

use std::time::Duration;

use ringway_scenes::namespace::{Namespace, frames};
use ringway_scenes::{Daemon, PATIENCE, receive, send, until};
use ringway_traffic::pcap::Recorder;
use rustix::process::Signal;
use serde_json::Value;

const XDP: &str = "kind = \"xdp\"";
/// The host keeps no frames.
const XDP_ALONE: &str = "kind = \"xdp\"\nhost = false";
const PACKET: &str = "kind = \"packet\"";

/// The device `x0` in a namespace of its own, the wire's station 10.78.0.1 behind it, and the namespace of a TAP port with 10.78.0.2.
struct Wire {
    // Dropped first, so that its TAP device goes before its namespace.
    daemon: Daemon,
    nic: Namespace,
    wire: Namespace,
    vm: Namespace,
}

impl Wire {
    /// `keys` are those of the port `nic`.
    fn new(keys: &str) -> Self {
        Self::with("", keys)
    }

    /// With other sections of the configuration.
    fn with(sections: &str, keys: &str) -> Self {
        let (nic, wire, vm) = (Namespace::new(), Namespace::new(), Namespace::new());
        join(&nic, &wire);
        let daemon = Daemon::start(&format!(
            "{sections}[switch.lan0]\n[port.nic]\nswitch = \"lan0\"\ndevice = \"x0\"\nnetns = \"{}\"\n{keys}\n\
             [port.t0]\nswitch = \"lan0\"\nkind = \"tap\"\nnetns = \"{}\"\n",
            nic.name, vm.name
        ));
        vm.ok("ip", &["addr", "add", "10.78.0.2/24", "dev", "t0"]);
        Self { daemon, nic, wire, vm }
    }

    fn drops(&self, port: &str) -> Value {
        self.daemon.port(port)["drops"].clone()
    }
}

/// Makes the veth pair.
fn join(nic: &Namespace, wire: &Namespace) {
    nic.ok("ip", &["link", "add", "x0", "type", "veth", "peer", "name", "w0", "netns", &wire.name]);
    wire.ok("ip", &["addr", "add", "10.78.0.1/24", "dev", "w0"]);
    wire.ok("ip", &["link", "set", "w0", "up"]);
    nic.ok("ip", &["link", "set", "x0", "up"]);
}

/// Sends a stream from `from` to the wire's station, or in the other direction, and returns the bytes that arrived.
fn stream(wire: &Wire, more: &[&str]) -> u64 {
    let server = wire.wire.start("iperf3", &["-s", "-1", "--forceflush"], "Server listening");
    let said = wire.vm.ok("iperf3", &[&["-c", "10.78.0.1", "-J", "-n", "16M"], more].concat());
    server.finish();
    let report: Value = serde_json::from_str(&said).unwrap();
    report["end"]["sum_received"]["bytes"].as_u64().unwrap()
}

#[test]
fn pings_and_streams_cross_the_device_in_every_mode_that_it_has() {
    for mode in ["auto", "copy", "generic"] {
        let wire = Wire::new(&format!("{XDP_ALONE}\nmode = \"{mode}\""));
        wire.vm.ping(200, &["-i", "0.002", "-s", "1400", "10.78.0.1"]);
        // A veth device has no zero copy.
        let got = if mode == "auto" { "copy" } else { mode };
        assert_eq!(wire.daemon.port("nic")["xdp"], serde_json::json!({ "mode": got, "queues": 1 }));
        assert_eq!(wire.drops("nic"), serde_json::json!({}), "{mode}");
        // The kernel of the wire's station leaves checksums to its device, and the switch completes them.
        for more in [&[][..], &["-R"]] {
            assert!(stream(&wire, more) > 8_000_000, "{mode} {more:?}");
        }
    }
}

/// Frames of all lengths up to `longest`, without and with VLAN tags, of protocols that nobody knows.
fn odd_frames(longest: usize) -> Vec<Vec<u8>> {
    let kinds: [&[u8]; 4] =
        [&[0x88, 0xb5], &[0x81, 0, 0x20, 7, 0x88, 0xb5], &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 3, 8, 0], &[8, 0]];
    let lens = [60, 61, 64, 127, 128, 129, 590, 1513, 1514, 1793, 2049, 4000, 8999, 9014];
    let frame = |kind: &[u8], len: usize| {
        let mut frame = vec![2, 0, 0, 0, 0, 0xc, 2, 0, 0, 0, 0, 0xa];
        frame.extend(kind);
        frame.extend((frame.len()..len).map(|at| (at * 7) as u8));
        frame
    };
    let of_len = |len: usize| kinds.iter().map(move |kind| frame(kind, len));
    lens.into_iter().filter(|&len| len <= longest).flat_map(of_len).collect()
}

#[test]
fn odd_frames_cross_byte_for_byte_in_both_directions() {
    for (keys, mtu) in
        [(XDP_ALONE, 1500), (PACKET, 1500), (PACKET, 9000), (&*format!("{XDP_ALONE}\nmode = \"generic\""), 9000)]
    {
        let wire = Wire::new(keys);
        if mtu > 1500 {
            wire.wire.ok("ip", &["link", "set", "w0", "mtu", "9000"]);
            wire.nic.ok("ip", &["link", "set", "x0", "mtu", "9000"]);
        }
        let sent = odd_frames(mtu + 14);
        let dir = tempfile::tempdir().unwrap();
        let [sample, written] = ["sample.pcap", "written.pcap"].map(|name| dir.path().join(name));
        let mut recorder = Recorder::create(&sample, 65_536).unwrap();
        for frame in &sent {
            recorder.write(Duration::ZERO, frame).unwrap();
        }
        recorder.flush().unwrap();
        let mut client = wire.daemon.attach("lan0:c").unwrap();
        wire.wire.ok("tcpreplay", &["--pps=2000", "-i", "w0", sample.to_str().unwrap()]);
        for frame in &sent {
            let mut got = receive(&mut client, PATIENCE).expect("a frame");
            // Frames of others: neighbour discovery, for instance.
            while got[6..12] != frame[6..12] {
                got = receive(&mut client, PATIENCE).expect("a frame");
            }
            assert!(got == *frame, "{keys} {mtu}: {} bytes became {}", frame.len(), got.len());
        }
        let count = sent.len().to_string();
        let filter = "ether src 02:00:00:00:00:0c";
        let args = ["-Z", "root", "-n", "-i", "w0", "-c", &count, "-w", written.to_str().unwrap(), filter];
        let capture = wire.wire.start("tcpdump", &args, "listening on");
        let back: Vec<Vec<u8>> = sent.iter().map(|frame| [&frame[6..12], &frame[..6], &frame[12..]].concat()).collect();
        for frame in &back {
            send(&mut client, frame);
        }
        capture.finish();
        assert!(frames(&written) == back, "{keys} {mtu}: the frames differ");
    }
}

#[test]
fn a_device_without_zero_copy_refuses_it() {
    let (nic, wire) = (Namespace::new(), Namespace::new());
    join(&nic, &wire);
    let daemon = Daemon::start("[switch.lan0]\n");
    let netns = format!("netns={}", nic.name);
    let said =
        daemon.ringway(&["port", "add", "nic", "switch=lan0", "kind=xdp", "device=x0", &netns, "mode=zero-copy"]);
    assert!(said.code != Some(0) && said.err.contains("\"x0\": cannot attach to it"), "{} {}", said.out, said.err);
}

#[test]
fn a_device_that_another_switch_has_is_refused_until_that_lets_it_go() {
    let wire = Wire::new(XDP_ALONE);
    let other = Daemon::start("[switch.lan0]\n");
    let netns = format!("netns={}", wire.nic.name);
    let add = ["port", "add", "nic", "switch=lan0", "kind=xdp", "device=x0", &netns, "host=false"];
    let said = other.ringway(&add);
    assert!(said.code != Some(0) && said.err.contains("it has another XDP program"), "{} {}", said.out, said.err);
    wire.vm.ping(10, &["-i", "0.002", "10.78.0.1"]);
    wire.daemon.ok(&["port", "del", "nic"]);
    until("the device is free", || other.ringway(&add).code == Some(0));
    other.ok(&["port", "del", "nic"]);
    until("the device is free", || wire.daemon.ringway(&add).code == Some(0));
    wire.vm.ping(10, &["-i", "0.002", "10.78.0.1"]);
}

#[test]
fn pings_and_streams_cross_a_packet_socket() {
    let wire = Wire::new(PACKET);
    wire.vm.ping(200, &["-i", "0.002", "-s", "1400", "10.78.0.1"]);
    for more in [&[][..], &["-R"]] {
        assert!(stream(&wire, more) > 8_000_000, "{more:?}");
    }
}

#[test]
fn a_port_fails_with_its_device_and_is_back_with_it() {
    for kind in [XDP_ALONE, PACKET] {
        fails_and_is_back(&Wire::new(kind));
        // A poller that never sleeps.
        fails_and_is_back(&Wire::with("[engine]\nidle = \"spin\"\n", kind));
    }
}

fn fails_and_is_back(wire: &Wire) {
    wire.vm.ping(10, &["-i", "0.002", "10.78.0.1"]);
    wire.nic.ok("ip", &["link", "del", "x0"]);
    wire.daemon.until_state("nic", "failed");
    join(&wire.nic, &wire.wire);
    wire.daemon.until_state("nic", "up");
    wire.vm.ok("ip", &["neigh", "flush", "all"]);
    wire.vm.ping(10, &["-i", "0.002", "10.78.0.1"]);
}

#[test]
fn the_host_has_its_device_back_when_the_switch_is_killed() {
    let wire = Wire::new(XDP_ALONE);
    wire.vm.ping(10, &["-i", "0.002", "10.78.0.1"]);
    wire.nic.ok("ip", &["addr", "add", "10.78.0.3/24", "dev", "x0"]);
    assert_ne!(wire.wire.run("ping", &["-c", "1", "-W", "1", "10.78.0.3"]).code, Some(0), "the switch has all frames");
    wire.daemon.signal(Signal::KILL);
    let reached = || wire.wire.run("ping", &["-c", "1", "-W", "1", "10.78.0.3"]).code == Some(0);
    until("the host has its device back", reached);
}

#[test]
fn the_host_keeps_its_own_frames_and_shares_group_frames() {
    for kind in [XDP, PACKET] {
        keeps_its_own(&Wire::new(kind));
    }
}

fn keeps_its_own(wire: &Wire) {
    wire.nic.ok("ip", &["addr", "add", "10.78.0.3/24", "dev", "x0"]);
    // Each asks for the address of the others by broadcast: the requests come to the host and to the switch.
    wire.wire.ping(20, &["-i", "0.002", "10.78.0.3"]);
    wire.vm.ping(20, &["-i", "0.002", "10.78.0.1"]);
    wire.wire.ok("ip", &["neigh", "flush", "all"]);
    wire.wire.ping(20, &["-i", "0.002", "10.78.0.2"]);
    wire.nic.ping(20, &["-i", "0.002", "10.78.0.1"]);
    assert_eq!(wire.drops("nic"), serde_json::json!({}));
    // What the host keeps does not reach the switch: the requests and answers for the host, and frames for other stations alone.
    let seen = wire.daemon.port("nic")["in"]["frames"].as_u64().unwrap();
    assert!(seen < 50, "{seen} frames, 40 of them echo requests and answers");
}

#[test]
fn a_device_with_another_address_keeps_the_frames_for_that() {
    for kind in [XDP, PACKET] {
        has_another_address(&Wire::new(kind));
    }
}

fn has_another_address(wire: &Wire) {
    wire.nic.ok("ip", &["addr", "add", "10.78.0.3/24", "dev", "x0"]);
    wire.wire.ping(10, &["-i", "0.002", "10.78.0.3"]);
    wire.nic.ok("ip", &["link", "set", "x0", "address", "02:00:00:00:07:08"]);
    wire.wire.ok("ip", &["neigh", "flush", "all"]);
    let reached = || wire.wire.run("ping", &["-c", "1", "-W", "1", "10.78.0.3"]).code == Some(0);
    until("the host has the frames for its new address", reached);
    wire.daemon.until_state("nic", "up");
    wire.vm.ping(10, &["-i", "0.002", "10.78.0.1"]);
}

#[test]
fn frames_that_come_while_the_switch_stands_still_arrive_or_are_counted() {
    for kind in [XDP_ALONE, PACKET] {
        overruns(&Wire::new(kind));
    }
}

fn overruns(wire: &Wire) {
    wire.vm.ping(1, &["10.78.0.1"]);
    let counts = || {
        let port = wire.daemon.port("nic");
        let drops = port["drops"]["device_overrun"].as_u64().unwrap_or(0);
        (port["in"]["frames"].as_u64().unwrap() + drops, drops)
    };
    let (before, _) = counts();
    wire.daemon.pause();
    // More than the ring has places. Nobody answers.
    wire.wire.run("ping", &["-q", "-f", "-l", "5000", "-c", "5000", "-W", "1", "10.78.0.2"]);
    wire.daemon.signal(Signal::CONT);
    until("each frame is counted", || counts().0 >= before + 5000);
    assert!(counts().1 > 0, "some were lost");
}

#[test]
fn the_device_leaves_vlan_tags_in_frames_while_it_is_an_xdp_port() {
    let wire = Wire::new(XDP);
    let takes_out = || wire.nic.ok("ethtool", &["-k", "x0"]).contains("rx-vlan-offload: on");
    assert!(!takes_out());
    wire.daemon.ok(&["port", "del", "nic"]);
    until("the device is as before", takes_out);
}

#[test]
fn the_device_is_promiscuous_while_it_is_a_port() {
    for kind in [XDP, PACKET] {
        is_promiscuous(&Wire::new(kind));
    }
}

fn is_promiscuous(wire: &Wire) {
    let promiscuous = || wire.nic.ok("ip", &["-d", "link", "show", "x0"]).contains("promiscuity 1");
    assert!(promiscuous());
    wire.daemon.ok(&["port", "del", "nic"]);
    until("the device is as before", || !promiscuous());
}
