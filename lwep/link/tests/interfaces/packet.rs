//! Packet links.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::time::Duration;

use ringway_link::{Gso, Link, Offload, PacketLink, PacketOptions};
use ringway_scenes::namespace::Namespace;
use ringway_scenes::{PATIENCE, until};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::scene::{Scene, Station, cross, frame, payload, sleeping, tcp};

const LARGE: PacketOptions = PacketOptions { slots: 64, buffer: 65_600, buffers: 64, address: None };
/// Addresses of links, in the kernels' network.
const A: [u8; 4] = [10, 78, 0, 101];
const B: [u8; 4] = [10, 78, 0, 102];

fn open(space: &Namespace, device: &str, options: &PacketOptions) -> Station<PacketLink> {
    Station::new(space.within(|| PacketLink::open(device, options)).unwrap())
}

fn pair(scene: &Scene) -> (Station<PacketLink>, Station<PacketLink>) {
    let options = PacketOptions::default();
    (open(&scene.a, "x0", &options), open(&scene.b, "w0", &options))
}

/// Links with addresses.
fn tcp_pair(scene: &Scene) -> (Station<PacketLink>, Station<PacketLink>) {
    let with = |address: [u8; 4]| PacketOptions { address: Some(address.into()), ..LARGE };
    (open(&scene.a, "x0", &with(A)), open(&scene.b, "w0", &with(B)))
}

#[test]
fn frames_of_all_lengths_cross_in_both_directions() {
    let scene = Scene::new();
    let (mut a, mut b) = pair(&scene);
    for _ in 0..2 {
        cross(&mut a, &mut b, 500);
        cross(&mut b, &mut a, 500);
    }
    assert_eq!(a.link.interface().longest, 1514);
    for device in [("x0", &scene.a), ("w0", &scene.b)] {
        device.1.ok("ip", &["link", "set", device.0, "mtu", "9000"]);
    }
    let (mut a, mut b) = (open(&scene.a, "x0", &LARGE), open(&scene.b, "w0", &LARGE));
    assert_eq!(a.link.interface().longest, 9014);
    cross(&mut a, &mut b, 300);
    let counts = b.link.counts();
    assert_eq!((counts.dropped, counts.lost, counts.unsent), (0, 0, 0));
}

#[test]
fn traffic_of_the_kernels_goes_on_and_the_link_does_not_see_it() {
    let scene = Scene::new();
    let (mut a, mut b) = tcp_pair(&scene);
    let mut other = open(&scene.a, "x0", &PacketOptions::default());
    scene.kernels_talk();
    let (own, far) = (a.mac(), b.mac());
    // Tagged frames, another station's, and UDP to the link's address.
    let mut tagged = frame(far, own, 100, 1);
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    a.send(&tagged, None);
    a.send(&frame([2, 0, 0, 0, 0, 99], own, 100, 1), None);
    let (mut udp, _) = tcp([own, far], A, B, &[1; 20]);
    udp[23] = 17;
    a.send(&udp, None);
    // What the host itself sends is not received.
    other.send(&frame(far, own, 90, 2), None);
    a.send(&frame(far, own, 100, 3), None);
    assert_eq!(b.receive().0, frame(far, own, 90, 2));
    assert_eq!(b.receive().0, frame(far, own, 100, 3));
    assert!(b.link.peek().is_none() && a.link.peek().is_none() && other.link.peek().is_none());
}

#[test]
fn tcp_to_the_links_address_is_the_links_and_the_kernel_does_not_answer() {
    let scene = Scene::new();
    let (mut a, mut b) = tcp_pair(&scene);
    let macs = [a.mac(), b.mac()];
    let resets = || scene.b.snmp("Tcp", "OutRsts");
    let before = resets();
    for target in [[10, 78, 0, 103], [10, 78, 0, 2], B] {
        let (frame, offload) = tcp(macs, A, target, b"to an address");
        a.send(&frame, Some(&offload));
    }
    let (got, left) = b.receive();
    assert_eq!(got, tcp(macs, A, B, b"to an address").0, "the first frame is that to the link's address");
    assert_eq!(left, Some(Offload { needs_csum: true, csum_start: 34, csum_offset: 16, ..Offload::default() }));
    // The frame to the kernel's own address has a reset for an answer, that to the link's none.
    until("the kernel has answered", || resets() > before);
    assert_eq!(resets(), before + 1);
    assert!(b.link.peek().is_none());
    // A link without an address takes no TCP.
    let mut other = open(&scene.b, "w0", &PacketOptions::default());
    let (frame, offload) = tcp(macs, A, B, b"once more");
    a.send(&frame, Some(&offload));
    a.send(&crate::scene::frame(macs[1], macs[0], 100, 1), None);
    b.receive();
    assert_eq!(other.receive().0, b.receive().0, "the frame of LWEP's EtherType");
}

#[test]
fn a_frame_to_be_segmented_arrives_whole_with_its_offload_or_in_segments() {
    let scene = Scene::new();
    let (mut a, mut b) = tcp_pair(&scene);
    let macs = [a.mac(), b.mac()];
    let bytes: Vec<u8> = (0..60_000usize).map(|at| (at * 3 + at / 256) as u8).collect();
    let (large, offload) = tcp(macs, A, B, &bytes);
    let offload = Offload { gso: Gso::Tcp4, gso_size: 1460, hdr_len: 54, ..offload };
    assert!(a.link.interface().segmented >= large.len() && a.link.interface().checksums);
    a.send(&large, Some(&offload));
    let (got, left) = b.receive();
    assert_eq!((got, left), (large.clone(), Some(Offload { hdr_len: 0, ..offload })));
    // The kernel cuts it where the device cannot, and writes checksums.
    scene.a.ok("ethtool", &["-K", "x0", "tso", "off", "gso", "off", "tx", "off"]);
    // It drops some of them when the queue of a processor is full (`net.core.netdev_max_backlog`), which other programs share.
    let bytes = &bytes[..14_600];
    let large = tcp(macs, A, B, bytes).0;
    let mut segments = BTreeMap::new();
    until("all segments have come", || {
        a.send(&large, Some(&offload));
        b.link.wait(false, Duration::from_secs(1)).unwrap();
        while b.link.peek().is_some() {
            let (got, left) = b.receive();
            assert!(got.len() <= 1514 && left.is_none(), "{} bytes, {left:?}", got.len());
            segments.insert(u32::from_be_bytes(got[38..42].try_into().unwrap()), payload(&got).to_vec());
        }
        segments.values().map(Vec::len).sum::<usize>() >= bytes.len()
    });
    assert!(segments.into_values().flatten().eq(bytes.iter().copied()));
    // Other kinds are not offered, nor too many bytes.
    assert!(!a.queue(0, &large, Some(&Offload { gso: Gso::UdpL4, ..offload })));
    assert!(!a.queue(0, &large, None));
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
    // A thread that waits for long.
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
        let error = a.link.check().unwrap_err();
        assert!(error.kind() == ErrorKind::NetworkDown && error.to_string().contains(why), "{error}");
        assert!(error.to_string().starts_with("network interface \"x0\": "), "{error}");
        // Nothing is queued any more, and nothing waits.
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
fn a_link_goes_on_when_its_interface_was_down_for_a_moment() {
    let scene = Scene::new();
    let (mut a, mut b) = pair(&scene);
    scene.a.ok("ip", &["link", "set", "x0", "down"]);
    scene.a.ok("ip", &["link", "set", "x0", "up"]);
    assert!(a.link.peek().is_none());
    a.link.check().unwrap();
    let frame = frame(a.mac(), b.mac(), 100, 1);
    b.send(&frame, None);
    assert_eq!(a.receive().0, frame);
}

#[test]
fn what_cannot_be_opened_is_refused_with_what_would_help() {
    let scene = Scene::new();
    let refused = |device: &str, options: PacketOptions| {
        let error = scene.a.within(|| PacketLink::open(device, &options)).err().expect("it is refused");
        (error.kind(), error.to_string())
    };
    let default = PacketOptions::default();
    let says = |device: &str, options: PacketOptions, words: &[&str]| {
        let (_, said) = refused(device, options);
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    };
    says("x7", default, &["\"x7\"", "cannot find it", "none of this name (ip -br link)"]);
    says("a/b", default, &["\"a/b\"", "write 1 to 15 bytes"]);
    scene.a.ok("ip", &["link", "set", "lo", "up"]);
    says("lo", default, &["not an Ethernet interface"]);
    let with = |address: [u8; 4]| PacketOptions { address: Some(address.into()), ..LARGE };
    says("x0", with([10, 78, 0, 1]), &["10.78.0.1 is an address of this host", "one of its own"]);
    says("x0", with(Ipv4Addr::LOCALHOST.octets()), &["127.0.0.1 is not an address of a station"]);
    says("x0", PacketOptions { address: Some(A.into()), ..default }, &["2048 bytes", "use 65549 or more"]);
    says("x0", PacketOptions { buffer: 64, ..default }, &["64 bytes", "use 128 or more"]);
    says("x0", PacketOptions { slots: 0, ..default }, &["0 slots", "1 to 32768"]);
    scene.a.ok("ip", &["link", "set", "x0", "down"]);
    assert_eq!(refused("x0", default).0, ErrorKind::NetworkDown);
    says("x0", default, &["it is down: bring it up (ip link set x0 up)"]);
    let error = scene.b.within(|| {
        let mut own = capabilities(None).unwrap();
        own.effective.remove(CapabilitySet::NET_RAW);
        set_capabilities(None, own).unwrap();
        PacketLink::open("w0", &default).err().expect("it is refused")
    });
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(
        error.to_string().contains("packet sockets need CAP_NET_RAW (root has it; for a program: setcap"),
        "{error}"
    );
}

#[test]
fn frames_that_do_not_fit_and_frames_that_find_no_room_are_counted() {
    let scene = Scene::new();
    let mut a = open(&scene.a, "x0", &PacketOptions::default());
    let mut b = open(&scene.b, "w0", &PacketOptions { buffer: 256, ..PacketOptions::default() });
    assert_eq!(b.link.interface().longest, 256);
    let long = frame(b.mac(), a.mac(), 300, 1);
    let short = frame(b.mac(), a.mac(), 256, 2);
    a.send(&long, None);
    a.send(&short, None);
    assert_eq!(b.receive().0, short);
    assert_eq!(b.link.counts().dropped, 1);
    // More than the kernel keeps for a socket, while nobody receives.
    let count = 40_000;
    for number in 0..count {
        if a.link.room() == 0 {
            a.drain();
        }
        let number = number % 512;
        assert!(a.queue(number, &short, None));
    }
    a.drain();
    assert_eq!(a.link.counts().unsent, 0);
    let (mut got, count) = (0, count as u64);
    until("each frame is received or counted", || {
        while b.link.peek().is_some() {
            b.link.release();
            got += 1;
        }
        got + b.link.counts().lost + scene.lost_before_w0() >= count
    });
    let lost = b.link.counts().lost;
    assert!(lost > 0 && got + lost + scene.lost_before_w0() == count, "{got} received, {lost} lost");
}

#[test]
fn a_frame_that_the_kernel_refuses_is_counted_and_those_behind_it_are_sent() {
    let scene = Scene::new();
    let (mut a, mut b) = pair(&scene);
    let (long, good) = (frame(b.mac(), a.mac(), 1514, 1), frame(b.mac(), a.mac(), 200, 2));
    scene.a.ok("ip", &["link", "set", "x0", "mtu", "1000"]);
    assert!(a.queue(0, &long, None) && a.queue(1, &good, None));
    // A checksum beyond the frame.
    assert!(a.queue(
        2,
        &good,
        Some(&Offload { needs_csum: true, csum_start: 300, csum_offset: 6, ..Offload::default() })
    ));
    assert!(a.queue(3, &good, None));
    a.drain();
    assert_eq!((b.receive().0, b.receive().0), (good.clone(), good));
    assert_eq!(a.link.counts().unsent, 2);
}
