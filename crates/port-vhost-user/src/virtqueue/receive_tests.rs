//! A driver receives exactly the sent bytes, in buffers of any layout.

use std::cell::RefCell;

use ringway_memory::View;
use ringway_switch::{BatchStorage, Gso, Offload};

use super::testing::{Driver, Guest, HIGH, Piece, both, deliver, receive_queue};
use super::{F_EVENT_IDX, F_IN_ORDER, F_INDIRECT_DESC, Receive, Ring, RingFault};

both!(
    a_frame_fills_buffers_of_any_framing,
    nothing_is_written_beyond_a_frame,
    a_frame_takes_as_many_mergeable_buffers_as_it_needs,
    a_frame_that_finds_too_few_buffers_takes_none,
    a_frame_too_long_for_a_buffer_leaves_it_for_the_next,
    one_buffer_is_said_without_mergeable_buffers_too,
    a_legacy_header_has_ten_bytes,
    offloads_are_said_in_the_header,
    buffers_go_back_in_order_and_visible_all_at_once,
    frames_above_the_mtu_are_not_given,
    a_buffer_shorter_than_the_header_takes_nothing,
    room_is_what_the_driver_has_put_there,
);

const HEADER: usize = 12;
const GUARD: u8 = 0xa5;

fn frame(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 11 + seed * 37 + (at >> 8)) as u8).collect()
}

/// Buffers of these lengths, each with a guard byte before and after it.
fn buffers(guest: &Guest, lens: &[usize]) -> Vec<Piece> {
    let place = |&len: &usize| {
        let at = guest.alloc(len + 2, 1);
        guest.write(at, &vec![GUARD; len + 2]);
        Piece::write(at + 1, len)
    };
    lens.iter().map(place).collect()
}

/// Returns the bytes of all buffers, and checks that the guard bytes are unchanged.
fn content(guest: &Guest, pieces: &[Piece]) -> Vec<u8> {
    let mut all = Vec::new();
    for piece in pieces {
        let bytes = guest.read(piece.address - 1, piece.len as usize + 2);
        assert_eq!((bytes[0], bytes[bytes.len() - 1]), (GUARD, GUARD), "a byte beside a buffer was written");
        all.extend_from_slice(&bytes[1..bytes.len() - 1]);
    }
    all
}

fn header(buffers: u16) -> Vec<u8> {
    [[0; 10].as_slice(), &buffers.to_le_bytes()].concat()
}

fn a_frame_fills_buffers_of_any_framing<D: Driver>() {
    let framings: [&[usize]; 9] = [
        &[9200],
        &[12, 9100],
        &[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 9100],
        &[0, 5, 0, 7, 0, 0, 9100, 0],
        &[20, 1000, 8100],
        &[100; 100],
        &[13; 800],
        &[11, 9200],
        &[14, 128, 1, 1, 9100],
    ];
    for lens in framings {
        for (features, direct) in [(0, usize::MAX), (F_INDIRECT_DESC, 0), (F_INDIRECT_DESC | F_IN_ORDER, 1)] {
            let guest = Guest::new();
            let mut driver = D::new(&guest, 1024, features);
            let mut queue = receive_queue(&guest, &driver, false);
            for (len, piece) in [(60, 1), (128, 1), (129, 1), (1514, 100), (9014, 4096)] {
                let pieces = buffers(&guest, lens);
                let id = driver.put(&guest, &pieces, direct.min(pieces.len())).expect("room");
                driver.publish(&guest);
                let bytes = frame(len, lens.len());
                let (result, tally) = deliver(&mut queue, &guest, &[(bytes.clone(), None)], piece);
                assert_eq!(result, Ok(()));
                assert_eq!((tally.frames, tally.bytes, tally.full, tally.small), (1, len as u64, 0, 0));
                assert_eq!(driver.all_used(&guest), [(id, (HEADER + len) as u32)]);
                let got = content(&guest, &pieces);
                assert!(got[..HEADER] == header(1), "{len} bytes in {lens:?}");
                assert!(got[HEADER..HEADER + len] == bytes, "{len} bytes in {lens:?}");
            }
        }
    }
}

fn nothing_is_written_beyond_a_frame<D: Driver>() {
    let guest = Guest::new();
    let mut driver = D::new(&guest, 64, 0);
    let mut queue = receive_queue(&guest, &driver, false);
    for len in (14..300).chain([1514, 4000]) {
        for lens in [&[4096 + HEADER][..], &[HEADER, 4096], &[100, 4096]] {
            let guest = &guest;
            let pieces = buffers(guest, lens);
            driver.send(guest, &pieces);
            let bytes = frame(len, 1);
            assert_eq!(deliver(&mut queue, guest, &[(bytes, None)], 1000).0, Ok(()));
            driver.all_used(guest);
            let got = content(guest, &pieces);
            assert!(got[HEADER + len..].iter().all(|&byte| byte == GUARD), "after {len} bytes");
        }
        if guest.allocated() > (12 << 20) {
            break;
        }
    }
}

fn a_frame_takes_as_many_mergeable_buffers_as_it_needs<D: Driver>() {
    for features in [0, F_IN_ORDER, F_EVENT_IDX | F_INDIRECT_DESC] {
        for each in [12usize, 13, 64, 128, 1526, 4096, 70_000] {
            let guest = Guest::new();
            let mut driver = D::new(&guest, 1024, features);
            let mut queue = receive_queue(&guest, &driver, true);
            for len in [14, 60, each.saturating_sub(HEADER).max(14), each + 1, 3 * each + 7, 9014] {
                let need = (HEADER + len).div_ceil(each);
                if need > 400 {
                    continue;
                }
                let (mut ids, mut pieces) = (Vec::new(), Vec::new());
                for number in 0..need {
                    // A third of the buffers span several descriptors.
                    let lens = if number % 3 == 2 && each > 13 { vec![1, 0, each - 1] } else { vec![each] };
                    let buffer = buffers(&guest, &lens);
                    let direct = if features & F_INDIRECT_DESC != 0 && number % 2 == 0 { 0 } else { buffer.len() };
                    ids.push(driver.put(&guest, &buffer, direct).expect("room"));
                    pieces.extend(buffer);
                }
                driver.publish(&guest);
                let bytes = frame(len, need);
                let (result, tally) = deliver(&mut queue, &guest, &[(bytes.clone(), None)], 1777);
                assert_eq!((result, tally.frames), (Ok(()), 1), "{len} bytes in {need} buffers of {each}");
                let filled = |place: usize| ((HEADER + len) - place * each).min(each) as u32;
                let used: Vec<_> = ids.iter().enumerate().map(|(place, &id)| (id, filled(place))).collect();
                assert_eq!(driver.all_used(&guest), used);
                let got = content(&guest, &pieces);
                assert_eq!(got[..HEADER], header(need as u16), "{len} bytes in {need} buffers of {each}");
                assert!(got[HEADER..HEADER + len] == bytes);
            }
        }
    }
}

fn a_frame_that_finds_too_few_buffers_takes_none<D: Driver>() {
    let guest = Guest::new();
    let mut driver = D::new(&guest, 64, 0);
    let mut queue = receive_queue(&guest, &driver, true);
    let pieces = buffers(&guest, &[100; 5]);
    let ids: Vec<u16> = pieces.iter().map(|&piece| driver.put(&guest, &[piece], 1).expect("room")).collect();
    driver.publish(&guest);
    // The second and the last frame do not fit into the buffers that the frames before them left.
    let frames: Vec<_> = [60, 489, 300, 100].map(|len| (frame(len, len), None)).into();
    let (result, tally) = deliver(&mut queue, &guest, &frames, 100);
    assert_eq!((result, tally.frames, tally.full, tally.bytes), (Ok(()), 2, 2, 360));
    assert_eq!(driver.all_used(&guest), [(ids[0], 72), (ids[1], 100), (ids[2], 100), (ids[3], 100), (ids[4], 12)]);
    let got = content(&guest, &pieces[1..]);
    assert_eq!(got[..HEADER], header(4));
    assert!(got[HEADER..HEADER + 300] == frames[2].0);
    let (result, tally) = deliver(&mut queue, &guest, &frames, 100);
    assert_eq!((result, tally.frames, tally.full), (Ok(()), 0, 4));
    assert_eq!(driver.all_used(&guest), []);
}

fn a_frame_too_long_for_a_buffer_leaves_it_for_the_next<D: Driver>() {
    for lens in [vec![200], vec![12, 188], vec![50, 50, 100]] {
        let guest = Guest::new();
        let mut driver = D::new(&guest, 64, 0);
        let mut queue = receive_queue(&guest, &driver, false);
        let ids: Vec<u16> = (0..2).map(|_| driver.send(&guest, &buffers(&guest, &lens))).collect();
        let frames: Vec<_> = [189, 188, 5000, 60].map(|len| (frame(len, len), None)).into();
        let (result, tally) = deliver(&mut queue, &guest, &frames, 64);
        assert_eq!((result, tally.frames, tally.small, tally.full), (Ok(()), 2, 2, 0));
        assert_eq!(driver.all_used(&guest), [(ids[0], 200), (ids[1], 72)]);
    }
}

fn one_buffer_is_said_without_mergeable_buffers_too<D: Driver>() {
    for stale in
        [[0xff; HEADER], [0; HEADER], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 1, 0]]
    {
        let guest = Guest::new();
        let mut driver = D::new(&guest, 8, 0);
        let mut queue = receive_queue(&guest, &driver, false);
        let pieces = buffers(&guest, &[2000]);
        guest.write(pieces[0].address, &stale);
        driver.send(&guest, &pieces);
        assert_eq!(deliver(&mut queue, &guest, &[(frame(60, 0), None)], 1).0, Ok(()));
        assert_eq!(content(&guest, &pieces)[..HEADER], header(1), "over {stale:?}");
    }
}

fn a_legacy_header_has_ten_bytes<D: Driver>() {
    for stale in [GUARD, 0] {
        for lens in [&[2000][..], &[10, 2000], &[3, 7, 50, 2000]] {
            let guest = Guest::new();
            let mut driver = D::new(&guest, 8, 0);
            let mut queue = Receive::new(driver.device(&guest), 10, false);
            let pieces = buffers(&guest, lens);
            guest.write(pieces[0].address, &vec![stale; pieces[0].len as usize]);
            let id = driver.send(&guest, &pieces);
            let bytes = frame(500, 0);
            assert_eq!(deliver(&mut queue, &guest, &[(bytes.clone(), None)], 1000).0, Ok(()));
            assert_eq!(driver.all_used(&guest), [(id, 510)]);
            let got = content(&guest, &pieces);
            assert!(got[..10] == [0; 10] && got[10..510] == bytes, "in {lens:?}");
        }
    }
}

fn offloads_are_said_in_the_header<D: Driver>() {
    let offload = Offload {
        needs_csum: true,
        gso: Gso::Tcp6,
        ecn: true,
        hdr_len: 74,
        gso_size: 1440,
        csum_start: 54,
        csum_offset: 16,
        tunnel: None,
    };
    for lens in [&[4000][..], &[12, 4000], &[1, 4000]] {
        let guest = Guest::new();
        let mut driver = D::new(&guest, 8, 0);
        let mut queue = receive_queue(&guest, &driver, false);
        let pieces = buffers(&guest, lens);
        driver.send(&guest, &pieces);
        assert_eq!(deliver(&mut queue, &guest, &[(frame(3000, 0), Some(offload))], 1000).0, Ok(()));
        assert_eq!(content(&guest, &pieces)[..HEADER], [1, 0x84, 74, 0, 0xa0, 5, 54, 0, 16, 0, 1, 0]);
    }
}

fn buffers_go_back_in_order_and_visible_all_at_once<D: Driver>() {
    let guest = Guest::new();
    let mut driver = D::new(&guest, 32, F_EVENT_IDX);
    let mut queue = receive_queue(&guest, &driver, false);
    let ids: Vec<u16> = (0..20).map(|_| driver.send(&guest, &buffers(&guest, &[100]))).collect();
    // The driver looks at the ring between two frames: no used buffer is visible before the last frame is delivered.
    let (driver, seen) = (RefCell::new(driver), RefCell::new(Vec::new()));
    let mut bytes = [0; 60];
    let mut batch = BatchStorage::new(1).into_batch();
    batch.push(View::private(&mut bytes), 60);
    let frames = (0..20).map(|_| {
        seen.borrow_mut().extend(driver.borrow_mut().used(&guest));
        batch.frame(0)
    });
    let mut tally = super::Tally::default();
    assert_eq!(queue.deliver(&guest.memory, frames, &mut tally), Ok(()));
    assert_eq!(seen.into_inner(), []);
    assert_eq!(driver.into_inner().all_used(&guest), ids.iter().map(|&id| (id, 72)).collect::<Vec<_>>());
}

fn frames_above_the_mtu_are_not_given<D: Driver>() {
    let guest = Guest::new();
    let mut driver = D::new(&guest, 8, 0);
    let mut queue = receive_queue(&guest, &driver, false);
    queue.longest = 1522;
    for _ in 0..3 {
        driver.send(&guest, &buffers(&guest, &[9000]));
    }
    let tso = Offload { needs_csum: true, gso: Gso::Tcp4, gso_size: 1460, ..Offload::default() };
    let csum = Offload { gso: Gso::None, gso_size: 0, ..tso };
    let long = Offload { hdr_len: 66, gso_size: 1457, ..tso };
    let frames = [(1522, None), (1523, None), (1523, Some(csum)), (1523, Some(tso)), (1600, Some(long)), (60, None)];
    let frames: Vec<_> = frames.map(|(len, offload)| (frame(len, 0), offload)).into();
    let (result, tally) = deliver(&mut queue, &guest, &frames, 1000);
    assert_eq!((result, tally.frames, tally.long, tally.full), (Ok(()), 3, 3, 0));
}

fn a_buffer_shorter_than_the_header_takes_nothing<D: Driver>() {
    for mergeable in [false, true] {
        for lens in [&[11][..], &[0], &[5, 0, 6]] {
            let guest = Guest::new();
            let mut driver = D::new(&guest, 8, 0);
            let mut queue = receive_queue(&guest, &driver, mergeable);
            driver.send(&guest, &buffers(&guest, lens));
            driver.send(&guest, &buffers(&guest, &[2000]));
            let (result, tally) = deliver(&mut queue, &guest, &[(frame(60, 0), None)], 1);
            assert_eq!((result, tally.small, tally.frames), (Ok(()), 1, 0));
            assert_eq!(driver.all_used(&guest), []);
        }
    }
}

#[test]
fn a_frame_in_the_upper_region_arrives_there() {
    let guest = Guest::new();
    let mut driver = super::testing::SplitDriver::new(&guest, 8, 0);
    let mut queue = receive_queue(&guest, &driver, false);
    driver.send(&guest, &[Piece::write(HIGH, 100)]);
    let bytes = frame(88, 3);
    assert_eq!(deliver(&mut queue, &guest, &[(bytes.clone(), None)], 1).0, Ok::<(), RingFault>(()));
    assert_eq!(guest.read(HIGH + 12, 88), bytes);
}

fn room_is_what_the_driver_has_put_there<D: Driver>() {
    let guest = Guest::new();
    let mut driver = D::new(&guest, 32, 0);
    let mut queue = receive_queue(&guest, &driver, false);
    let buffer = buffers(&guest, &[100]);
    let room = |queue: &mut Receive<D::Device>| queue.ring.room();
    let (mut there, mut most) = (0, 0);
    for step in 0..300 {
        for _ in 0..step * 7 % (33 - there) {
            driver.send(&guest, &buffer);
            there += 1;
        }
        most = most.max(there);
        assert_eq!(room(&mut queue), Some(there), "step {step}");
        let frames = vec![(frame(60, step), None); step * 5 % (there + 1)];
        let (result, tally) = deliver(&mut queue, &guest, &frames, 64);
        assert_eq!((result, tally.frames), (Ok(()), frames.len() as u64));
        there -= frames.len();
        assert_eq!(room(&mut queue), Some(there), "step {step}, delivered");
        driver.all_used(&guest);
    }
    assert_eq!(most, 32, "the ring was full at times");
}
