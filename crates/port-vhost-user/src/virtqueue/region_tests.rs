//! Buffers and tables in several regions of the guest's memory: adjacent regions act as one, and lookups are bounded.

use std::sync::Arc;

use proptest::prelude::*;
use ringway_port::guest::{GuestMemory, Region, work_done};
use ringway_testing::whole;

use super::testing::{Driver, Guest, Piece, both, collect, collect_some, deliver, receive_queue, transmit_queue};
use super::{F_INDIRECT_DESC, RingFault};

both!(
    a_frame_in_buffers_across_regions_arrives_whole,
    a_frame_is_given_to_buffers_across_regions_whole,
    an_indirect_table_across_regions_is_read_whole,
    a_buffer_that_ends_behind_the_last_region_ends_the_ring,
    what_a_visit_looks_at_is_bounded_whatever_the_ring_says,
    a_frame_in_more_pieces_than_any_is_counted,
);

/// Address of the first of the small, adjacent regions.
const SMALL: u64 = 0x2_0000_0000;
/// Most comparisons of a visit to a transmit ring: a descriptor or piece takes two searches of ten comparisons.
const MOST_SENT: usize = (4096 + 1024 + 2048) * 21;
/// A delivery of this many frames of this many bytes may use chains of tiny descriptors; [`MOST_GIVEN`] is the limit
/// for its comparisons.
const FRAMES: usize = 64;
const BYTES: usize = 1000;
const MOST_GIVEN: usize = (1024 + 1024 + FRAMES * (32 + BYTES / 16)) * 21;

/// A guest with `count` further regions of `bytes` bytes each. Their addresses are adjacent. They are in no order in
/// the memory table, and apart from each other in their file.
fn guest_with(count: u64, bytes: u64) -> Guest {
    let mut guest = Guest::new();
    let file = rustix::fs::memfd_create("small", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
    rustix::fs::ftruncate(&file, count * 4096).expect("memory");
    let mut regions = guest.memory.regions().to_vec();
    for at in (0..count).rev() {
        let place = (at * 7 + 3) % count;
        let region = Region::map(&file, SMALL + place * bytes, bytes, at << 20, place * 4096).expect("a region");
        regions.insert(regions.len() / 2, Arc::new(region));
    }
    guest.memory = Arc::new(GuestMemory::new(regions));
    guest
}

/// Writes to guest memory across regions.
fn write(guest: &Guest, address: u64, mut bytes: &[u8]) {
    for piece in guest.memory.pieces(address, bytes.len() as u32).expect("memory") {
        assert!(piece.write(&bytes[..piece.len()]));
        bytes = &bytes[piece.len()..];
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + 7) as u8).collect()
}

/// Returns a header without offload, followed by the frame.
fn sent(frame: &[u8]) -> Vec<u8> {
    [&[0; 12], frame].concat()
}

fn a_frame_in_buffers_across_regions_arrives_whole<D: Driver>() {
    for bytes in [1, 2, 5, 11, 64, 256, 4096] {
        let guest = guest_with(64, bytes);
        let end = SMALL + 64 * bytes;
        for len in [14, 60, 300, 1514].into_iter().filter(|len| len + 12 < 64 * bytes as usize) {
            for direct in [0, 9] {
                let mut driver = D::new(&guest, 64, F_INDIRECT_DESC);
                let mut queue = transmit_queue(&guest, &driver);
                let (frame, whole) = (pattern(len), sent(&pattern(len)));
                let mut ids = Vec::new();
                // If there is memory: the header and the frame, in one buffer and in two buffers.
                for address in [SMALL, end - whole.len() as u64, SMALL + bytes / 2] {
                    if address + whole.len() as u64 > end {
                        continue;
                    }
                    write(&guest, address, &whole);
                    let all = Piece::read(address, whole.len());
                    let (first, second) = (Piece::read(address, 7), Piece::read(address + 7, whole.len() - 7));
                    for chain in [&[all][..], &[first, second]] {
                        ids.push((driver.put(&guest, chain, direct.min(chain.len())).expect("room"), 0));
                        driver.publish(&guest);
                        let got = collect(&mut queue, &guest).expect("all addresses are in memory");
                        assert_eq!((got.frames.len(), got.refused), (1, 0));
                        assert!(got.frames[0].0 == frame, "{len} bytes at {address:#x} in regions of {bytes}");
                    }
                }
                assert_eq!(driver.all_used(&guest), ids);
            }
        }
    }
}

fn a_frame_is_given_to_buffers_across_regions_whole<D: Driver>() {
    for bytes in [1, 2, 5, 11, 64, 256, 4096] {
        let guest = guest_with(64, bytes);
        let end = SMALL + 64 * bytes;
        for len in [14, 60, 300, 1514].into_iter().filter(|len| len + 12 < 64 * bytes as usize) {
            for (direct, mergeable) in [(0, false), (9, false), (9, true)] {
                let mut driver = D::new(&guest, 64, F_INDIRECT_DESC);
                let mut queue = receive_queue(&guest, &driver, mergeable);
                for address in [SMALL, end - (len + 12) as u64] {
                    for cut in [len + 12, 5, 13] {
                        let pieces = [Piece::write(address, cut), Piece::write(address + cut as u64, len + 12 - cut)];
                        let chain = &pieces[..if cut == len + 12 { 1 } else { 2 }];
                        write(&guest, SMALL, &vec![0xee; (end - SMALL) as usize]);
                        let id = driver.put(&guest, chain, direct.min(chain.len())).expect("room");
                        driver.publish(&guest);
                        let (result, tally) = deliver(&mut queue, &guest, &[(pattern(len), None)], 100);
                        assert_eq!((result, tally.frames), (Ok(()), 1), "{len} bytes in regions of {bytes}");
                        assert_eq!(driver.all_used(&guest), [(id, (len + 12) as u32)]);
                        let mut got = vec![0; (end - SMALL) as usize];
                        assert!(guest.memory.read(SMALL, &mut got));
                        let at = (address - SMALL) as usize;
                        assert!(got[at + 12..at + 12 + len] == pattern(len), "{len} bytes, regions of {bytes}");
                        assert_eq!(got[at..at + 12], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
                        assert!(got[..at].iter().chain(&got[at + 12 + len..]).all(|&byte| byte == 0xee));
                    }
                }
            }
        }
    }
}

fn an_indirect_table_across_regions_is_read_whole<D: Driver>() {
    for bytes in [1, 3, 16, 24, 64] {
        let guest = guest_with(64, bytes);
        let mut driver = D::new(&guest, 16, F_INDIRECT_DESC);
        let mut queue = transmit_queue(&guest, &driver);
        let frame = pattern(50);
        let place = guest.place(&sent(&frame));
        // Moves the indirect table that the driver wrote to an address where the table spans several regions.
        let before = guest.allocated().next_multiple_of(16);
        let id = driver.put(&guest, &[Piece::read(place, 31), Piece::read(place + 31, 31)], 0).expect("room");
        let table = guest.read(before, 32);
        write(&guest, SMALL + 1, &table);
        let all = driver.addresses().descriptors;
        guest.word64(all).store((SMALL + 1).to_le(), std::sync::atomic::Ordering::Relaxed);
        driver.publish(&guest);
        assert_eq!(
            collect(&mut queue, &guest).expect("all addresses are in memory").frames,
            [(frame, None)],
            "{bytes}"
        );
        assert_eq!(driver.all_used(&guest), [(id, 0)]);
    }
}

fn a_buffer_that_ends_behind_the_last_region_ends_the_ring<D: Driver>() {
    let guest = guest_with(64, 256);
    let end = SMALL + 64 * 256;
    for (address, len) in [(end - 99, 100), (SMALL - 1, 100), (SMALL, 64 * 256 + 1), (SMALL + 300, u32::MAX as usize)] {
        let fault = Err(RingFault::BadAddress { address, len: len as u32 });
        let mut driver = D::new(&guest, 16, 0);
        driver.send(&guest, &[Piece::read(address, len)]);
        assert_eq!(collect(&mut transmit_queue(&guest, &driver), &guest).map(drop), fault);
        let mut driver = D::new(&guest, 16, 0);
        driver.send(&guest, &[Piece::write(address, len)]);
        let (result, _) = deliver(&mut receive_queue(&guest, &driver, true), &guest, &[(pattern(60), None)], 100);
        assert_eq!(result, fault);
    }
}

/// One chain: its pieces, as offsets in the small regions and lengths, and how many of them are direct descriptors.
type Chain = (Vec<(u64, usize)>, usize);

fn chains() -> impl Strategy<Value = Vec<Chain>> {
    let len = prop_oneof![Just(0usize), Just(1), 1usize..80, Just(4000), Just(16_000)];
    let piece = (0u64..300, len);
    let pieces = prop_oneof![
        3 => prop::collection::vec(piece.clone(), 1..8),
        2 => (piece.clone(), 1usize..=1024).prop_map(|(piece, count)| vec![piece; count]),
        1 => prop::collection::vec(piece, 900..=1024),
    ];
    prop::collection::vec((pieces, 0usize..4), 1..24)
}

fn what_a_visit_looks_at_is_bounded_whatever_the_ring_says<D: Driver>() {
    let config = ProptestConfig { cases: whole(12, 48), max_shrink_iters: 64, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let result = runner.run(&(chains(), any::<bool>()), |(chains, mergeable)| {
        // 16,300 bytes in 1,019 regions: more regions than a client may have.
        let guest = guest_with(1019, 16);
        let new = || D::new(&guest, 32_768, F_INDIRECT_DESC);
        let (mut out, mut back) = (new(), new());
        let (mut transmit, mut receive) = (transmit_queue(&guest, &out), receive_queue(&guest, &back, mergeable));
        for (pieces, direct) in &chains {
            let direct = if *direct == 0 { 0 } else { pieces.len() };
            let pieces = |write| -> Vec<Piece> {
                pieces.iter().map(|&(at, len)| Piece { address: SMALL + at, len: len as u32, write }).collect()
            };
            out.put(&guest, &pieces(false), direct).expect("room");
            back.put(&guest, &pieces(true), direct).expect("room");
        }
        out.publish(&guest);
        back.publish(&guest);
        // The visits together see the whole ring.
        let (mut used, mut idle) = (0, 0);
        while used < chains.len() && idle < 3 {
            work_done();
            let sent = collect_some(&mut transmit, &guest, 256);
            let work = work_done();
            prop_assert!(work <= MOST_SENT, "{} comparisons, pieces and descriptors in a visit", work);
            prop_assert!(sent.is_ok(), "{:?}", sent);
            let now = out.all_used(&guest).len();
            (used, idle) = (used + now, if now == 0 { idle + 1 } else { 0 });
        }
        prop_assert_eq!(used, chains.len());
        let frames: Vec<_> = (0..FRAMES).map(|_| (pattern(BYTES), None)).collect();
        work_done();
        let (result, tally) = deliver(&mut receive, &guest, &frames, 100);
        let work = work_done();
        prop_assert!(work <= MOST_GIVEN, "{} comparisons, pieces and descriptors in a delivery", work);
        prop_assert_eq!((result, tally.frames + tally.full + tally.small), (Ok(()), FRAMES as u64));
        Ok(())
    });
    reclaim(result);
}

fn reclaim<T: std::fmt::Debug>(result: Result<(), proptest::test_runner::TestError<T>>) {
    if let Err(error) = result {
        panic!("{error}");
    }
}

fn a_frame_in_more_pieces_than_any_is_counted<D: Driver>() {
    let guest = guest_with(255, 1);
    write(&guest, SMALL, &[0; 255]);
    let mut driver = D::new(&guest, 256, 0);
    let mut queue = transmit_queue(&guest, &driver);
    for (count, pieces) in [(9, 1), (8, 0)] {
        let chain = vec![Piece::read(SMALL, 255); count];
        let id = driver.send(&guest, &chain);
        let got = collect(&mut queue, &guest).expect("no fault");
        assert_eq!((got.frames.len(), got.refused), (1 - pieces, pieces), "{count} buffers");
        assert_eq!(driver.all_used(&guest), [(id, 0)]);
    }
}
