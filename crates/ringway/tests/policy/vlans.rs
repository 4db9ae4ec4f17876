//! VLANs, with the stacks of network namespaces on both sides of a trunk. The test is the other end of the trunk: it
//! removes and adds the tags itself. (`guests/vlans.rs` tests a guest's own VLAN devices.)

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringway_client::{Gso, Offload, Port, Shape};
use ringway_scenes::namespace::Namespace;
use ringway_scenes::{Daemon, receive, send, until};
use serde_json::Value;

/// VLANs of the trunk. The last one is its native VLAN, which is the port's default.
const VLANS: [u16; 3] = [10, 20, 1];

/// The switch `lan0` with a trunk and an untagged port in each VLAN, and a further switch for each VLAN, `far10` and so
/// on. The test joins these switches to the trunk. Hosts have the address 10.`v`.0.1 on the far switch and 10.`v`.0.2
/// on `lan0`.
struct Campus {
    daemon: Daemon,
    near: Vec<Namespace>,
    far: Vec<Namespace>,
    ends: Mutex<Ends>,
}

/// The test's ends of the trunk, and of the far switches.
struct Ends {
    trunk: Port,
    far: Vec<Port>,
    /// Number of frames that the trunk sent, by VLAN.
    out: [u64; VLANS.len()],
    /// Length of the longest of these frames in bytes.
    longest: usize,
}

impl Campus {
    fn new() -> Self {
        let spaces = || VLANS.map(|_| Namespace::new()).into_iter().collect::<Vec<_>>();
        let (near, far) = (spaces(), spaces());
        let mut config =
            "[switch.lan0]\n[port.trunk]\nswitch = \"lan0\"\nkind = \"process\"\ntrunk = [10, \"20-29\"]\n\
                          native = 1\n"
                .to_owned();
        for (at, vlan) in VLANS.iter().enumerate() {
            let tap = |name: &str, switch: &str, space: &Namespace, keys: &str| {
                let netns = &space.name;
                format!("[port.{name}{vlan}]\nswitch = \"{switch}\"\nkind = \"tap\"\nnetns = \"{netns}\"\n{keys}\n")
            };
            let keys = if *vlan == 1 { String::new() } else { format!("vlan = {vlan}") };
            config += &tap("near", "lan0", &near[at], &keys);
            config += &format!("[switch.far{vlan}]\n{}", tap("far", &format!("far{vlan}"), &far[at], ""));
        }
        let daemon = Daemon::start(&config);
        for (at, vlan) in VLANS.iter().enumerate() {
            near[at].ok("ip", &["addr", "add", &format!("10.{vlan}.0.2/24"), "dev", &format!("near{vlan}")]);
            far[at].ok("ip", &["addr", "add", &format!("10.{vlan}.0.1/24"), "dev", &format!("far{vlan}")]);
        }
        let attach = |name: &str| {
            let shape = Shape { offload: true, ..Shape::default() };
            Port::attach(daemon.runtime_dir().join("attach.sock"), name, shape).unwrap()
        };
        let far_ends = VLANS.map(|vlan| attach(&format!("far{vlan}:end"))).into_iter().collect();
        let ends = Ends { trunk: attach("lan0:trunk"), far: far_ends, out: [0; VLANS.len()], longest: 0 };
        Self { daemon, near, far, ends: Mutex::new(ends) }
    }

    /// Runs `work` while frames are carried between the trunk and the far switches.
    fn joined<T>(&self, work: impl FnOnce() -> T) -> T {
        let (stop, ends) = (AtomicBool::new(false), &self.ends);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut ends = ends.lock().unwrap();
                while !stop.load(Ordering::Relaxed) {
                    if ends.carry() == 0 {
                        ends.trunk.wait_rx(Duration::from_millis(1)).unwrap();
                    }
                }
            });
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            stop.store(true, Ordering::Relaxed);
            done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// Returns the offload for a frame whose headers are moved by `by` bytes. (`hdr_len` is only a hint, so it stays.)
fn moved(offload: Option<Offload>, by: i16) -> Option<Offload> {
    offload.map(|o| Offload { csum_start: o.csum_start.checked_add_signed(by).unwrap(), ..o })
}

impl Ends {
    /// Carries all available frames, both ways. Returns their number.
    fn carry(&mut self) -> usize {
        let Self { trunk, far, out, longest } = self;
        let mut count = trunk.rx().drain_offloaded(256, |frame, offload| {
            let tag = (frame[12..14] == [0x81, 0]).then(|| u16::from_be_bytes([frame[14], frame[15]]));
            let at = VLANS.iter().position(|vlan| *vlan == tag.unwrap_or(1)).expect("a VLAN of the trunk's");
            assert_ne!(tag, Some(1), "frames of the native VLAN have no tag");
            (out[at], *longest) = (out[at] + 1, (*longest).max(frame.len()));
            let plain = [&frame[..12], &frame[if tag.is_some() { 16 } else { 12 }..]].concat();
            let left = if tag.is_some() { moved(offload, -4) } else { offload };
            // The checksum must begin at the TCP header, behind IPv4.
            if let Some(left) = left.filter(|left| left.gso == Gso::Tcp4) {
                assert_eq!((left.csum_start, left.csum_offset), (34, 16));
            }
            far[at].tx().push_offloaded(&plain, left.as_ref());
        });
        for (end, vlan) in far.iter_mut().zip(VLANS) {
            count += end.rx().drain_offloaded(256, |frame, offload| {
                if vlan == 1 {
                    trunk.tx().push_offloaded(frame, offload.as_ref());
                    return;
                }
                let tagged = [&frame[..12], &[0x81, 0], &vlan.to_be_bytes(), &frame[12..]].concat();
                trunk.tx().push_offloaded(&tagged, moved(offload, 4).as_ref());
            });
            end.flush();
        }
        trunk.flush();
        count
    }
}

fn pings(from: &Namespace, to: &str) -> bool {
    from.run("ping", &["-q", "-c", "3", "-i", "0.01", "-W", "2", to]).code == Some(0)
}

#[test]
fn stacks_on_both_sides_of_a_trunk_reach_those_of_their_vlan_and_no_others() {
    let campus = Campus::new();
    campus.joined(|| {
        for (at, vlan) in VLANS.iter().enumerate() {
            until(&format!("VLAN {vlan} is joined"), || pings(&campus.near[at], &format!("10.{vlan}.0.1")));
        }
        // One IP network in two VLANs.
        for (space, vlan) in campus.near.iter().zip(VLANS) {
            space.ok("ip", &["addr", "add", &format!("10.99.0.{vlan}/24"), "dev", &format!("near{vlan}")]);
        }
        assert!(!pings(&campus.near[0], "10.99.0.20"), "another VLAN");
    });
    assert!(campus.ends.lock().unwrap().out.iter().all(|frames| *frames >= 3));
    let fdb: Value = serde_json::from_str(&campus.daemon.ok(&["fdb", "lan0", "--json"])).unwrap();
    let entries = fdb.as_array().unwrap().iter();
    let mut vlans: Vec<_> = entries.map(|e| (e["vlan"].as_u64().unwrap(), e["port"].as_str().unwrap())).collect();
    vlans.sort_unstable();
    let wanted = [(1, "near1"), (1, "trunk"), (10, "near10"), (10, "trunk"), (20, "near20"), (20, "trunk")];
    assert_eq!(vlans, wanted);
}

#[test]
fn a_port_changes_its_broadcast_domain_while_frames_flow() {
    let campus = Campus::new();
    campus.joined(|| {
        let pinging = campus.near[0].start_ping(400, &["-i", "0.005", "10.10.0.1"]);
        for (space, vlan) in campus.near.iter().zip(VLANS) {
            space.ok("ip", &["addr", "add", &format!("10.99.0.{vlan}/24"), "dev", &format!("near{vlan}")]);
        }
        for _ in 0..2 {
            // The pings do not come from the namespace whose answers are counted.
            assert!(!pings(&campus.near[1], "10.99.0.10"));
            campus.daemon.ok(&["port", "set", "near20", "vlan=10"]);
            // A stack sends ARP requests again after its failed neighbour entry has expired.
            until("both ports are in VLAN 10", || pings(&campus.near[1], "10.99.0.10"));
            assert!(!pings(&campus.near[1], "10.20.0.1"), "the port is no longer in VLAN 20");
            campus.daemon.ok(&["port", "set", "near20", "vlan=20"]);
            until("the port is back in VLAN 20", || pings(&campus.near[1], "10.20.0.1"));
        }
        pinging.finish();
    });
    // Without VLANs, all ports reach each other.
    for port in ["near10", "near20", "trunk"] {
        // Either key ends what the other one began.
        campus.daemon.ok(&["port", "set", port, if port == "trunk" { "trunk=none" } else { "vlan=none" }]);
    }
    until("the ports reach each other", || pings(&campus.near[0], "10.99.0.20"));
    assert_eq!(campus.daemon.port("near10")["identity"]["vlan"], Value::Null);
}

#[test]
fn segments_and_checksums_left_to_the_receiver_cross_a_trunk() {
    let campus = Campus::new();
    let stream = |from: &Namespace, to: &Namespace, address: &str| {
        let server = to.start("iperf3", &["-s", "-1", "--forceflush"], "Server listening");
        let said = from.ok("iperf3", &["-c", address, "-n", "64M", "-J"]);
        server.finish();
        let report: Value = serde_json::from_str(&said).unwrap();
        report["end"]["sum_received"]["bytes"].as_u64().unwrap()
    };
    let traffic = |port: &str| {
        let out = campus.daemon.port(port)["out"].clone();
        (out["frames"].as_u64().unwrap(), out["bytes"].as_u64().unwrap())
    };
    let (near, far) = (&campus.near[0], &campus.far[0]);
    for (from, to, address, receiver) in [(near, far, "10.10.0.1", "far10"), (far, near, "10.10.0.2", "near10")] {
        let before = traffic(receiver);
        let bytes = campus.joined(|| stream(from, to, address));
        assert!(bytes > 32_000_000, "{bytes} bytes of 64 MiB to {receiver}");
        let after = traffic(receiver);
        let (frames, bytes) = (after.0 - before.0, after.1 - before.1);
        assert!(bytes / frames > 1514, "to {receiver}: {bytes} bytes in {frames} frames");
        assert_eq!(to.snmp("Tcp", "InCsumErrors"), 0, "the kernel found wrong checksums");
    }
    assert!(campus.ends.lock().unwrap().longest > 1518, "no uncut segment on the trunk");
    for port in ["trunk", "near10"] {
        let drops = campus.daemon.port(port)["drops"].clone();
        assert!(drops.get("receiver_down").is_none() && drops.get("bad_offload").is_none(), "{port}: {drops}");
    }
}

#[test]
fn a_priority_outlives_the_switch_and_the_settings_of_ports_are_those_of_the_file() {
    let daemon = Daemon::start(
        "[switch.lan0]\n[port.a]\nswitch = \"lan0\"\nkind = \"process\"\nvlan = 7\n\
         [port.b]\nswitch = \"lan0\"\nkind = \"process\"\ntrunk = \"all\"\n",
    );
    let (mut a, mut b) = (daemon.attach("lan0:a").unwrap(), daemon.attach("lan0:b").unwrap());
    let frame = |tag: &[u8]| [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1], tag, &[0x88, 0xb5], &[9; 46]].concat();
    send(&mut a, &frame(&[0x81, 0, 0xa0, 0]));
    assert_eq!(receive(&mut b, ringway_scenes::PATIENCE), Some(frame(&[0x81, 0, 0xa0, 7])));
    send(&mut b, &frame(&[0x81, 0, 0xe0, 7]));
    assert_eq!(receive(&mut a, ringway_scenes::PATIENCE), Some(frame(&[])));
    daemon.ok(&["port", "set", "b", "trunk=7,20-29", "native=7"]);
    let identity = daemon.port("b")["identity"].clone();
    assert_eq!((&identity["trunk"], &identity["native"]), (&serde_json::json!(["7", "20-29"]), &7.into()));
    send(&mut a, &frame(&[]));
    assert_eq!(receive(&mut b, ringway_scenes::PATIENCE), Some(frame(&[])));
    for (wrong, what) in [
        ("vlan=0", "0 is not a VLAN; write 1 to 4094"),
        ("vlan=4095", "4095 is not a VLAN"),
        ("trunk=9-7", "are not VLANs; write them like 10"),
        ("native=x", "expected a VLAN, 1 to 4094, or \"none\""),
    ] {
        let said = daemon.ringway(&["port", "set", "b", wrong]);
        assert!(said.code == Some(2) && said.err.contains(what), "{wrong}: {}", said.err);
    }
    let said = daemon.ringway(&["port", "set", "a", "native=1"]);
    assert!(said.code == Some(2) && said.err.contains("only a trunk has a native VLAN"), "{}", said.err);
}

fn tagged(vlan: u8, frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0, vlan], &frame[12..]].concat()
}

#[test]
fn a_tag_that_a_port_may_not_send_takes_a_frame_nowhere_and_has_a_name() {
    let ports = [("office", "vlan = 7"), ("guest", "vlan = 20"), ("desk", "vlan = 7"), ("trunk", "trunk = [7, 20]")];
    let config = ports.map(|(name, keys)| format!("[port.{name}]\nswitch = \"lan0\"\nkind = \"process\"\n{keys}\n"));
    let daemon = Daemon::start(&format!("[switch.lan0]\n{}", config.concat()));
    let mut clients = ports.map(|(name, _)| daemon.attach(&format!("lan0:{name}")).unwrap());
    let to_all = |from: usize| ringway_scenes::frame([0xff; 6], [2, 0, 0, 0, 0, from as u8], 0).to_vec();
    // The sender, the tags from the innermost on, the receivers with the VLAN's tag if they get one, and the drop
    // reason with its count. A frame with two tags can be counted once for each possible receiver.
    let (office, guest, desk, trunk) = (0, 1, 2, 3);
    type Heard = [(usize, Option<u8>)];
    type Reason = Option<(&'static str, u64)>;
    let cases: &[(usize, &[u8], &Heard, Reason)] = &[
        (office, &[], &[(desk, None), (trunk, Some(7))], None),
        (office, &[20], &[], Some(("vlan_denied", 1))),
        (office, &[20, 7], &[], Some(("vlan_stacked", 1))),
        (guest, &[], &[(trunk, Some(20))], None),
        (guest, &[7], &[], Some(("vlan_denied", 1))),
        (trunk, &[20], &[(guest, None)], None),
        (trunk, &[7], &[(office, None), (desk, None)], None),
        (trunk, &[30], &[], Some(("vlan_denied", 1))),
        (trunk, &[], &[], Some(("vlan_denied", 1))),
        (trunk, &[20, 7], &[], Some(("vlan_stacked", 2))),
    ];
    for (from, tags, wanted, reason) in cases {
        let port = || daemon.port(ports[*from].0);
        let dropped = |reason: &str| port()["drops"][reason].as_u64().unwrap_or(0);
        let (plain, counted) = (to_all(*from), reason.map(|(reason, _)| dropped(reason)));
        let taken = port()["in"]["frames"].as_u64();
        send(&mut clients[*from], &tags.iter().fold(plain.clone(), |frame, vlan| tagged(*vlan, &frame)));
        // When a second frame, sent after the first was taken, was taken too, the first one has been delivered.
        until("the frame is taken", || port()["in"]["frames"].as_u64() == taken.map(|taken| taken + 1));
        let own = [2, 0, 0, 0, 0, *from as u8];
        let mark = ringway_scenes::frame(own, own, 1);
        send(&mut clients[*from], &if *from == trunk { tagged(7, &mark) } else { mark.to_vec() });
        until("both frames are taken", || port()["in"]["frames"].as_u64() == taken.map(|taken| taken + 2));
        let mut heard = Vec::new();
        for (at, client) in clients.iter_mut().enumerate() {
            client.rx().drain(16, |frame| heard.push((at, frame.to_vec())));
        }
        let wanted = wanted.iter().map(|(at, tag)| (*at, tag.map_or(plain.clone(), |vlan| tagged(vlan, &plain))));
        assert_eq!(heard, wanted.collect::<Vec<_>>(), "tags {tags:?} from {}", ports[*from].0);
        let now = reason.map(|(reason, times)| dropped(reason) - times);
        assert_eq!(now, counted, "{reason:?}: {}", port()["drops"]);
    }
}
