//! Process ports with offloads: work that a sender may leave undone, and work that is left to a receiver.

use std::sync::atomic::Ordering;

use ringway_abi::offload::{Gso, Offload, PREFIX_BYTES};
use ringway_abi::slot::NS_MOREFRAG;
use ringway_abi::{Shape, Slot};
use ringway_port_tests::support::{Client, Lan, frame};
use ringway_switch::DropReason;

const PLAIN: Shape = Shape {
    tx_rings: 1,
    rx_rings: 1,
    tx_slots: 128,
    rx_slots: 128,
    buffer_size: 2112,
    extra_buffers: 0,
    offload: false,
};
const OFFLOAD: Shape = Shape { offload: true, ..PLAIN };
const SEGMENTED: Offload = Offload {
    needs_csum: true,
    gso: Gso::Tcp4,
    ecn: false,
    hdr_len: 54,
    gso_size: 1000,
    csum_start: 34,
    csum_offset: 16,
    tunnel: None,
};

/// Returns a TCP frame over IPv4 with `payload` bytes.
fn tcp(to: u16, from: u16, payload: usize) -> Vec<u8> {
    let mut bytes = frame(to, from, 54 + payload, 7);
    bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
    bytes[20..24].copy_from_slice(&[0x40, 0, 64, 6]);
    bytes[46] = 0x50;
    bytes
}

/// Returns the offload header followed by the frame.
fn with(offload: Option<Offload>, frame: &[u8]) -> Vec<u8> {
    [&Offload::encode(offload.as_ref())[..], &[0; 2], frame].concat()
}

/// Returns the frames and headers that a port with offloads has received.
fn received(client: &mut Client) -> Vec<(Option<Offload>, Vec<u8>)> {
    let split = |bytes: Vec<u8>| {
        let (header, frame) = bytes.split_at(PREFIX_BYTES);
        assert_eq!(header[Offload::BYTES..], [0; 2]);
        let hdr_len = u16::from_le_bytes([header[2], header[3]]);
        let offload = Offload::decode(header[..Offload::BYTES].try_into().expect("ten bytes")).expect("a header");
        (offload.map(|offload| Offload { hdr_len, ..offload }), frame.to_vec())
    };
    client.receive(0).into_iter().map(split).collect()
}

#[test]
fn unfinished_frames_cross_unchanged_between_ports_that_asked_for_them() {
    for sizes in [[2112, 2112], [128, 65_472], [65_472, 192], [1088, 1088]] {
        let mut lan = Lan::new(&sizes.map(|buffer_size| Shape { buffer_size, ..OFFLOAD }));
        for payload in [0, 1, 60, 62, 63, 74, 75, 900, 1500, 2047, 5000, 7000] {
            let sent = tcp(1, 0, payload);
            lan.clients[0].send(&with(Some(SEGMENTED), &sent));
            assert_eq!(lan.pass(0).fault, None);
            assert!(
                received(&mut lan.clients[1]) == [(Some(SEGMENTED), sent)],
                "{payload} bytes, buffers of {sizes:?}"
            );
        }
        assert_eq!(lan.counters(0).in_bytes, lan.counters(1).out_bytes, "headers are not counted");
    }
}

#[test]
fn plain_frames_of_any_length_cross_between_all_kinds_of_ports() {
    let mut lan = Lan::new(&[OFFLOAD, PLAIN, OFFLOAD]);
    for len in [14, 60, 127, 128, 129, 1514, 2099, 2100, 2101, 2112, 2113, 9000] {
        let sent = frame(1, 0, len, 3);
        lan.clients[0].send(&with(None, &sent));
        lan.pass(0);
        assert!(lan.clients[1].receive(0) == [sent], "{len} bytes to a plain port");
        let sent = frame(2, 1, len, 4);
        lan.clients[1].send(&sent);
        lan.pass(1);
        assert!(received(&mut lan.clients[2]) == [(None, sent)], "{len} bytes from a plain port");
    }
}

#[test]
fn the_longest_unfinished_frame_crosses_whole() {
    let mut lan = Lan::of(2, OFFLOAD);
    for (payload, crosses) in [(65_535, true), (65_536, false)] {
        let sent = tcp(1, 0, payload);
        lan.clients[0].send(&with(Some(SEGMENTED), &sent));
        assert_eq!((lan.pass(0).frames, lan.fault(0), lan.fault(1)), (1, None, None));
        assert_eq!(received(&mut lan.clients[1]).iter().any(|(_, frame)| *frame == sent), crosses);
    }
    assert_eq!(lan.dropped(0, DropReason::Oversize), 1);
}

#[test]
fn the_longest_unfinished_frame_is_finished_for_a_plain_port() {
    let mut lan = Lan::new(&[OFFLOAD, PLAIN]);
    let sent = tcp(1, 0, 65_481);
    lan.clients[0].send(&with(Some(SEGMENTED), &sent));
    assert_eq!(lan.pass(0).frames, 1);
    let segments = lan.clients[1].receive(0);
    assert_eq!(segments.len(), 66);
    let payload: Vec<u8> = segments.iter().flat_map(|segment| segment[54..].iter().copied()).collect();
    assert!(payload == sent[54..], "the payload is unchanged");
    assert_eq!((lan.counters(0).in_frames, lan.counters(1).out_frames), (1, 66));
}

#[test]
fn a_pass_takes_no_more_segments_than_any_other_port_may_leave_to_us() {
    let client = Shape { buffer_size: 65_472, ..OFFLOAD };
    let mut lan = Lan::new(&[client, Shape { rx_slots: 1024, ..PLAIN }]);
    let sent = with(Some(Offload { gso_size: 64, ..SEGMENTED }), &tcp(1, 0, 60_000));
    (0..100).for_each(|_| {
        lan.clients[0].queue(0, &sent, 65_472);
    });
    lan.clients[0].publish(0);
    let mut passes = 0;
    while lan.counters(0).in_frames < 100 {
        let passed = lan.pass(0);
        // 938 segments each.
        assert!(passed.fault.is_none() && (1..=8).contains(&passed.frames), "{passed:?}");
        lan.clients[1].receive(0);
        passes += 1;
        assert!(passes <= 100);
    }
}

#[test]
fn a_header_may_not_be_missing_nor_cut_nor_nonsense() {
    let mut lan = Lan::new(&[OFFLOAD, PLAIN]);
    let good = with(Some(SEGMENTED), &tcp(1, 0, 1000));
    // A truncated header, as a whole frame and as the first of two slots.
    for len in 1..PREFIX_BYTES {
        lan.clients[0].send(&good[..len]);
        let before = lan.clients[0].tx_head[0];
        lan.clients[0].queue(0, &good, 1066);
        let first = lan.clients[0].tx_slot(0, before);
        assert_eq!(first.flags, 0, "one slot");
        lan.clients[0].set_tx(0, before, Slot { len: len as u16, flags: NS_MOREFRAG, ..first });
        lan.clients[0].queue(0, &good[len..], 2112);
        lan.clients[0].publish(0);
        assert_eq!(lan.pass(0).fault, None);
    }
    assert_eq!(lan.dropped(0, DropReason::BadLength), 22);
    // A header and nothing else, or only few further bytes.
    for len in PREFIX_BYTES..PREFIX_BYTES + 14 {
        lan.clients[0].send(&good[..len]);
        lan.pass(0);
    }
    assert_eq!(lan.dropped(0, DropReason::Runt), 14);
    // An unknown kind, segments of 0 bytes, lengths beyond the frame, another protocol; in one slot and in two.
    for (place, bad) in [(1, 77), (4, 0), (6, 200), (8, 6), (12 + 23, 17)] {
        let mut bytes = good.clone();
        (bytes[place], bytes[5]) = (bad, 0);
        for piece in [2112, 100] {
            lan.clients[0].queue(0, &bytes, piece);
            lan.clients[0].publish(0);
            assert_eq!(lan.pass(0).fault, None);
        }
    }
    assert_eq!(lan.dropped(0, DropReason::BadOffload), 10);
    assert!(lan.clients[1].receive(0).is_empty());
    lan.clients[0].send(&good);
    lan.pass(0);
    assert_eq!(lan.clients[1].receive(0).len(), 1, "the port still works");
}

#[test]
fn a_header_rewritten_after_it_was_read_changes_nothing() {
    let mut lan = Lan::new(&[OFFLOAD, PLAIN]);
    for at in 0..100u32 {
        let slot = lan.clients[0].tx_slot(0, lan.clients[0].tx_head[0]);
        lan.clients[0].send(&with(Some(SEGMENTED), &tcp(1, 0, 2000)));
        let memory = lan.clients[0].ends.memory.mapping().clone();
        let place = lan.clients[0].ends.layout.buffer(slot.buffer);
        let stop = std::sync::atomic::AtomicBool::new(false);
        let before = lan.dropped(0, DropReason::BadOffload) + lan.dropped(0, DropReason::Oversize);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut n = at;
                while !stop.load(Ordering::Relaxed) {
                    n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let byte = memory.view(place + (n >> 8) as usize % PREFIX_BYTES, 1).expect("inside");
                    assert!(byte.write(&[n as u8]));
                }
            });
            let passed = lan.pass(0);
            stop.store(true, Ordering::Relaxed);
            assert_eq!((passed.frames, passed.fault), (1, None));
        });
        let got = lan.clients[1].receive(0);
        // The port reads the header once: the frame is refused, or its whole payload arrives.
        let lost = lan.dropped(0, DropReason::BadOffload) + lan.dropped(0, DropReason::Oversize);
        let payload: usize = got.iter().map(|segment| segment.len() - 54).sum();
        assert!((payload == 0 && lost > before) || (payload == 2000 && lost == before), "{payload} bytes arrived");
    }
}
