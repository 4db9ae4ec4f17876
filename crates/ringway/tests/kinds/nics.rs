//! A network device as a port of the switch, by AF_XDP or by a packet socket. The device is one end of a veth
//! pair; the other end is "the wire".

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use ringway_scenes::namespace::{Namespace, frames};
use ringway_scenes::{Daemon, PATIENCE, receive, send, until};
use ringway_testing::{skip, snmp};
use ringway_traffic::open_device;
use ringway_traffic::pcap::Recorder;
use rustix::process::Signal;
use serde_json::Value;

pub(super) const XDP: &str = "kind = \"xdp\"";
/// The host keeps no frames.
pub(super) const XDP_ALONE: &str = "kind = \"xdp\"\nhost = false";
pub(super) const PACKET: &str = "kind = \"packet\"";

/// The device `x0` in a namespace of its own, the wire's station 10.78.0.1 behind it, and the namespace of a TAP port with 10.78.0.2.
pub(super) struct Wire {
    // Dropped first, so that its TAP device goes before its namespace.
    pub(super) daemon: Daemon,
    pub(super) nic: Namespace,
    pub(super) wire: Namespace,
    pub(super) vm: Namespace,
}

impl Wire {
    /// `keys` are those of the port `nic`.
    pub(super) fn new(keys: &str) -> Self {
        Self::with("", keys)
    }

    /// With other sections of the configuration.
    pub(super) fn with(sections: &str, keys: &str) -> Self {
        let (nic, wire) = (Namespace::new(), Namespace::new());
        join(&nic, &wire);
        Self::of(nic, wire, sections, &format!("device = \"x0\"\n{keys}"))
    }

    /// With a device that is there already.
    pub(super) fn of(nic: Namespace, wire: Namespace, sections: &str, keys: &str) -> Self {
        let vm = Namespace::new();
        let daemon = Daemon::start(&format!(
            "{sections}[switch.lan0]\n[port.nic]\nswitch = \"lan0\"\nnetns = \"{}\"\n{keys}\n\
             [port.t0]\nswitch = \"lan0\"\nkind = \"tap\"\nnetns = \"{}\"\n",
            nic.name, vm.name
        ));
        vm.ok("ip", &["addr", "add", "10.78.0.2/24", "dev", "t0"]);
        Self { daemon, nic, wire, vm }
    }

    pub(super) fn drops(&self, port: &str) -> Value {
        self.daemon.port(port)["drops"].clone()
    }
}

/// Makes the veth pair.
pub(super) fn join(nic: &Namespace, wire: &Namespace) {
    nic.ok("ip", &["link", "add", "x0", "type", "veth", "peer", "name", "w0", "netns", &wire.name]);
    address(nic, wire);
}

/// Brings the veth pair up.
fn address(nic: &Namespace, wire: &Namespace) {
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
    let is_taken = kernel_is_at_least(6, 11);
    for mode in ["auto", "copy", "generic"] {
        let wire = Wire::new(&format!("{XDP_ALONE}\nmode = \"{mode}\""));
        wire.vm.ping(200, &["-i", "0.002", "-s", "1400", "10.78.0.1"]);
        // A veth device has no zero copy.
        let got = if mode == "auto" { "copy" } else { mode };
        let checksums = if is_taken { "device" } else { "software" };
        let status = serde_json::json!({ "mode": got, "queues": 1, "checksums": checksums });
        assert_eq!(wire.daemon.port("nic")["xdp"], status);
        assert_eq!(wire.drops("nic"), serde_json::json!({}), "{mode}");
        // The kernel of the wire's station leaves checksums to its device, and the switch completes them.
        for more in [&[][..], &["-R"]] {
            assert!(stream(&wire, more) > 8_000_000, "{mode} {more:?}");
        }
    }
}

/// Whether the running kernel has this version or a newer one.
fn kernel_is_at_least(major: u32, minor: u32) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}

#[test]
fn checksums_that_are_left_to_the_device_are_recognized_by_the_switch_behind_it() {
    for mode in ["copy", "generic"] {
        let wire = Wire::new(&format!("{XDP_ALONE}\nmode = \"{mode}\""));
        let station = Namespace::new();
        let behind = Daemon::start(&format!(
            "[switch.lan0]\n[port.nic]\nswitch = \"lan0\"\nnetns = \"{}\"\ndevice = \"w0\"\n{XDP_ALONE}\nmode = \"{mode}\"\n\
             [port.t0]\nswitch = \"lan0\"\nkind = \"tap\"\nnetns = \"{}\"\n",
            wire.wire.name, station.name
        ));
        station.ok("ip", &["addr", "add", "10.78.0.4/24", "dev", "t0"]);
        wire.vm.ping(50, &["-i", "0.002", "-s", "1400", "10.78.0.4"]);
        for more in [
            &["-n", "16M"][..],
            &["-n", "16M", "-R"],
            &["-u", "-n", "2M", "-b", "50M"],
            &["-u", "-n", "2M", "-b", "50M", "-R"],
        ] {
            let server = station.start("iperf3", &["-s", "-1", "--forceflush"], "Server listening");
            let said = wire.vm.ok("iperf3", &[&["-c", "10.78.0.4", "-J"], more].concat());
            server.finish();
            let report: Value = serde_json::from_str(&said).unwrap();
            let got = report["end"]["sum_received"]["bytes"].as_u64().unwrap();
            assert!(got > 1_000_000, "{mode} {more:?}: {got} bytes");
        }
        for space in [&wire.vm, &station] {
            let snmp = space.ok("cat", &["/proc/net/snmp"]);
            for (protocol, name) in [("Tcp", "InCsumErrors"), ("Udp", "InCsumErrors")] {
                assert_eq!(snmp::counter(&snmp, protocol, name), Some(0), "{mode} {protocol}");
            }
        }
        assert_eq!(wire.drops("nic"), serde_json::json!({}), "{mode}");
        assert_eq!(behind.port("nic")["drops"], serde_json::json!({}), "{mode}");
    }
}

/// Frames of all lengths up to `longest`, without and with VLAN tags, of protocols that nobody knows.
fn odd_frames(longest: usize) -> Vec<Vec<u8>> {
    let kinds: [&[u8]; 4] =
        [&[0x88, 0xb5], &[0x81, 0, 0x20, 7, 0x88, 0xb5], &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 3, 8, 0], &[8, 0]];
    let lens = [20, 42, 60, 61, 64, 127, 128, 129, 590, 1513, 1514, 1793, 2049, 4000, 8999, 9014];
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
    let generic = format!("{XDP_ALONE}\nmode = \"generic\"");
    for (keys, mtu) in [(XDP_ALONE, 1500), (XDP_ALONE, 9000), (PACKET, 1500), (PACKET, 9000), (&generic, 9000)] {
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
    assert!(said.code != Some(0) && said.err.contains("another socket has its queue 0"), "{} {}", said.out, said.err);
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
    wire.daemon.kill();
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
    wire.wire.ping(200, &["-i", "0.002", "10.78.0.3"]);
    wire.vm.ping(20, &["-i", "0.002", "10.78.0.1"]);
    wire.wire.ok("ip", &["neigh", "flush", "all"]);
    wire.wire.ping(20, &["-i", "0.002", "10.78.0.2"]);
    wire.nic.ping(200, &["-i", "0.002", "10.78.0.1"]);
    assert_eq!(wire.drops("nic"), serde_json::json!({}));
    // What the host keeps does not reach the switch: the requests and answers for the host, and frames for other stations alone.
    let seen = wire.daemon.port("nic")["in"]["frames"].as_u64().unwrap();
    // The rest asks for addresses, once a second while no answer comes.
    assert!(seen < 200, "{seen} frames, 40 of them echo requests and answers");
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
        overruns(&Wire::new(kind), &["10.78.0.2"]);
    }
    // A storm: what the host's stack has, too.
    for kind in [XDP, PACKET] {
        overruns(&Wire::new(kind), &["-b", "10.78.0.255"]);
    }
}

/// Sends echo requests to this station, or to all.
fn overruns(wire: &Wire, to: &[&str]) {
    wire.vm.ping(1, &["10.78.0.1"]);
    let counts = || {
        let port = wire.daemon.port("nic");
        let drops = port["drops"]["device_overrun"].as_u64().unwrap_or(0);
        (port["in"]["frames"].as_u64().unwrap() + drops, drops)
    };
    let (before, _) = counts();
    wire.daemon.pause();
    // More than the ring has places. Nobody answers.
    wire.wire.run("ping", &[&["-q", "-f", "-l", "5000", "-c", "5000", "-W", "1"], to].concat());
    wire.daemon.signal(Signal::CONT);
    until("each frame is counted", || counts().0 >= before + 5000);
    assert!(counts().1 > 0, "some were lost");
}

#[test]
fn the_device_leaves_vlan_tags_in_frames_while_it_is_an_xdp_port() {
    let wire = Wire::new(XDP);
    let takes_out = || {
        let features = wire.nic.ok("ethtool", &["-k", "x0"]);
        ["rx-vlan-offload: on", "rx-vlan-stag-hw-parse: on"].map(|on| features.contains(on))
    };
    assert_eq!(takes_out(), [false; 2]);
    wire.daemon.ok(&["port", "del", "nic"]);
    until("the device is as before", || takes_out() == [true; 2]);
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

/// A TAP device whose packets are a packet port's, and the program behind it that is the wire.
struct Behind {
    daemon: Daemon,
    wire: File,
    _nic: Namespace,
}

impl Behind {
    /// `keys` are those of the port `nic`.
    fn new(keys: &str) -> Self {
        let nic = Namespace::new();
        let wire = nic.within(|| open_device("x0", true)).unwrap();
        let daemon = Daemon::start(&format!(
            "[switch.lan0]\n[port.nic]\nswitch = \"lan0\"\ndevice = \"x0\"\nnetns = \"{}\"\n{keys}\n",
            nic.name
        ));
        Self { daemon, wire, _nic: nic }
    }

    /// Sends a frame with this offload header and this data.
    fn send(&mut self, header: [u8; 10], data: &[u8]) {
        self.wire.write_all(&[&header, data].concat()).unwrap();
    }
}

/// A broadcast frame of a protocol that nobody knows.
const UNKNOWN: [u8; 60] = {
    let mut frame = [0xff; 60];
    frame[6] = 2;
    (frame[12], frame[13]) = (0x88, 0xb5);
    frame
};

/// A broadcast frame with an IPv4 packet to 10.0.0.2 of 4,000 bytes after its header, of this protocol.
fn large(protocol: u8) -> Vec<u8> {
    let mut frame = UNKNOWN[..12].to_vec();
    frame.extend([8, 0, 0x45, 0, 0x0f, 0xb4, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    // TCP: the length of its header, UDP: that of the datagram. Where the checksum belongs is the sum of the pseudo-header.
    if protocol == 6 {
        frame.extend([0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0x23, 0xa9]);
    } else {
        frame.extend([0, 1, 0, 2, 0x0f, 0xa0, 0x23, 0xb4]);
    }
    frame.resize(14 + 20 + 4000, 0);
    frame
}

#[test]
fn a_frame_that_the_kernel_cannot_describe_does_not_make_a_packet_port_deaf() {
    let mut nic = Behind::new(PACKET);
    let mut client = nic.daemon.attach("lan0:c").unwrap();
    nic.send([0; 10], &UNKNOWN);
    assert_eq!(receive(&mut client, PATIENCE).as_deref(), Some(&UNKNOWN[..]));
    // A datagram to be cut into fragments.
    nic.send([1, 3, 42, 0, 0x78, 5, 34, 0, 6, 0], &large(17));
    until("frames arrive", || {
        nic.send([0; 10], &UNKNOWN);
        receive(&mut client, Duration::from_millis(100)).is_some_and(|frame| frame == UNKNOWN)
    });
}

#[test]
fn a_frame_that_the_kernel_cannot_describe_costs_an_xdp_port_that_frame_only() {
    let mut nic = Behind::new(XDP);
    let mut client = nic.daemon.attach("lan0:c").unwrap();
    nic.send([1, 3, 42, 0, 0x78, 5, 34, 0, 6, 0], &large(17));
    nic.send([0; 10], &UNKNOWN);
    assert_eq!(receive(&mut client, PATIENCE).as_deref(), Some(&UNKNOWN[..]));
    assert_eq!(nic.daemon.port("nic")["drops"], serde_json::json!({ "bad_offload": 1 }));
}

#[test]
fn a_large_frame_without_a_checksum_to_be_made_is_a_bad_offload() {
    let mut nic = Behind::new(PACKET);
    nic.send([0, 1, 54, 0, 0x78, 5, 0, 0, 0, 0], &large(6));
    until("it is counted", || nic.daemon.port("nic")["drops"] == serde_json::json!({ "bad_offload": 1 }));
}

/// Sends a frame of so many bytes to the device, and returns how many were sent and how many were too long.
fn send_of(wire: &Wire, client: &mut ringway_client::Port, len: usize) -> [u64; 2] {
    let mut frame = vec![0; len];
    frame[..14].copy_from_slice(&UNKNOWN[..14]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0xc]);
    let counts = || {
        let port = wire.daemon.port("nic");
        [&port["out"]["frames"], &port["drops"]["receiver_too_small"]].map(|count| count.as_u64().unwrap_or(0))
    };
    let before = counts();
    send(client, &frame);
    until("it is counted", || counts() != before);
    let after = counts();
    [after[0] - before[0], after[1] - before[1]]
}

#[test]
fn frames_longer_than_the_mtu_of_an_xdp_device_are_dropped_by_name() {
    let wire = Wire::new(XDP_ALONE);
    let mut client = wire.daemon.attach("lan0:c").unwrap();
    assert_eq!([1514, 1518, 1519].map(|len| send_of(&wire, &mut client, len)), [[1, 0], [1, 0], [0, 1]]);
    let set = |mtu: &str| wire.nic.ok("ip", &["link", "set", "x0", "mtu", mtu]);
    set("1600");
    until("longer frames are sent", || send_of(&wire, &mut client, 1618) == [1, 0]);
    set("1400");
    until("shorter frames are refused", || send_of(&wire, &mut client, 1419) == [0, 1]);
}

#[test]
fn an_xdp_port_takes_queues_that_are_added_later_and_refuses_a_device_with_too_many() {
    let (nic, peer) = (Namespace::new(), Namespace::new());
    let link = ["link", "add", "x0", "numrxqueues", "65", "numtxqueues", "65", "type", "veth", "peer", "name", "w0"];
    nic.ok("ip", &[&link[..], &["netns", &peer.name]].concat());
    nic.ok("ethtool", &["-L", "x0", "rx", "1"]);
    address(&nic, &peer);
    let wire = Wire::of(nic, peer, "", &format!("device = \"x0\"\n{XDP_ALONE}"));
    let use_queues = |count: &str| wire.nic.ok("ethtool", &["-L", "x0", "rx", count]);
    let daemon = &wire.daemon;
    let queues = || daemon.port("nic")["xdp"]["queues"].clone();
    until("the port is open", || queues() == 1);
    use_queues("3");
    until("the port has all queues", || queues() == 3);
    assert_eq!(daemon.status()["faults"][0]["reason"], "device_changed");
    wire.vm.ping(10, &["-i", "0.002", "10.78.0.1"]);
    use_queues("65");
    daemon.until_state("nic", "failed");
    let why = || daemon.port("nic")["detail"].as_str().is_some_and(|why| why.contains("it has 65 receive queues"));
    until("it says why", why);
    let again = |wanted: &str| {
        daemon.ok(&["port", "del", "nic"]);
        let netns = format!("netns={}", wire.nic.name);
        daemon.ringway(&["port", "add", "nic", "switch=lan0", "kind=xdp", "device=x0", &netns, "host=false", wanted])
    };
    let said = again("queues=2");
    assert_eq!((said.code, queues()), (Some(0), 2.into()), "{} {}", said.out, said.err);
    use_queues("3");
    let said = again("queues=4");
    assert!(said.err.contains("it has 3 receive queues, and the port is to take 4"), "{} {}", said.out, said.err);
}

#[test]
fn frames_for_a_device_that_is_down_are_dropped_and_not_sent_later() {
    let wire = Wire::new(XDP_ALONE);
    let dir = tempfile::tempdir().unwrap();
    let written = dir.path().join("written.pcap");
    let args = ["-Z", "root", "-n", "-i", "w0", "-c", "1", "-w", written.to_str().unwrap(), "ether proto 0x88b5"];
    let capture = wire.wire.start("tcpdump", &args, "listening on");
    let mut client = wire.daemon.attach("lan0:c").unwrap();
    wire.nic.ok("ip", &["link", "set", "x0", "down"]);
    let mut frame = UNKNOWN;
    (0..1500).for_each(|_| send(&mut client, &frame));
    // Frames that were queued when the device was found down are counted by the next delivery.
    let dropped = || wire.drops("nic")["receiver_down"].as_u64().unwrap_or(0);
    until("each frame is counted", || {
        send(&mut client, &frame);
        dropped() >= 1500
    });
    assert_eq!(wire.drops("nic")["receiver_full"], Value::Null);
    wire.nic.ok("ip", &["link", "set", "x0", "up"]);
    frame[59] = 1;
    until("the device sends", || {
        let before = dropped();
        send(&mut client, &frame);
        until("it is counted", || wire.daemon.port("nic")["out"]["frames"].as_u64() > Some(0) || dropped() > before);
        dropped() == before
    });
    capture.finish();
    assert_eq!(frames(&written), [frame], "a frame from the time when the device was down");
}

#[test]
fn frames_for_a_device_without_a_carrier_are_all_counted() {
    for mode in ["copy", "generic"] {
        let wire = Wire::new(&format!("{XDP_ALONE}\nmode = \"{mode}\""));
        let mut client = wire.daemon.attach("lan0:c").unwrap();
        wire.wire.ok("ip", &["link", "set", "w0", "down"]);
        let dropped = || wire.drops("nic")["receiver_down"].as_u64().unwrap_or(0);
        (0..1500).for_each(|_| send(&mut client, &UNKNOWN));
        // The last frames are counted by the next delivery.
        let mut sent = 1500;
        until("each frame is counted", || {
            send(&mut client, &UNKNOWN);
            sent += 1;
            dropped() + 1 >= sent
        });
        assert_eq!(wire.drops("nic")["receiver_full"], Value::Null, "{mode}");
    }
}

/// Makes the macvtap `m0` of `x0`, which always has the same number in its namespace. Returns its path, if the kernel has macvtaps.
pub(super) fn make_macvtap(nic: &Namespace) -> Option<String> {
    // Numbers of devices are unique in their namespace, and paths everywhere.
    let number = nic.name.rsplit('-').next().and_then(|number| number.parse::<u32>().ok()).expect("a number");
    let index = (10_000_000 + 64 * std::process::id() + number).to_string();
    let make = ["link", "add", "link", "x0", "name", "m0", "index", &index, "type", "macvtap", "mode", "passthru"];
    (nic.run("ip", &make).code == Some(0)).then(|| format!("/dev/tap{index}"))
}

#[test]
fn a_macvtap_is_a_port_by_its_path() {
    let (nic, wire) = (Namespace::new(), Namespace::new());
    join(&nic, &wire);
    let Some(path) = make_macvtap(&nic) else { skip!("the kernel has no macvtap") };
    let wire = Wire::of(nic, wire, "", &format!("device = \"{path}\"\n{PACKET}"));
    wire.vm.ping(200, &["-i", "0.002", "-s", "1400", "10.78.0.1"]);
    for more in [&[][..], &["-R"]] {
        assert!(stream(&wire, more) > 8_000_000, "{more:?}");
    }
    assert!(wire.nic.ok("ip", &["link", "show", "m0"]).contains("qlen 2000"), "the kernel's queue is long");
    wire.nic.ok("ip", &["link", "del", "m0"]);
    wire.daemon.until_state("nic", "failed");
    assert_eq!(make_macvtap(&wire.nic), Some(path));
    wire.daemon.until_state("nic", "up");
    wire.vm.ping(10, &["-i", "0.002", "10.78.0.1"]);
}

#[test]
fn a_path_that_is_no_macvtap_is_refused_with_what_to_do() {
    let daemon = Daemon::start("[switch.lan0]\n");
    let refused = |kind: &str, device: &str| {
        let said =
            daemon.ringway(&["port", "add", "p", "switch=lan0", &format!("kind={kind}"), &format!("device={device}")]);
        assert_ne!(said.code, Some(0), "{kind} {device}");
        said.err
    };
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("tap7");
    std::os::unix::fs::symlink("/dev/null", &link).unwrap();
    for (kind, device, why) in [
        ("packet", "/dev/null", "it is not a macvtap"),
        ("packet", "/dev/net/tun", "it is not a macvtap"),
        ("packet", "/dev/tap0/../null", "it is not a macvtap"),
        ("packet", "/dev/tap", "it is not a macvtap"),
        ("packet", link.to_str().unwrap(), "it is not a macvtap"),
        ("packet", "/dev/tap4294967295", "type macvtap mode passthru"),
        ("packet", "a/b", "is not a network device's name"),
        ("xdp", "/dev/null", "is not a network device's name"),
        ("tap", "/dev/null", "is not a network device's name"),
    ] {
        let said = refused(kind, device);
        assert!(said.contains(why), "{kind} {device}: {said}");
    }
}

/// Attaches an XDP program that passes everything on, and keeps it attached. Its argument is the number of the device.
const OTHER_PROGRAM: &str = r#"
import ctypes, os, signal, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def bpf(command, attributes):
    fd = libc.syscall(321 if os.uname().machine == "x86_64" else 280, command, attributes, len(attributes))
    assert fd >= 0, os.strerror(ctypes.get_errno())
    return fd
code = ctypes.create_string_buffer(bytes([0xb7, 0, 0, 0, 2, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0]))
licence = ctypes.create_string_buffer(b"GPL")
load = struct.pack("=IIQQIIQIIQQII", 6, 2, ctypes.addressof(code), ctypes.addressof(licence), 0, 0, 0, 0, 0, 0, 0, 0, 37)
link = bpf(28, struct.pack("=IIII", bpf(5, load), int(sys.argv[1]), 37, 4))
print("attached", flush=True)
signal.pause()
"#;

#[test]
fn what_keeps_an_xdp_port_from_its_device_is_said() {
    let (nic, wire) = (Namespace::new(), Namespace::new());
    join(&nic, &wire);
    let netns = format!("netns={}", nic.name);
    let refused = |daemon: &Daemon, kind: &str, why: &str| {
        let said = daemon.ringway(&["port", "add", "nic", "switch=lan0", kind, "device=x0", &netns]);
        assert!(said.code != Some(0) && said.err.contains(why), "{} {}", said.out, said.err);
    };
    let daemon = Daemon::start("[switch.lan0]\n");
    let index = nic.ok("cat", &["/sys/class/net/x0/ifindex"]);
    let other = nic.start("python3", &["-c", OTHER_PROGRAM, index.trim()], "attached");
    refused(&daemon, "kind=xdp", "it has another XDP program: end the program that attached it");
    drop(other);
    let unprivileged = Daemon::start_by(&["setpriv", "--bounding-set", "-net_raw"], "[switch.lan0]\n");
    refused(&unprivileged, "kind=xdp", "this user may not: AF_XDP needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF");
    refused(&unprivileged, "kind=packet", "this user may not: packet sockets need CAP_NET_RAW");
    let limited = ["prlimit", "--memlock=1048576", "setpriv", "--bounding-set", "-ipc_lock"];
    refused(&Daemon::start_by(&limited, "[switch.lan0]\n"), "kind=xdp", "RLIMIT_MEMLOCK is too small for its memory");
}

/// Sends back what it receives.
const ECHO: &str = r#"
import socket
server = socket.create_server(("10.78.0.3", 22))
print("listening", flush=True)
connection = server.accept()[0]
while data := connection.recv(100):
    connection.sendall(data)
"#;

/// Keeps one connection and notes in a file how many bytes were answered, until there is another file.
const KEEP: &str = r#"
import os, socket, sys
connection = socket.create_connection(("10.78.0.3", 22))
print("connected", flush=True)
answered = 0
while not os.path.exists(sys.argv[2]):
    connection.sendall(b"x")
    assert connection.recv(1) == b"x"
    answered += 1
    with open(sys.argv[1], "r+") as file:
        file.write(str(answered))
"#;

#[test]
fn a_connection_to_the_host_is_kept_while_ports_of_its_device_come_go_and_are_killed() {
    for kind in ["kind=xdp", "kind=packet"] {
        let (nic, wire) = (Namespace::new(), Namespace::new());
        join(&nic, &wire);
        nic.ok("ip", &["addr", "add", "10.78.0.3/24", "dev", "x0"]);
        let dir = tempfile::tempdir().unwrap();
        let [count, end] = ["count", "end"].map(|name| dir.path().join(name));
        std::fs::write(&count, "0").unwrap();
        let _server = nic.start("python3", &["-c", ECHO], "listening");
        let client = wire.start("python3", &["-c", KEEP, count.to_str().unwrap(), end.to_str().unwrap()], "connected");
        let goes_on = |when: &str| {
            let answered = || std::fs::read_to_string(&count).unwrap().parse::<u64>().unwrap_or(0);
            let before = answered();
            until(when, || answered() > before + 20);
        };
        goes_on("without a port");
        let netns = format!("netns={}", nic.name);
        for _ in 0..3 {
            let daemon = Daemon::start("[switch.lan0]\n");
            let add = ["port", "add", "nic", "switch=lan0", kind, "device=x0", &netns];
            until("the device is free", || daemon.ringway(&add).code == Some(0));
            goes_on("with a port");
            daemon.ok(&["port", "del", "nic"]);
            goes_on("after the port was removed");
            until("the device is free", || daemon.ringway(&add).code == Some(0));
            goes_on("with a port again");
            daemon.kill();
            goes_on("after the switch was killed");
        }
        std::fs::write(&end, "").unwrap();
        client.finish();
    }
}

#[test]
fn frames_that_the_kernel_has_joined_are_cut_for_a_client_or_counted_in_generic_mode() {
    let mut nic = Behind::new(&format!("{XDP_ALONE}\nmode = \"generic\""));
    let mut client = nic.daemon.attach("lan0:c").unwrap();
    nic.send([1, 1, 54, 0, 0x78, 5, 34, 0, 16, 0], &large(6));
    let lens = [(); 3].map(|()| receive(&mut client, PATIENCE).expect("a segment").len());
    assert_eq!(lens, [1514, 1514, 54 + 3980 - 2 * 1460]);
    nic.send([1, 5, 42, 0, 0x78, 5, 34, 0, 6, 0], &large(17));
    until("it is counted", || nic.daemon.port("nic")["drops"] == serde_json::json!({ "bad_offload": 1 }));
}

#[test]
fn a_group_frame_beyond_the_slots_of_an_xdp_port_is_counted_and_the_next_one_comes() {
    let mut nic = Behind::new(XDP);
    let mut client = nic.daemon.attach("lan0:c").unwrap();
    let mut frame = large(17);
    frame.resize(40_000, 0);
    let bytes = [frame.len() - 14, frame.len() - 34].map(|len| (len as u16).to_be_bytes());
    frame[16..18].copy_from_slice(&bytes[0]);
    frame[38..40].copy_from_slice(&bytes[1]);
    nic.send([1, 5, 42, 0, 0x78, 5, 34, 0, 6, 0], &frame);
    until("it is counted", || nic.daemon.port("nic")["drops"] == serde_json::json!({ "oversize": 1 }));
    nic.send([0; 10], &UNKNOWN);
    assert_eq!(receive(&mut client, PATIENCE).as_deref(), Some(&UNKNOWN[..]));
}
