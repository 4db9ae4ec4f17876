//! Ports of one region: their room, their buffers and their registrations.

use std::sync::Arc;

use ringway_abi::layout::{PAGE, netmap_if, netmap_ring};
use ringway_abi::netmap::{Monitor, Polling, PortName, Register, Rings, Wish};
use ringway_abi::slot::SLOT_BYTES;
use ringway_abi::{Layout, Slot};

use super::memory::{INTERFACE_BYTES, Sizes};
use super::{Extra, Region, RegionError, RegionPort, Registration};
use ringway_port::port_io::PortIo;

const MOST: u64 = 256 << 20;

fn small() -> Wish {
    Wish { tx_slots: 64, rx_slots: 64, ..Wish::default() }
}

fn region() -> Arc<Region> {
    Region::new(7, &small(), MOST).expect("a region")
}

fn name() -> PortName {
    "lan0:a".parse().expect("a name")
}

fn register(tx: Rings, rx: Rings, exclusive: bool, extra_buffers: u32) -> Register {
    Register {
        name: name(),
        tx,
        rx,
        exclusive,
        wish: Wish::default(),
        extra_buffers,
        region: 0,
        monitor: Monitor::default(),
        polling: Polling::default(),
    }
}

fn left(region: &Region) -> u32 {
    region.free_buffers()
}

/// Adds all extra buffers.
fn complete(mut registration: Registration) -> Registration {
    while registration.add_extra(false) != Extra::Complete {}
    registration
}

/// The numbers of the buffers that the slots of a port's rings name.
fn named(region: &Region, layout: &Layout) -> Vec<u32> {
    let rings = [(layout.tx_ring(0), layout.shape.tx_slots), (layout.rx_ring(0), layout.shape.rx_slots)];
    let slots = rings
        .into_iter()
        .flat_map(|(ring, slots)| (0..slots as usize).map(move |slot| ring + netmap_ring::SLOTS + slot * SLOT_BYTES));
    slots.map(|at| region.word(at).expect("a slot")).collect()
}

fn end(port: (PortIo, Arc<RegionPort>)) {
    drop(port);
}

#[test]
fn a_region_has_the_largest_size_that_is_allowed_and_room_for_its_first_port() {
    let shape = small().shape(2112);
    let sizes = Sizes::of(&shape, MOST).expect("a size");
    assert_eq!((sizes.buffers, sizes.buffer_count), (16 << 20, 65_536));
    for most in [1 << 20, 2 << 20, 16 << 20, 64 << 20, 150 << 20] {
        let wanted = if most < 2 << 20 { Wish { tx_slots: 4, rx_slots: 4, ..Wish::default() } } else { small() };
        let shape = wanted.shape(2112);
        match Sizes::of(&shape, most) {
            Ok(sizes) => {
                assert!(sizes.bytes as u64 <= most, "{sizes:?} within {most}");
                assert!(sizes.buffer_count >= 2 + shape.slots(), "{sizes:?}");
                assert!(sizes.buffers >= INTERFACE_BYTES + shape.own_bytes(), "{sizes:?}");
                assert!(sizes.buffers.is_multiple_of(PAGE), "{sizes:?}");
            }
            Err(error) => assert!(most < 2 << 20 && matches!(error, RegionError::TooLarge { .. }), "{error}"),
        }
    }
    let huge = Wish { tx_rings: 16, rx_rings: 16, tx_slots: 32_768, rx_slots: 32_768, ..Wish::default() };
    let error = Sizes::of(&huge.shape(2112), MOST).expect_err("2 GiB");
    assert!(matches!(error, RegionError::TooLarge { allowed: MOST, .. }), "{error}");
}

#[test]
fn each_slot_of_each_port_begins_with_a_buffer_of_its_own() {
    let region = region();
    let ports = [0, 1, 2].map(|colour| region.open(&small(), colour).expect("a port"));
    let mut all: Vec<u32> = ports.iter().flat_map(|(_, port)| named(&region, port.layout())).collect();
    all.sort_unstable();
    assert_eq!(all, (2..2 + 3 * 128).collect::<Vec<_>>());
    let [first, second, third] = ports.each_ref().map(|(_, port)| port.layout());
    assert!(first.end <= second.base && second.end <= third.base, "their parts do not overlap");
    assert!(third.end <= third.buffers);
}

#[test]
fn buffers_that_were_swapped_between_ports_stay_with_the_port_that_names_them() {
    let region = region();
    let before = left(&region);
    let (first, second) = (region.open(&small(), 0).expect("a port"), region.open(&small(), 1).expect("a port"));
    let at = |port: &RegionPort| port.layout().tx_ring(0) + netmap_ring::SLOTS;
    let (a, b) = (at(&first.1), at(&second.1));
    let (in_a, in_b) = (region.word(a).expect("a slot"), region.word(b).expect("a slot"));
    let slot = |buffer| Slot { buffer, len: 0, flags: 0 }.to_word().to_le_bytes();
    region.write(a, &slot(in_b));
    region.write(b, &slot(in_a));
    end(first);
    assert_eq!(left(&region), before - 128);
    let third = region.open(&small(), 2).expect("a port");
    let (of_second, of_third) = (named(&region, second.1.layout()), named(&region, third.1.layout()));
    assert!(of_third.contains(&in_b) && of_second.contains(&in_a));
    assert!(of_second.iter().all(|buffer| !of_third.contains(buffer)), "no buffer is in two ports");
    end(second);
    end(third);
    assert_eq!(left(&region), before);
}

#[test]
fn slots_with_any_numbers_free_no_buffer_twice_and_none_that_is_not_there() {
    let region = region();
    let before = left(&region);
    let port = region.open(&small(), 0).expect("a port");
    let ring = port.1.layout().tx_ring(0) + netmap_ring::SLOTS;
    for (slot, number) in [0, 1, 65_536, u32::MAX, 2, 2, 2].into_iter().enumerate() {
        region.write(ring + slot * SLOT_BYTES, &u64::from(number).to_le_bytes());
    }
    end(port);
    // Seven slots lost their own buffers, of which buffer 2 is named.
    assert_eq!(left(&region), before - 6);
}

#[test]
fn a_port_that_follows_another_begins_with_zeroed_rings() {
    let region = region();
    let port = region.open(&small(), 0).expect("a port");
    let (base, end_of) = (port.1.layout().base, port.1.layout().end);
    (base..end_of).step_by(PAGE).for_each(|page| region.write(page, &[0xff; PAGE]));
    end(port);
    region.settle();
    let (_sides, port) = region.open(&small(), 0).expect("a port");
    let layout = port.layout();
    assert_eq!(layout.base, base, "it has the same place");
    for word in 0..64 {
        let value = region.word(layout.doorbell(0) + 4 * word).expect("a doorbell");
        assert_eq!(value, if word == 16 { 63 } else { 0 }, "word {word} of the doorbell");
    }
    let ring = layout.rx_ring(0);
    let header = [netmap_ring::HEAD, netmap_ring::CUR, netmap_ring::TAIL].map(|at| region.word(ring + at));
    assert_eq!(header, [Some(0); 3]);
}

#[test]
fn a_port_that_finds_no_room_is_refused_and_takes_nothing() {
    let region = Region::new(1, &small(), 2 << 20).expect("a small region");
    let mut ports = Vec::new();
    let error = loop {
        match region.open(&small(), 0) {
            Ok(port) => ports.push(port),
            Err(error) => break error,
        }
        assert!(ports.len() < 100, "the region never ends");
    };
    assert!(matches!(error, RegionError::NoBuffers { .. } | RegionError::NoRoom(_)), "{error}");
    let before = left(&region);
    assert!(region.open(&small(), 0).is_err());
    assert_eq!(left(&region), before);
    let count = ports.len();
    ports.clear();
    region.settle();
    ports.extend((0..count).map(|_| region.open(&small(), 0).expect("all room is free again")));
    let other_size = Wish { buffer_size: 4096, ..small() };
    assert!(matches!(region.open(&other_size, 0), Err(RegionError::BufferSize { asked: 4096, has: 2112 })));
}

#[test]
fn a_registration_binds_its_rings_and_no_others() {
    let region = region();
    let wish = Wish { tx_rings: 3, rx_rings: 2, ..small() };
    let (_sides, port) = region.open(&wish, 0).expect("a port");
    let registration = Registration::new(&port, &register(Rings::Some(1, 3), Rings::None, false, 0), [0; 6]);
    let registration = registration.expect("a registration");
    let granted = registration.granted();
    assert_eq!((granted.tx.clone(), granted.rx.clone()), (1..3, 0..0));
    let at = granted.interface as usize;
    let offset = |index: usize| region.word(at + netmap_if::RING_OFS + 8 * index).expect("an offset") as usize;
    let bound = |ring| port.layout().tx_ring(ring) - at;
    // Transmit, one host ring, receive.
    assert_eq!([0, 1, 2, 3, 4, 5].map(offset), [0, bound(1), bound(2), 0, 0, 0]);
    let words = [netmap_if::TX_RINGS, netmap_if::RX_RINGS, netmap_if::HOST_TX_RINGS].map(|word| region.word(at + word));
    assert_eq!(words, [Some(3), Some(2), Some(1)]);
    let refused = |tx, rx| Registration::new(&port, &register(tx, rx, false, 0), [0; 6]).expect_err("refused");
    assert!(matches!(refused(Rings::Some(2, 4), Rings::None), RegionError::NoRings));
    assert!(matches!(refused(Rings::None, Rings::Some(0, 3)), RegionError::NoRings));
}

#[test]
fn an_exclusive_ring_has_one_registration() {
    let region = region();
    let (_sides, port) = region.open(&Wish { tx_rings: 2, rx_rings: 2, ..small() }, 0).expect("a port");
    let bind = |tx, exclusive| Registration::new(&port, &register(tx, Rings::None, exclusive, 0), [0; 6]);
    let shared = bind(Rings::All, false).expect("a registration");
    assert!(matches!(bind(Rings::Some(0, 1), true), Err(RegionError::Busy)));
    let second = bind(Rings::Some(0, 1), false).expect("shared rings");
    drop((shared, second));
    let alone = bind(Rings::Some(0, 1), true).expect("nobody has it");
    assert!(matches!(bind(Rings::All, false), Err(RegionError::Busy)));
    bind(Rings::Some(1, 2), false).expect("another ring");
    drop(alone);
    bind(Rings::All, true).expect("nobody has them");
}

#[test]
fn extra_buffers_belong_to_their_registration_and_go_back_with_it() {
    let region = region();
    let (_sides, port) = region.open(&small(), 0).expect("a port");
    let before = left(&region);
    let bind = |extra| Registration::new(&port, &register(Rings::All, Rings::All, false, extra), [0; 6]);
    let first = complete(bind(3).expect("a registration"));
    let granted = first.granted().clone();
    assert_eq!(granted.extra_buffers, 3);
    let mut list = vec![granted.extra_head];
    while *list.last().expect("one") != 0 && list.len() < 10 {
        list.push(region.word(port.layout().buffer(*list.last().expect("one"))).expect("a buffer"));
    }
    assert_eq!(list.len(), 4, "the list ends after three buffers: {list:?}");
    assert_eq!(region.word(granted.interface as usize + netmap_if::BUFS_HEAD), Some(granted.extra_head));
    drop(first);
    assert_eq!(left(&region), before);
    // More than there are: the registration gets those that are left. A list that runs in a circle ends.
    let all = complete(bind(u32::MAX).expect("a registration"));
    assert_eq!((all.granted().extra_buffers, left(&region)), (before, 0));
    let second = port.layout().buffer(all.granted().extra_head);
    region.write(second, &all.granted().extra_head.to_le_bytes());
    drop(all);
    assert_eq!(left(&region), 1);
}

#[test]
fn one_step_touches_a_bounded_number_of_extra_buffers_and_closing_touches_none() {
    let region = region();
    let (_sides, port) = region.open(&small(), 0).expect("a port");
    let before = left(&region);
    let mut all =
        Registration::new(&port, &register(Rings::All, Rings::All, false, u32::MAX), [0; 6]).expect("a registration");
    assert_eq!(all.add_extra(true), Extra::Incomplete);
    assert_eq!(all.granted().extra_buffers, 256);
    let all = complete(all);
    assert_eq!(all.granted().extra_buffers, before);
    drop(all);
    region.settle();
    assert_eq!(region.room.lock().pool.left(), 0, "the list is read when its buffers are needed");
    let second = region.open(&small(), 1).expect("its buffers come from the list");
    assert_eq!(region.room.lock().pool.left(), 0, "and no more than that");
    end(second);
    assert_eq!(left(&region), before);
}

#[test]
fn a_port_takes_back_a_bounded_number_of_buffers_and_is_refused_for_the_moment_while_there_are_more() {
    let region = region();
    let (_sides, port) = region.open(&small(), 0).expect("a port");
    let bind = || Registration::new(&port, &register(Rings::All, Rings::All, false, u32::MAX), [0; 6]);
    drop(complete(bind().expect("a registration")));
    region.settle();
    let large = Wish { tx_slots: 2048, rx_slots: 1024, ..Wish::default() };
    for returned in [1024, 2048] {
        let error = region.open(&large, 0).map(|_| ()).expect_err("more buffers are needed");
        assert!(matches!(error, RegionError::Returning) && error.is_transient(false), "{error}");
        assert_eq!(region.room.lock().pool.left(), returned);
    }
    let _second = region.open(&large, 0).expect("a port");
    // A registration gets all that there are, whatever the lists name.
    let mut all = bind().expect("a registration");
    region.room.lock().lists.extend((0..3000).map(|_| super::room::List { next: 0, left: 1 }));
    let lists = region.room.lock().lists.len();
    all.add_extra(true);
    assert_eq!(region.room.lock().lists.len(), lists - 1024, "a step reads a bounded number");
    let all = complete(all);
    assert_eq!(all.granted().extra_buffers, 65_534 - 128 - 3072);
}

#[test]
fn a_region_is_full_for_the_moment_while_a_closed_port_of_its_own_still_has_its_memory() {
    let (region, other) = (region(), region());
    let full = || RegionError::NoRoom("another port");
    let (sides, port) = region.open(&small(), 0).expect("a port");
    assert!(!region.is_leaving() && !full().is_transient(false));
    drop(port);
    assert!(region.is_leaving() && !other.is_leaving() && full().is_transient(true), "pollers still have it");
    drop(sides);
    region.settle();
    assert!(!region.is_leaving());
}

#[test]
fn extra_buffers_that_a_closed_port_still_has_are_waited_for_if_the_caller_does() {
    let region = region();
    let (_sides, port) = region.open(&small(), 0).expect("a port");
    let closed = region.open(&small(), 0).expect("a port");
    let before = left(&region);
    let bind = || Registration::new(&port, &register(Rings::All, Rings::All, false, u32::MAX), [0; 6]).expect("room");
    let add = |registration: &mut Registration, waits| loop {
        match registration.add_extra(waits) {
            Extra::Incomplete => {}
            extra => break extra,
        }
    };
    let mut all = bind();
    assert_eq!((add(&mut all, true), all.granted().extra_buffers), (Extra::Complete, before), "no port is closed");
    drop(all);
    region.settle();
    let (sides, shared) = closed;
    drop(shared);
    let mut all = bind();
    assert_eq!((add(&mut all, true), all.granted().extra_buffers), (Extra::Leaving, before));
    let mut other = bind();
    assert_eq!((add(&mut other, false), other.granted().extra_buffers), (Extra::Complete, 0));
    drop(sides);
    region.settle();
    assert_eq!((add(&mut all, true), all.granted().extra_buffers), (Extra::Complete, before + 128));
}

#[test]
fn a_call_descriptor_goes_with_its_registration() {
    let region = region();
    let (_sides, port) = region.open(&small(), 0).expect("a port");
    let bind = || Registration::new(&port, &register(Rings::All, Rings::All, false, 0), [0; 6]).expect("room");
    let all: Vec<Registration> = (0..super::calls::MOST).map(|_| bind()).collect();
    let eventfd = |place| Arc::downgrade(&port.calls.eventfd(place).expect("one"));
    let eventfds: Vec<_> = (0..super::calls::MOST).map(eventfd).collect();
    drop(all);
    assert!(eventfds.iter().all(|eventfd| eventfd.strong_count() == 0), "the descriptors are closed");
}

#[test]
fn the_closer_has_copies_of_what_a_program_gets() {
    let region = region();
    let (_sides, port) = region.open(&small(), 0).expect("a port");
    let registration = Registration::new(&port, &register(Rings::All, Rings::All, false, 0), [0; 6]).expect("room");
    registration.hold(None).expect("a closer");
    assert!(port.kick.is_held() && port.calls.eventfd(0).expect("one").is_held());
}

#[test]
fn a_port_has_a_bounded_number_of_registrations() {
    let region = region();
    let (_sides, port) = region.open(&small(), 0).expect("a port");
    let bind = || Registration::new(&port, &register(Rings::All, Rings::All, false, 0), [0; 6]);
    let mut all: Vec<Registration> = (0..super::calls::MOST).map(|_| bind().expect("room")).collect();
    assert!(matches!(bind(), Err(RegionError::Registrations(_))));
    all.remove(17);
    bind().expect("a place is free again");
}
