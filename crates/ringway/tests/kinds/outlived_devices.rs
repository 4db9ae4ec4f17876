//! The switch dies, or another version takes its place, under ports of network devices. The kernel's stack is the peer on both sides: of a veth pair,
//! one end of which is the port's device, and of a TAP device.

use std::net::UdpSocket;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ringway_scenes::namespace::Namespace;
use ringway_scenes::{Daemon, PATIENCE, PATIENCE_VARIABLE, receive, until, until_some, whole};
use ringway_testing::child::{children, thread_states};
use ringway_testing::skip;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::process::{Pid, Signal, kill_process};

use super::nics::{PACKET, Wire, XDP, XDP_ALONE, join, make_macvtap};

/// A poller that stays on its core: the kernel keeps frames of one core in order.
const PINNED: &str = "[engine]\ncores = [0]\n";
/// Chunks of an XDP port for frames from the device.
const CHUNKS: u64 = 2048;
/// Most datagrams of a direction that are on their way. While the switch delivers so many, as many others may come: a packet socket has slots for both.
const ON_THEIR_WAY: u64 = 100;
/// Number of kills and of upgrades, in short and as a whole.
const KILLS: [usize; 2] = [20, 100];
const UPGRADES: [usize; 2] = [3, 20];

/// The sockets of both stations, each connected to the other one.
struct Stations {
    wire: UdpSocket,
    vm: UdpSocket,
}

impl Stations {
    fn new(wire: &Wire) -> Self {
        let address = |space: &Namespace, device: &str| {
            space.ok("cat", &[&format!("/sys/class/net/{device}/address")]).trim().to_owned()
        };
        let (near, far) = (address(&wire.vm, "t0"), address(&wire.wire, "w0"));
        // No other frame is under way.
        wire.wire.ok("ip", &["neigh", "replace", "10.78.0.2", "lladdr", &near, "dev", "w0"]);
        wire.vm.ok("ip", &["neigh", "replace", "10.78.0.1", "lladdr", &far, "dev", "t0"]);
        let open = |space: &Namespace, own: &str, other: &str| {
            let socket = space.within(|| UdpSocket::bind(own)).unwrap();
            socket.connect(other).unwrap();
            // Room for all that can be in the kernel's rings.
            set_socket_recv_buffer_size_force(&socket, 64 << 20).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        };
        let both = ["10.78.0.1:7000", "10.78.0.2:7000"];
        Self { wire: open(&wire.wire, both[0], both[1]), vm: open(&wire.vm, both[1], both[0]) }
    }
}

fn send(socket: &UdpSocket, number: u64) {
    socket.send(&number.to_ne_bytes()).expect("the stack has room");
}

/// The number of the next datagram, if one comes in time.
fn next(socket: &UdpSocket) -> Option<u64> {
    let mut number = [0; 8];
    let len = socket.recv(&mut number).ok()?;
    assert_eq!(len, 8);
    Some(u64::from_ne_bytes(number))
}

/// Sends these datagrams so that the kernel has each of them in a ring: `x0` has counted it.
fn send_into_the_ring(wire: &Wire, stations: &Stations, numbers: std::ops::Range<u64>) {
    let arrived = || wire.nic.ok("cat", &["/sys/class/net/x0/statistics/rx_packets"]).trim().parse::<u64>().unwrap();
    let numbers: Vec<u64> = numbers.collect();
    // Fewer than the queue of a veth device has.
    for some in numbers.chunks(128) {
        let before = arrived();
        some.iter().for_each(|number| send(&stations.wire, *number));
        until("the kernel has the datagrams", || arrived() >= before + some.len() as u64);
    }
}

/// The number of the XDP program that is attached, if there is one.
fn program(wire: &Wire) -> Option<String> {
    let shown = wire.nic.ok("ip", &["link", "show", "dev", "x0"]);
    let mut words = shown.split_whitespace().skip_while(|word| !word.starts_with("prog/xdp"));
    words.nth(2).map(str::to_owned)
}

/// Files that the keeper has open, with those of a switch that waits, and of its opener.
fn files_of_keeper(daemon: &Daemon) -> usize {
    until_some("the keeper has started both, and rests", || {
        let rests = || {
            children(daemon.keeper(), "ringway-next").len() == 2
                && thread_states(daemon.keeper()).iter().all(|state| *state == 'S')
        };
        let before = rests();
        let count = std::fs::read_dir(format!("/proc/{}/fd", daemon.keeper())).unwrap().count();
        (before && rests()).then_some(count)
    })
}

fn has_no_fault(daemon: &Daemon) -> bool {
    daemon.status()["faults"].as_array().is_none_or(Vec::is_empty)
}

#[test]
fn what_the_kernel_had_for_a_switch_that_is_killed_arrives_once_and_in_order() {
    let generic = format!("{XDP_ALONE}\nmode = \"generic\"");
    for (keys, most) in [(XDP_ALONE, 2000), (&*generic, 2000), (XDP, 2000), (PACKET, 200)] {
        let wire = Wire::with(PINNED, keys);
        let stations = Stations::new(&wire);
        let before = program(&wire);
        assert_eq!(before.is_some(), keys != PACKET, "{keys}");
        let mut first = 0;
        // Neither is a multiple of what the rings have.
        for count in [1, most / 3, most] {
            send(&stations.wire, first);
            assert_eq!(next(&stations.vm), Some(first), "{keys}");
            wire.daemon.pause();
            send_into_the_ring(&wire, &stations, first + 1..first + 1 + count);
            wire.daemon.kill_switch();
            for number in first + 1..first + 1 + count {
                assert_eq!(next(&stations.vm), Some(number), "{keys}, {count} from {first}");
            }
            first += 1 + count;
            wire.vm.ping(3, &["-i", "0.002", "10.78.0.1"]);
        }
        assert_eq!(program(&wire), before, "{keys}: the program is the same");
        assert!(has_no_fault(&wire.daemon), "{keys}");
    }
}

/// One direction of a flow: numbers grow, as far as they arrive.
#[derive(Default)]
struct Flow {
    /// Number of the datagram that was sent last, and of the one that came last.
    sent: AtomicU64,
    came: AtomicU64,
}

impl Flow {
    /// Sends until the end. Unless `all` have to come, one that is lost does not end the flow.
    fn send(&self, from: &UdpSocket, all: bool, ends: &AtomicBool) {
        while !ends.load(Ordering::Relaxed) {
            let sent = self.sent.load(Ordering::Relaxed);
            if sent >= self.came.load(Ordering::Relaxed) + ON_THEIR_WAY {
                std::thread::park_timeout(Duration::from_millis(1));
                if all {
                    continue;
                }
            }
            send(from, sent + 1);
            self.sent.store(sent + 1, Ordering::Relaxed);
        }
    }

    /// Receives until the end. `all`: none may be lost.
    fn receive(&self, to: &UdpSocket, all: bool, ends: &AtomicBool) {
        while !ends.load(Ordering::Relaxed) {
            let Some(number) = next(to) else { continue };
            let came = self.came.load(Ordering::Relaxed);
            assert!(if all { number == came + 1 } else { number > came }, "{number} after {came} at {to:?}");
            self.came.store(number, Ordering::Relaxed);
        }
    }
}

/// Runs flows in both directions, and calls `act` for each round. Frames go on between two rounds.
fn under_flows(wire: &Wire, stations: &Stations, all: bool, rounds: usize, mut act: impl FnMut()) {
    let (flows, ends) = ([Flow::default(), Flow::default()], AtomicBool::new(false));
    for socket in [&stations.wire, &stations.vm] {
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    }
    std::thread::scope(|scope| {
        let ends = &ends;
        let mut threads = Vec::new();
        for (flow, from, to) in [(&flows[0], &stations.wire, &stations.vm), (&flows[1], &stations.vm, &stations.wire)] {
            threads.push(scope.spawn(move || flow.send(from, all, ends)));
            threads.push(scope.spawn(move || flow.receive(to, all, ends)));
        }
        let is_wrong = || threads.iter().any(|thread| thread.is_finished());
        let go_on = || {
            let before = flows.each_ref().map(|flow| flow.came.load(Ordering::Relaxed));
            let has_come = |(flow, before): (&Flow, u64)| flow.came.load(Ordering::Relaxed) > before + 500;
            until("datagrams come", || is_wrong() || flows.iter().zip(before).all(has_come));
        };
        for _ in 0..rounds {
            go_on();
            if is_wrong() {
                break;
            }
            act();
        }
        go_on();
        ends.store(true, Ordering::Relaxed);
    });
    for socket in [&stations.wire, &stations.vm] {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    assert_eq!(wire.daemon.port("nic")["state"], "up");
}

/// Takes all that is still on its way.
fn drain(stations: &Stations) {
    for (from, to) in [(&stations.wire, &stations.vm), (&stations.vm, &stations.wire)] {
        send(from, u64::MAX);
        while next(to).expect("the last datagram") != u64::MAX {}
    }
}

#[test]
fn no_datagram_comes_twice_or_late_and_no_chunk_is_lost_when_the_switch_is_killed_again_and_again() {
    for keys in [XDP_ALONE, PACKET] {
        let wire = Wire::with(PINNED, keys);
        let stations = Stations::new(&wire);
        let (before, mut files) = (program(&wire), 0);
        let mut kills = 0;
        under_flows(&wire, &stations, false, whole(KILLS[0], KILLS[1]), || {
            wire.daemon.kill_switch();
            kills += 1;
            // The first successor has the ports again.
            if kills == 1 {
                files = files_of_keeper(&wire.daemon);
            }
        });
        assert_eq!(program(&wire), before, "{keys}: the program is the same");
        drain(&stations);
        until("the keeper has as many files", || files_of_keeper(&wire.daemon) == files);
        assert!(has_no_fault(&wire.daemon), "{keys}");
        if keys != XDP_ALONE {
            continue;
        }
        // The kernel has a chunk for each of these, while the switch takes none.
        wire.daemon.pause();
        send_into_the_ring(&wire, &stations, 0..CHUNKS);
        wire.daemon.signal(Signal::CONT);
        (0..CHUNKS).for_each(|number| assert_eq!(next(&stations.vm), Some(number)));
        (0..3 * CHUNKS).for_each(|number| {
            send(&stations.vm, number);
            assert_eq!(next(&stations.wire), Some(number));
        });
        assert_eq!(wire.drops("nic"), serde_json::json!({}));
    }
}

#[test]
fn an_upgrade_under_a_flow_through_a_device_loses_no_datagram() {
    for keys in [XDP_ALONE, PACKET] {
        let wire = Wire::with(PINNED, keys);
        let stations = Stations::new(&wire);
        let before = program(&wire);
        under_flows(&wire, &stations, true, whole(UPGRADES[0], UPGRADES[1]), || {
            let said = wire.daemon.ok(&["upgrade"]);
            assert!(said.starts_with("upgraded: the new switch serves after "), "{said}");
        });
        assert_eq!(program(&wire), before, "{keys}: the program is the same");
        assert!(has_no_fault(&wire.daemon), "{keys}");
    }
}

#[test]
fn group_frames_that_the_host_has_too_come_once_when_the_switch_is_killed() {
    for keys in [XDP, PACKET] {
        let wire = Wire::with(PINNED, keys);
        let mut client = wire.daemon.attach("lan0:c").unwrap();
        let _last = wire.daemon.attach("lan9:last").unwrap();
        let broadcast = wire.wire.within(|| UdpSocket::bind("10.78.0.1:0")).unwrap();
        broadcast.set_broadcast(true).unwrap();
        let mut number = 0u64;
        let mut send = |count: u64| {
            (0..count).for_each(|_| {
                broadcast.send_to(&number.to_ne_bytes(), "10.78.0.255:7").unwrap();
                number += 1;
            });
            number
        };
        let mut expected = 0;
        for count in [3, 150, 200] {
            wire.daemon.pause();
            let sent = send(count);
            wire.daemon.kill_switch();
            while expected < sent {
                let frame = receive(&mut client, PATIENCE).expect("a frame");
                // Others ask for addresses.
                if frame[12..14] == [8, 0] && frame[23] == 17 {
                    assert_eq!(frame[42..50], expected.to_ne_bytes(), "{keys}");
                    expected += 1;
                }
            }
        }
    }
}

#[test]
fn a_device_that_was_made_anew_while_no_switch_served_it_is_opened_anew() {
    for keys in [XDP_ALONE, PACKET] {
        let wire = Wire::new(keys);
        wire.vm.ping(3, &["-i", "0.002", "10.78.0.1"]);
        wire.daemon.pause();
        wire.nic.ok("ip", &["link", "del", "x0"]);
        join(&wire.nic, &wire.wire);
        wire.daemon.kill_switch();
        wire.daemon.until_state("nic", "up");
        wire.vm.ok("ip", &["neigh", "flush", "all"]);
        wire.vm.ping(3, &["-i", "0.002", "10.78.0.1"]);
    }
}

#[test]
fn a_device_is_as_it_was_before_when_its_port_is_removed_after_a_kill() {
    let wire = Wire::new(XDP);
    let before = |is: bool| {
        let features = wire.nic.ok("ethtool", &["-k", "x0"]);
        let link = wire.nic.ok("ip", &["-d", "link", "show", "x0"]);
        features.contains("rx-vlan-offload: on") == is
            && link.contains("promiscuity 0") == is
            && program(&wire).is_none() == is
    };
    wire.daemon.kill_switch();
    assert!(before(false));
    let files = files_of_keeper(&wire.daemon);
    wire.daemon.ok(&["port", "del", "nic"]);
    until("the device is as before", || before(true));
    until("the keeper has none of its files", || files_of_keeper(&wire.daemon) < files);
}

#[test]
fn a_device_whose_port_was_moved_to_another_switch_outlives_a_kill() {
    let wire = Wire::with("[switch.lan1]\n", XDP_ALONE);
    wire.vm.ping(3, &["-i", "0.002", "10.78.0.1"]);
    let before = program(&wire);
    let config = std::fs::read_to_string(wire.daemon.runtime_dir().join("../ringway.toml")).unwrap();
    wire.daemon.reload(&config.replace("switch = \"lan0\"", "switch = \"lan1\""));
    until("the ports have moved", || wire.daemon.port("nic")["switch"] == "lan1");
    let address = wire.vm.ok("ip", &["-o", "addr", "show", "dev", "t0"]);
    wire.daemon.kill_switch();
    assert_eq!(program(&wire), before);
    wire.vm.ping(3, &["-i", "0.002", "10.78.0.1"]);
    assert_eq!(wire.vm.ok("ip", &["-o", "addr", "show", "dev", "t0"]), address);
}

/// A daemon that fails at the points that files in a directory name.
fn start_with_points(points: &Path, more: &[&str], config: &str) -> Daemon {
    let points = format!("RINGWAY_INJECT={}", points.display());
    Daemon::start_by(&[&["env"], more, &[&points]].concat(), config)
}

/// Namespaces with a TAP device each, their addresses, and the configuration of the ports.
fn taps<const N: usize>() -> ([Namespace; N], String) {
    let spaces: [Namespace; N] = std::array::from_fn(|_| Namespace::new());
    let ports = spaces.iter().enumerate().map(|(number, space)| {
        let netns = &space.name;
        format!("[port.t{number}]\nswitch = \"lan0\"\nkind = \"tap\"\ndevice = \"t\"\nnetns = \"{netns}\"\n")
    });
    let config = format!("[switch.lan0]\n{}", ports.collect::<String>());
    (spaces, config)
}

fn give_addresses(spaces: &[Namespace]) {
    for (number, space) in (1..).zip(spaces) {
        space.ok("ip", &["addr", "add", &format!("10.78.0.{number}/24"), "dev", "t"]);
    }
}

/// The number of a TAP device, which another one would not have, and its addresses.
fn shown(space: &Namespace) -> String {
    let said = space.run("ip", &["-o", "addr", "show", "dev", "t"]);
    said.out
}

#[test]
fn a_device_that_a_successor_has_too_late_for_its_start_is_as_it_was_and_so_are_the_others() {
    let (spaces, config) = taps::<3>();
    let points = tempfile::tempdir().unwrap();
    // The start waits for some seconds, not for minutes.
    let daemon = start_with_points(points.path(), &["-u", PATIENCE_VARIABLE], &config);
    give_addresses(&spaces);
    let before = spaces.each_ref().map(shown);
    let point = points.path().join("lan0:t0.open");
    std::fs::write(&point, "stall").unwrap();
    daemon.kill_switch();
    ["t1", "t2"].iter().for_each(|port| daemon.until_state(port, "up"));
    spaces[1].ping(3, &["-i", "0.002", "10.78.0.3"]);
    assert_ne!(daemon.port("t0")["state"], "up");
    assert_eq!(spaces.each_ref().map(shown), before);
    std::fs::remove_file(point).unwrap();
    daemon.until_state("t0", "up");
    spaces[0].ping(3, &["-i", "0.002", "10.78.0.3"]);
    assert_eq!(spaces.each_ref().map(shown), before);
}

#[test]
fn what_belongs_to_a_port_that_cannot_be_opened_stays_until_it_is_open_or_removed() {
    let (spaces, config) = taps::<2>();
    let points = tempfile::tempdir().unwrap();
    let daemon = start_with_points(points.path(), &[], &config);
    give_addresses(&spaces);
    let before = spaces.each_ref().map(shown);
    let all = ["t0", "t1"].map(|port| points.path().join(format!("lan0:{port}.open")));
    all.iter().for_each(|point| std::fs::write(point, "return").unwrap());
    // A successor that dies has left it for the next one, and so has one that is upgraded.
    daemon.kill_switch();
    daemon.kill_switch();
    daemon.ok(&["upgrade"]);
    for port in ["t0", "t1"] {
        assert_eq!(daemon.port(port)["detail"], "injected; tried again every second");
    }
    assert_eq!(spaces.each_ref().map(shown), before);
    std::fs::remove_file(&all[0]).unwrap();
    daemon.until_state("t0", "up");
    assert_eq!(spaces.each_ref().map(shown), before);
    daemon.ok(&["port", "del", "t1"]);
    until("the device is gone", || shown(&spaces[1]).is_empty());
    assert_eq!(shown(&spaces[0]), before[0]);
}

/// Two namespaces with a wire between them.
fn joined() -> [Namespace; 2] {
    let (nic, peer) = (Namespace::new(), Namespace::new());
    join(&nic, &peer);
    [nic, peer]
}

/// A switch with an XDP port at the end of the wire in this namespace.
fn xdp_at(nic: &Namespace) -> String {
    format!("[switch.lan0]\n[port.nic]\nswitch = \"lan0\"\nnetns = \"{}\"\ndevice = \"x0\"\n{XDP}\n", nic.name)
}

/// Waits until a switch that is another one than `before` opens a device. Returns its number.
fn until_it_opens(daemon: &Daemon, before: u32) -> u32 {
    until_some("a successor opens a device", || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).ok()?;
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        let opens = names.into_iter().any(|name| name.trim() == "open-device");
        Some(daemon.pid()).filter(|pid| opens && *pid != before)
    })
}

#[test]
fn a_device_of_switches_that_never_served_is_as_it_was_before_them_when_its_port_is_removed() {
    let ([nic, _peer], points) = (joined(), tempfile::tempdir().unwrap());
    let daemon = start_with_points(points.path(), &[], &xdp_at(&nic));
    let takes_out = || nic.ok("ethtool", &["-k", "x0"]).contains("rx-vlan-offload: on");
    assert!(!takes_out());
    let point = points.path().join("lan0:nic.open");
    std::fs::write(&point, "stall").unwrap();
    // A switch that SIGTRAP ends has failed. One that SIGKILL ends has not.
    let kill = |switch: u32| {
        kill_process(Pid::from_raw(switch.cast_signed()).unwrap(), Signal::TRAP).unwrap();
        switch
    };
    // Neither of these two serves, and the next one gives up what they were taking over.
    let second = until_it_opens(&daemon, kill(daemon.pid()));
    let third = until_it_opens(&daemon, kill(second));
    kill(third);
    std::fs::remove_file(point).unwrap();
    daemon.until_state("nic", "up");
    daemon.complains("this one serves no port that one before has served");
    assert!(!takes_out());
    daemon.ok(&["port", "del", "nic"]);
    until("the device is as before", takes_out);
}

#[test]
fn a_device_that_nobody_takes_over_takes_tags_out_of_frames_again() {
    let ([nic, _peer], points) = (joined(), tempfile::tempdir().unwrap());
    let daemon = start_with_points(points.path(), &[], &xdp_at(&nic));
    let before = |is: bool| {
        let is_on = nic.ok("ethtool", &["-k", "x0"]).contains("rx-vlan-offload: on");
        is_on == is && nic.ok("ip", &["-d", "link", "show", "x0"]).contains("prog/xdp") != is
    };
    assert!(before(false));
    // The next switch dies while it opens the port, and the one after that leaves the port out.
    std::fs::write(points.path().join("lan0:nic.open"), "panic").unwrap();
    daemon.kill_switch();
    daemon.until_state("nic", "set aside");
    until("the device is as before", || before(true));
    daemon.ok(&["port", "enable", "lan0:nic"]);
    daemon.until_state("nic", "up");
    assert!(before(false));
    daemon.ok(&["port", "del", "nic"]);
    until("the device is as before", || before(true));
}

#[test]
fn a_macvtap_goes_on_when_the_switch_is_killed() {
    let (nic, peer) = (Namespace::new(), Namespace::new());
    join(&nic, &peer);
    let Some(path) = make_macvtap(&nic) else { skip!("the kernel has no macvtap") };
    let wire = Wire::of(nic, peer, PINNED, &format!("device = \"{path}\"\n{PACKET}"));
    let stations = Stations::new(&wire);
    for first in [0, 100, 200] {
        wire.daemon.pause();
        // The kernel's queue has them.
        (first..first + 100).for_each(|number| send(&stations.wire, number));
        wire.daemon.kill_switch();
        (first..first + 100).for_each(|number| assert_eq!(next(&stations.vm), Some(number)));
    }
    wire.vm.ping(3, &["-i", "0.002", "10.78.0.1"]);
}
