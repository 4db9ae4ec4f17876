//! The source guard, tested with the stacks of network namespaces and with clients that build their own frames.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringway_abi::Slot;
use ringway_abi::doorbell::{INDEX, TX_CLIENT};
use ringway_abi::layout::netmap_ring;
use ringway_abi::slot::{NS_MOREFRAG, SLOT_BYTES};
use ringway_client::Port;
use ringway_scenes::namespace::Lan;
use ringway_scenes::{Daemon, receive, send, until};
use ringway_traffic::{Endpoint, Packed, Ring, Split, VirtioEndpoint, VirtioOptions};
use serde_json::json;

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const VICTIM: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Shortest time for which a guest changes its frames while the switch checks them.
const RACE: Duration = Duration::from_millis(1000);

/// Builds a frame to the victim. `rest` follows the addresses.
fn from(source: [u8; 6], rest: &[u8]) -> Vec<u8> {
    let mut frame = [VICTIM.as_slice(), &source, rest].concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

fn arp(sender: [u8; 6], address: [u8; 4]) -> Vec<u8> {
    [&[8, 6, 0, 1, 8, 0, 6, 4, 0, 2][..], &sender, &address, &VICTIM, &[10, 77, 0, 2]].concat()
}

fn ipv4(source: [u8; 4], fragment: [u8; 2], ports: [u16; 2]) -> Vec<u8> {
    let mut ip = vec![8, 0, 0x45, 0, 0, 28, 0, 0, fragment[0], fragment[1], 64, 17, 0, 0];
    ip.extend(source);
    ip.extend([10, 77, 0, 2]);
    ip.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    ip
}

fn ipv6(source: u8, next: u8, payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x86, 0xdd, 0x60, 0, 0, 0, 0, payload.len() as u8, next, 255];
    ip.extend([0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, source]);
    ip.extend([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    ip.extend(payload);
    ip
}

fn advertisement(target: u8, mac: [u8; 6]) -> Vec<u8> {
    let mut message = vec![136, 0, 0, 0, 0x20, 0, 0, 0];
    message.extend([0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, target]);
    message.extend([2, 1]);
    message.extend(mac);
    message
}

fn behind(tags: &[[u8; 4]], rest: &[u8]) -> Vec<u8> {
    [tags.concat(), rest.to_vec()].concat()
}

fn drops(daemon: &Daemon, reason: &str) -> u64 {
    daemon.port("spoofer")["drops"][reason].as_u64().unwrap_or(0)
}

/// Sends a frame and then a valid one. Returns the frame that arrives before the valid one, if there is one.
fn arrives(send_frame: &mut dyn FnMut(&[u8]), victim: &mut Port, frame: &[u8]) -> Option<Vec<u8>> {
    let mark = from(OWN, &[0x88, 0xb5, 0xff]);
    send_frame(frame);
    send_frame(&mark);
    let first = receive(victim, ringway_scenes::PATIENCE).expect("the valid frame arrives");
    if first == mark {
        return None;
    }
    assert_eq!(receive(victim, ringway_scenes::PATIENCE), Some(mark));
    Some(first)
}

const TAG: [u8; 4] = [0x81, 0, 0, 7];

/// Returns frames that the spoofer may not send, each with the drop reason.
fn forbidden_frames() -> Vec<(&'static str, Vec<u8>)> {
    let (gateway, own) = ([10, 77, 0, 254], [10, 77, 0, 1]);
    let (tag, outer) = (TAG, [0x88, 0xa8, 0, 8]);
    vec![
        ("spoofed_mac", from(VICTIM, &ipv4(own, [0; 2], [9, 9]))),
        ("spoofed_mac", from([2, 0, 0, 0, 0, 254], &arp(OWN, own))),
        ("spoofed_mac", from([3, 0, 0, 0, 0, 1], &[0x88, 0xb5])),
        ("spoofed_mac", from([0; 6], &[0x88, 0xb5])),
        ("spoofed_arp", from(OWN, &arp(OWN, gateway))),
        ("spoofed_arp", from(OWN, &arp(VICTIM, own))),
        ("spoofed_arp", from(OWN, &behind(&[tag], &arp(OWN, gateway)))),
        ("spoofed_arp", from(OWN, &behind(&[outer, tag], &arp(OWN, gateway)))),
        ("spoofed_ip", from(OWN, &ipv4(gateway, [0; 2], [9, 9]))),
        ("spoofed_ip", from(OWN, &ipv4([0; 4], [0; 2], [9, 9]))),
        ("spoofed_ip", from(OWN, &ipv4([255; 4], [0; 2], [9, 9]))),
        ("spoofed_ip", from(OWN, &ipv4([224, 0, 0, 1], [0; 2], [9, 9]))),
        ("spoofed_ip", from(OWN, &ipv4(gateway, [0x20, 0], [9, 9]))),
        ("spoofed_ip", from(OWN, &ipv4(gateway, [0, 185], [9, 9]))),
        ("spoofed_ip", from(OWN, &behind(&[tag], &ipv4(gateway, [0; 2], [9, 9])))),
        ("spoofed_ip", from(OWN, &behind(&[outer, tag], &ipv4(gateway, [0; 2], [9, 9])))),
        ("spoofed_ip", from(OWN, &behind(&[outer, tag], &ipv6(254, 17, &[0, 9, 0, 9, 0, 8, 0, 0])))),
        ("spoofed_ip", from(OWN, &ipv6(254, 59, &[]))),
        ("spoofed_nd", from(OWN, &ipv6(1, 58, &advertisement(254, OWN)))),
        ("spoofed_nd", from(OWN, &ipv6(1, 58, &advertisement(1, VICTIM)))),
        ("spoofed_nd", from(OWN, &ipv6(254, 58, &advertisement(254, OWN)))),
        ("spoofed_nd", from(OWN, &behind(&[tag], &ipv6(1, 58, &advertisement(254, OWN))))),
        ("dhcp_server", from(OWN, &ipv4(own, [0; 2], [67, 68]))),
        ("dhcp_server", from(OWN, &behind(&[tag], &ipv4(own, [0; 2], [67, 68])))),
        ("dhcp_server", from(OWN, &ipv4(own, [0x20, 0], [9, 68]))),
        ("dhcp_server", from(OWN, &ipv6(1, 17, &[2, 35, 2, 34, 0, 8, 0, 0]))),
        ("router_advertised", from(OWN, &ipv6(1, 58, &[134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0]))),
        ("guard_unreadable", from(OWN, &ipv6(1, 60, &[58, 31, 0, 0, 0, 0, 0, 0]))),
        (
            "guard_unreadable",
            from(OWN, &ipv6(1, 44, &[[58, 0, 0, 1, 0, 0, 0, 1].as_slice(), &advertisement(1, OWN)].concat())),
        ),
        ("guard_unreadable", from(OWN, &behind(&[tag; 40], &arp(OWN, own)))),
        ("guard_unreadable", from(OWN, &[8, 0, 0x65])),
        ("spoofed_arp", from(OWN, &[&[0x80, 0x35], &arp(VICTIM, own)[2..]].concat())),
        (
            "spoofed_ip",
            from(OWN, &[&[0, 36, 0xaa, 0xaa, 3, 0, 0, 0], ipv4(gateway, [0; 2], [9, 9]).as_slice()].concat()),
        ),
        ("spoofed_ip", from(OWN, &ipv6(254, 44, &[17, 0, 0, 1, 0, 0, 0, 1, 0, 9, 0, 9, 0, 8, 0, 0]))),
        ("spoofed_nd", from(OWN, &behind(&[outer, tag], &ipv6(1, 58, &advertisement(254, OWN))))),
        ("dhcp_server", from(OWN, &behind(&[tag], &ipv6(1, 17, &[2, 35, 2, 34, 0, 8, 0, 0])))),
        ("router_advertised", from(OWN, &ipv6(1, 58, &[[137].as_slice(), &[0; 39]].concat()))),
        // The UDP ports would come in the next fragment. The frame ends with padding.
        (
            "guard_unreadable",
            [from(OWN, &ipv6(1, 44, &[17, 0, 0, 1, 0, 0, 0, 1, 0, 9])), vec![0, 9, 0, 8, 0, 0]].concat(),
        ),
    ]
}

fn permitted_frames() -> Vec<Vec<u8>> {
    let (own, tag, outer) = ([10, 77, 0, 1], TAG, [0x88, 0xa8, 0, 8]);
    vec![
        from(OWN, &arp(OWN, own)),
        from(OWN, &arp(OWN, [0; 4])),
        from(OWN, &ipv4(own, [0; 2], [9, 9])),
        from(OWN, &ipv4(own, [0, 185], [67, 68])),
        from(OWN, &ipv4([0; 4], [0; 2], [68, 67])),
        from(OWN, &behind(&[outer, tag], &ipv4(own, [0; 2], [9, 9]))),
        from(OWN, &ipv6(1, 58, &advertisement(1, OWN))),
        from(OWN, &[0x88, 0xcc, 1, 2]),
    ]
}

/// Starts the switch `lan0` with these two ports. The spoofer's port is bound to its addresses, and guarded.
fn guarded(spoofer: &str, victim: &str) -> Daemon {
    Daemon::start(&format!(
        "[switch.lan0]\n[port.spoofer]\nswitch = \"lan0\"\n{spoofer}\nmac = \"02:00:00:00:00:01\"\n\
         ip = [\"10.77.0.1\", \"fd77::1\"]\nguard = \"all\"\n[port.victim]\nswitch = \"lan0\"\nkind = \"process\"\n{victim}\n"
    ))
}

/// Checks that forbidden frames are dropped and counted by reason, and that permitted frames arrive.
fn check_guard(
    daemon: &Daemon,
    send_frame: &mut dyn FnMut(&[u8]),
    victim: &mut Port,
    is_included: impl Fn(&[u8]) -> bool,
) {
    for (reason, frame) in forbidden_frames().iter().filter(|(_, frame)| is_included(frame)) {
        let before = drops(daemon, reason);
        assert_eq!(arrives(send_frame, victim, frame), None, "{reason}: {frame:02x?}");
        until("the frame is counted", || drops(daemon, reason) > before);
        assert_eq!(drops(daemon, reason), before + 1, "{reason}: {frame:02x?}");
    }
    for frame in permitted_frames().iter().filter(|frame| is_included(frame)) {
        assert_eq!(arrives(send_frame, victim, frame).as_ref(), Some(frame), "{frame:02x?}");
    }
}

#[test]
fn a_client_that_speaks_in_anothers_name_is_not_heard_and_every_kind_of_lie_has_a_name() {
    let daemon = guarded("kind = \"process\"", "");
    let (mut spoofer, mut victim) = (daemon.attach("lan0:spoofer").unwrap(), daemon.attach("lan0:victim").unwrap());
    assert_eq!(daemon.port("spoofer")["identity"]["guard"], json!(["mac", "ip", "dhcp", "ra"]));
    check_guard(&daemon, &mut |frame| send(&mut spoofer, frame), &mut victim, |_| true);

    // The settings change while the client is attached.
    let gratuitous = from(OWN, &arp(OWN, [10, 77, 0, 254]));
    daemon.ok(&["port", "set", "spoofer", "ip=[\"10.77.0.254\",\"10.77.0.1\"]"]);
    assert_eq!(arrives(&mut |frame| send(&mut spoofer, frame), &mut victim, &gratuitous), Some(gratuitous.clone()));
    daemon.ok(&["port", "set", "spoofer", "ip=10.77.0.1"]);
    assert_eq!(arrives(&mut |frame| send(&mut spoofer, frame), &mut victim, &gratuitous), None);
    daemon.ok(&["port", "set", "spoofer", "guard=off"]);
    assert_eq!(arrives(&mut |frame| send(&mut spoofer, frame), &mut victim, &gratuitous), Some(gratuitous));
    assert_eq!(daemon.port("spoofer")["identity"]["guard"], json!([]));
}

/// Checks the guard with a virtual machine's driver.
fn check_guarded_guest<R: Ring>() {
    let daemon = guarded("kind = \"vhost-user\"", "");
    let socket = daemon.runtime_dir().join("spoofer.sock");
    let mut spoofer = VirtioEndpoint::<R>::attach(&socket, &VirtioOptions::default()).unwrap();
    let mut victim = daemon.attach("lan0:victim").unwrap();
    let mut send_frame = |frame: &[u8]| {
        until("there is room", || spoofer.tx_push(frame.len(), |place| place.copy_from_slice(frame)));
        spoofer.tx_flush();
    };
    check_guard(&daemon, &mut send_frame, &mut victim, |_| true);
}

#[test]
fn a_machine_that_speaks_in_anothers_name_is_not_heard() {
    check_guarded_guest::<Split>();
    check_guarded_guest::<Packed>();
}

/// Returns the file of a driver's memory that contains these bytes, and all their offsets.
fn guest_memory(bytes: &[u8]) -> (File, Vec<u64>) {
    let files = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let is_guests = |path: &PathBuf| {
        std::fs::read_link(path).is_ok_and(|name| name.to_string_lossy().contains("ringway-gen-virtio"))
    };
    for path in files.filter(is_guests) {
        let content = std::fs::read(&path).unwrap_or_default();
        let finds: Vec<u64> =
            (0u64..).zip(content.windows(bytes.len())).filter(|(_, at)| *at == bytes).map(|(at, _)| at).collect();
        if !finds.is_empty() {
            return (File::options().write(true).open(&path).unwrap(), finds);
        }
    }
    panic!("no driver's memory has these bytes");
}

/// A driver gives buffers to the switch while another thread of the guest writes into them.
fn frames_that_change<R: Ring>(mark: u8) {
    let daemon = guarded("kind = \"vhost-user\"", "");
    let socket = daemon.runtime_dir().join("spoofer.sock");
    let mut spoofer = VirtioEndpoint::<R>::attach(&socket, &VirtioOptions::default()).unwrap();
    let mut victim = daemon.attach("lan0:victim").unwrap();
    let own = [10, 77, 0, 1];
    let mut valid = from(OWN, &ipv4(own, [0; 2], [9, 9]));
    valid.extend([mark; 16]);
    let [mut other_mac, mut other_ip] = [valid.clone(), valid.clone()];
    other_mac[6..12].copy_from_slice(&VICTIM);
    other_ip[29] = 254;
    let (mut received, mut pushed) = (0, 0);
    let mut listen = |received: &mut u64| {
        victim.rx().drain(512, |frame| {
            assert_eq!((&frame[6..12], &frame[26..30]), (&OWN[..], &own[..]), "a spoofed frame arrived");
            *received += 1;
        });
    };
    // Each buffer is used once, and then holds the frame.
    until("all buffers were used", || {
        while pushed < 1024 && spoofer.tx_push(valid.len(), |place| place.copy_from_slice(&valid)) {
            pushed += 1;
        }
        spoofer.tx_flush();
        listen(&mut received);
        pushed == 1024
    });
    let (memory, places) = guest_memory(&valid);
    let stop = AtomicBool::new(false);
    let spoofed = || [drops(&daemon, "spoofed_mac"), drops(&daemon, "spoofed_ip")];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for frame in [&other_mac, &valid, &other_ip, &valid] {
                    places.iter().for_each(|&at| memory.write_all_at(&frame[..30], at).unwrap());
                }
            }
        });
        let race = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            received = 0;
            let began = Instant::now();
            until("both kinds of spoofed frames were dropped and valid ones arrived", || {
                for _ in 0..1000 {
                    while spoofer.tx_repeat(&valid) {}
                    spoofer.tx_flush();
                    listen(&mut received);
                    std::thread::yield_now();
                }
                began.elapsed() > RACE && received > 0 && spoofed().iter().all(|&count| count > 0)
            });
        }));
        stop.store(true, Ordering::Relaxed);
        race.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    println!("{received} frames arrived, {:?} were dropped as spoofed", spoofed());
}

#[test]
fn a_machine_that_changes_a_frame_while_it_is_judged_is_heard_as_it_was_judged() {
    frames_that_change::<Split>(0xa5);
    frames_that_change::<Packed>(0x5a);
}

#[test]
fn a_port_that_speaks_in_anothers_name_behind_the_tag_of_a_vlan_is_not_heard_in_it() {
    let daemon = guarded("kind = \"process\"\ntrunk = [7]", "vlan = 7");
    let (mut spoofer, mut victim) = (daemon.attach("lan0:spoofer").unwrap(), daemon.attach("lan0:victim").unwrap());
    let mut send_frame = |frame: &[u8]| send(&mut spoofer, &[&frame[..12], &TAG, &frame[12..]].concat());
    let has_no_tag = |frame: &[u8]| frame[12..14] != [0x81, 0] && frame[12..14] != [0x88, 0xa8];
    check_guard(&daemon, &mut send_frame, &mut victim, has_no_tag);
}

#[test]
fn no_lie_is_heard_that_is_spread_over_many_slots() {
    /// Bytes of a slot. Every header is split: those of Ethernet, ARP and IP.
    const PIECE: usize = 5;
    let daemon = guarded("kind = \"process\"", "");
    let (spoofer, mut victim) = (daemon.attach("lan0:spoofer").unwrap(), daemon.attach("lan0:victim").unwrap());
    let layout = *spoofer.layout();
    let view = |at, len| spoofer.memory().mapping().view(at, len).expect("inside");
    let mut head = 0;
    let mut send_frame = |frame: &[u8]| {
        let pieces = frame.len().div_ceil(PIECE);
        for (number, piece) in (1..).zip(frame.chunks(PIECE)) {
            let buffer = layout.first_tx_buffer(0, head);
            assert!(view(layout.buffer(buffer), piece.len()).write(piece));
            let flags = if number < pieces { NS_MOREFRAG } else { 0 };
            let slot = Slot { buffer, len: piece.len() as u16, flags };
            let at = layout.tx_ring(0) + netmap_ring::SLOTS + head as usize * SLOT_BYTES;
            view(at, 8).words64().expect("aligned")[0].store(slot.to_word(), Ordering::Relaxed);
            head = (head + 1) % layout.shape.tx_slots;
        }
        let at = layout.doorbell(0) + 4 * (TX_CLIENT + INDEX);
        view(at, 4).words32().expect("aligned")[0].store(head, Ordering::SeqCst);
        rustix::io::write(spoofer.kick_fd(), &1u64.to_ne_bytes()).expect("a kick");
    };
    check_guard(&daemon, &mut send_frame, &mut victim, |_| true);
}

#[test]
fn stacks_with_their_own_addresses_notice_no_guard_and_others_are_not_heard() {
    let lan = Lan::new(2);
    for (number, space) in (1..).zip(&lan.spaces) {
        let device = format!("t{number}");
        let mac = format!("02:00:00:00:00:0{number}");
        space.ok("ip", &["link", "set", "dev", &device, "address", &mac]);
        lan.daemon.ok(&[
            "port",
            "set",
            &device,
            "guard=all",
            &format!("mac={mac}"),
            &format!("ip=[\"10.77.0.{number}\",\"fd77::{number}\"]"),
        ]);
        space.ok("sysctl", &["-qw", &format!("net.ipv6.conf.{device}.disable_ipv6=0")]);
        space.ok("ip", &["addr", "add", &format!("fd77::{number}/64"), "dev", &device]);
    }
    let [one, two] = [&lan.spaces[0], &lan.spaces[1]];
    let ready = |space: &ringway_scenes::namespace::Namespace| {
        !space.ok("ip", &["-6", "addr", "show", "tentative"]).contains("fd77")
    };
    until("duplicate address detection ends", || ready(one) && ready(two));
    one.ok("ping", &["-q", "-c", "20", "-i", "0.01", "-W", "300", "10.77.0.2"]);
    one.ok("ping", &["-q", "-c", "20", "-i", "0.01", "-W", "300", "fd77::2"]);
    // Pings in fragments.
    one.ok("ping", &["-q", "-c", "5", "-i", "0.01", "-W", "300", "-s", "8000", "10.77.0.2"]);
    one.ok("ping", &["-q", "-c", "5", "-i", "0.01", "-W", "300", "-s", "8000", "fd77::2"]);
    let drops = |reason| lan.drops("t1", reason);
    let reasons = ["spoofed_mac", "spoofed_arp", "spoofed_ip", "spoofed_nd", "dhcp_server", "guard_unreadable"];
    assert_eq!(reasons.map(drops), [0; 6], "{}", lan.daemon.port("t1"));

    one.ok("ip", &["addr", "add", "10.77.0.99/24", "dev", "t1"]);
    let ping = |from: &str, to: &str| one.run("ping", &["-q", "-c", "2", "-i", "0.2", "-W", "1", "-I", from, to]).code;
    assert_eq!(ping("10.77.0.99", "10.77.0.2"), Some(1));
    until("the spoofed frames are counted", || drops("spoofed_ip") + drops("spoofed_arp") >= 1);
    until("pings from the own address are answered", || ping("10.77.0.1", "10.77.0.2") == Some(0));
    one.ok("ip", &["addr", "add", "fd77::99/64", "nodad", "dev", "t1"]);
    assert_eq!(ping("fd77::99", "fd77::2"), Some(1));
    until("the spoofed frames are counted", || drops("spoofed_ip") + drops("spoofed_nd") >= 2);
    one.ok("ip", &["link", "set", "dev", "t1", "address", "02:00:00:00:00:02"]);
    assert_eq!(
        ping("10.77.0.1", "10.77.0.2"),
        Some(1),
        "pings from the other host's Ethernet address are not answered"
    );
    until("the spoofed frames are counted", || drops("spoofed_mac") >= 1);
}

#[test]
fn a_guard_that_changes_loses_no_ping() {
    let lan = Lan::new(2);
    lan.spaces[0].ok("ip", &["link", "set", "dev", "t1", "address", "02:00:00:00:00:01"]);
    let pings = lan.spaces[0].start_ping(400, &["-i", "0.005", "10.77.0.2"]);
    for round in 0..20 {
        let macs: Vec<String> =
            (0..200 * round).map(|n| format!("\"06:00:00:00:{:02x}:{:02x}\"", n / 256, n % 256)).collect();
        let macs = format!("mac=[\"02:00:00:00:00:01\",{}]", macs.join(","));
        lan.daemon.ok(&["port", "set", "t1", &macs.replace(",]", "]"), "ip=10.77.0.1", "guard=all"]);
        lan.daemon.ok(&["port", "set", "t1", "ip=10.77.0.0/24", "guard=auto"]);
    }
    pings.finish();
    assert_eq!(lan.daemon.port("t1")["mac"].as_array().map(Vec::len), Some(3801));
}

#[test]
fn an_address_that_moves_is_reported_and_one_that_two_ports_use_is_called_that() {
    let daemon = Daemon::start("[switch.lan0]\n");
    let (mut a, mut b) = (daemon.attach("lan0:a").unwrap(), daemon.attach("lan0:b").unwrap());
    let hello = ringway_scenes::frame([0xff; 6], VICTIM, 1);
    let moves = || daemon.status()["switches"][0]["moves"].clone();
    send(&mut a, &hello);
    receive(&mut b, ringway_scenes::PATIENCE).expect("the frame arrives");
    assert_eq!(moves(), json!([]));
    send(&mut b, &hello);
    receive(&mut a, ringway_scenes::PATIENCE).expect("the frame arrives");
    let said = moves()[0].clone();
    assert_eq!(
        (&said["from"], &said["to"], &said["count"], &said["duplicate"]),
        (&json!("a"), &json!("b"), &json!(1), &json!(false))
    );
    send(&mut a, &hello);
    receive(&mut b, ringway_scenes::PATIENCE).expect("the frame arrives");
    assert_eq!((&moves()[0]["count"], &moves()[0]["duplicate"]), (&json!(2), &json!(true)));
    assert!(daemon.ok(&["status"]).contains("used twice, or a loop"));
    let warning = daemon.status()["warnings"][0].clone();
    assert_eq!(
        (&warning["key"], &warning["what"]),
        (&json!("switch.lan0"), &json!("an address is in use at both \"a\" and \"b\""))
    );
}

#[test]
fn an_address_that_two_ports_use_by_turns_moves_a_few_times_and_every_refusal_is_counted() {
    const FRAMES: u64 = 1000;
    let daemon = Daemon::start("[switch.lan0]\n");
    let (mut a, mut b) = (daemon.attach("lan0:a").unwrap(), daemon.attach("lan0:b").unwrap());
    let hello = ringway_scenes::frame([0xff; 6], VICTIM, 1);
    let began = Instant::now();
    for number in 0..FRAMES {
        let (from, to) = if number % 2 == 0 { (&mut a, &mut b) } else { (&mut b, &mut a) };
        send(from, &hello);
        receive(to, ringway_scenes::PATIENCE).expect("frames are forwarded also while the address does not move");
    }
    let status = daemon.status()["switches"][0].clone();
    let (moved, held) = (status["moved"].as_u64().unwrap(), status["moves_held"].as_u64().unwrap());
    // Two moves for each hold-down. Hold-downs take 1, 2, 4 and more seconds, up to a minute.
    let most = 16 + 2 * (began.elapsed().as_secs() / 60);
    assert!((1..=most).contains(&moved), "{status}");
    assert_eq!(held + moved.div_ceil(2), FRAMES / 2, "each frame of the second port moved the address or was counted");
    assert_eq!(["a", "b"].map(|port| daemon.port(port)["moves_held"].clone()), [json!(0), json!(held)]);
    assert_eq!(status["moves"][0]["held"], json!(held));
    let said = daemon.ok(&["status"]);
    let row = said.lines().find(|line| line.contains("used twice, or a loop")).expect("the address is listed");
    assert!(row.split_whitespace().any(|cell| cell == held.to_string()), "{said}");
}

#[test]
fn a_port_has_as_many_addresses_as_it_can_have_and_one_more_is_refused() {
    let daemon = Daemon::start("[switch.lan0]\n[port.p]\nswitch = \"lan0\"\nkind = \"process\"\n");
    let macs = |count: usize| {
        let macs = (0..count).map(|n| format!("\"06:00:00:00:{:02x}:{:02x}\"", n / 256, n % 256));
        format!("mac=[{}]", macs.collect::<Vec<_>>().join(","))
    };
    let ips = |count: usize| {
        let ips = (0..count).map(|n| format!("\"10.77.{}.{}\"", n / 256, n % 256));
        format!("ip=[{}]", ips.collect::<Vec<_>>().join(","))
    };
    let has = || {
        let port = daemon.port("p");
        [&port["mac"], &port["identity"]["ip"]].map(|list| list.as_array().map_or(0, Vec::len))
    };
    daemon.ok(&["port", "set", "p", &macs(4096), &ips(1024)]);
    assert_eq!(has(), [4096, 1024]);
    for (keys, right) in [(macs(4097), "a port can have up to 4096"), (ips(1025), "a port can have up to 1024")] {
        let said = daemon.ringway(&["port", "set", "p", &keys]);
        assert!(said.code == Some(2) && said.err.contains(right), "{right}: {}", said.err);
        assert_eq!(has(), [4096, 1024], "a refused request changes nothing");
    }
}
