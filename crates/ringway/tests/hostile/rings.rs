//! Garbage in heads, tails, slots and netmap's header.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringway_abi::Slot;
use ringway_abi::doorbell::{INDEX, LOST, RX_CLIENT, RX_SWITCH, TX_SWITCH, WISH};
use ringway_abi::slot::{NS_BUF_CHANGED, NS_MOREFRAG};
use ringway_client::Shape;
use ringway_scenes::{PATIENCE, frame, send, until};

use crate::attacker::{EVIL, PEER, Side};
use crate::scene::{Scene, StopOnDrop};

/// The time for which two threads of an attacker race with the switch.
const RACE: Duration = Duration::from_millis(1500);

#[test]
fn garbage_in_netmaps_header_is_never_read() {
    let scene = Scene::start();
    let (mut evil, mut peer) = scene.attach_pair();
    let at = [0, evil.ring_at(Side::Tx), evil.ring_at(Side::Rx)];
    for word in at.iter().flat_map(|start| (0..64).map(move |word| start + 4 * word)) {
        evil.word(word).store(0xdead_beef, Ordering::Relaxed);
    }
    for number in 0..100 {
        send(&mut evil.port, &frame(PEER, EVIL, number));
        assert_eq!(peer.receive_from(EVIL), frame(PEER, EVIL, number));
        send(&mut peer.port, &frame(EVIL, PEER, number));
        assert_eq!(evil.receive_from(PEER), frame(EVIL, PEER, number));
    }
    drop((evil, peer));
    scene.end();
}

#[test]
fn a_transmit_head_beyond_the_ring_ends_the_port() {
    let scene = Scene::start();
    for head in [512, 513, 0x8000_0000, u32::MAX] {
        let evil = scene.attach("evil");
        evil.publish(head);
        scene.must_have_ended(&evil, "tx_head_out_of_range", &format!("head {head} is not a slot"));
    }
    assert_eq!(scene.faults("evil", "tx_head_out_of_range"), 4, "each fault is counted");
    scene.end();
}

#[test]
fn a_receive_head_that_passes_the_tail_ends_the_port() {
    let scene = Scene::start();
    let mut peer = scene.attach("peer");
    for head in [5, 511, 512, 0x8000_0000, u32::MAX] {
        let evil = scene.attach("evil");
        evil.doorbell(RX_CLIENT + INDEX).store(head, Ordering::SeqCst);
        send(&mut peer.port, &frame([0xff; 6], PEER, 0));
        scene.must_have_ended(&evil, "rx_head_out_of_range", &format!("head {head} is not between"));
    }
    drop(peer);
    scene.end();
}

#[test]
fn what_a_client_writes_into_the_switchs_lines_harms_only_itself() {
    let scene = Scene::start();
    let (evil, mut peer) = scene.attach_pair();
    for round in 0..200u32 {
        for word in [TX_SWITCH + INDEX, TX_SWITCH + WISH, RX_SWITCH + INDEX, RX_SWITCH + WISH, RX_SWITCH + LOST] {
            evil.doorbell(word).store(round.wrapping_mul(0x9e37_79b9), Ordering::SeqCst);
        }
        send(&mut peer.port, &frame(EVIL, PEER, round as u8));
        evil.kick();
    }
    until("evil is given its frames", || scene.daemon.port("evil")["out"]["frames"].as_u64() >= Some(200));
    assert_eq!(scene.daemon.port("evil")["state"], "up");
    drop((evil, peer));
    scene.end();
}

#[test]
fn slots_that_name_no_buffer_or_no_length_are_counted_and_skipped() {
    let scene = Scene::start();
    let (evil, mut peer) = scene.attach_pair();
    let buffers = evil.port.layout().buffer_count;
    let good = evil.port.layout().first_tx_buffer(0, 1);
    evil.write_buffer(good, &frame(PEER, EVIL, 7));
    // One frame was sent before, so the ring is at slot 1.
    let slot = |buffer, len, flags| Slot { buffer, len, flags };
    let bad_buffers = [0, 1, buffers, buffers + 1, 0x8000_0000, u32::MAX].map(|buffer| slot(buffer, 60, 0));
    let bad_lengths = [0, 2113, 4096, 65535].map(|len| slot(good, len, 0));
    let twice = [slot(good, 60, 0), slot(good, 60, NS_BUF_CHANGED), slot(good, 60, !NS_MOREFRAG)];
    let all: Vec<Slot> = bad_buffers.into_iter().chain(bad_lengths).chain(twice).collect();
    for (at, slot) in (1..).zip(&all) {
        evil.set_slot(Side::Tx, at, *slot);
    }
    evil.publish(1 + all.len() as u32);
    for _ in 0..3 {
        assert_eq!(peer.receive_from(EVIL), frame(PEER, EVIL, 7), "several slots may have one buffer");
    }
    until("all frames are counted", || {
        scene.drops("evil", "bad_buffer") == 6 && scene.drops("evil", "bad_length") == 4
    });
    assert_eq!(scene.daemon.port("evil")["in"]["frames"], 1 + all.len(), "each slot counts as taken");

    // Invalid buffers in the receive ring. The switch writes length and flags itself.
    let next = scene.daemon.port("evil")["out"]["frames"].as_u64().expect("a number") as u32;
    evil.set_slot(Side::Rx, next, slot(u32::MAX, 65535, u16::MAX));
    for number in 0..5 {
        send(&mut peer.port, &frame(EVIL, PEER, number));
    }
    until("the frames are counted", || scene.drops("evil", "bad_buffer") == 6 + 5);
    evil.set_slot(Side::Rx, next, slot(evil.port.layout().first_rx_buffer(0, next), 65535, u16::MAX));
    send(&mut peer.port, &frame(EVIL, PEER, 9));
    until("a valid buffer is filled", || {
        let slot = Slot::from_word(evil.slot(Side::Rx, next).load(Ordering::Relaxed));
        (slot.len, slot.flags) == (60, 0)
    });
    drop((evil, peer));
    scene.end();
}

#[test]
fn endless_bad_slots_take_no_more_than_a_turn_each() {
    let scene = Scene::start();
    // As many slots as the memory limit allows, all of them invalid. New ones are published all the time.
    let shape = Shape { tx_rings: 8, tx_slots: 32_768, buffer_size: 128, ..Shape::default() };
    let evil = scene.attach_as("evil", shape);
    let heads: Vec<_> = (0..8).map(|ring| evil.word(evil.port.layout().doorbell(ring))).collect();
    let (end, mut head) = (Instant::now() + RACE, 0);
    let before = scene.bystanders.moved();
    until("more invalid slots are counted than a ring has", || {
        for _ in 0..1000 {
            head = (head + 32_767) % 32_768;
            heads.iter().for_each(|word| word.store(head, Ordering::SeqCst));
            evil.kick();
            std::thread::yield_now();
        }
        Instant::now() > end && scene.drops("evil", "bad_length") > 32_768
    });
    println!("{} frames beside {} bad slots", scene.bystanders.moved() - before, scene.drops("evil", "bad_length"));
    drop(evil);
    scene.end();
}

#[test]
fn a_frame_without_end_ends_the_port_and_an_unfinished_one_waits() {
    let scene = Scene::start();
    let (evil, mut peer) = scene.attach_pair();
    let piece = |at: u32, flags| Slot { buffer: evil.port.layout().first_tx_buffer(0, at), len: 60, flags };
    for at in 1..4 {
        evil.write_buffer(piece(at, 0).buffer, &frame(PEER, EVIL, at as u8));
        evil.set_slot(Side::Tx, at, piece(at, NS_MOREFRAG));
    }
    evil.publish(4);
    // An unfinished frame may stay for any time and costs nothing: the poller sleeps meanwhile (idle.rs measures this).
    scene.bystanders.go_on(2000);
    assert_eq!(scene.daemon.port("evil")["state"], "up");
    evil.set_slot(Side::Tx, 4, piece(4, 0));
    evil.publish(5);
    assert_eq!(peer.receive_from(EVIL).len(), 240, "the frame arrives when its end comes");

    for at in 5..512 {
        evil.set_slot(Side::Tx, at, piece(at, NS_MOREFRAG));
    }
    evil.publish(511);
    scene.must_have_ended(&evil, "endless_frame", "NS_MOREFRAG");
    drop((evil, peer));
    scene.end();
}

/// All buffers of an attacker hold only these two byte values, so any other byte in its frames comes from another port.
const TO: u8 = 0x52;
const FROM: u8 = 0x54;

#[test]
fn slots_that_change_while_they_are_read_never_show_a_byte_of_others() {
    let scene = Scene::start();
    let mut peer = scene.attach("peer");
    send(&mut peer.port, &frame([0xff; 6], [TO; 6], TO));
    let (end, mut rounds, mut seen) = (Instant::now() + RACE, 0, 0);
    while Instant::now() < end || seen == 0 {
        assert!(Instant::now() < end + PATIENCE, "no frames arrive");
        rounds += 1;
        let evil = scene.attach("evil");
        let layout = *evil.port.layout();
        let mut buffer = vec![FROM; layout.shape.buffer_size as usize];
        buffer[..6].fill(TO);
        (2..layout.buffer_count).for_each(|number| evil.write_buffer(number, &buffer));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stop = StopOnDrop(&stop);
            scope.spawn(|| {
                let mut random = 1u64;
                while !stop.load(Ordering::Relaxed) {
                    random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    let (at, kind) = ((random >> 33) as u32 % 512, random >> 60);
                    let good = layout.first_tx_buffer(0, at);
                    let len = (random >> 40) as u16 % 2112 + 1;
                    evil.set_slot(
                        Side::Tx,
                        at,
                        match kind {
                            0 => Slot { buffer: (random >> 20) as u32, len, flags: 0 },
                            1 => Slot { buffer: good, len: u16::MAX, flags: 0 },
                            2..=4 => Slot { buffer: good, len, flags: NS_MOREFRAG },
                            _ => Slot { buffer: good, len, flags: 0 },
                        },
                    );
                }
            });
            let mut head = 0;
            while (Instant::now() < end || seen == 0 && Instant::now() < end + PATIENCE) && evil.port.ended().is_none()
            {
                head = (head + 511) % 512;
                evil.publish(head);
                peer.port.rx().drain(512, |frame| {
                    if frame.starts_with(&[TO; 6]) && frame.get(6..12) == Some(&[FROM; 6]) {
                        seen += 1;
                        assert!(frame.iter().all(|&byte| byte == TO || byte == FROM), "a byte of another port");
                    }
                });
                std::thread::yield_now();
            }
        });
    }
    println!("{rounds} attackers, {seen} frames");
    drop(peer);
    until("the attacker is gone", || scene.daemon.port("evil").is_null());
    scene.end();
}
