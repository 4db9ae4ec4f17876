//! Checksums and segmentation that Linux leaves undone, or receives undone.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringway_client::{Gso, Offload, Port, Shape};
use ringway_scenes::namespace::{Lan, Namespace};
use ringway_scenes::{Daemon, PATIENCE};
use serde_json::Value;

const STATION: [u8; 6] = [2, 0, 0, 0, 0, 9];

fn received_bytes(from: &Namespace, to: &Namespace, more: &[&str]) -> u64 {
    let server = to.start("iperf3", &["-s", "-1", "--forceflush"], "Server listening");
    let said = from.ok("iperf3", &[&["-c", "10.77.0.2", "-n", "64M", "-J"], more].concat());
    server.finish();
    let report: Value = serde_json::from_str(&said).unwrap();
    report["end"]["sum_received"]["bytes"].as_u64().unwrap()
}

#[test]
fn a_stream_between_taps_crosses_in_segments_larger_than_frames() {
    let lan = Lan::new(2);
    assert!(received_bytes(&lan.spaces[0], &lan.spaces[1], &[]) > 32_000_000);
    let port = lan.daemon.port("t2");
    let (frames, bytes) = (port["out"]["frames"].as_u64().unwrap(), port["out"]["bytes"].as_u64().unwrap());
    assert!(bytes / frames > 1514, "{bytes} bytes in {frames} frames");
    assert_eq!(lan.daemon.port("t1")["drops"], serde_json::json!({}));
}

/// Carries received frames from one port to the other. Frames without room are lost, as on a wire.
fn carry(from: &mut Port, to: &mut Port) -> usize {
    let moved = from.rx().drain(256, |frame| {
        assert!(frame.len() <= 1514, "an uncut segment");
        to.tx().push(frame);
    });
    to.flush();
    moved
}

/// Carries all frames between two ports until `stop` is set.
fn relay([one, other]: &mut [Port; 2], stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        if carry(one, other) + carry(other, one) == 0 {
            one.wait_rx(Duration::from_millis(1)).unwrap();
        }
    }
}

/// Two namespaces on two switches, joined by two process ports that accept no offload. The far stack receives finished
/// frames, and checks them.
#[test]
fn segments_cut_for_a_port_without_offloads_satisfy_the_kernel_behind_it() {
    for v6 in [false, true] {
        let spaces = [Namespace::new(), Namespace::new()];
        let tap = |number: usize| {
            let netns = &spaces[number - 1].name;
            format!("[port.t{number}]\nswitch = \"lan{number}\"\nkind = \"tap\"\nnetns = \"{netns}\"\n")
        };
        let daemon = Daemon::start(&format!("[switch.lan1]\n[switch.lan2]\n{}{}", tap(1), tap(2)));
        for (space, number) in spaces.iter().zip(1..) {
            let device = format!("t{number}");
            if v6 {
                space.ok("sysctl", &["-qw", &format!("net.ipv6.conf.{device}.disable_ipv6=0")]);
                space.ok("ip", &["addr", "add", &format!("fd77::{number}/64"), "nodad", "dev", &device]);
            } else {
                space.ok("ip", &["addr", "add", &format!("10.77.0.{number}/24"), "dev", &device]);
            }
        }
        let mut ports = ["lan1:one", "lan2:other"].map(|name| daemon.attach(name).unwrap());
        let stop = AtomicBool::new(false);
        let bytes = std::thread::scope(|scope| {
            scope.spawn(|| relay(&mut ports, &stop));
            let more: &[&str] = if v6 { &["-c", "fd77::2"] } else { &[] };
            let bytes = std::panic::catch_unwind(|| received_bytes(&spaces[0], &spaces[1], more));
            stop.store(true, Ordering::Relaxed);
            bytes.unwrap()
        });
        assert!(bytes > 32_000_000, "{bytes} bytes of 64 MiB, IPv6: {v6}");
        let (from, to) = (daemon.port("t1"), daemon.port("one"));
        let frames = |port: &Value, way: &str| port[way]["frames"].as_u64().unwrap();
        assert!(frames(&from, "in") < frames(&to, "out"), "segments were not cut: {from} {to}");
        let errors = spaces[1].ok("cat", &["/proc/net/snmp"]);
        let mut tcp = errors.lines().filter(|line| line.starts_with("Tcp:")).map(str::split_whitespace);
        let (names, values) = (tcp.next().unwrap(), tcp.next().unwrap());
        let wrong = names.zip(values).find(|(name, _)| *name == "InCsumErrors").unwrap().1;
        assert_eq!(wrong, "0", "the kernel found wrong checksums");
    }
}

/// Returns what a function gives that runs in a namespace.
fn inside<T: Send + 'static>(space: &Namespace, run: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let namespace = File::open(format!("/run/netns/{}", space.name)).unwrap();
    std::thread::spawn(move || {
        rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(rustix::thread::LinkNameSpaceType::Network))
            .unwrap();
        run()
    })
}

/// Returns a socket that receives at 10.77.0.1:9 in a namespace.
fn socket_in(space: &Namespace) -> UdpSocket {
    let bound = inside(space, || {
        let socket = UdpSocket::bind("10.77.0.1:9").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    });
    bound.join().unwrap()
}

/// A sender that cuts its segments itself, and writes their checksums or not: the receiver's kernel is given them joined, and every byte.
#[test]
fn segments_of_a_sender_that_cuts_them_itself_arrive_joined() {
    const BYTES: usize = 16 << 20;
    let byte = |at: usize| (at ^ at >> 8 ^ at >> 16) as u8;
    for checksums in ["on", "off"] {
        let lan = Lan::new(2);
        lan.spaces[0].ok("ethtool", &["-K", "t1", "tso", "off", "gso", "off", "tx", checksums]);
        let stream = |coalesce: &str| {
            lan.daemon.ok(&["port", "set", "t2", &format!("coalesce={coalesce}")]);
            let before = lan.daemon.port("t2");
            let listener = inside(&lan.spaces[1], || TcpListener::bind("10.77.0.2:7000").unwrap()).join().unwrap();
            let receiver = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let mut received = Vec::new();
                stream.read_to_end(&mut received).unwrap();
                received
            });
            let sender = inside(&lan.spaces[0], move || {
                let mut stream = TcpStream::connect("10.77.0.2:7000").unwrap();
                stream.set_write_timeout(Some(PATIENCE)).unwrap();
                stream.write_all(&(0..BYTES).map(byte).collect::<Vec<u8>>()).unwrap();
            });
            sender.join().unwrap();
            assert!(receiver.join().unwrap().into_iter().eq((0..BYTES).map(byte)), "other bytes came");
            let after = lan.daemon.port("t2");
            let grown =
                |value: &dyn Fn(&Value) -> &Value| value(&after).as_u64().unwrap() - value(&before).as_u64().unwrap();
            (grown(&|port| &port["coalesced"]), grown(&|port| &port["out"]["frames"]))
        };
        let (joined, frames) = stream("auto");
        assert!(joined > 1000, "{joined} segments joined, {frames} frames, checksums {checksums}");
        let (joined, frames) = stream("off");
        assert!(joined == 0 && frames >= (BYTES / 1448) as u64, "{joined} segments joined, {frames} frames");
    }
}

/// Returns a UDP frame over IPv4 from 10.77.0.9 to 10.77.0.1:9, with only the checksum of its pseudo header.
fn datagram(to: [u8; 6], payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len()) as u16;
    let mut ip = vec![0x45, 0, 0, 0, 0, 7, 0, 0, 64, 17, 0, 0, 10, 77, 0, 9, 10, 77, 0, 1];
    ip[2..4].copy_from_slice(&(20 + length).to_be_bytes());
    let fold = |mut sum: u32| {
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    };
    let words =
        |bytes: &[u8]| bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum::<u32>();
    let (sum, pseudo) = (!fold(words(&ip)), fold(words(&ip[12..20]) + 17 + u32::from(length)));
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let udp = [[0, 9], [0, 9], length.to_be_bytes(), pseudo.to_be_bytes()].concat();
    [&to[..], &STATION, &[8, 0], &ip, &udp, payload].concat()
}

#[test]
fn a_process_port_leaves_checksums_segments_and_fragments_to_the_kernel() {
    let lan = Lan::new(1);
    let space = &lan.spaces[0];
    let mac: Vec<u8> = {
        let said = space.ok("cat", &["/sys/class/net/t1/address"]);
        said.trim().split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
    };
    let (to, socket) = (mac.try_into().unwrap(), socket_in(space));
    let shape = Shape { offload: true, ..Shape::default() };
    let mut port = Port::attach(lan.daemon.runtime_dir().join("attach.sock"), "lan0:probe", shape).unwrap();
    let payload: Vec<u8> = (0..20_000u32).map(|n| (n * 7 + (n >> 8)) as u8).collect();
    let sum = Offload { needs_csum: true, csum_start: 34, csum_offset: 6, ..Offload::default() };
    for (gso, len, size, datagrams) in [
        (Gso::None, 1400, 0, 1),
        (Gso::UdpL4, 20_000, 1000, 20),
        (Gso::UdpL4, 2500, 1000, 3),
        (Gso::Udp4Frag, 20_000, 1480, 1),
    ] {
        let offload = Offload { gso, gso_size: size, ..sum };
        assert!(port.tx().push_offloaded(&datagram(to, &payload[..len]), Some(&offload)));
        port.flush();
        let mut got = Vec::new();
        for _ in 0..datagrams {
            let mut buffer = vec![0; 65_536];
            let len = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("{gso:?}: {error}"));
            got.extend_from_slice(&buffer[..len]);
        }
        assert!(got == payload[..len], "{gso:?}: the payload arrives");
    }
    assert_eq!(lan.daemon.port("probe")["drops"], serde_json::json!({}));
}

#[test]
fn what_the_stack_sends_without_checksum_gets_one_for_a_port_that_needs_it() {
    let lan = Lan::new(1);
    let space = &lan.spaces[0];
    space.ok("ip", &["neigh", "add", "10.77.0.9", "lladdr", "02:00:00:00:00:09", "dev", "t1"]);
    let attach = |name, offload| {
        let shape = Shape { offload, ..Shape::default() };
        Port::attach(lan.daemon.runtime_dir().join("attach.sock"), name, shape).unwrap()
    };
    // No frame came from that address, so frames to it are flooded to both ports.
    let (mut plain, mut unfinished) = (attach("lan0:plain", false), attach("lan0:unfinished", true));
    let socket = socket_in(space);
    socket.send_to(&[0x55; 1001], "10.77.0.9:9").unwrap();
    let is_it = |frame: &[u8]| frame.starts_with(&STATION) && frame.len() == 42 + 1001;
    let mut whole = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while whole.is_empty() {
        assert!(Instant::now() < deadline, "the datagram does not come");
        plain.wait_rx(Duration::from_millis(100)).unwrap();
        plain.rx().drain(1, |frame| {
            if is_it(frame) {
                whole = frame.to_vec()
            }
        });
    }
    // The receiver's checksum over the pseudo header, the header and the payload.
    let udp = &whole[34..];
    let mut sum = 17 + udp.len() as u32;
    for bytes in [&whole[26..34], udp] {
        sum += bytes.chunks(2).map(|b| u32::from(b[0]) << 8 | u32::from(b.get(1).copied().unwrap_or(0))).sum::<u32>();
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    assert_eq!(sum, 0xffff, "the checksum is right");
    let mut left = None;
    while left.is_none() {
        assert!(Instant::now() < deadline, "the datagram does not come");
        unfinished.wait_rx(Duration::from_millis(100)).unwrap();
        unfinished.rx().drain_offloaded(1, |frame, offload| {
            if is_it(frame) {
                left = Some((frame.to_vec(), offload))
            }
        });
    }
    let (frame, offload) = left.unwrap();
    let offload = offload.expect("a checksum left undone by the stack");
    assert_eq!((offload.csum_start, offload.csum_offset, offload.gso), (34, 6, Gso::None));
    assert!(frame[..40] == whole[..40] && frame[40..42] != whole[40..42] && frame[42..] == whole[42..]);
}
