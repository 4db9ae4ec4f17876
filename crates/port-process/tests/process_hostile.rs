//! A client that writes arbitrary data into its memory harms only itself.

use std::sync::atomic::{AtomicBool, Ordering};

use ringway_abi::slot::NS_MOREFRAG;
use ringway_abi::{Shape, Slot};
use ringway_port_tests::support::{Lan, frame};
use ringway_switch::{Armed, DropReason, PortFault, WakeOn};

fn shape() -> Shape {
    Shape { tx_slots: 128, rx_slots: 128, ..Shape::default() }
}

/// Checks that the other clients still exchange frames.
fn check_others(lan: &mut Lan) {
    for number in 0..300 {
        let sent = frame(2, 1, 60 + number as usize * 4, number);
        lan.clients[1].send(&sent);
        lan.pass(1);
        assert!(lan.clients[2].receive(0) == [sent], "frame {number} between the other clients");
    }
    assert_eq!((lan.fault(1), lan.fault(2)), (None, None));
}

#[test]
fn a_transmit_head_that_is_no_slot_ends_the_port_with_its_number() {
    for head in [128, 129, 1 << 16, u32::MAX - 1, u32::MAX] {
        let mut lan = Lan::of(3, shape());
        lan.clients[0].set_tx_head(0, head);
        let passed = lan.pass(0);
        assert_eq!((passed.frames, passed.fault), (0, Some(PortFault::TxHeadOutOfRange(head))));
        check_others(&mut lan);
    }
}

#[test]
fn a_transmit_head_that_jumps_offers_only_slots_of_the_ring() {
    let mut lan = Lan::of(3, shape());
    for head in [127, 3, 2, 1, 0, 126, 64] {
        lan.clients[0].set_tx_head(0, head);
        let mut passes = 0;
        while lan.clients[0].input.pending() {
            assert_eq!(lan.pass(0).fault, None);
            passes += 1;
            assert!(passes < 10, "head {head} is reached");
        }
    }
    check_others(&mut lan);
}

#[test]
fn a_slot_that_names_no_buffer_costs_that_frame() {
    let mut lan = Lan::of(3, shape());
    let last = lan.clients[0].ends.layout.buffer_count;
    for (place, buffer) in [0, 1, last, last + 1, 1 << 31, u32::MAX].into_iter().enumerate() {
        let before = lan.clients[0].tx_slot(0, lan.clients[0].tx_head[0]);
        let at = lan.clients[0].tx_head[0];
        lan.clients[0].queue(0, &frame(2, 0, 60, 0), 2112);
        lan.clients[0].set_tx(0, at, Slot { buffer, len: 60, flags: 0 });
        lan.clients[0].queue(0, &frame(2, 0, 61, 1), 2112);
        lan.clients[0].publish(0);
        assert_eq!(lan.pass(0).fault, None);
        assert_eq!(lan.dropped(0, DropReason::BadBuffer), place as u64 + 1, "buffer {buffer}");
        assert!(lan.clients[2].receive(0) == [frame(2, 0, 61, 1)]);
        lan.clients[0].set_tx(0, at, before);
    }
    check_others(&mut lan);
}

#[test]
fn one_buffer_in_two_slots_is_two_frames_of_the_same_bytes() {
    let mut lan = Lan::of(3, shape());
    let sent = frame(2, 0, 1514, 0);
    lan.clients[0].queue(0, &sent, 2112);
    lan.clients[0].queue(0, &sent, 2112);
    let twice = lan.clients[0].tx_slot(0, 0);
    lan.clients[0].set_tx(0, 1, twice);
    lan.clients[0].publish(0);
    lan.pass(0);
    assert!(lan.clients[2].receive(0) == [sent.clone(), sent]);
    // A receiver that gives one buffer twice gets the later frame twice, and harms only itself.
    let word = lan.clients[2].rx_word(0, 2).load(Ordering::Relaxed);
    lan.clients[2].rx_word(0, 3).store(word, Ordering::Relaxed);
    lan.clients[0].send(&frame(2, 0, 200, 1));
    lan.clients[0].send(&frame(2, 0, 200, 2));
    lan.pass(0);
    assert!(lan.clients[2].receive(0) == [frame(2, 0, 200, 2), frame(2, 0, 200, 2)]);
    check_others(&mut lan);
}

#[test]
fn a_slot_of_no_bytes_or_of_more_than_a_buffer_costs_that_frame() {
    let mut lan = Lan::of(3, shape());
    for (place, len) in [0, 2113, 0x7fff, u16::MAX].into_iter().enumerate() {
        let at = lan.clients[0].tx_head[0];
        lan.clients[0].queue(0, &frame(2, 0, 60, 0), 2112);
        let slot = lan.clients[0].tx_slot(0, at);
        lan.clients[0].set_tx(0, at, Slot { len, ..slot });
        lan.clients[0].publish(0);
        lan.pass(0);
        assert_eq!(lan.dropped(0, DropReason::BadLength), place as u64 + 1, "{len} bytes");
    }
    assert!(lan.clients[2].receive(0).is_empty());
    // Within a longer frame, too: the frame is lost as a whole.
    for bad in [Slot { buffer: 2, len: 0, flags: 0 }, Slot { buffer: 0, len: 60, flags: 0 }] {
        let at = lan.clients[0].tx_head[0];
        lan.clients[0].queue(0, &frame(2, 0, 180, 0), 60);
        let flags = lan.clients[0].tx_slot(0, (at + 1) % 128).flags;
        lan.clients[0].set_tx(0, (at + 1) % 128, Slot { flags, ..bad });
        lan.clients[0].publish(0);
        assert_eq!(lan.pass(0).frames, 1);
    }
    assert_eq!((lan.dropped(0, DropReason::BadLength), lan.dropped(0, DropReason::BadBuffer)), (5, 1));
    assert!(lan.clients[2].receive(0).is_empty());
    check_others(&mut lan);
}

#[test]
fn a_frame_without_an_end_ends_the_port() {
    for slots in [4, 8, 128] {
        let small = Shape { tx_slots: slots, ..shape() };
        let mut lan = Lan::new(&[small, shape(), shape()]);
        for at in 0..slots {
            let slot = lan.clients[0].tx_slot(0, at);
            lan.clients[0].set_tx(0, at, Slot { len: 10, flags: NS_MOREFRAG, ..slot });
        }
        lan.clients[0].set_tx_head(0, slots - 1);
        assert_eq!(lan.pass(0).fault, Some(PortFault::EndlessFrame), "ring of {slots}");
        check_others(&mut lan);
    }
}

#[test]
fn a_frame_whose_end_is_not_published_waits_for_it_without_being_looked_at_again_and_again() {
    let mut lan = Lan::of(3, shape());
    let sent = frame(2, 0, 200, 0);
    lan.clients[0].queue(0, &frame(2, 0, 60, 9), 60);
    lan.clients[0].queue(0, &sent, 50);
    for published in 1..=4 {
        lan.clients[0].set_tx_head(0, published);
        assert!(lan.clients[0].input.pending(), "the input has new slots");
        let passed = lan.pass(0);
        assert_eq!((passed.frames, passed.fault), (u64::from(published == 1), None));
        assert!(!lan.clients[0].input.pending(), "without new slots the poller may sleep");
        assert!(lan.clients[0].input.arm(WakeOn::Frames) != Armed::Pending);
        lan.clients[0].input.disarm();
    }
    lan.clients[0].set_tx_head(0, 5);
    assert_eq!(lan.pass(0).frames, 1);
    assert!(lan.clients[2].receive(0) == [frame(2, 0, 60, 9), sent]);
    check_others(&mut lan);
}

#[test]
fn a_frame_of_more_bytes_than_a_frame_may_have_costs_that_frame() {
    let mut lan = Lan::of(3, shape());
    for at in 0..40 {
        let slot = lan.clients[0].tx_slot(0, at);
        let flags = if at < 39 { NS_MOREFRAG } else { 0 };
        lan.clients[0].set_tx(0, at, Slot { len: 2112, flags, ..slot });
    }
    lan.clients[0].set_tx_head(0, 40);
    assert_eq!(lan.pass(0).frames, 1);
    assert_eq!(lan.dropped(0, DropReason::Oversize), 1);
    check_others(&mut lan);
}

#[test]
fn a_receive_head_that_was_never_given_ends_the_port_with_the_next_frames() {
    for head in [4, 5, 127, 128, u32::MAX] {
        let mut lan = Lan::of(3, shape());
        lan.clients[0].set_rx_head(0, head);
        for number in 0..3 {
            lan.clients[1].queue(0, &frame(0, 1, 60, number), 2112);
        }
        lan.clients[1].publish(0);
        let passed = lan.pass(1);
        assert!(passed.receiver_fault && passed.fault.is_none());
        assert_eq!(lan.fault(0), Some(PortFault::RxHeadOutOfRange(head)));
        assert_eq!((lan.counters(0).out_frames, lan.dropped(0, DropReason::ReceiverDown)), (3, 0));
        check_others(&mut lan);
    }
}

#[test]
fn frames_for_which_a_bad_receive_head_has_to_be_believed_are_lost() {
    for len in [60, 5000] {
        let mut lan = Lan::of(3, shape());
        let slots = shape().rx_slots;
        // Enough frames that the port must read the head again for room, or frames that take more than one slot.
        let count = if len == 60 { slots - 1 } else { 1 };
        lan.clients[1].send(&frame(0, 1, 60, 0));
        lan.pass(1);
        lan.clients[0].set_rx_head(0, 2);
        for number in 0..count {
            lan.clients[1].queue(0, &frame(0, 1, len, number), 2112);
        }
        lan.clients[1].publish(0);
        assert!(lan.pass(1).receiver_fault, "{len} bytes");
        assert_eq!(lan.fault(0), Some(PortFault::RxHeadOutOfRange(2)));
        let counted = (lan.counters(0).out_frames, lan.dropped(0, DropReason::ReceiverDown));
        assert_eq!(counted, (1, count.into()), "{len} bytes");
        check_others(&mut lan);
    }
}

#[test]
fn a_receive_head_may_not_go_back() {
    let mut lan = Lan::of(3, shape());
    for number in 0..10 {
        lan.clients[1].send(&frame(0, 1, 60, number));
    }
    lan.pass(1);
    lan.clients[0].receive(0);
    lan.clients[1].send(&frame(0, 1, 60, 10));
    lan.pass(1);
    lan.clients[0].set_rx_head(0, 9);
    lan.clients[1].send(&frame(0, 1, 60, 11));
    assert!(lan.pass(1).receiver_fault);
    assert_eq!(lan.fault(0), Some(PortFault::RxHeadOutOfRange(9)));
    check_others(&mut lan);
}

#[test]
fn a_bad_receive_ring_of_several_ends_the_port_and_every_frame_is_accounted_for() {
    let several = Shape { rx_rings: 4, ..shape() };
    let mut lan = Lan::new(&[several, shape(), shape()]);
    (0..4).for_each(|ring| lan.clients[0].set_rx_head(ring, 99));
    for number in 0..20 {
        lan.clients[1].queue(0, &frame(0, 1, 60, number), 2112);
    }
    lan.clients[1].publish(0);
    assert!(lan.pass(1).receiver_fault);
    assert_eq!(lan.counters(0).out_frames + lan.dropped(0, DropReason::ReceiverDown), 20);
}

#[test]
fn a_receive_slot_that_names_no_buffer_costs_its_owner_frames_until_it_is_mended() {
    let mut lan = Lan::of(3, shape());
    let good = lan.clients[0].rx_word(0, 1).load(Ordering::Relaxed);
    for (place, buffer) in
        [0u64, 1, u64::from(lan.clients[0].ends.layout.buffer_count), 0xffff_ffff].into_iter().enumerate()
    {
        lan.clients[0].rx_word(0, 1).store(buffer, Ordering::Relaxed);
        lan.clients[1].send(&frame(0, 1, 60, 0));
        lan.clients[1].send(&frame(0, 1, 5000, 1));
        lan.pass(1);
        let lost = 2 * place as u64 + 1;
        // The first slot is valid, and the very first frame takes it.
        assert_eq!(lan.dropped(0, DropReason::BadBuffer), lost, "buffer {buffer}");
    }
    assert_eq!(lan.clients[0].receive(0).len(), 1);
    lan.clients[0].rx_word(0, 1).store(good, Ordering::Relaxed);
    lan.clients[1].send(&frame(0, 1, 60, 7));
    lan.pass(1);
    assert!(lan.clients[0].receive(0) == [frame(0, 1, 60, 7)]);
    assert_eq!(lan.fault(0), None);
    check_others(&mut lan);
}

#[test]
fn a_client_that_changes_its_slots_while_they_are_read_harms_nobody() {
    let mut lan = Lan::of(3, shape());
    let memory = std::sync::Arc::clone(lan.clients[0].ends.memory.mapping());
    let layout = lan.clients[0].ends.layout;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let at = |ring: usize| ring + ringway_abi::layout::netmap_ring::SLOTS;
            let view = memory.view(at(layout.tx_ring(0)), 128 * 16).expect("the slots");
            let words = view.words64().expect("aligned");
            let mut random = 1u64;
            while !stop.load(Ordering::Relaxed) {
                for word in words {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let slot = Slot {
                        buffer: (random >> 33) as u32 % 300,
                        len: (random >> 50) as u16 % 2300,
                        flags: if random >> 62 == 0 { NS_MOREFRAG } else { 0 },
                    };
                    word.store(slot.to_word(), Ordering::Relaxed);
                }
            }
        });
        let mut ended = false;
        for round in 0..3000u32 {
            lan.clients[0].set_tx_head(0, round * 17 % 128);
            ended |= lan.pass(0).fault == Some(PortFault::EndlessFrame);
            drop(lan.clients[2].receive(0));
            let sent = frame(2, 1, 60 + round as usize % 1400, round);
            lan.clients[1].send(&sent);
            lan.pass(1);
            assert!(lan.clients[2].receive(0) == [sent], "round {round}, ended {ended}");
        }
        stop.store(true, Ordering::Relaxed);
    });
    let counters: Vec<_> = (0..3).map(|port| lan.counters(port)).collect();
    let lost: u64 = counters.iter().flat_map(|c| c.drops().map(|(_, n)| n).collect::<Vec<_>>()).sum();
    let taken: u64 = counters.iter().map(|c| c.in_frames).sum();
    let given: u64 = counters.iter().map(|c| c.out_frames).sum();
    assert_eq!(taken, given + lost, "each frame is delivered or counted as lost");
}

#[test]
fn what_a_client_writes_over_its_ring_headers_changes_nothing() {
    let mut lan = Lan::of(3, shape());
    for client in &lan.clients {
        let layout = client.ends.layout;
        for at in [0, layout.tx_ring(0), layout.rx_ring(0)] {
            assert!(client.ends.memory.mapping().view(at, 256).expect("a header").write(&[0xff; 256]));
        }
    }
    check_others(&mut lan);
}
