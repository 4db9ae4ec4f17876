//! Policy at network devices as ports, by AF_XDP and by a packet socket, as at other ports. The device is one end of a veth pair;
//! `w0`, the other end, is the wire.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use ringway_client::{Port, Shape};
use ringway_scenes::namespace::{Namespace, frames as frames_of};
use ringway_scenes::{Daemon, PATIENCE, receive, ringway, send, until};
use ringway_testing::child::Ended;
use ringway_testing::frame::{BROADCAST, short};
use ringway_traffic::pcap::Recorder;
use serde_json::json;

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

/// Frames that pass a limit at once, and frames that are sent. A limit lets ten more pass in a second.
const BURST: u64 = 100;
const SENT: u64 = 2000;

#[test]
fn each_frame_for_the_wire_beyond_the_egress_limit_is_dropped_by_name() {
    for kind in KINDS {
        // Frames have 60 bytes.
        let keys = format!("{kind}egress = {{ rate = \"8kbit\", burst = \"{}B\" }}\n", 60 * (BURST + 1));
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
