//! A driver writes arbitrary data into its ring: the result is a named fault or a counted frame, and the device writes
//! only to memory that the driver gave.

use super::testing::{
    Driver, Guest, HIGH, INDIRECT, LOW, LOW_BYTES, Piece, both, collect, collect_some, deliver, receive_queue,
    transmit_queue,
};
use super::{F_EVENT_IDX, F_INDIRECT_DESC, Ring, RingFault};

both!(
    addresses_outside_the_guest_end_the_ring,
    the_wrong_direction_ends_the_ring,
    a_chain_without_a_whole_header_costs_its_frame_and_nothing_else,
    indirect_tables_must_be_negotiated,
    a_bad_chain_takes_nothing_from_those_before_it,
    buffers_in_the_ring_itself_hurt_nobody_else,
    chains_of_more_than_1024_descriptors_end_the_ring,
    long_chains_named_again_and_again_cost_a_bounded_walk,
    the_longest_chain_allowed_is_taken,
);

const END: u64 = LOW + LOW_BYTES;

/// Addresses and lengths that are not inside one region.
const OUTSIDE: [(u64, usize); 14] = [
    (0, 100),
    (LOW - 1, 100),
    (LOW - 100, 100),
    (END - 99, 100),
    (END - 1, 100),
    (END, 100),
    (HIGH - 50, 100),
    (LOW, LOW_BYTES as usize + 1),
    (LOW, u32::MAX as usize),
    (HIGH, 1 << 30),
    (u64::MAX, 100),
    (u64::MAX - 99, 100),
    (u64::MAX - 50, 100),
    (1 << 63, 100),
];

fn frame() -> Vec<(Vec<u8>, Option<ringway_switch::Offload>)> {
    vec![(vec![7; 200], None)]
}

fn addresses_outside_the_guest_end_the_ring<D: Driver>() {
    for (address, len) in OUTSIDE {
        let fault = Err(RingFault::BadAddress { address, len: len as u32 });
        for chained in [false, true] {
            let guest = Guest::new();
            let good = guest.alloc(64, 1);
            let mut driver = D::new(&guest, 16, 0);
            let chain = [Piece::read(good, 64), Piece::read(address, len)];
            driver.send(&guest, if chained { &chain } else { &chain[1..] });
            assert_eq!(collect(&mut transmit_queue(&guest, &driver), &guest).map(drop), fault);

            let mut driver = D::new(&guest, 16, 0);
            let chain = [Piece::write(good, 64), Piece::write(address, len)];
            driver.send(&guest, if chained { &chain } else { &chain[1..] });
            let (result, tally) = deliver(&mut receive_queue(&guest, &driver, true), &guest, &frame(), 100);
            assert_eq!((result, tally.frames, tally.full), (fault, 0, 1));
            assert_eq!(driver.all_used(&guest), []);
        }
        // An indirect table at this address.
        let guest = Guest::new();
        let mut driver = D::new(&guest, 16, F_INDIRECT_DESC);
        let mut queue = transmit_queue(&guest, &driver);
        let table = len.next_multiple_of(16).min(u32::MAX as usize & !15);
        let id = driver.put(&guest, &[Piece::read(address, table)], 1).expect("room");
        set_flags(&driver, &guest, id, Piece::read(address, table), INDIRECT);
        driver.publish(&guest);
        let result = collect(&mut queue, &guest).map(drop);
        assert!(
            matches!(result, Err(RingFault::BadAddress { .. })),
            "a table of {table} bytes at {address:#x}: {result:?}"
        );
    }
}

/// Rewrites the flags of the first descriptor of a ring whose chain begins at position 0.
fn set_flags<D: Driver>(driver: &D, guest: &Guest, id: u16, piece: Piece, flags: u16) {
    let at = driver.addresses().descriptors;
    let (id, flags) = (u64::from(id), u64::from(flags | if piece.write { 2 } else { 0 }));
    let rest = if D::PACKED { id << 32 | (flags | 0x80) << 48 } else { flags << 32 };
    guest.word64(at).store(piece.address, std::sync::atomic::Ordering::Relaxed);
    guest.word64(at + 8).store(u64::from(piece.len) | rest, std::sync::atomic::Ordering::Relaxed);
}

fn the_wrong_direction_ends_the_ring<D: Driver>() {
    for chain in [vec![true], vec![true, false], vec![false, true], vec![false, false, true]] {
        for direct in [chain.len(), 0] {
            let guest = Guest::new();
            let at = guest.alloc(4096, 1);
            let pieces = |flip: bool| -> Vec<Piece> {
                chain.iter().map(|&wrong| Piece { address: at, len: 1000, write: wrong ^ flip }).collect()
            };
            let mut driver = D::new(&guest, 16, F_INDIRECT_DESC);
            let mut queue = transmit_queue(&guest, &driver);
            driver.put(&guest, &pieces(false), direct).expect("room");
            driver.publish(&guest);
            assert_eq!(collect(&mut queue, &guest), Err(RingFault::WritableInTransmit));

            let mut driver = D::new(&guest, 16, F_INDIRECT_DESC);
            let mut queue = receive_queue(&guest, &driver, false);
            driver.put(&guest, &pieces(true), direct).expect("room");
            driver.publish(&guest);
            assert_eq!(deliver(&mut queue, &guest, &frame(), 100).0, Err(RingFault::ReadableInReceive));
            assert_eq!(driver.all_used(&guest), []);
        }
    }
}

fn a_chain_without_a_whole_header_costs_its_frame_and_nothing_else<D: Driver>() {
    for len in 0..12 {
        for pieces in [1, 2] {
            let guest = Guest::new();
            let at = guest.alloc(96, 1);
            let mut driver = D::new(&guest, 16, 0);
            let mut queue = transmit_queue(&guest, &driver);
            let (good, bad) = ([Piece::read(at, 72)], [Piece::read(at, len), Piece::read(at, 0)]);
            let ids = [&good[..], &bad[..pieces], &good, &bad[..pieces]].map(|chain| (driver.send(&guest, chain), 0));
            let sent = collect_some(&mut queue, &guest, 16).expect("no fault");
            assert_eq!((sent.frames.len(), sent.refused), (2, 2), "{len} bytes in {pieces}");
            assert_eq!(driver.all_used(&guest), ids);
        }
    }
}

fn indirect_tables_must_be_negotiated<D: Driver>() {
    let guest = Guest::new();
    let at = guest.alloc(100, 1);
    let mut driver = D::new(&guest, 16, 0);
    let mut queue = transmit_queue(&guest, &driver);
    driver.put(&guest, &[Piece::read(at, 100)], 0).expect("room");
    driver.publish(&guest);
    assert_eq!(collect(&mut queue, &guest), Err(RingFault::IndirectRefused));
}

fn a_bad_chain_takes_nothing_from_those_before_it<D: Driver>() {
    let guest = Guest::new();
    let at = guest.alloc(100, 1);
    let mut driver = D::new(&guest, 64, 0);
    let mut queue = transmit_queue(&guest, &driver);
    let ids: Vec<_> = (0..40).map(|_| (driver.put(&guest, &[Piece::read(at, 100)], 1).expect("room"), 0)).collect();
    driver.put(&guest, &[Piece::read(0, 100)], 1).expect("room");
    driver.publish(&guest);
    // The frames before the fault are in the batch, the fault is reported, and the buffers are marked used.
    let bounce = super::Bounce::default();
    let mut batch = ringway_switch::BatchStorage::new(256).into_batch();
    let fault = queue.collect(&guest.memory, &bounce, &mut batch);
    assert_eq!((batch.len(), fault), (40, Err(RingFault::BadAddress { address: 0, len: 100 })));
    drop(batch);
    assert_eq!(queue.release(&guest.memory), Ok(()));
    assert_eq!(driver.all_used(&guest), ids);

    let mut driver = D::new(&guest, 64, 0);
    let mut queue = receive_queue(&guest, &driver, false);
    let room = guest.alloc(300, 1);
    let ids: Vec<_> = (0..5).map(|_| (driver.send(&guest, &[Piece::write(room, 300)]), 212)).collect();
    driver.send(&guest, &[Piece::write(END, 300)]);
    let frames: Vec<_> = (0..8).flat_map(|_| frame()).collect();
    let (result, tally) = deliver(&mut queue, &guest, &frames, 100);
    assert_eq!((result.is_err(), tally.frames, tally.full), (true, 5, 3));
    assert_eq!(driver.all_used(&guest), ids);
}

fn buffers_in_the_ring_itself_hurt_nobody_else<D: Driver>() {
    for part in 0..3 {
        for shift in [0, 1, 4, 15, 64] {
            for features in [0, F_EVENT_IDX] {
                let guest = Guest::new();
                let before = guest.alloc(4096, 4096);
                let mut driver = D::new(&guest, 16, features);
                let after = guest.alloc(4096, 4096);
                for guard in [before, after] {
                    guest.write(guard, &[0xa5; 4096]);
                }
                let all = driver.addresses();
                let address = [all.descriptors, all.driver, all.device][part] + shift;
                let room = guest.alloc(600, 1);
                for number in 0..8 {
                    let address = if number % 2 == 0 { address } else { room };
                    driver.put(&guest, &[Piece::write(address, 512)], 1).expect("room");
                }
                driver.publish(&guest);
                let mut queue = receive_queue(&guest, &driver, true);
                let frames: Vec<_> = (0..20).flat_map(|_| frame()).collect();
                for _ in 0..3 {
                    let _ = deliver(&mut queue, &guest, &frames, 100);
                }
                queue.ring.arm();
                let _ = (queue.ring.pending(), queue.ring.call_wanted());
                // The device may write 512 bytes, somewhere around the ring, and nothing else.
                assert_eq!(guest.read(before, 4096), [0xa5; 4096]);
                assert!(guest.read(after + 1024, 3072).iter().all(|&byte| byte == 0xa5));

                let mut driver = D::new(&guest, 16, features);
                let all = driver.addresses();
                let address = [all.descriptors, all.driver, all.device][part] + shift;
                driver.send(&guest, &[Piece::read(address, 100)]);
                let _ = collect(&mut transmit_queue(&guest, &driver), &guest);
            }
        }
    }
}

fn chains_of_more_than_1024_descriptors_end_the_ring<D: Driver>() {
    for (direct, features) in [(1025, 0), (0, F_INDIRECT_DESC), (500, F_INDIRECT_DESC)] {
        let guest = Guest::new();
        let at = guest.alloc(100, 1);
        let mut driver = D::new(&guest, 4096, features);
        let mut queue = transmit_queue(&guest, &driver);
        driver.put(&guest, &[Piece::read(at, 1); 1025], direct).expect("room");
        driver.publish(&guest);
        assert_eq!(collect(&mut queue, &guest), Err(RingFault::Endless(1024)));
        let mut driver = D::new(&guest, 4096, features);
        let mut queue = receive_queue(&guest, &driver, true);
        driver.put(&guest, &[Piece::write(at, 1); 1025], direct).expect("room");
        driver.publish(&guest);
        assert_eq!(deliver(&mut queue, &guest, &frame(), 100).0, Err(RingFault::Endless(1024)));
    }
}

fn the_longest_chain_allowed_is_taken<D: Driver>() {
    let guest = Guest::new();
    let at = guest.alloc(100, 1);
    let mut driver = D::new(&guest, 4096, 0);
    let mut queue = transmit_queue(&guest, &driver);
    driver.send(&guest, &[Piece::read(at, 1); 1024]);
    assert_eq!(collect(&mut queue, &guest).expect("no fault").frames[0].0.len(), 1012);
}

/// 32 chains of 1,020 empty descriptors, and a descriptor that holds a header: the work for each batch and for each
/// delivery is bounded.
fn long_chains_named_again_and_again_cost_a_bounded_walk<D: Driver>() {
    let guest = Guest::new();
    let at = guest.alloc(100, 1);
    let mut driver = D::new(&guest, 32_768, 0);
    let mut queue = transmit_queue(&guest, &driver);
    let mut chain = [Piece::read(at, 0); 1021];
    chain[1020].len = 72;
    for _ in 0..32 {
        driver.put(&guest, &chain, chain.len()).expect("room");
    }
    driver.publish(&guest);
    let sent = collect_some(&mut queue, &guest, 256).expect("no fault");
    assert!((1..=6).contains(&sent.frames.len()), "{} long chains in one batch", sent.frames.len());

    let mut driver = D::new(&guest, 32_768, 0);
    let mut queue = receive_queue(&guest, &driver, true);
    chain.iter_mut().for_each(|piece| piece.write = true);
    chain[1020].len = 11;
    for _ in 0..32 {
        driver.put(&guest, &chain, chain.len()).expect("room");
    }
    driver.publish(&guest);
    let frames: Vec<_> = (0..256).map(|_| (vec![0; 60], None)).collect();
    let (result, tally) = deliver(&mut queue, &guest, &frames, 100);
    assert_eq!((result, tally.frames, tally.small + tally.full), (Ok(()), 0, 256));
    assert!(tally.small <= 12, "each of {} frames walked a long chain", tally.small);
}
