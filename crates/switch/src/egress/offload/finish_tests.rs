//! Tests of what arrives at ports that accept all offloads, some or none.

use proptest::prelude::*;

use crate::frame::headers::on_a_wire;
use crate::testing::hostile::Hostile;
use crate::testing::samples::{Sample, complete};
use crate::testing::{Lan, Plan, frame, mac};
use crate::{Accepts, Gso, Offload};
use crate::{DropReason, Mac};

const ALL: [Accepts; 6] = [Accepts::CSUM, Accepts::TSO4, Accepts::TSO6, Accepts::ECN, Accepts::UFO, Accepts::USO];

pub(super) fn lan(ports: u16) -> Lan {
    Plan { bytes: 8 << 20, ..Plan::new(ports) }.map()
}

fn gsos() -> impl Strategy<Value = (Gso, bool)> {
    prop_oneof![
        Just((Gso::Tcp4, false)),
        Just((Gso::Tcp6, true)),
        (Just(Gso::Udp4Frag), any::<bool>()),
        (Just(Gso::UdpL4), any::<bool>()),
        (Just(Gso::None), any::<bool>()),
    ]
}

pub(super) fn samples() -> impl Strategy<Value = Sample> {
    let payload = prop_oneof![4 => 0..300usize, 4 => 1000..9000usize, 1 => 40_000..64_000usize];
    let shape = (0..3usize, 0..11usize, 0..11usize, 0..3usize);
    (gsos(), shape, payload, 64..3000u16, any::<(u8, bool, u16, u32)>()).prop_map(
        |((gso, v6), (tags, words, tcp_options, pairs), payload, gso_size, (flags, tcp, id, sequence))| {
            let ip_options = if v6 { pairs } else { words };
            // Headers of at most 124 bytes: a tag may follow.
            let others = 14 + 4 * tags + if v6 { 40 + 8 * ip_options } else { 20 + 4 * ip_options } + 20;
            let tcp_options = tcp_options.min((124 - others) / 4);
            let bytes = |n: usize| (n as u32).wrapping_mul(sequence | 1).to_be_bytes()[0];
            let payload = (0..payload).map(bytes).collect();
            Sample { tags, v6, ip_options, tcp_options, flags, gso, tcp, gso_size, payload, id, sequence }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    /// For any set of accepted offloads and any division into pieces.
    #[test]
    fn frames_arrive_complete_or_as_they_were(
        sample in samples(),
        accepted in proptest::collection::vec(any::<bool>(), 6),
        pieces in proptest::collection::vec(1..3000usize, 0..20),
    ) {
        let accepts = ALL.into_iter().zip(accepted).filter(|(_, yes)| *yes).fold(Accepts::NOTHING, |set, (one, _)| set | one);
        let mut lan = lan(2);
        lan.sink(1, |kept| kept.accepts = accepts);
        let (bytes, offload) = sample.build();
        lan.offers[0].put_offloaded(&bytes, &pieces, Some(offload));
        lan.pass(0);
        prop_assert_eq!(lan.counters(0).drops().collect::<Vec<_>>(), []);
        prop_assert_eq!(lan.counters(0).in_bytes, bytes.len() as u64, "as it came");
        let received = lan.received_offloaded(1);
        prop_assert_eq!(lan.counters(1).out_frames, received.len() as u64);
        prop_assert!(received.iter().flat_map(|(_, left)| left).all(|left| accepts.covers(left)));
        if accepts.covers(&offload) {
            prop_assert_eq!(received, [(bytes, Some(offload))]);
        } else {
            let finished: Vec<_> = received.into_iter().map(|(mut bytes, left)| {
                left.iter().for_each(|left| complete(&mut bytes, left));
                bytes
            }).collect();
            sample.check(&finished);
            let head = std::array::from_fn(|at| bytes.get(at).copied().unwrap_or(0));
            let (frames, headers) = on_a_wire(&head, bytes.len(), &offload);
            prop_assert_eq!(frames, finished.len() as u64);
            prop_assert_eq!(bytes.len() as u64 + headers, finished.iter().map(|one| one.len() as u64).sum::<u64>());
        }
    }

    /// Software offload neither panics nor changes frames that it does not understand.
    #[test]
    fn any_header_with_any_frame_is_delivered_or_counted(
        sample in samples(),
        header in any::<[u8; Offload::BYTES]>(),
        kind in 0..8u8,
        changes in proptest::collection::vec((12..140usize, any::<u8>()), 0..4),
        keep in any::<[bool; 4]>(),
    ) {
        let (mut bytes, offload) = sample.build();
        for (at, byte) in changes {
            if let Some(place) = bytes.get_mut(at) { *place = byte }
        }
        // Some fields are correct and others not, so that the later checks are reached, too.
        let mut given = Offload::encode(Some(&offload));
        for (field, right) in [0..2, 4..6, 6..8, 8..10].into_iter().zip(keep) {
            if !right { given[field.clone()].copy_from_slice(&header[field]); }
        }
        if !keep[0] { given[1] = kind; }
        let Ok(offload) = Offload::decode(&given) else { return Ok(()) };
        let mut lan = lan(2);
        lan.offers[0].put_offloaded(&bytes, &[130, 1, 1, 700], offload);
        lan.pass(0);
        let refused = lan.dropped(0, DropReason::BadOffload);
        let received = lan.received_offloaded(1);
        prop_assert!(received.iter().all(|(_, left)| left.is_none()));
        prop_assert_eq!(refused == 1, received.is_empty());
        if let (Some(offload), false) = (offload, received.is_empty()) {
            let most = received.iter().map(|(bytes, _)| bytes.len()).max().unwrap_or(0);
            prop_assert!(offload.gso == Gso::None || most <= 128 + 8 + usize::from(offload.gso_size));
        }
    }
}

#[test]
fn frames_keep_their_order_among_the_finished_ones() {
    let mut lan = lan(2);
    let (segmented, asks) = Sample { payload: vec![9; 20_000], ..Sample::default() }.build();
    let (unsummed, sum) = Sample { gso: Gso::None, ..Sample::default() }.build();
    for n in 0..20 {
        lan.offers[0].put(&frame(mac(1), mac(0), 100, n), &[]);
        lan.offers[0].put_offloaded(&segmented, &[600, 1], Some(asks));
        lan.offers[0].put_offloaded(&unsummed, &[], Some(sum));
    }
    lan.pass(0);
    let received = lan.received(1);
    assert_eq!(received.len(), 20 * (1 + 14 + 1));
    for (n, frames) in received.chunks(16).enumerate() {
        assert_eq!(frames[0], frame(mac(1), mac(0), 100, n as u32));
        Sample { payload: vec![9; 20_000], ..Sample::default() }.check(&frames[1..15]);
        Sample { gso: Gso::None, ..Sample::default() }.check(&frames[15..]);
    }
    assert!(lan.sink(1, |kept| kept.deliveries.iter().all(|&frames| frames <= 128)), "in chunks");
}

#[test]
fn a_flooded_frame_is_finished_only_for_those_that_need_it() {
    let mut lan = lan(5);
    lan.sink(1, |kept| kept.accepts = Accepts::EVERYTHING);
    lan.sink(2, |kept| kept.accepts = Accepts::CSUM);
    lan.sink(3, |kept| kept.accepts = Accepts::CSUM | Accepts::TSO4);
    let sample = Sample::default();
    let (mut bytes, offload) = sample.build();
    bytes[..6].copy_from_slice(&Mac::BROADCAST.octets());
    lan.offers[0].put_offloaded(&bytes, &[], Some(offload));
    lan.pass(0);
    for port in [1, 3] {
        assert_eq!(lan.received_offloaded(port), [(bytes.clone(), Some(offload))], "port {port}");
    }
    let to_station = |mut bytes: Vec<u8>| {
        bytes[..6].copy_from_slice(&mac(1).octets());
        bytes
    };
    let summed: Vec<_> = lan
        .received_offloaded(2)
        .into_iter()
        .map(|(bytes, left)| {
            let mut bytes = to_station(bytes);
            let left = left.expect("the sum is left to the receiver");
            assert_eq!((left.gso, left.gso_size, left.hdr_len), (Gso::None, 0, 0));
            complete(&mut bytes, &left);
            bytes
        })
        .collect();
    sample.check(&summed);
    let finished: Vec<_> = lan
        .received_offloaded(4)
        .into_iter()
        .map(|(bytes, left)| {
            assert_eq!(left, None);
            to_station(bytes)
        })
        .collect();
    sample.check(&finished);
}

#[test]
fn a_receiver_without_room_loses_segments_and_no_others() {
    let mut lan = lan(2);
    lan.sink(1, |kept| kept.room = 10);
    let (bytes, offload) = Sample { payload: vec![1; 14_480 * 2], ..Sample::default() }.build();
    lan.offers[0].put_offloaded(&bytes, &[], Some(offload));
    lan.pass(0);
    assert_eq!(lan.received(1).len(), 10);
    assert_eq!(lan.dropped(1, DropReason::ReceiverFull), 10);
    assert_eq!((lan.counters(0).in_frames, lan.counters(1).out_frames), (1, 10));
}

#[test]
fn a_checksum_is_filled_in_wherever_the_headers_put_its_field() {
    for bytes in (0..60).step_by(2) {
        // The UDP header begins behind an extension header, at growing offsets, at last beyond the private copy.
        for pieces in [&[][..], &[128], &[129], &[127, 1, 1, 1], &[200, 30]] {
            let extensions = Some(vec![(60, bytes)]);
            let (mut sent, offload) = Hostile { extensions, protocol: 17, payload: 333, ..Hostile::default() }.build();
            let mut lan = lan(2);
            lan.offers[0].put_offloaded(&sent, pieces, Some(offload));
            lan.pass(0);
            complete(&mut sent, &offload);
            assert!(lan.received(1) == [sent], "behind {bytes} times 8 bytes in {pieces:?}");
        }
    }
}

#[test]
fn a_sum_of_zero_is_written_as_its_other_name() {
    let mut lan = lan(2);
    let (mut sent, offload) = Hostile { protocol: 17, payload: 0, ..Hostile::default() }.build();
    sent[34..].fill(0);
    sent[34..36].fill(0xff);
    lan.offers[0].put_offloaded(&sent, &[], Some(offload));
    lan.pass(0);
    assert_eq!(lan.received(1)[0][40..42], [0xff, 0xff], "zero would mean that there is none");
}
