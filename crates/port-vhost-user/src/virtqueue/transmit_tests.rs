//! A driver's frames arrive unchanged, for every way of dividing them into descriptors.

use ringway_switch::{Accepts, Gso, Offload};

use super::testing::{Driver, Guest, HIGH, Piece, both, collect, collect_some, transmit_queue};
use super::{F_EVENT_IDX, F_IN_ORDER, F_INDIRECT_DESC, Transmit};

both!(
    any_number_of_descriptors_is_one_frame,
    a_header_in_twelve_descriptors_is_a_header,
    empty_descriptors_mean_nothing,
    indirect_tables_may_follow_direct_descriptors,
    a_frame_may_lie_in_both_regions,
    frames_come_in_order_and_their_buffers_go_back_in_order,
    no_more_than_a_batch_is_taken_and_nothing_is_lost,
    the_longest_frame_passes_and_a_longer_one_is_counted,
    frames_above_the_mtu_are_counted_unless_segmented,
    offloads_arrive_as_asked_for_and_nonsense_is_counted,
    frames_too_short_for_ethernet_are_counted,
    a_disabled_queue_takes_frames_and_forgets_them,
    many_frames_in_very_many_pieces_all_arrive,
    chained_frames_fill_a_batch,
    a_batch_takes_half_of_a_ring_and_the_next_the_other_half,
);

const HEADER: usize = 12;

fn frame(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + seed * 31 + (at >> 8)) as u8).collect()
}

/// A frame with its header, in pieces of these lengths. The remaining bytes are the last piece.
fn chain(guest: &Guest, header: [u8; HEADER], frame: &[u8], cuts: impl IntoIterator<Item = usize>) -> Vec<Piece> {
    let whole = [&header[..], frame].concat();
    let (mut at, mut pieces) = (0, Vec::new());
    for cut in cuts {
        let cut = cut.min(whole.len() - at);
        pieces.push(Piece::read(guest.place(&whole[at..at + cut]), cut));
        at += cut;
    }
    if at < whole.len() {
        pieces.push(Piece::read(guest.place(&whole[at..]), whole.len() - at));
    }
    pieces
}

const PLAIN: [u8; HEADER] = [0; HEADER];

/// Sends one chain. Expects exactly this frame, and the chain used with nothing written.
fn expect<D: Driver>(guest: &Guest, features: u64, pieces: &[Piece], direct: usize, frame: &[u8]) {
    let mut driver = D::new(guest, 512, features);
    let mut queue = transmit_queue(guest, &driver);
    let id = driver.put(guest, pieces, direct).expect("room");
    assert_eq!(collect(&mut queue, guest).expect("no fault").frames, [], "not published yet");
    driver.publish(guest);
    let sent = collect(&mut queue, guest).expect("no fault");
    assert_eq!(sent.frames.len(), 1);
    assert!(sent.frames[0] == (frame.to_vec(), None), "{} bytes in {} pieces", frame.len(), pieces.len());
    assert_eq!(driver.all_used(guest), [(id, 0)]);
}

fn any_number_of_descriptors_is_one_frame<D: Driver>() {
    for count in (1..=70).chain([100, 129, 256, 300, 499]) {
        let guest = Guest::new();
        for len in [60, 128, 129, 1514, 9014] {
            let bytes = frame(len, count);
            let each = ((len + HEADER) / count).max(1);
            let pieces = chain(&guest, PLAIN, &bytes, std::iter::repeat_n(each, count - 1));
            for features in [0, F_EVENT_IDX | F_IN_ORDER] {
                expect::<D>(&guest, features, &pieces, pieces.len(), &bytes);
            }
            expect::<D>(&guest, F_INDIRECT_DESC, &pieces, 0, &bytes);
        }
    }
}

fn a_header_in_twelve_descriptors_is_a_header<D: Driver>() {
    let guest = Guest::new();
    let bytes = frame(200, 1);
    for first in 0..=HEADER {
        let cuts = std::iter::once(first).chain([1; HEADER]).chain([3, 100]);
        let pieces: Vec<Piece> = chain(&guest, PLAIN, &bytes, cuts);
        expect::<D>(&guest, 0, &pieces, pieces.len(), &bytes);
    }
}

fn empty_descriptors_mean_nothing<D: Driver>() {
    let guest = Guest::new();
    let bytes = frame(1000, 2);
    let pieces = chain(&guest, PLAIN, &bytes, [0, 0, 5, 0, 7, 0, 0, 14, 0, 0, 400, 0]);
    let mut ended = pieces.clone();
    ended.push(Piece::read(pieces[0].address, 0));
    expect::<D>(&guest, 0, &pieces, pieces.len(), &bytes);
    expect::<D>(&guest, F_INDIRECT_DESC, &ended, 0, &bytes);
}

fn indirect_tables_may_follow_direct_descriptors<D: Driver>() {
    let guest = Guest::new();
    let bytes = frame(700, 3);
    let pieces = chain(&guest, PLAIN, &bytes, [12, 100, 50, 1, 300, 20]);
    for direct in 0..=pieces.len() {
        expect::<D>(&guest, F_INDIRECT_DESC, &pieces, direct, &bytes);
    }
}

fn a_frame_may_lie_in_both_regions<D: Driver>() {
    let guest = Guest::new();
    let bytes = frame(1514, 4);
    let mut pieces = chain(&guest, PLAIN, &bytes, [12, 500, 500]);
    guest.write(HIGH + 4096, &bytes[500..1000]);
    pieces[2].address = HIGH + 4096;
    expect::<D>(&guest, 0, &pieces, pieces.len(), &bytes);
}

fn frames_come_in_order_and_their_buffers_go_back_in_order<D: Driver>() {
    for (features, size) in [(0, 64), (F_EVENT_IDX, 64), (F_IN_ORDER, 64), (F_IN_ORDER | F_EVENT_IDX, 32)] {
        let guest = Guest::new();
        let mut driver = D::new(&guest, size, features);
        let mut queue = transmit_queue(&guest, &driver);
        let places: Vec<u64> = (0..size).map(|_| guest.alloc(HEADER + 200, 64)).collect();
        let mut number = 0;
        for round in 0..200 {
            let (mut ids, mut frames) = (Vec::new(), Vec::new());
            for _ in 0..1 + round * 7 % (usize::from(size) / 2) {
                let bytes = frame(60 + number % 140, number);
                let at = places[number % places.len()];
                guest.write(at, &[&PLAIN[..], &bytes].concat());
                let whole = [Piece::read(at, HEADER + bytes.len())];
                let two = [Piece::read(at, HEADER), Piece::read(at + HEADER as u64, bytes.len())];
                let pieces = if number % 3 == 0 { &two[..] } else { &whole[..] };
                ids.push((driver.put(&guest, pieces, pieces.len()).expect("room"), 0));
                frames.push((bytes, None));
                number += 1;
            }
            driver.publish(&guest);
            assert!(collect(&mut queue, &guest).expect("no fault").frames == frames, "round {round}");
            assert_eq!(driver.all_used(&guest), ids, "round {round}");
        }
    }
}

fn no_more_than_a_batch_is_taken_and_nothing_is_lost<D: Driver>() {
    let guest = Guest::new();
    let mut driver = D::new(&guest, 256, 0);
    let mut queue = transmit_queue(&guest, &driver);
    let frames: Vec<_> = (0..200).map(|n| (frame(64, n), None)).collect();
    for (bytes, _) in &frames {
        let pieces = chain(&guest, PLAIN, bytes, []);
        driver.put(&guest, &pieces, 1).expect("room");
    }
    driver.publish(&guest);
    let mut taken = Vec::new();
    for limit in [1, 2, 33, 64, 90, 256] {
        let sent = collect_some(&mut queue, &guest, limit).expect("no fault");
        assert_eq!(sent.frames.len(), limit.min(200 - taken.len()));
        assert_eq!(driver.all_used(&guest).len(), sent.frames.len(), "exactly the taken chains are given back");
        taken.extend(sent.frames);
    }
    assert!(taken == frames);
}

fn chained_frames_fill_a_batch<D: Driver>() {
    let guest = Guest::new();
    let mut driver = D::new(&guest, 256, 0);
    let mut queue = transmit_queue(&guest, &driver);
    for number in 0..80 {
        let pieces = chain(&guest, PLAIN, &frame(64, number), [12]);
        driver.put(&guest, &pieces, pieces.len()).expect("room");
    }
    driver.publish(&guest);
    assert_eq!(collect_some(&mut queue, &guest, 256).expect("no fault").frames.len(), 80);
}

fn the_longest_frame_passes_and_a_longer_one_is_counted<D: Driver>() {
    // An Ethernet header, two VLAN tags, an IPv6 header and 65,535 bytes.
    const LONGEST: usize = 40 + 65_535 + 14 + 8;
    for cuts in [vec![], vec![12], vec![4096; 20], vec![700; 95]] {
        let guest = Guest::new();
        let mut driver = D::new(&guest, 512, 0);
        let mut queue = transmit_queue(&guest, &driver);
        for (len, arrives) in [(LONGEST, true), (LONGEST + 1, false), (100_000, false), (60, true)] {
            let bytes = frame(len, 5);
            let pieces = chain(&guest, PLAIN, &bytes, cuts.clone());
            let id = driver.send(&guest, &pieces);
            let sent = collect(&mut queue, &guest).expect("no fault");
            assert_eq!((sent.frames.len(), sent.refused), (arrives.into(), (!arrives).into()), "{len} bytes");
            assert!(sent.frames.iter().all(|(got, _)| *got == bytes), "{len} bytes");
            assert_eq!(driver.all_used(&guest), [(id, 0)]);
        }
    }
}

fn frames_above_the_mtu_are_counted_unless_segmented<D: Driver>() {
    let guest = Guest::new();
    let mut driver = D::new(&guest, 64, 0);
    let mut queue = Transmit::new(driver.device(&guest), HEADER, 1522, Accepts::EVERYTHING);
    for (cuts, len, arrives) in
        [(vec![], 1522, 1), (vec![], 1523, 0), (vec![12], 1522, 1), (vec![12], 1523, 0), (vec![20; 30], 1523, 0)]
    {
        let bytes = frame(len, 6);
        let pieces = chain(&guest, PLAIN, &bytes, cuts);
        driver.send(&guest, &pieces);
        let sent = collect(&mut queue, &guest).expect("no fault");
        assert_eq!((sent.frames.len(), sent.refused), (arrives, 1 - arrives), "{len} bytes");
    }
    let (header, bytes) = segmented(4000);
    for cuts in [vec![], vec![12, 60]] {
        let pieces = chain(&guest, header, &bytes, cuts);
        driver.send(&guest, &pieces);
        let sent = collect(&mut queue, &guest).expect("no fault");
        assert_eq!(sent.frames.len(), 1);
        assert_eq!(sent.frames[0].1.expect("an offload").gso, Gso::Tcp4);
    }
}

/// Returns a header that requests TSO4, and a TCP frame of `len` bytes.
fn segmented(len: usize) -> ([u8; HEADER], Vec<u8>) {
    let mut bytes = frame(len, 7);
    bytes[12..15].copy_from_slice(&[0x08, 0, 0x45]);
    bytes[20..22].copy_from_slice(&[0, 0]);
    (bytes[23], bytes[46]) = (6, 0x50);
    ([1, 1, 54, 0, 0xb4, 5, 34, 0, 16, 0, 9, 9], bytes)
}

fn offloads_arrive_as_asked_for_and_nonsense_is_counted<D: Driver>() {
    let (tso, bytes) = segmented(3000);
    let wanted = Offload {
        needs_csum: true,
        gso: Gso::Tcp4,
        ecn: false,
        hdr_len: 54,
        gso_size: 1460,
        csum_start: 34,
        csum_offset: 16,
        tunnel: None,
    };
    let with = |place: usize, byte: u8| {
        let mut header = tso;
        header[place] = byte;
        header
    };
    let cases = [
        (tso, Some(Some(wanted)), "TSO4"),
        (with(2, 255), Some(Some(wanted)), "hdr_len is ignored"),
        (with(10, 255), Some(Some(wanted)), "num_buffers is ignored"),
        ([2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], Some(None), "DATA_VALID requests no offload"),
        ([0x80, 0, 9, 9, 9, 9, 9, 9, 9, 9, 0, 0], Some(None), "unknown flags request no offload"),
        (with(0, 0), None, "segmentation without checksum"),
        (with(1, 2), None, "an unknown kind"),
        (with(1, 0x81 ^ 0xff), None, "an unknown kind"),
        ([1, 1, 0, 0, 0, 0, 34, 0, 16, 0, 0, 0], None, "gso_size 0"),
        ([1, 1, 0, 0, 1, 0, 34, 0, 16, 0, 0, 0], None, "gso_size 1: too many segments"),
        ([1, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0], None, "csum_start beyond the frame"),
        ([1, 0, 0, 0, 0, 0, 0xb7, 0x0b, 0, 0, 0, 0], None, "the checksum's second byte beyond the frame"),
        (with(1, 4), None, "TSO6 over IPv4"),
        (with(1, 5), None, "USO over TCP"),
        (with(6, 35), None, "a checksum at an offset that is not TCP's"),
    ];
    for cuts in [vec![], vec![12], vec![1; 40]] {
        let guest = Guest::new();
        let mut driver = D::new(&guest, 128, 0);
        let mut queue = transmit_queue(&guest, &driver);
        for (header, result, why) in cases {
            let pieces = chain(&guest, header, &bytes, cuts.clone());
            let id = driver.send(&guest, &pieces);
            let sent = collect(&mut queue, &guest).expect("no fault");
            match result {
                Some(offload) => assert!(sent.frames == [(bytes.clone(), offload)], "{why}"),
                None => assert_eq!((sent.frames.len(), sent.refused), (0, 1), "{why}"),
            }
            assert_eq!(driver.all_used(&guest), [(id, 0)]);
        }
        // An offload that was not negotiated is refused, too.
        let mut queue = Transmit::new(driver_of::<D>(&guest, tso, &bytes), HEADER, usize::MAX, Accepts::CSUM);
        assert_eq!(collect(&mut queue, &guest).expect("no fault").refused, 1);
    }
}

/// Starts a device whose driver has sent one frame.
fn driver_of<D: Driver>(guest: &Guest, header: [u8; HEADER], bytes: &[u8]) -> D::Device {
    let mut driver = D::new(guest, 64, 0);
    let device = driver.device(guest);
    let pieces = chain(guest, header, bytes, []);
    driver.send(guest, &pieces);
    device
}

fn frames_too_short_for_ethernet_are_counted<D: Driver>() {
    let guest = Guest::new();
    let mut driver = D::new(&guest, 16, 0);
    let mut queue = transmit_queue(&guest, &driver);
    for len in 0..=14 {
        let pieces = chain(&guest, PLAIN, &frame(len, 8), if len % 2 == 0 { vec![] } else { vec![5] });
        driver.send(&guest, &pieces);
        let sent = collect(&mut queue, &guest).expect("no fault");
        assert_eq!((sent.frames.len(), sent.refused), if len < 14 { (0, 1) } else { (1, 0) }, "{len} bytes");
        assert_eq!(driver.all_used(&guest).len(), 1);
    }
}

fn a_disabled_queue_takes_frames_and_forgets_them<D: Driver>() {
    let guest = Guest::new();
    let mut driver = D::new(&guest, 128, 0);
    let mut queue = transmit_queue(&guest, &driver);
    queue.discard = true;
    for number in 0..40 {
        let pieces = chain(&guest, PLAIN, &frame(200_000 * (number % 2) + 60, number), [20, 20]);
        driver.put(&guest, &pieces, pieces.len()).expect("room");
    }
    driver.publish(&guest);
    let sent = collect_some(&mut queue, &guest, 64).expect("no fault");
    assert_eq!((sent.frames.len(), sent.refused), (0, 0));
    assert_eq!(driver.all_used(&guest).len(), 40);
}

fn many_frames_in_very_many_pieces_all_arrive<D: Driver>() {
    let guest = Guest::new();
    let mut driver = D::new(&guest, 2048, 0);
    let mut queue = transmit_queue(&guest, &driver);
    let frames: Vec<_> = (0..20).map(|n| (frame(1000 + n, n), None)).collect();
    for (bytes, _) in &frames {
        let pieces = chain(&guest, PLAIN, bytes, [11; 91]);
        driver.put(&guest, &pieces, pieces.len()).expect("room");
    }
    driver.publish(&guest);
    assert!(collect(&mut queue, &guest).expect("no fault").frames == frames);
    assert_eq!(driver.all_used(&guest).len(), 20);
}

fn a_batch_takes_half_of_a_ring_and_the_next_the_other_half<D: Driver>() {
    let guest = Guest::new();
    let mut driver = D::new(&guest, 256, 0);
    let mut queue = transmit_queue(&guest, &driver);
    let pieces = chain(&guest, PLAIN, &frame(60, 1), []);
    let ids: Vec<u16> = (0..256).map(|_| driver.send(&guest, &pieces)).collect();
    for half in ids.chunks(128) {
        assert_eq!(collect_some(&mut queue, &guest, 1024).expect("no fault").frames.len(), 128);
        // The driver owns these buffers again, and may fill them, before the device takes the others.
        assert_eq!(driver.all_used(&guest), half.iter().map(|&id| (id, 0)).collect::<Vec<_>>());
    }
    assert_eq!(collect(&mut queue, &guest).expect("no fault").frames, []);
}
