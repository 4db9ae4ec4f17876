//! XDP links.

use std::io::ErrorKind;
use std::process::{Command, Stdio};
use std::time::Duration;

use ringway_link::{Link, Offload, PacketLink, PacketOptions, XdpLink, XdpMode, XdpOptions};
use ringway_scenes::namespace::Namespace;
use ringway_scenes::{PATIENCE, until};
use ringway_testing::child::{Ended, lines};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::scene::{Scene, Station, cross, frame, sleeping, tcp};

/// Addresses of links, in the kernels' network.
const A: [u8; 4] = [10, 78, 0, 101];
const B: [u8; 4] = [10, 78, 0, 102];

fn open(space: &Namespace, device: &str, options: &XdpOptions) -> Station<XdpLink> {
    Station::new(space.within(|| XdpLink::open(device, 0, options)).unwrap())
}

fn pair(scene: &Scene) -> (Station<XdpLink>, Station<XdpLink>) {
    let with = |address: [u8; 4]| XdpOptions { address: Some(address.into()), ..XdpOptions::default() };
    (open(&scene.a, "x0", &with(A)), open(&scene.b, "w0", &with(B)))
}

fn has_program(space: &Namespace, device: &str) -> bool {
    space.ok("ip", &["-d", "link", "show", "dev", device]).contains("xdp")
}

#[test]
fn frames_of_all_lengths_cross_in_both_directions_in_each_mode() {
    for (mode, got) in
        [(XdpMode::Auto, XdpMode::Copy), (XdpMode::Copy, XdpMode::Copy), (XdpMode::Generic, XdpMode::Generic)]
    {
        for (buffer, mtu, longest) in [(2048, "1500", 1514), (4096, "9000", 3840)] {
            let scene = Scene::new();
            scene.a.ok("ip", &["link", "set", "x0", "mtu", mtu]);
            scene.b.ok("ip", &["link", "set", "w0", "mtu", mtu]);
            // Few places, so that rings and memory are used again and again.
            let options = XdpOptions { slots: 64, buffers: 64, buffer, mode, ..XdpOptions::default() };
            let (mut a, mut b) = (open(&scene.a, "x0", &options), open(&scene.b, "w0", &options));
            assert_eq!((a.link.mode(), a.link.interface().longest), (got, longest));
            cross(&mut a, &mut b, 500);
            cross(&mut b, &mut a, 500);
            let counts = b.link.counts();
            assert_eq!((counts.dropped, counts.lost, counts.unsent), (0, 0, 0));
        }
    }
}

#[test]
fn a_packet_link_and_an_xdp_link_understand_one_another() {
    let scene = Scene::new();
    let mut a = open(&scene.a, "x0", &XdpOptions::default());
    let options = PacketOptions::default();
    let mut b = Station::new(scene.b.within(|| PacketLink::open("w0", &options)).unwrap());
    cross(&mut a, &mut b, 300);
    cross(&mut b, &mut a, 300);
}

#[test]
fn the_host_keeps_its_traffic_and_the_link_does_not_see_it() {
    for address in [None, Some(B.into())] {
        let scene = Scene::new();
        let options = XdpOptions { address, ..XdpOptions::default() };
        let (mut a, mut b) = (open(&scene.a, "x0", &XdpOptions::default()), open(&scene.b, "w0", &options));
        scene.kernels_talk();
        let macs = [a.mac(), b.mac()];
        let resets = || scene.b.snmp("Tcp", "OutRsts");
        let before = resets();
        for target in [[10, 78, 0, 103], [10, 78, 0, 2]] {
            a.send(&complete(tcp(macs, A, target, b"to an address")), None);
        }
        let mut udp = tcp(macs, A, B, b"no TCP").0;
        udp[23] = 17;
        a.send(&udp, None);
        a.send(&frame(macs[1], macs[0], 100, 3), None);
        assert_eq!(b.receive().0, frame(macs[1], macs[0], 100, 3));
        until("the kernel has answered the frame to its own address", || resets() > before);
        assert_eq!(resets(), before + 1);
        assert!(b.link.peek().is_none() && a.link.peek().is_none());
    }
}

/// The frame with its checksum.
fn complete((mut frame, offload): (Vec<u8>, Offload)) -> Vec<u8> {
    let (start, at) = (usize::from(offload.csum_start), usize::from(offload.csum_start + offload.csum_offset));
    let sum: u32 =
        frame[start..].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    frame[at..at + 2].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    frame
}

#[test]
fn tcp_to_the_links_address_is_the_links_and_a_checksum_that_was_left_is_seen() {
    let scene = Scene::new();
    let (mut a, mut b) = pair(&scene);
    let macs = [a.mac(), b.mac()];
    let whole = complete(tcp(macs, A, B, b"with its checksum"));
    crate::scene::payload(&whole);
    a.send(&whole, None);
    assert_eq!(b.receive(), (whole, None));
    drop(a);
    let options = PacketOptions { buffer: 65_600, buffers: 8, address: Some(A.into()), ..PacketOptions::default() };
    let mut a = Station::new(scene.a.within(|| PacketLink::open("x0", &options)).unwrap());
    let (left, offload) = tcp(macs, A, B, b"without it");
    a.send(&left, Some(&offload));
    assert_eq!(b.receive(), (left, Some(offload)));
}

#[test]
fn the_device_wakes_a_sleeper_and_a_frame_that_is_there_keeps_it_awake() {
    let scene = Scene::new();
    let (mut a, mut b) = pair(&scene);
    assert!(!b.link.want(false) && !b.is_woken());
    let frame = frame(b.mac(), a.mac(), 200, 1);
    a.send(&frame, None);
    until("it is woken", || b.is_woken());
    b.link.awake();
    assert!(b.link.want(false));
    assert_eq!(b.receive().0, frame);
    assert!(!b.link.want(false) && !b.is_woken());
    assert!(b.link.want(true), "there is room");
    assert!(!b.link.want(false) && !b.is_woken());
    let waiter = sleeping(move || {
        b.link.wait(false, PATIENCE).unwrap();
        b.receive().0
    });
    a.send(&frame, None);
    assert_eq!(waiter.join().unwrap(), frame);
}

#[test]
fn a_link_ends_when_its_interface_is_down_or_gone_and_a_sleeper_hears_of_it() {
    for (change, why) in [
        (&["link", "set", "x0", "down"][..], "it is down: bring it up (ip link set x0 up)"),
        (&["link", "del", "x0"], "it is gone"),
    ] {
        let scene = Scene::new();
        let (mut a, b) = pair(&scene);
        a.link.check().unwrap();
        assert!(a.queue(0, &frame(b.mac(), a.mac(), 100, 1), None));
        scene.a.ok("ip", change);
        until("it is woken", || a.is_woken());
        let error = a.link.check().unwrap_err();
        assert!(error.kind() == ErrorKind::NetworkDown && error.to_string().contains(why), "{error}");
        assert_eq!((a.link.sent(), a.link.counts().unsent), (1, 1));
        assert!(!a.queue(0, &frame(b.mac(), a.mac(), 100, 1), None) && a.link.peek().is_none());
        assert!(a.link.want(false) && a.link.wait(false, Duration::ZERO).is_err());

        let scene = Scene::new();
        let (mut a, _b) = pair(&scene);
        let waiter = sleeping(move || {
            loop {
                if let Err(error) = a.link.wait(false, PATIENCE) {
                    return (a, error);
                }
            }
        });
        scene.a.ok("ip", change);
        // An interface that goes is down first.
        let (mut a, error) = waiter.join().unwrap();
        assert_eq!(error.kind(), ErrorKind::NetworkDown);
        until("the link says why", || a.link.check().unwrap_err().to_string().contains(why));
    }
}

#[test]
fn what_cannot_be_opened_is_refused_with_what_would_help() {
    let scene = Scene::new();
    let default = XdpOptions::default();
    let says = |device: &str, queue: u32, options: XdpOptions, words: &[&str]| {
        let error = scene.a.within(|| XdpLink::open(device, queue, &options)).err().expect("it is refused");
        let said = error.to_string();
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    };
    says("x7", 0, default, &["\"x7\"", "none of this name (ip -br link)"]);
    says("x0", 77, default, &["\"x0\"", "it has no queue 77", "ethtool -l x0"]);
    says("x0", 0, XdpOptions { slots: 500, ..default }, &["500 slots", "a power of two, 64 to 32768"]);
    says("x0", 0, XdpOptions { buffer: 1514, ..default }, &["1514 bytes", "2048 or 4096"]);
    says("x0", 0, XdpOptions { mode: XdpMode::ZeroCopy, ..default }, &["2048 bytes", "zero copy takes 4096"]);
    says(
        "x0",
        0,
        XdpOptions { mode: XdpMode::ZeroCopy, buffer: 4096, ..default },
        &["\"x0\": cannot attach to it", "this mode"],
    );
    says("x0", 0, XdpOptions { address: Some([10, 78, 0, 1].into()), ..default }, &["is an address of this host"]);
    let first = open(&scene.a, "x0", &default);
    says("x0", 0, default, &["another socket has its queue 0: end the program that has it"]);
    drop(first);
    until("the queue is free", || scene.a.within(|| XdpLink::open("x0", 0, &default)).is_ok());
    scene.a.ok("ip", &["link", "set", "x0", "down"]);
    says("x0", 0, default, &["it is down: bring it up (ip link set x0 up)"]);
    let error = scene.b.within(|| {
        let mut own = capabilities(None).unwrap();
        own.effective.remove(CapabilitySet::NET_RAW);
        set_capabilities(None, own).unwrap();
        XdpLink::open("w0", 0, &default).err().expect("it is refused")
    });
    assert!(error.to_string().contains("AF_XDP needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF"), "{error}");
}

#[test]
fn frames_that_find_no_room_are_counted() {
    let scene = Scene::new();
    let options = XdpOptions { slots: 64, ..XdpOptions::default() };
    let (mut a, mut b) = (open(&scene.a, "x0", &options), open(&scene.b, "w0", &options));
    let frame = frame(b.mac(), a.mac(), 200, 1);
    let count = 1000;
    for _ in 0..count {
        a.send(&frame, None);
    }
    let mut got = 0;
    until("each frame is received or counted", || {
        while b.link.peek().is_some() {
            b.link.release();
            got += 1;
        }
        got + b.link.counts().lost + scene.lost_before_w0() >= count
    });
    let lost = b.link.counts().lost + scene.lost_before_w0();
    assert!(got >= 64 && got + lost == count, "{got} received, {:?}", b.link.counts());
    a.send(&frame, None);
    assert_eq!(b.receive().0, frame);
}

/// Names a namespace for the process that holds a link until it is killed.
const HOLDS: &str = "RINGWAY_LINK_HOLDS";

#[test]
fn the_host_has_its_interface_back_when_the_link_or_its_process_ends() {
    if let Ok(name) = std::env::var(HOLDS) {
        let space = std::mem::ManuallyDrop::new(Namespace { name });
        let mut held = open(&space, "w0", &XdpOptions::default());
        println!("held");
        loop {
            held.link.wait(false, Duration::from_secs(1)).unwrap();
        }
    }
    let scene = Scene::new();
    let (a, b) = pair(&scene);
    assert!(has_program(&scene.a, "x0") && has_program(&scene.b, "w0"));
    drop((a, b));
    until("there is no program", || !has_program(&scene.a, "x0") && !has_program(&scene.b, "w0"));
    scene.kernels_talk();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = "xdp::the_host_has_its_interface_back_when_the_link_or_its_process_ends";
    command.args(["--exact", name, "--nocapture"]).env(HOLDS, &scene.b.name).stdout(Stdio::piped());
    let mut child = Ended(command.spawn().unwrap());
    let said = lines(child.stdout.take().unwrap());
    assert!(said.iter().any(|line| line.contains("held")));
    assert!(has_program(&scene.b, "w0"));
    child.kill().unwrap();
    until("there is no program", || !has_program(&scene.b, "w0"));
    scene.kernels_talk();
    until("the queue is free", || scene.b.within(|| XdpLink::open("w0", 0, &XdpOptions::default())).is_ok());
}
