//! Rings that break the rules of their own format: each has its named fault.

use super::testing::{
    Driver, Guest, INDIRECT, NEXT, PackedDriver, Piece, SplitDriver, collect, collect_some, deliver, descriptor,
    receive_queue, transmit_queue,
};
use super::{F_INDIRECT_DESC, RingFault};

/// Flags and `next` of an indirect table's entry.
type Entry = (u16, u16);

fn frame() -> Vec<(Vec<u8>, Option<ringway_switch::Offload>)> {
    vec![(vec![7; 200], None)]
}

#[test]
fn an_index_that_jumps_ends_a_split_ring() {
    for begin in [0, 65_530] {
        for (ahead, size) in [(17, 16), (0xffff, 16), (0x8000, 16), (32, 16), (2, 1), (0x8001, 0x8000)] {
            let guest = Guest::new();
            let mut driver = SplitDriver::new(&guest, size, 0);
            driver.begin_at(&guest, begin);
            let (mut transmit, mut receive) = (transmit_queue(&guest, &driver), receive_queue(&guest, &driver, false));
            driver.set_index(&guest, (begin as u16).wrapping_add(ahead));
            let fault = Err(RingFault::IndexJump { ahead, size });
            assert_eq!(collect(&mut transmit, &guest).map(drop), fault);
            let (result, tally) = deliver(&mut receive, &guest, &frame(), 100);
            assert_eq!((result, tally.full), (fault, 1));
        }
    }
}

#[test]
fn an_index_that_goes_back_ends_a_split_ring() {
    let guest = Guest::new();
    let at = guest.alloc(100, 1);
    let mut driver = SplitDriver::new(&guest, 16, 0);
    let mut queue = transmit_queue(&guest, &driver);
    driver.send(&guest, &[Piece::read(at, 100)]);
    collect(&mut queue, &guest).expect("no fault");
    driver.set_index(&guest, 0);
    assert_eq!(collect(&mut queue, &guest), Err(RingFault::IndexJump { ahead: 0xffff, size: 16 }));
}

#[test]
fn heads_and_nexts_outside_the_table_end_a_split_ring() {
    for number in [16, 17, 255, 0x7fff, 0xffff] {
        let guest = Guest::new();
        let at = guest.alloc(100, 1);
        let mut driver = SplitDriver::new(&guest, 16, 0);
        let (mut transmit, mut receive) = (transmit_queue(&guest, &driver), receive_queue(&guest, &driver, false));
        driver.send(&guest, &[Piece::read(at, 100)]);
        driver.set_available(&guest, 0, number);
        let fault = Err(RingFault::HeadOutOfRange { head: number, size: 16 });
        assert_eq!(collect(&mut transmit, &guest).map(drop), fault);
        assert_eq!(deliver(&mut receive, &guest, &frame(), 100).0, fault);

        driver.set_available(&guest, 0, 0);
        let fault = Err(RingFault::NextOutOfRange { next: number, size: 16 });
        driver.write_descriptor(&guest, 0, descriptor(Piece::read(at, 50), NEXT, number));
        assert_eq!(collect(&mut transmit_queue(&guest, &driver), &guest).map(drop), fault);
        driver.write_descriptor(&guest, 0, descriptor(Piece::write(at, 50), NEXT, number));
        assert_eq!(deliver(&mut receive, &guest, &frame(), 100).0, fault);
    }
}

#[test]
fn a_bad_head_behind_good_ones_is_met_when_they_are_done() {
    let guest = Guest::new();
    let at = guest.alloc(100, 1);
    let mut driver = SplitDriver::new(&guest, 16, 0);
    let mut queue = transmit_queue(&guest, &driver);
    for _ in 0..3 {
        driver.send(&guest, &[Piece::read(at, 100)]);
    }
    driver.set_available(&guest, 2, 999);
    assert_eq!(collect_some(&mut queue, &guest, 64).expect("two valid chains").frames.len(), 2);
    assert_eq!(collect_some(&mut queue, &guest, 64), Err(RingFault::HeadOutOfRange { head: 999, size: 16 }));
}

#[test]
fn loops_end_a_split_ring() {
    for cycle in [1u16, 2, 16] {
        let guest = Guest::new();
        let at = guest.alloc(100, 1);
        let mut driver = SplitDriver::new(&guest, 16, 0);
        driver.send(&guest, &[Piece::read(at, 100)]);
        for index in 0..16 {
            let next = if index + 1 == cycle { 0 } else { index + 1 };
            let write = Piece { address: at, len: 1, write: false };
            driver.write_descriptor(&guest, index, descriptor(write, NEXT, next % 16));
        }
        assert_eq!(collect(&mut transmit_queue(&guest, &driver), &guest), Err(RingFault::Endless(16)));
    }
}

#[test]
fn a_chain_round_the_whole_packed_ring_ends_it() {
    let guest = Guest::new();
    let at = guest.alloc(100, 1);
    let driver = PackedDriver::new(&guest, 5, 0);
    for position in 0..5 {
        driver.write_descriptor(&guest, position, Piece::read(at, 10), NEXT, 0);
    }
    assert_eq!(collect(&mut transmit_queue(&guest, &driver), &guest), Err(RingFault::Endless(5)));
    for position in 0..5 {
        driver.write_descriptor(&guest, position, Piece::write(at, 1), NEXT, 0);
    }
    assert_eq!(deliver(&mut receive_queue(&guest, &driver, true), &guest, &frame(), 9).0, Err(RingFault::Endless(5)));
}

#[test]
fn malformed_indirect_tables_end_a_ring() {
    // Each case: bytes of the table, its entries as (flags, next), and the fault.
    let cases: [(u32, &[Entry], RingFault); 9] = [
        (0, &[(0, 0)], RingFault::IndirectSize(0)),
        (15, &[(0, 0)], RingFault::IndirectSize(15)),
        (17, &[(0, 0)], RingFault::IndirectSize(17)),
        (u32::MAX, &[(0, 0)], RingFault::IndirectSize(u32::MAX)),
        (32, &[(NEXT, 2)], RingFault::NextOutOfRange { next: 2, size: 2 }),
        (32, &[(NEXT, 0xffff)], RingFault::NextOutOfRange { next: 0xffff, size: 2 }),
        (32, &[(NEXT, 0)], RingFault::Endless(1024)),
        (32, &[(NEXT, 1), (NEXT, 0)], RingFault::Endless(1024)),
        (32, &[(INDIRECT, 0)], RingFault::IndirectNested),
    ];
    for (bytes, entries, fault) in cases {
        let guest = Guest::new();
        let at = guest.alloc(64, 1);
        let mut driver = SplitDriver::new(&guest, 16, F_INDIRECT_DESC);
        let table = guest.alloc(64, 1);
        for (place, &(flags, next)) in (0..).zip(entries) {
            let words = descriptor(Piece::read(at, 20), flags, next);
            guest.write(table + 16 * place, &[words[0].to_le_bytes(), words[1].to_le_bytes()].concat());
        }
        driver.send(&guest, &[Piece::read(table, 0)]);
        driver.write_descriptor(&guest, 0, descriptor(Piece { address: table, len: bytes, write: false }, INDIRECT, 0));
        assert_eq!(collect(&mut transmit_queue(&guest, &driver), &guest), Err(fault), "{bytes} bytes, {entries:?}");
    }
    // The bad sizes are faults of a packed ring, too.
    for bytes in [0, 15, 17] {
        let guest = Guest::new();
        let at = guest.alloc(64, 1);
        let driver = PackedDriver::new(&guest, 16, F_INDIRECT_DESC);
        driver.write_descriptor(&guest, 0, Piece::read(at, bytes), INDIRECT, 0);
        assert_eq!(collect(&mut transmit_queue(&guest, &driver), &guest), Err(RingFault::IndirectSize(bytes as u32)));
    }
}

#[test]
fn a_table_larger_than_any_chain_is_read_as_far_as_it_goes() {
    let guest = Guest::new();
    let at = guest.alloc(100, 1);
    let mut driver = SplitDriver::new(&guest, 16, F_INDIRECT_DESC);
    let table = guest.alloc(8 << 20, 16);
    let words = descriptor(Piece::read(at, 72), 0, 0xffff);
    guest.write(table, &[words[0].to_le_bytes(), words[1].to_le_bytes()].concat());
    driver.send(&guest, &[Piece::read(table, 8 << 20)]);
    driver.write_descriptor(&guest, 0, descriptor(Piece::read(table, 8 << 20), INDIRECT, 0));
    assert_eq!(collect(&mut transmit_queue(&guest, &driver), &guest).expect("no fault").frames.len(), 1);
}
