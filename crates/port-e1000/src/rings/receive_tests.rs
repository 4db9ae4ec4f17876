//! Delivered frames arrive in the driver's buffers. No other bytes change.

use ringway_port::testing::{Guest, LOW, LOW_BYTES};

use super::testing::{Ring, deliver, fcs, frame, open};
use super::{Format, Receive, ReceiveSettings, RingFault};

/// A ring whose descriptors have buffers of 2,048 bytes. The device owns all descriptors but one.
fn start(guest: &Guest, count: u32) -> (Ring, Receive) {
    let mut ring = Ring::new(guest, count);
    for at in 0..count {
        ring.set(guest, at, [guest.alloc(2048, 64), u64::MAX]);
    }
    ring.tail = count - 1;
    let receive = Receive::start(ring.base, count, 0, Format::Legacy { buffer: 2048 }).expect("a ring");
    (ring, receive)
}

/// Returns length, status, errors and tag of a descriptor.
fn fields(ring: &Ring, guest: &Guest, at: u32) -> (usize, u8, u8, u16) {
    let word = ring.get(guest, at)[1];
    (word as usize & 0xffff, (word >> 32) as u8, (word >> 40) as u8, (word >> 48) as u16)
}

const DD: u8 = 1;
const EOP: u8 = 2;
const IXSM: u8 = 4;

#[test]
fn frames_arrive_whole_padded_and_in_order_over_many_laps() {
    let guest = Guest::new();
    let (mut ring, mut receive) = start(&guest, 64);
    let (mut seed, mut at) = (0, 0);
    for round in 0..40 {
        let frames: Vec<_> = (0..1 + (round * 13) % 63)
            .map(|_| {
                seed += 1;
                (frame([14, 42, 60, 61, 128, 129, 1514, 1518][seed % 8], seed), None)
            })
            .collect();
        let (result, received) = deliver(&mut receive, &guest, &frames, 500, &open(), ring.tail);
        assert_eq!((result, received.traffic.frames, received.full), (Ok(()), frames.len() as u64, 0));
        for (frame, _) in &frames {
            let mut expected = frame.clone();
            expected.resize(60.max(frame.len()), 0);
            assert_eq!(fields(&ring, &guest, at), (expected.len(), DD | EOP | IXSM, 0, 0));
            assert_eq!(guest.read(ring.get(&guest, at)[0], expected.len()), expected);
            ring.set(&guest, at, [ring.get(&guest, at)[0], u64::MAX]);
            at = (at + 1) % 64;
        }
        assert_eq!(receive.head(), at);
        ring.tail = (at + 63) % 64;
    }
}

#[test]
fn without_stripping_frames_are_four_bytes_longer_and_may_need_a_descriptor_more() {
    let guest = Guest::new();
    let (ring, mut receive) = start(&guest, 64);
    let settings = ReceiveSettings { strip_fcs: false, longest: 16_384, ..open() };
    let frames: Vec<_> = [60, 2044, 2046, 2048, 2049, 9000].map(|len| (frame(len, len), None)).into();
    let (result, received) = deliver(&mut receive, &guest, &frames, 3000, &settings, ring.tail);
    assert_eq!((result, received.traffic.frames), (Ok(()), 6));
    let mut at = 0;
    for (frame, _) in frames {
        let whole = [&frame[..], &fcs(&frame)].concat();
        for part in whole.chunks(2048) {
            let last = if at_end(&whole, part) { EOP } else { 0 };
            assert_eq!(fields(&ring, &guest, at), (part.len(), DD | IXSM | last, 0, 0));
            assert!(guest.read(ring.get(&guest, at)[0], part.len()) == part, "descriptor {at}");
            at += 1;
        }
    }
    assert_eq!(receive.head(), at);
}

fn at_end(whole: &[u8], part: &[u8]) -> bool {
    std::ptr::eq(whole.as_ptr_range().end, part.as_ptr_range().end)
}

#[test]
fn a_frame_that_ends_before_its_tag_does_arrives_as_it_is() {
    let guest = Guest::new();
    let (ring, mut receive) = start(&guest, 16);
    let settings = ReceiveSettings { strip_tag: true, ..open() };
    let mut short = frame(16, 1);
    short[12..14].copy_from_slice(&[0x81, 0]);
    let frames = [14, 16].map(|len| (short[..len].to_vec(), None));
    let (result, received) = deliver(&mut receive, &guest, &frames, 100, &settings, ring.tail);
    assert_eq!((result, received.traffic.frames), (Ok(()), 2));
    for (at, (mut frame, _)) in (0..).zip(frames) {
        frame.resize(60, 0);
        assert_eq!(fields(&ring, &guest, at), (60, DD | EOP | IXSM, 0, 0), "no earlier bits of the status word remain");
        assert_eq!(guest.read(ring.get(&guest, at)[0], 60), frame);
    }
}

#[test]
fn frames_without_descriptors_and_too_long_ones_are_counted_and_the_low_mark_is_told_once() {
    let guest = Guest::new();
    let (ring, mut receive) = start(&guest, 16);
    let settings = ReceiveSettings { low: 8, ..open() };
    let frames = |count| vec![(frame(60, 1), None); count];
    assert!(!deliver(&mut receive, &guest, &frames(6), 1, &settings, ring.tail).1.low);
    assert!(deliver(&mut receive, &guest, &frames(1), 1, &settings, ring.tail).1.low);
    assert!(!deliver(&mut receive, &guest, &frames(1), 1, &settings, ring.tail).1.low);
    let long = [vec![(frame(1519, 1), None)], frames(10)].concat();
    let (result, received) = deliver(&mut receive, &guest, &long, 1, &settings, ring.tail);
    assert_eq!((result, received.long, received.traffic.frames, received.full), (Ok(()), 1, 7, 3));
    let large = vec![(frame(5000, 1), None)];
    let settings = ReceiveSettings { longest: 16_384, ..open() };
    let (_, received) = deliver(&mut receive, &guest, &large, 1, &settings, 1);
    assert_eq!((received.full, receive.head()), (1, 15), "two descriptors do not hold a frame that needs three");
}

#[test]
fn a_driver_that_lies_stops_its_ring_by_name() {
    let guest = Guest::new();
    let one = [(frame(60, 1), None)];
    let (_, mut receive) = start(&guest, 8);
    for tail in [8, u32::MAX] {
        let (result, received) = deliver(&mut receive, &guest, &one, 1, &open(), tail);
        assert_eq!(result, Err(RingFault::TailOutOfRange { tail, count: 8 }));
        assert_eq!(received.full, 1);
    }
    for address in [0, LOW - 59, LOW + LOW_BYTES - 59, u64::MAX - 3, 1 << 63] {
        let (ring, mut receive) = start(&guest, 8);
        ring.set(&guest, 1, [address, 0]);
        let (result, received) = deliver(&mut receive, &guest, &[one[0].clone(), one[0].clone()], 1, &open(), 7);
        assert_eq!(result, Err(RingFault::BadAddress { address, len: 60 }));
        assert_eq!((received.traffic.frames, received.full, receive.head()), (1, 1, 1));
    }
    let mut receive =
        Receive::start(LOW + LOW_BYTES - 64, 8, 0, Format::Legacy { buffer: 2048 }).expect("the ring starts in memory");
    assert!(matches!(deliver(&mut receive, &guest, &one, 1, &open(), 1).0, Err(RingFault::BadBase { .. })));
}
