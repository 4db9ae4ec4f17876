//! Buffers in as many regions as a guest may have: frames arrive whole, and the work of the lookups is bounded.

use std::sync::Arc;

use proptest::prelude::*;
use ringway_port::guest::{GuestMemory, Region, work_done};
use ringway_port::testing::Guest;

use super::testing::{DATA, EOP, LAST, Ring, collect_some, deliver, frame, open};
use super::{Format, Receive, RingFault, Transmit};
use crate::rings::testing::TX;

const SMALL: u64 = 0x2_0000_0000;
const REGIONS: u64 = 254;
const BYTES: u64 = 16;
/// Most comparisons of a visit: each descriptor and each piece may take two searches of eight comparisons.
const MOST_SENT: usize = (4096 + 1024 + 2048) * 17;
/// Most comparisons for a frame of 1,000 bytes: its pieces, and the searches for them.
const MOST_GIVEN: usize = (4 * 80 + 40) * 17;

fn guest() -> Guest {
    let mut guest = Guest::new();
    let file = rustix::fs::memfd_create("small", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
    rustix::fs::ftruncate(&file, 4096).expect("memory");
    let mut regions = guest.memory.regions().to_vec();
    for at in (0..REGIONS).rev() {
        let region = Region::map(&file, SMALL + at * BYTES, BYTES, 0, at * BYTES).expect("a region");
        regions.push(Arc::new(region));
    }
    guest.memory = Arc::new(GuestMemory::new(regions));
    guest
}

fn write(guest: &Guest, mut bytes: &[u8]) {
    for piece in guest.memory.pieces(SMALL, bytes.len() as u32).expect("memory") {
        assert!(piece.write(&bytes[..piece.len()]));
        bytes = &bytes[piece.len()..];
    }
}

#[test]
fn frames_go_out_of_and_into_buffers_across_regions_whole() {
    let guest = guest();
    for len in [60, 100, 500] {
        let sent = frame(len, len);
        write(&guest, &sent);
        let mut ring = Ring::new(&guest, 8);
        ring.put(&guest, SMALL, 33 | DATA);
        ring.put(&guest, SMALL + 33, (len - 33) as u64 | DATA | LAST);
        let mut transmit = Transmit::start(ring.base, 8, 0).expect("a ring");
        let got = collect_some(&mut transmit, &guest, ring.tail, &TX, 8).expect("fine");
        assert!(got.frames == [(sent.clone(), None)], "{len} bytes");

        write(&guest, &[0xee; 2048]);
        let mut ring = Ring::new(&guest, 8);
        ring.put(&guest, SMALL + 7, 0);
        let mut receive = Receive::start(ring.base, 8, 0, Format::Legacy { buffer: 2048 }).expect("a ring");
        let (result, received) = deliver(&mut receive, &guest, &[(sent.clone(), None)], 100, &open(), ring.tail);
        assert_eq!((result, received.traffic.frames), (Ok(()), 1), "{len} bytes");
        let mut got = vec![0; 2048];
        assert!(guest.memory.read(SMALL, &mut got));
        assert!(got[7..7 + len] == sent && got[..7].iter().chain(&got[7 + len..]).all(|&byte| byte == 0xee));
    }
}

#[test]
fn a_frame_in_more_regions_than_any_guest_has_buffers_in_stops_a_receive_ring_by_name() {
    let guest = guest();
    let mut ring = Ring::new(&guest, 8);
    ring.put(&guest, SMALL, 0);
    let mut receive = Receive::start(ring.base, 8, 0, Format::Legacy { buffer: 2048 }).expect("a ring");
    let (result, _) = deliver(&mut receive, &guest, &[(frame(1000, 1), None)], 100, &open(), ring.tail);
    assert_eq!(result, Err(RingFault::BadAddress { address: SMALL, len: 1000 }));
}

/// Descriptors: offset of the buffer, length and flags.
fn descriptors() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    let len = prop_oneof![Just(0u64), Just(1), 1u64..80, Just(60), Just(4000)];
    let flags = prop_oneof![3 => Just(DATA), 2 => Just(DATA | LAST), 1 => Just(LAST), 1 => Just(1 << 29), 1 => Just(DATA | EOP)];
    let one = (0u64..60, len, flags);
    let run = prop_oneof![
        2 => prop::collection::vec(one.clone(), 1..20),
        1 => (one, 1usize..1023).prop_map(|((at, len, flags), count)| {
            let mut all = vec![(at, len, flags & !(EOP | LAST)); count];
            all.push((at, len, DATA | LAST));
            all
        }),
    ];
    prop::collection::vec(run, 1..16).prop_map(|runs| runs.concat())
}

#[test]
fn what_a_visit_looks_at_is_bounded_whatever_the_ring_says() {
    let config = ProptestConfig { cases: 64, max_shrink_iters: 64, ..ProptestConfig::default() };
    proptest!(config, |(descriptors in descriptors(), buffers in prop::collection::vec(0u64..3900, 64))| {
        let guest = guest();
        let mut ring = Ring::new(&guest, 32_768);
        for &(at, len, flags) in &descriptors {
            ring.put(&guest, SMALL + at, len | flags);
        }
        ring.put(&guest, SMALL, 60 | LAST);
        let mut transmit = Transmit::start(ring.base, 32_768, 0).expect("a ring");
        let (mut before, mut idle) = (0, 0);
        while transmit.head() != ring.tail && idle < 3 {
            work_done();
            let sent = collect_some(&mut transmit, &guest, ring.tail, &TX, 256);
            let work = work_done();
            prop_assert!(work <= MOST_SENT, "{} comparisons, pieces and descriptors in a visit", work);
            if let Err(fault) = sent {
                prop_assert!(matches!(fault, RingFault::Endless(_)), "{:?}", fault);
                break;
            }
            idle = if transmit.head() == before { idle + 1 } else { 0 };
            before = transmit.head();
        }
        prop_assert!(idle < 3, "the device is stuck at descriptor {} of {}", before, ring.tail);

        let mut ring = Ring::new(&guest, 256);
        for at in buffers {
            ring.put(&guest, SMALL + at, 0);
        }
        let mut receive = Receive::start(ring.base, 256, 0, Format::Legacy { buffer: 256 }).expect("a ring");
        let frames: Vec<_> = (0..16).map(|number| (frame(1000, number), None)).collect();
        work_done();
        let _ = deliver(&mut receive, &guest, &frames, 100, &open(), ring.tail);
        let work = work_done();
        prop_assert!(work <= frames.len() * MOST_GIVEN, "{} comparisons and pieces in a delivery", work);
    });
}
