//! Policy at network devices as ports, by AF_XDP and by a packet socket, and a hostile wire. The device is one end of a veth pair;
//! `w0`, the other end, is the wire.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringway_client::{Port, Shape};
use ringway_scenes::namespace::{Namespace, frames as frames_of};
use ringway_scenes::{Daemon, PATIENCE, receive, ringway, send, settle, until};
use ringway_testing::child::Ended;
use ringway_testing::frame::{BROADCAST, short, station};
use ringway_traffic::pcap::Recorder;
use serde_json::{Value, json};

/// The kinds of ports, with all frames of the device for the switch.
const KINDS: [&str; 2] = ["kind = \"xdp\"\nhost = false\n", "kind = \"packet\"\n"];
/// A station of the wire, and one behind a process port.
const FAR: [u8; 6] = [2, 0, 0, 0, 0, 1];
const NEAR: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// A switch `lan0` with the port `nic`.
struct Scene {
    // Dropped first, so that the port goes before its device.
    daemon: Daemon,
    _nic: Namespace,
    wire: Namespace,
    dir: tempfile::TempDir,
}

impl Scene {
    /// `keys` are those of the port, `others` are other sections, after that of the switch.
    fn new(keys: &str, others: &str) -> Self {
        let (nic, wire) = (Namespace::new(), Namespace::new());
        nic.ok("ip", &["link", "add", "x0", "type", "veth", "peer", "name", "w0", "netns", &wire.name]);
        wire.ok("ip", &["link", "set", "w0", "up"]);
        nic.ok("ip", &["link", "set", "x0", "up"]);
        let config = format!(
            "[switch.lan0]\n{others}[port.nic]\nswitch = \"lan0\"\nnetns = \"{}\"\ndevice = \"x0\"\n{keys}",
            nic.name
        );
        Self { daemon: Daemon::start(&config), _nic: nic, wire, dir: tempfile::tempdir().unwrap() }
    }

    fn count(&self, port: &str, direction: &str) -> u64 {
        self.daemon.port(port)[direction]["frames"].as_u64().unwrap()
    }

    fn drops(&self, port: &str, reason: &str) -> u64 {
        self.daemon.port(port)["drops"][reason].as_u64().unwrap_or(0)
    }

    /// Sends frames from the wire as fast as can be, and waits until the port has taken or lost each.
    fn replay(&self, frames: impl IntoIterator<Item = impl AsRef<[u8]>>) {
        let file = self.dir.path().join("sample.pcap");
        let mut recorder = Recorder::create(&file, 65_536).unwrap();
        let mut count = 0;
        for frame in frames {
            recorder.write(Duration::ZERO, frame.as_ref()).unwrap();
            count += 1;
        }
        recorder.flush().unwrap();
        let came = || self.count("nic", "in") + self.drops("nic", "device_overrun");
        let before = came();
        self.wire.ok("tcpreplay", &["--topspeed", "--preload-pcap", "-i", "w0", file.to_str().unwrap()]);
        until("each frame came or was lost by name", || came() >= before + count);
        assert_eq!(came(), before + count);
    }

    /// Attaches to a port with room for many frames.
    fn attach(&self, name: &str) -> Port {
        let shape = Shape { rx_slots: 4096, ..Shape::default() };
        Port::attach(self.daemon.runtime_dir().join("attach.sock"), name, shape).unwrap()
    }

    /// Has the switch learn FAR at the port, and NEAR at this client.
    fn introduce(&self, client: &mut Port) {
        self.replay([short(BROADCAST, FAR, 0)]);
        assert!(receive(client, PATIENCE).is_some());
        let before = self.count("nic", "out");
        send(client, &short(FAR, NEAR, 0));
        until("the answer is sent", || self.count("nic", "out") == before + 1);
    }
}

/// Takes what has come.
fn drain(client: &mut Port, into: &mut Vec<Vec<u8>>) {
    while client.rx().drain(256, |frame| into.push(frame.to_vec())) > 0 {}
}

#[test]
fn the_guard_drops_frames_of_the_wire_that_claim_an_address_of_another_station() {
    let arp = |address: u8| {
        let head = [&BROADCAST[..], &FAR, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &FAR, &[10, 78, 0, address]].concat();
        [head, vec![0; 18]].concat()
    };
    let ip = |address: u8, ports: [u8; 4]| {
        let head = [8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 78, 0, address, 10, 78, 0, 2];
        [&BROADCAST[..], &FAR, &head, &ports, &[0, 8, 0, 0]].concat()
    };
    let tagged = |frame: Vec<u8>| [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat();
    let permitted = [arp(1), ip(1, [0, 9, 0, 9]), tagged(arp(1)), tagged(ip(1, [0, 9, 0, 9]))];
    let forbidden = [
        short(BROADCAST, NEAR, 0).to_vec(),
        arp(9),
        ip(9, [0, 9, 0, 9]),
        ip(1, [0, 67, 0, 68]),
        tagged(short(BROADCAST, NEAR, 0).to_vec()),
        tagged(arp(9)),
        tagged(ip(9, [0, 9, 0, 9])),
    ];
    for kind in KINDS {
        let scene =
            Scene::new(&format!("{kind}mac = \"02:00:00:00:00:01\"\nip = \"10.78.0.1\"\nguard = \"all\"\n"), "");
        let mut client = scene.attach("lan0:c");
        scene.replay(forbidden.iter().chain(&permitted));
        for frame in &permitted {
            assert_eq!(receive(&mut client, PATIENCE).as_ref(), Some(frame), "{kind}");
        }
        let drops = json!({ "spoofed_mac": 2, "spoofed_arp": 2, "spoofed_ip": 2, "dhcp_server": 1 });
        assert_eq!(scene.daemon.port("nic")["drops"], drops, "{kind}");
    }
}

/// Frames of all stations of VLANs: with up to three tags of several types, and runts that end within a tag.
fn forms() -> Vec<Vec<u8>> {
    let types: [&[u8]; 3] = [&[0x81, 0], &[0x88, 0xa8], &[0x91, 0]];
    let vlans: [[u8; 2]; 6] = [[0, 0], [0, 1], [0xe0, 7], [0x10, 20], [0, 30], [0x0f, 0xff]];
    let mut tags = vec![vec![]];
    for outer in types {
        tags.extend(vlans.map(|vlan| [outer, &vlan].concat()));
        for inner in types {
            let both = vlans.iter().flat_map(|vlan| vlans.map(|other| [outer, vlan, inner, &other].concat()));
            tags.extend(both.step_by(5));
        }
    }
    tags.push([[0x81, 0, 0, 7]; 3].concat());
    let source = |at: usize| station(at as u32 + 10);
    let mut frames = Vec::new();
    for tags in tags {
        let mut frame = [&BROADCAST[..], &source(frames.len()), &tags, &[0x88, 0xb5]].concat();
        frame.resize(64, frames.len() as u8);
        frames.push(frame);
    }
    for kind in [&[0x88, 0xb5, 1, 2, 3, 4, 5, 6], &[0x81, 0, 0, 7, 0x88, 0xb5, 1, 2], &[8, 0, 0x45, 0, 0, 2, 0, 0]] {
        for len in 2..=8 {
            frames.push([&BROADCAST[..], &source(frames.len()), &kind[..len]].concat());
        }
    }
    frames
}

/// Whether packet sockets see this frame. The kernel drops a frame that ends less than four bytes behind its tag, and counts it nowhere.
fn is_whole(frame: &[u8]) -> bool {
    frame.len() >= 20 || frame[12..14] != [0x81, 0]
}

#[test]
fn frames_of_the_wire_with_tags_of_all_forms_and_runts_fare_as_those_of_a_process_port() {
    const STATIONS: [(&str, &str); 4] =
        [("plain", ""), ("seven", "vlan = 7\n"), ("twenty", "vlan = 20\n"), ("trunk", "trunk = \"all\"\n")];
    for kind in KINDS {
        for keys in ["vlan = 7\n", "trunk = [7, 20]\nnative = 1\n"] {
            let mut others = format!("[switch.lan1]\n[port.model]\nswitch = \"lan1\"\nkind = \"process\"\n{keys}");
            for (name, keys) in STATIONS {
                for (switch, letter) in [("lan0", ""), ("lan1", "m")] {
                    others += &format!("[port.{letter}{name}]\nswitch = \"{switch}\"\nkind = \"process\"\n{keys}");
                }
            }
            let scene = Scene::new(&format!("{kind}{keys}"), &others);
            let attach = |switch: &str, letter: &str| {
                STATIONS.map(|(name, _)| (format!("{letter}{name}"), scene.attach(&format!("{switch}:{letter}{name}"))))
            };
            let (mut ends, mut model_ends) = (attach("lan0", ""), attach("lan1", "m"));
            let mut model = scene.attach("lan1:model");
            let is_taken = |frame: &Vec<u8>| kind.contains("xdp") || is_whole(frame);
            let frames: Vec<_> = forms().into_iter().filter(is_taken).collect();
            frames.iter().for_each(|frame| send(&mut model, frame));
            settle(&scene.daemon, "model", &mut model, frames.len() as u64);
            scene.replay(&frames);
            for ((name, end), (_, model_end)) in ends.iter_mut().zip(&mut model_ends) {
                let (mut got, mut wanted) = (Vec::new(), Vec::new());
                drain(model_end, &mut wanted);
                until("the frames come", || {
                    drain(end, &mut got);
                    got.len() >= wanted.len()
                });
                assert!(got == wanted, "{kind}{keys}: {name}: {} of {} frames", got.len(), wanted.len());
            }
            let drops = || {
                let mut drops = ["nic", "model"].map(|port| scene.daemon.port(port)["drops"].clone());
                // That of `settle`.
                let runts = drops[1]["runt"].as_u64().unwrap();
                drops[1]["runt"] = (runts - 1).into();
                drops.map(|drops| nonzero(&drops))
            };
            until("as many are dropped", || drops()[0] == drops()[1]);
            assert!(drops()[0].contains_key("vlan_denied") && drops()[0].contains_key("vlan_stacked"), "{:?}", drops());
            to_the_wire(&scene, &mut ends, &mut model_ends, &mut model);
        }
    }
}

fn nonzero(drops: &Value) -> BTreeMap<String, u64> {
    let counts = drops.as_object().unwrap().iter().map(|(name, count)| (name.clone(), count.as_u64().unwrap()));
    counts.filter(|(_, count)| *count > 0).collect()
}

/// Sends frames from all stations, and compares what the wire and the model get.
fn to_the_wire(scene: &Scene, ends: &mut [(String, Port)], model_ends: &mut [(String, Port)], model: &mut Port) {
    // The kernel of the wire shows no program a frame that is not whole, also if the switch has added the tag.
    let frames: Vec<_> = forms().into_iter().filter(|frame| frame.len() >= 20).collect();
    let send_all = |ends: &mut [(String, Port)]| {
        for (name, end) in ends {
            frames.iter().for_each(|frame| send(end, frame));
            settle(&scene.daemon, name, end, frames.len() as u64);
        }
    };
    send_all(model_ends);
    let mut wanted = Vec::new();
    drain(model, &mut wanted);
    let (count, written) = (wanted.len().to_string(), scene.dir.path().join("written.pcap"));
    let filter = "ether[6:4] == 0x02000000";
    let args = ["-Z", "root", "-n", "-i", "w0", "-c", &count, "-w", written.to_str().unwrap(), filter];
    let capture = scene.wire.start("tcpdump", &args, "listening on");
    send_all(ends);
    until("as many are sent", || scene.count("nic", "out") == wanted.len() as u64);
    capture.finish();
    assert!(frames_of(&written) == wanted, "the wire got other frames");
}

/// Frames that pass a limit at once, and frames that are sent. A limit lets ten more pass in a second.
const BURST: u64 = 100;
const SENT: u64 = 2000;

#[test]
fn each_frame_of_the_wire_beyond_the_ingress_limit_is_dropped_by_name() {
    for kind in KINDS {
        let scene = Scene::new(&format!("{kind}ingress = {{ frames = \"10pps\", frames_burst = {BURST} }}\n"), "");
        let mut client = scene.attach("lan0:c");
        scene.replay((0..SENT).map(|_| short(BROADCAST, FAR, 0)));
        let lost = || ["rate_limited", "device_overrun"].map(|reason| scene.drops("nic", reason));
        let mut got = Vec::new();
        until("each frame is counted", || {
            drain(&mut client, &mut got);
            got.len() as u64 + lost().iter().sum::<u64>() >= SENT
        });
        let counts = (got.len() as u64, lost());
        assert_eq!(counts.0 + counts.1.iter().sum::<u64>(), SENT, "{kind} {counts:?}");
        assert!(counts.0 >= BURST && counts.1[0] > 0, "{kind} {counts:?}");
    }
}

#[test]
fn each_frame_for_the_wire_beyond_the_egress_limit_is_dropped_by_name() {
    for kind in KINDS {
        // Frames have 60 bytes.
        let keys =
            format!("{kind}egress = {{ rate = \"8kbit\", burst = \"{}B\", on_excess = \"drop\" }}\n", 60 * (BURST + 1));
        let scene = Scene::new(&keys, "");
        let mut client = scene.attach("lan0:c");
        scene.introduce(&mut client);
        let arrived = || {
            let count = scene.wire.ok("cat", &["/sys/class/net/w0/statistics/rx_packets"]);
            count.trim().parse::<u64>().unwrap()
        };
        let (before, sent_before) = (arrived(), scene.count("nic", "out"));
        (0..SENT).for_each(|_| send(&mut client, &short(FAR, NEAR, 0)));
        let lost = || ["egress_limited", "receiver_full"].map(|reason| scene.drops("nic", reason));
        let sent = || scene.count("nic", "out") - sent_before;
        until("each frame is counted", || sent() + lost().iter().sum::<u64>() >= SENT);
        let counts = (sent(), lost());
        assert_eq!(counts.0 + counts.1.iter().sum::<u64>(), SENT, "{kind} {counts:?}");
        assert!(counts.0 >= BURST && counts.1[0] > 0, "{kind} {counts:?}");
        until("what was sent arrives", || arrived() - before == counts.0);
    }
}

#[test]
fn a_storm_of_the_wire_is_cut_by_name_and_leaves_its_unicast_frames() {
    for kind in KINDS {
        let keys = format!("{kind}storm = {{ broadcast = \"10pps\", frames_burst = {BURST} }}\n");
        let scene = Scene::new(&keys, "");
        let mut client = scene.attach("lan0:c");
        scene.introduce(&mut client);
        let frame = |number: u64| short(if number % 20 == 19 { NEAR } else { BROADCAST }, FAR, 0);
        let mut pair = Pair::attach(&scene);
        pair.exchange_while(|| scene.replay((0..20 * SENT).map(frame)));
        let lost = || scene.drops("nic", "storm_limited");
        let mut got = Vec::new();
        until("each frame is counted", || {
            drain(&mut client, &mut got);
            got.iter().filter(|frame| frame[6..12] == FAR).count() as u64
                + lost()
                + scene.drops("nic", "device_overrun")
                >= 20 * SENT
        });
        let unicast = got.iter().filter(|frame| frame[..6] == NEAR).count() as u64;
        assert!(unicast + scene.drops("nic", "device_overrun") >= SENT, "{kind} {unicast}");
        assert!(lost() > 0, "{kind}");
    }
}

/// Two clients of the switch that have nothing to do with the wire.
struct Pair {
    from: Port,
    to: Port,
    sent: u32,
}

/// Their addresses.
const PAIR: [[u8; 6]; 2] = [[2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2]];

impl Pair {
    fn attach(scene: &Scene) -> Self {
        let (mut from, mut to) = (scene.attach("lan0:from"), scene.attach("lan0:to"));
        send(&mut to, &short(BROADCAST, PAIR[1], 0));
        assert!(receive(&mut from, PATIENCE).is_some());
        send(&mut from, &short(PAIR[1], PAIR[0], 0));
        assert!(receive(&mut to, PATIENCE).is_some());
        Self { from, to, sent: 0 }
    }

    /// Sends some frames and receives each, in their order.
    fn exchange(&mut self) {
        let first = self.sent;
        self.sent += 32;
        for number in first..self.sent {
            let mut frame = short(PAIR[1], PAIR[0], 0);
            frame[14..18].copy_from_slice(&number.to_be_bytes());
            send(&mut self.from, &frame);
        }
        let mut next = first;
        while next < self.sent {
            let frame = receive(&mut self.to, PATIENCE).expect("a frame of the pair was lost");
            if frame[6..12] == PAIR[0] {
                assert_eq!(frame[14..18], next.to_be_bytes(), "a frame of the pair was lost");
                next += 1;
            }
        }
    }

    /// Exchanges frames while something else happens.
    fn exchange_while(&mut self, work: impl FnOnce()) {
        struct Stop<'s>(&'s AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    self.exchange();
                }
                self.exchange();
            });
            let _stop = Stop(&is_over);
            work();
        });
    }
}

#[test]
fn very_many_stations_of_the_wire_fill_no_more_than_a_ports_share_of_the_table_and_cost_others_nothing() {
    const STATIONS: u32 = 200_000;
    for kind in KINDS {
        let scene = Scene::new(kind, "");
        let mut sink = scene.attach("lan0:sink");
        scene.introduce(&mut sink);
        let mut pair = Pair::attach(&scene);
        let before = scene.count("sink", "out");
        pair.exchange_while(|| scene.replay((0..STATIONS).map(|number| short(NEAR, station(0x0100_0000 + number), 0))));
        let lost = || scene.drops("sink", "receiver_full") + scene.drops("nic", "device_overrun");
        let came = || scene.count("sink", "out") - before + lost();
        until("each frame is counted", || came() >= STATIONS.into());
        assert_eq!(came(), u64::from(STATIONS), "{kind}");
        let table: Value = serde_json::from_str(&scene.daemon.ok(&["fdb", "lan0", "--json"])).unwrap();
        let known = |port: &str| table.as_array().unwrap().iter().filter(|entry| entry["port"] == port).count();
        assert!((2000..=4096).contains(&known("nic")), "{kind} {}", known("nic"));
        assert_eq!(["sink", "from", "to"].map(known), [1; 3], "{kind}");
        for port in ["from", "to"] {
            assert_eq!(nonzero(&scene.daemon.port(port)["drops"]), BTreeMap::new(), "{kind} {port}");
        }
    }
}

/// Starts `ringway capture` of the port and waits until frames are captured. Returns the command and its file.
fn capture(scene: &Scene, direction: &str, count: u64) -> (Ended, PathBuf) {
    let file = scene.dir.path().join(format!("{direction}.pcapng"));
    let mut command = ringway();
    command.arg("--runtime-dir").arg(scene.daemon.runtime_dir()).args(["capture", "nic", "--direction", direction]);
    command.args(["-c", &count.to_string(), "-w"]).arg(&file);
    let mut child = Ended(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("capturing"), "{line}");
    (child, file)
}

#[test]
fn a_capture_has_the_frames_from_the_wire_and_those_to_it() {
    for kind in KINDS {
        let scene = Scene::new(kind, "");
        let mut client = scene.attach("lan0:c");
        scene.introduce(&mut client);
        let from: Vec<_> = (0..50).map(|number| short(NEAR, FAR, number)).collect();
        let to: Vec<_> = (0..50).map(|number| short(FAR, NEAR, number)).collect();
        let captures = [("in", 50), ("out", 50), ("both", 100)].map(|(way, count)| capture(&scene, way, count));
        scene.replay(&from);
        to.iter().for_each(|frame| send(&mut client, frame));
        let [incoming, outgoing, both] = captures.map(|(mut child, file)| {
            assert!(child.wait().unwrap().success());
            frames_of(&file)
        });
        assert!(incoming == from && outgoing == to, "{kind}");
        assert!(both.iter().filter(|frame| frame[6..12] == FAR).eq(&incoming), "{kind}");
    }
}

#[test]
fn the_wire_reaches_no_isolated_port_of_its_kind_and_is_an_uplink_of_a_map_switch() {
    for kind in KINDS {
        let others = "[port.hidden]\nswitch = \"lan0\"\nkind = \"process\"\nisolated = true\n";
        let scene = Scene::new(&format!("{kind}isolated = true\n"), others);
        let (mut hidden, mut open) = (scene.attach("lan0:hidden"), scene.attach("lan0:open"));
        scene.replay([short(BROADCAST, FAR, 1)]);
        assert_eq!(receive(&mut open, PATIENCE), Some(short(BROADCAST, FAR, 1).to_vec()), "{kind}");
        scene.daemon.ok(&["port", "set", "nic", "isolated=false"]);
        scene.replay([short(BROADCAST, FAR, 2)]);
        assert_eq!(receive(&mut hidden, PATIENCE), Some(short(BROADCAST, FAR, 2).to_vec()), "{kind}");

        let near = "[port.near]\nswitch = \"lan0\"\nkind = \"process\"\nmac = \"02:00:00:00:00:02\"\n";
        let scene = Scene::new(&format!("{kind}uplink = true\n"), &format!("forwarding = \"map\"\n{near}"));
        let mut near = scene.attach("lan0:near");
        // Nobody knows FAR: its frames go to the uplink.
        send(&mut near, &short(FAR, NEAR, 0));
        until("it goes to the wire", || scene.count("nic", "out") == 1);
        scene.replay([short(NEAR, FAR, 0)]);
        assert_eq!(receive(&mut near, PATIENCE), Some(short(NEAR, FAR, 0).to_vec()), "{kind}");
    }
}

#[test]
fn a_storm_without_storm_control_is_delivered_or_counted_at_each_port() {
    const FRAMES: u64 = 100_000;
    for kind in KINDS {
        let scene = Scene::new(kind, "");
        let mut clients = ["a", "b"].map(|name| (name, scene.attach(&format!("lan0:{name}"))));
        scene.replay((0..FRAMES).map(|_| short(BROADCAST, FAR, 0)));
        for (name, client) in &mut clients {
            let lost = || scene.drops(name, "receiver_full") + scene.drops("nic", "device_overrun");
            let mut got = Vec::new();
            until("each frame is counted", || {
                drain(client, &mut got);
                got.len() as u64 + lost() >= FRAMES
            });
            assert_eq!(got.len() as u64 + lost(), FRAMES, "{kind} {name}");
            assert!(got.iter().all(|frame| *frame == short(BROADCAST, FAR, 0)), "{kind} {name}");
        }
    }
}
