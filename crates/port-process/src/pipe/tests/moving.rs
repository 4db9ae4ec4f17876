//! Frames that pollers move, and slots that they give back.

use std::sync::atomic::Ordering;

use ringway_abi::doorbell::{INDEX, RX_CLIENT, RX_SWITCH, TX_CLIENT, TX_SWITCH};
use ringway_abi::netmap::{PipeRole, Wish};
use ringway_abi::slot::NS_MOREFRAG;
use ringway_runtime::Moved;
use ringway_switch::PortFault;

use super::super::super::region::Region;
use super::super::Pipe;
use super::{End, SLOTS, both, close, pipe, region};

#[test]
fn frames_go_through_in_order_as_long_as_the_receiver_returns_slots() {
    both(&[region(1), region(2)], |first, second| {
        let pipe = pipe();
        let (mut a, mut b) = (End::open(&pipe, PipeRole::Master, first), End::open(&pipe, PipeRole::Slave, second));
        for round in 0..5u8 {
            (0..15).for_each(|number| a.send(round * 16 + number, 0));
            a.serve().expect("no fault");
            assert_eq!(a.word(TX_CLIENT + INDEX), a.word(TX_SWITCH + INDEX), "no slot is free");
            assert_eq!(b.received(true), (0..15).map(|number| round * 16 + number).collect::<Vec<_>>());
            assert!(b.pending());
            b.serve().expect("no fault");
            b.send(round, 0);
            b.serve().expect("no fault");
            assert_eq!(a.received(true), [round]);
            a.serve().expect("no fault");
        }
    });
}

#[test]
fn frames_wait_for_an_end_that_is_not_open_and_for_one_that_comes_again() {
    both(&[region(1), region(2)], |first, second| {
        let pipe = pipe();
        let mut a = End::open(&pipe, PipeRole::Master, first);
        (0..3).for_each(|number| a.send(number, 0));
        a.serve().expect("no fault");
        assert!(!a.pending(), "nobody receives");
        for round in 0..4 {
            let mut b = End::open(&pipe, PipeRole::Slave, if round % 2 == 0 { second } else { first });
            a.serve().expect("no fault");
            assert_eq!(b.received(false), [0, 1, 2], "round {round}");
            b.send(9, 0);
            b.serve().expect("no fault");
            assert_eq!(a.received(true), [9]);
            a.serve().expect("no fault");
            // Closed before a poller has seen what it sent.
            b.send(7, 0);
            b.close();
            assert_eq!(a.received(true), [7]);
            assert!(!a.pending() || a.serve().is_ok());
        }
    });
}

#[test]
fn a_receiver_that_closes_takes_frames_of_an_earlier_sender_along_and_the_senders_own_arrive_again() {
    let regions = [region(1), region(2), region(3)];
    for returned in 0..4 {
        let pipe = pipe();
        let mut b = End::open(&pipe, PipeRole::Slave, &regions[0]);
        for (byte, region) in [(0, &regions[1]), (2, &regions[2])] {
            let mut earlier = End::open(&pipe, PipeRole::Master, region);
            (byte..byte + 2).for_each(|byte| earlier.send(byte, 0));
            earlier.serve().expect("no fault");
            earlier.close();
        }
        let mut a = End::open(&pipe, PipeRole::Master, &regions[1]);
        (4..6).for_each(|byte| a.send(byte, 0));
        a.serve().expect("no fault");
        assert_eq!(b.received(false), [0, 1, 2, 3, 4, 5]);
        b.set_word(RX_CLIENT + INDEX, returned);
        b.serve().expect("no fault");
        b.close();
        let mut b = End::open(&pipe, PipeRole::Slave, &regions[0]);
        a.serve().expect("no fault");
        assert_eq!(b.received(true), [4, 5], "{returned} were returned");
        b.serve().expect("no fault");
        // Each of the sender's slots is free again.
        (0..15).for_each(|byte| a.send(byte, 0));
        a.serve().expect("no fault");
        assert_eq!(b.received(true), (0..15).collect::<Vec<_>>());
    }
}

#[test]
fn a_frame_of_several_slots_is_published_whole() {
    both(&[region(1), region(2)], |first, second| {
        let pipe = pipe();
        let (mut a, b) = (End::open(&pipe, PipeRole::Master, first), End::open(&pipe, PipeRole::Slave, second));
        (0..6).for_each(|number| a.send(number, NS_MOREFRAG));
        a.serve().expect("no fault");
        assert!(b.received(false).is_empty() && !a.pending(), "its end is not published");
        a.send(6, 0);
        a.serve().expect("no fault");
        assert_eq!(b.received(false), [0, 1, 2, 3, 4, 5, 6]);
    });
}

#[test]
fn a_frame_of_more_than_64_slots_is_a_fault_and_those_before_it_arrive() {
    let wish = Wish { tx_slots: 128, rx_slots: 128, ..Wish::default() };
    let regions = [1, 2].map(|id| Region::new(id, &wish, 256 << 20).expect("a region"));
    both(&regions, |first, second| {
        let pipe = Pipe::new(PipeRole::Master, &wish);
        let (mut a, mut b) = (End::open(&pipe, PipeRole::Master, first), End::open(&pipe, PipeRole::Slave, second));
        (0..63).for_each(|number| a.send(number, NS_MOREFRAG));
        a.send(63, 0);
        a.serve().expect("64 slots are a frame");
        assert_eq!(b.received(true), (0..64).collect::<Vec<_>>());
        b.serve().expect("no fault");
        a.send(0, 0);
        (1..66).for_each(|number| a.send(number, NS_MOREFRAG));
        assert_eq!(a.serve(), Err(PortFault::EndlessFrame));
        assert_eq!(b.received(false), [0]);
    });
}

#[test]
fn a_frame_that_fills_a_small_ring_and_has_no_end_is_a_fault() {
    both(&[region(1), region(2)], |first, second| {
        let pipe = pipe();
        let (mut a, b) = (End::open(&pipe, PipeRole::Master, first), End::open(&pipe, PipeRole::Slave, second));
        (0..14).for_each(|byte| a.send(byte, NS_MOREFRAG));
        a.serve().expect("a slot is free");
        a.send(14, NS_MOREFRAG);
        assert_eq!(a.serve(), Err(PortFault::EndlessFrame));
        assert!(b.received(false).is_empty());
    });
}

#[test]
fn a_head_that_is_none_of_its_slots_is_a_fault() {
    let region = region(1);
    let pipe = pipe();
    let (mut a, mut b) = (End::open(&pipe, PipeRole::Master, &region), End::open(&pipe, PipeRole::Slave, &region));
    a.send(1, 0);
    a.serve().expect("no fault");
    b.set_word(RX_CLIENT + INDEX, 2);
    assert_eq!(b.serve(), Err(PortFault::RxHeadOutOfRange(2)));
    (1..15).for_each(|number| a.send(number, 0));
    // One more than is free would overwrite what the receiver has.
    a.set_word(TX_CLIENT + INDEX, 0);
    assert_eq!(a.serve(), Err(PortFault::TxHeadOutOfRange(0)));
    a.set_word(TX_CLIENT + INDEX, SLOTS);
    assert_eq!(a.serve(), Err(PortFault::TxHeadOutOfRange(SLOTS)));
}

/// The visits that move all frames of this kind in these rings. Each is as large as `check` allows.
fn visits(rings: u16, slots_of_frame: u32, len: u16, check: impl Fn(&Moved)) -> u64 {
    let wish = Wish {
        tx_rings: rings,
        rx_rings: rings,
        tx_slots: 128,
        rx_slots: 128,
        buffer_size: u32::from(len).max(2112),
        ..Wish::default()
    };
    let regions = [1, 2].map(|id| Region::new(id, &wish, 1 << 30).expect("a region"));
    let pipe = Pipe::new(PipeRole::Master, &wish);
    let mut a = End::open(&pipe, PipeRole::Master, &regions[0]);
    let _b = End::open(&pipe, PipeRole::Slave, &regions[1]);
    let mut left: u64 = (0..rings).map(|ring| a.fill(ring, slots_of_frame, len)).sum();
    for visit in 1.. {
        assert!(a.pending(), "a visit that leaves frames finds them the next time");
        let moved = a.visit(256).expect("no fault");
        assert!(moved.frames > 0, "each visit moves frames");
        check(&moved);
        left -= moved.frames;
        assert_eq!(moved.more, left > 0, "an unfinished visit says so");
        if left == 0 {
            return visit;
        }
    }
    unreachable!("visits have an end")
}

#[test]
fn a_visit_copies_2_mib_at_most_or_one_frame() {
    let check = |moved: &Moved| assert!(moved.copied <= 2 << 20, "{} bytes copied in one visit", moved.copied);
    // 15 frames of 523,776 bytes in each ring.
    assert_eq!(visits(3, 8, 65_472, check), 12, "four frames a visit");
    assert_eq!(visits(2, 64, 65_472, |moved| assert_eq!(moved.frames, 1)), 2);
}

#[test]
fn a_visit_counts_slots_not_frames() {
    assert_eq!(visits(16, 32, 64, |moved| assert!(moved.frames <= 256 / 32, "{} frames of 32 slots", moved.frames)), 6);
}

#[test]
fn a_visit_that_leaves_frames_finds_them_when_the_head_comes_round_to_where_it_was() {
    both(&[region(1), region(2)], |first, second| {
        let pipe = pipe();
        let (mut a, mut b) = (End::open(&pipe, PipeRole::Master, first), End::open(&pipe, PipeRole::Slave, second));
        a.send(0, 0);
        a.serve().expect("no fault");
        assert_eq!(b.received(true), [0]);
        b.serve().expect("no fault");
        (1..16).for_each(|number| a.send(number, 0));
        assert!(a.visit(4).expect("no fault").more);
        // The head is 0. One slot more comes back, and the head is 1 again: as it was when everything had been seen.
        assert_eq!(b.received(true), [1, 2, 3, 4]);
        b.serve().expect("no fault");
        a.send(16, 0);
        assert!(a.pending());
        a.serve().expect("no fault");
        assert_eq!(b.received(false), (5..17).collect::<Vec<_>>());
    });
}

#[test]
fn a_visit_gives_a_bounded_number_of_slots_back() {
    let wish = Wish { tx_slots: 128, rx_slots: 128, ..Wish::default() };
    let regions = [1, 2].map(|id| Region::new(id, &wish, 256 << 20).expect("a region"));
    both(&regions, |first, second| {
        let pipe = Pipe::new(PipeRole::Master, &wish);
        let (mut a, mut b) = (End::open(&pipe, PipeRole::Master, first), End::open(&pipe, PipeRole::Slave, second));
        a.fill(0, 1, 1);
        a.serve().expect("no fault");
        b.set_word(RX_CLIENT + INDEX, b.word(RX_SWITCH + INDEX));
        for returned in [49, 99] {
            assert!(b.pending() && b.visit(50).expect("no fault").more);
            assert_eq!(a.word(TX_SWITCH + INDEX), returned);
        }
        b.serve().expect("no fault");
        assert!(!b.pending());
        assert_eq!(a.word(TX_SWITCH + INDEX), 126);
    });
}

#[test]
fn an_end_gets_no_frames_by_a_topology_without_it_and_its_clients_are_called_by_the_first_one_with_it() {
    both(&[region(1), region(2)], |first, second| {
        let pipe = pipe();
        let mut a = End::open(&pipe, PipeRole::Master, first);
        a.send(1, 0);
        a.serve().expect("no fault");
        for round in 0..3 {
            let b = End::open(&pipe, PipeRole::Slave, second);
            assert!(!a.io.mover.pending(), "its poller has another topology");
            assert_eq!(a.collect(4), (Ok(()), Moved::default()));
            assert!(b.received(false).is_empty(), "round {round}");
            let moved = a.visit(4).expect("no fault");
            assert!(moved.frames == 1 && moved.calls_again, "{moved:?}");
            assert_eq!(b.received(false), [1]);
            assert!(!a.visit(4).expect("no fault").calls_again, "once");
            b.close();
        }
    });
}

#[test]
fn the_input_of_an_end_that_has_left_moves_nothing_for_the_next_one() {
    both(&[region(1), region(2)], |first, second| {
        let pipe = pipe();
        let [mut old, b] =
            [(PipeRole::Master, first), (PipeRole::Slave, second)].map(|(role, region)| End::open(&pipe, role, region));
        old.serve().expect("no fault");
        close(&pipe, PipeRole::Master);
        let mut a = End::open(&pipe, PipeRole::Master, first);
        a.send(1, 0);
        // The topology of the poller still has the old end.
        // Its client has still returned and published something.
        old.set_word(RX_CLIENT + INDEX, 1);
        old.set_word(TX_CLIENT + INDEX, 1);
        assert!(!old.io.mover.pending(), "there is nothing to do for it");
        assert_eq!(old.collect(4), (Ok(()), Moved::default()));
        assert!(b.received(false).is_empty());
        a.serve().expect("no fault");
        assert_eq!(b.received(false), [1]);
        a.set_word(RX_CLIENT + INDEX, 9);
        assert_eq!(old.collect(4), (Ok(()), Moved::default()), "the fault is the new one's");
        assert_eq!(a.serve(), Err(PortFault::RxHeadOutOfRange(9)));
    });
}

#[test]
fn a_visit_that_ends_in_a_fault_says_what_it_has_moved() {
    let wish = Wish { tx_rings: 2, rx_rings: 2, tx_slots: SLOTS, rx_slots: SLOTS, ..Wish::default() };
    let regions = [1, 2].map(|id| Region::new(id, &wish, 256 << 20).expect("a region"));
    both(&regions, |first, second| {
        let mut moves = Vec::new();
        for bad in [0, 1] {
            let pipe = Pipe::new(PipeRole::Master, &wish);
            let (mut a, mut b) = (End::open(&pipe, PipeRole::Master, first), End::open(&pipe, PipeRole::Slave, second));
            a.visit(256).expect("no fault");
            b.fill(0, 1, 1);
            b.fill(1, 1, 1);
            b.visit(256).expect("no fault");
            a.words(0, |words| words[RX_CLIENT + INDEX].store(3, Ordering::SeqCst));
            a.fill(1 - bad, 1, 1);
            a.words(bad, |words| words[TX_CLIENT + INDEX].store(SLOTS, Ordering::SeqCst));
            let (result, moved) = a.collect(256);
            assert_eq!(result, Err(PortFault::TxHeadOutOfRange(SLOTS)));
            let came = b.words(1 - bad, |words| words[RX_SWITCH + INDEX].load(Ordering::SeqCst)).into();
            assert_eq!((moved.frames, moved.bytes, moved.returned), (came, came, 3));
            moves.push(came);
        }
        moves.sort_unstable();
        assert_eq!(moves, [0, 15], "one visit begins with the ring without the fault");
    });
}
