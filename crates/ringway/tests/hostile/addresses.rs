//! Floods of source addresses: the table keeps the addresses of other ports, and a guard drops the whole flood.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringway_abi::Slot;
use ringway_scenes::{settle, until};
use serde_json::Value;

use crate::attacker::{Attacker, EVIL, PEER, Side};
use crate::scene::{Scene, StopOnDrop};

const MILLION: u64 = 1_000_000;
/// Shortest time for which a client changes its frames while the switch checks them.
const RACE: Duration = Duration::from_millis(1500);

/// Returns a pseudo-random number, equal in every run (SplitMix64, Steele and others, 2014).
fn mixed(number: u64) -> u64 {
    let a = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let b = (a ^ a >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let c = (b ^ b >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    c ^ c >> 31
}

/// Returns a unicast address with these 46 bits.
fn station(bits: u64) -> [u8; 6] {
    let [.., a, b, c, d, e, f] = bits.to_be_bytes();
    [a & 0xfc | 2, b, c, d, e, f]
}

/// Sends frames to the peer from each of these addresses, and waits until the switch has taken them.
fn flood(scene: &Scene, evil: &mut Attacker, sources: impl Iterator<Item = [u8; 6]>) -> u64 {
    let name = evil.name.clone();
    let taken = |scene: &Scene| scene.daemon.port(&name)["in"]["frames"].as_u64().expect("a count");
    let (before, mut sent) = (taken(scene), 0);
    let mut frame = ringway_scenes::frame(PEER, EVIL, 0);
    for source in sources {
        frame[6..12].copy_from_slice(&source);
        while !evil.port.tx().push(&frame) {
            evil.port.flush();
            std::thread::yield_now();
        }
        sent += 1;
    }
    evil.port.flush();
    settle(&scene.daemon, &name, &mut evil.port, before + sent);
    sent
}

/// Returns the number of addresses that the switch has learned at a port.
fn known(scene: &Scene, port: &str) -> usize {
    let table: Value = serde_json::from_str(&scene.daemon.ok(&["fdb", "--json"])).expect("JSON");
    let entries = table.as_array().or_else(|| table["entries"].as_array()).expect("a list");
    entries.iter().filter(|entry| entry["port"] == port).count()
}

/// Checks that the bystanders' frames are not flooded, because the switch still knows both addresses.
fn hears_no_bystander(scene: &Scene, peer: &mut Attacker) {
    let mut received = 0;
    let mut others = |frame: &[u8]| received += u64::from(frame[6..12] != EVIL && frame[2..5] == [0, 0xaa, 0]);
    while peer.port.rx().drain(256, &mut others) > 0 {}
    scene.bystanders.go_on(2000);
    while peer.port.rx().drain(256, &mut others) > 0 {}
    assert_eq!(received, 0, "frames of bystanders were flooded");
}

#[test]
fn a_million_sources_take_no_more_than_a_ports_share_of_the_table() {
    let scene = Scene::start();
    let (mut evil, mut peer) = scene.attach_pair();
    flood(&scene, &mut evil, (0..MILLION).map(|number| station(mixed(number))));
    let most = known(&scene, "evil");
    assert!((1..=4096).contains(&most), "{most} addresses of one port");
    assert_eq!((known(&scene, "bystander-a"), known(&scene, "bystander-b")), (1, 1));
    hears_no_bystander(&scene, &mut peer);
    drop((evil, peer));
    scene.end();
}

/// Addresses that a weak hash would put into one bucket: they differ only in `SET_BITS` bits.
#[test]
fn no_set_of_addresses_that_are_nearly_alike_meets_in_one_place() {
    const SET_BITS: u32 = 14;
    let mut scene = Scene::start_with(&format!("[switch.lan0]\nmac_entries = {0}\nmac_limit = {0}\n", 2 << SET_BITS));
    let mut peer = scene.attach("peer");
    peer.introduce(PEER);
    for shift in [0, 8, 16, 24, 26] {
        // A port that is added again begins without addresses.
        let mut evil = scene.attach("evil");
        flood(&scene, &mut evil, (0..1 << SET_BITS).map(|number| station(0x0123_4567_89ab ^ number << shift)));
        // The addresses fill half of the table. Each address can be at one of 16 places.
        assert_eq!(known(&scene, "evil"), 1 << SET_BITS, "addresses that differ from bit {shift} on");
        drop(evil);
        until("the port is gone", || scene.daemon.port("evil").is_null());
    }
    assert_eq!((known(&scene, "bystander-a"), known(&scene, "bystander-b")), (1, 1));
    drop(peer);
    scene.allow_for_the_first_round(8 << 10);
    scene.end();
}

/// Each port has its share of the table, and all ports together have the whole table.
#[test]
fn ports_that_fill_the_table_together_leave_what_is_known_of_others() {
    let mut scene = Scene::start_with("[switch.lan0]\nmac_entries = 4096\nmac_limit = 1024\n");
    let mut peer = scene.attach("peer");
    peer.introduce(PEER);
    let mut evils: Vec<_> = (0..6).map(|number| scene.attach(&format!("evil{number}"))).collect();
    for (number, evil) in evils.iter_mut().enumerate() {
        flood(&scene, evil, (0..20_000).map(|n| station(mixed(n | (number as u64) << 32))));
        assert!(known(&scene, &evil.name) <= 1024, "{} has more than its share", evil.name);
    }
    let of_all: usize = evils.iter().map(|evil| known(&scene, &evil.name)).sum();
    assert!(of_all > 4000, "{of_all} addresses are much fewer than 4,096");
    assert_eq!((known(&scene, "bystander-a"), known(&scene, "bystander-b")), (1, 1));
    hears_no_bystander(&scene, &mut peer);
    drop((evils, peer));
    scene.allow_for_the_first_round(8 << 10);
    scene.end();
}

/// Two ports claim the same addresses in turn.
#[test]
fn addresses_that_move_all_the_time_cost_others_nothing_and_are_told_in_a_list_that_ends() {
    const ADDRESSES: u64 = 2000;
    let scene = Scene::start();
    let (mut evil, mut peer) = scene.attach_pair();
    let mut accomplice = scene.attach("accomplice");
    for round in 0..5 {
        for by in [&mut evil, &mut accomplice] {
            flood(&scene, by, (0..ADDRESSES).map(|number| station(mixed(number))));
            // Each address is at one of the two ports. One address is the attacker's own.
            let all = known(&scene, "evil") + known(&scene, "accomplice");
            assert_eq!(all, ADDRESSES as usize + 1, "round {round}");
        }
    }
    let switch = scene.daemon.status()["switches"][0].clone();
    let moves = switch["moves"].as_array().expect("a list");
    assert_eq!(moves.len(), 64);
    let count = |key: &str| switch[key].as_u64().expect("a count");
    assert!(count("moved") >= ADDRESSES && count("moves_held") > 0, "{switch}");
    // A new address still moves at once.
    let machine = station(mixed(ADDRESSES));
    for (by, from) in [(&mut evil, "evil"), (&mut accomplice, "accomplice")] {
        let before = known(&scene, from);
        flood(&scene, by, std::iter::once(machine));
        assert_eq!(known(&scene, from), before + 1, "{from}");
    }
    assert_eq!((known(&scene, "bystander-a"), known(&scene, "bystander-b")), (1, 1));
    hears_no_bystander(&scene, &mut peer);
    drop((evil, accomplice, peer));
    scene.end();
}

#[test]
fn a_guard_lets_none_of_a_million_sources_in_and_counts_each() {
    let scene = Scene::start_with(
        "[switch.lan0]\n[port.evil]\nswitch = \"lan0\"\nkind = \"process\"\nmac = [\"02:ee:00:00:00:01\"]\n",
    );
    let (mut evil, mut peer) = scene.attach_pair();
    let sources = (0..MILLION).map(|number| match number % 4 {
        0 => station(mixed(number)),
        // The peer's address, a group address, and an unused address.
        1 => PEER,
        2 => [1, 0, 0x5e, 0, 0, number as u8],
        _ => [0; 6],
    });
    let before = scene.daemon.port("peer")["out"]["frames"].clone();
    let sent = flood(&scene, &mut evil, sources);
    let drops = scene.drops("evil", "spoofed_mac") + scene.drops("evil", "bad_source");
    assert_eq!(drops, sent, "{}", scene.daemon.port("evil")["drops"]);
    assert_eq!(scene.daemon.port("peer")["out"]["frames"], before, "a frame with a forbidden source arrived");
    assert_eq!(known(&scene, "peer"), 1, "the peer's address has not moved");
    hears_no_bystander(&scene, &mut peer);
    drop((evil, peer));
    scene.end();
}

#[test]
fn a_frame_that_changes_while_it_is_judged_arrives_as_what_it_was_judged_to_be() {
    let scene = Scene::start_with(
        "[switch.lan0]\n[port.evil]\nswitch = \"lan0\"\nkind = \"process\"\nmac = [\"02:ee:00:00:00:01\"]\n\
         ip = [\"10.77.0.1\"]\n",
    );
    let (evil, mut peer) = scene.attach_pair();
    let ipv4 = [0x08, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2, 0, 9, 0, 9];
    let mut valid = [&PEER[..], &EVIL, &ipv4].concat();
    valid.resize(60, 0);
    let [mut other_mac, mut other_ip] = [valid.clone(), valid.clone()];
    other_mac[6..12].copy_from_slice(&PEER);
    other_ip[29] = 254;
    let layout = *evil.port.layout();
    let slots = layout.shape.tx_slots;
    for at in 0..slots {
        let buffer = layout.first_tx_buffer(0, at);
        evil.write_buffer(buffer, &valid);
        evil.set_slot(Side::Tx, at, Slot { buffer, len: 60, flags: 0 });
    }
    let spoofed = || [scene.drops("evil", "spoofed_mac"), scene.drops("evil", "spoofed_ip")];
    let (stop, mut head, mut received) = (AtomicBool::new(false), 0, 0);
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for frame in [&other_mac, &valid, &other_ip, &valid] {
                    (0..slots).for_each(|at| evil.write_buffer(layout.first_tx_buffer(0, at), frame));
                }
            }
        });
        let began = Instant::now();
        until("both kinds of spoofed frames were dropped and valid ones arrived", || {
            for _ in 0..1000 {
                head = (head + slots - 1) % slots;
                evil.publish(head);
                peer.port.rx().drain(512, |frame| {
                    if frame.get(12..14) == Some(&[8, 0]) {
                        assert_eq!(
                            (&frame[6..12], &frame[26..30]),
                            (&EVIL[..], &[10, 77, 0, 1][..]),
                            "a spoofed frame arrived"
                        );
                        received += 1;
                    }
                });
                std::thread::yield_now();
            }
            began.elapsed() > RACE && received > 0 && spoofed().iter().all(|&count| count > 0)
        });
    });
    println!("{received} frames arrived, {:?} were dropped as spoofed", spoofed());
    drop((evil, peer));
    scene.end();
}
