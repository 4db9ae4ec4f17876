//! Tests of which bytes of a frame arrive.

use std::sync::Arc;

use ringway_memory::Mapping;

use crate::testing::{Plan, frame, mac};
use crate::{Batch, BatchStorage, Destination, DropReason, Forward, Learning, Member, Switch};

#[test]
fn a_frame_of_any_length_arrives_as_it_was_sent() {
    let lengths: Vec<usize> = (14..=260).chain([511, 512, 1513, 1514, 1515, 9000, 65_535]).collect();
    let mut lan = Plan::new(2).learning();
    for len in lengths {
        let sent = frame(mac(1), mac(0), len, 3);
        lan.send(0, std::slice::from_ref(&sent));
        assert!(lan.received(1) == [sent], "{len} bytes");
    }
}

#[test]
fn frames_of_13_bytes_or_less_are_runts() {
    let mut lan = Plan::new(2).learning();
    lan.send(0, &(1..14).map(|len| vec![2; len]).collect::<Vec<_>>());
    assert_eq!(lan.dropped(0, DropReason::Runt), 13);
    lan.offers[0].put(&[2; 13], &[1, 5]);
    lan.pass(0);
    assert_eq!(lan.dropped(0, DropReason::Runt), 14);
    assert_eq!(lan.hearers(), []);
}

#[test]
fn a_frame_in_pieces_arrives_whole_wherever_it_is_cut() {
    let mut lan = Plan::new(2).learning();
    let mut check = |len: usize, pieces: &[usize]| {
        let sent = frame(mac(1), mac(0), len, 9);
        lan.offers[0].put(&sent, pieces);
        lan.pass(0);
        assert!(lan.received(1) == [sent], "{len} bytes cut at {pieces:?}");
    };
    for cut in 1..200 {
        check(200, &[cut]);
    }
    for len in [14, 60, 127, 128, 129, 130, 1514] {
        check(len, &[1; 63][..63.min(len - 1)]);
        check(len, &[2, 3, 1, 5]);
    }
    check(9000, &[127, 1, 1, 127]);
    check(9000, &[128, 128]);
    check(9000, &[64, 64, 64]);
    check(65_535, &[1039; 63]);
}

/// Changes all of the client's memory between the judgement and the delivery.
struct Overwriting(Arc<Mapping>);

impl Forward for Overwriting {
    fn forward(&self, batch: &mut Batch<'_>, from: &Member, switch: &Switch, now: u32) {
        Learning.forward(batch, from, switch, now);
        assert!(self.0.whole().write(&vec![0xee; self.0.bytes()]));
    }
}

#[test]
fn the_first_128_bytes_delivered_are_those_that_were_judged() {
    for pieces in [&[][..], &[40, 40, 40, 40], &[1, 127, 1], &[14]] {
        for len in [14, 60, 64, 65, 127, 128, 129, 200, 1514] {
            let mut lan = Plan { bytes: 1 << 16, ..Plan::new(2) }.learning();
            let memory = lan.offers[0].memory.clone();
            let members: Vec<Member> = lan.switch.members().cloned().collect();
            let table = lan.switch.table().clone();
            lan.switch = Switch::new("lan0", members, table, Box::new(Overwriting(memory)), *lan.switch.flood_policy());
            let sent = frame(mac(1), mac(0), len, 1);
            lan.offers[0].put(&sent, pieces);
            lan.pass(0);
            let [received] = &lan.received(1)[..] else { panic!("one frame of {len} bytes was sent") };
            let judged = len.min(128);
            assert_eq!(received[..judged], sent[..judged], "{len} bytes in {pieces:?}");
            assert!(received[judged..].iter().all(|&b| b == 0xee), "the rest is read once, when it is delivered");
        }
    }
}

#[test]
fn what_is_refused_takes_its_share_of_a_turn() {
    let mut batch = crate::BatchStorage::new(16).into_batch();
    for left in (0..16).rev() {
        batch.refuse(DropReason::BadBuffer);
        assert_eq!(batch.room(), left);
    }
    assert_eq!(batch.into_storage().into_batch().room(), 16, "the next turn is whole again");
}

#[test]
fn lost_frames_take_a_place_and_are_not_taken() {
    let mut batch = crate::BatchStorage::new(16).into_batch();
    batch.refuse_lost(DropReason::DeviceOverrun, 7);
    batch.refuse(DropReason::BadBuffer);
    assert_eq!((batch.room(), batch.refused_frames()), (14, 1));
    assert!(batch.refused().eq([(DropReason::BadBuffer, 1), (DropReason::DeviceOverrun, 7)]));
    assert_eq!(batch.into_storage().into_batch().refused().count(), 0);
}

#[test]
fn the_first_frame_of_a_batch_decides_whether_addresses_are_learned() {
    let memory = Mapping::private(4096).expect("memory");
    let mut batch = BatchStorage::new(8).into_batch();
    assert!(!batch.is_unlearned() && batch.takes_unlearned(false) && batch.takes_unlearned(true));
    let place = memory.view(0, 60).expect("room");
    assert!(place.write(&frame(mac(1), mac(0), 60, 0)));
    batch.push(place, 60);
    assert!(batch.is_unlearned() && batch.takes_unlearned(true) && !batch.takes_unlearned(false));
    assert!(!batch.into_storage().into_batch().is_unlearned(), "the next batch is as usual");
}

#[test]
fn a_rejected_frame_is_not_forwarded_and_counts_at_its_source() {
    let memory = Mapping::private(4096).expect("memory");
    let mut batch = BatchStorage::new(8).into_batch();
    for number in 0..3 {
        let place = memory.view(number * 64, 60).expect("room");
        assert!(place.write(&frame(mac(1), mac(0), 60, number as u32)));
        batch.push(place, 60);
    }
    batch.reject(1, DropReason::BadSource);
    let mut asked = 0;
    batch.set_destinations(|_, _| {
        asked += 1;
        Destination::Flood
    });
    assert_eq!(asked, 2);
    let expected = [Destination::Flood, Destination::Drop(DropReason::BadSource), Destination::Flood];
    assert_eq!(expected, std::array::from_fn(|index| batch.destination(index)));
    batch.truncate(1);
    assert_eq!((batch.len(), batch.bytes()), (1, 60));
}

#[test]
fn a_row_of_frames_is_filled_as_one_after_the_other_is() {
    let memory = Mapping::private(64 << 10).expect("memory");
    // All short; some long; one too short.
    for lengths in
        [[14, 31, 32, 33, 60, 64, 65, 128], [60, 60, 1514, 60, 129, 60, 60, 60], [60, 60, 128, 60, 60, 13, 60, 60]]
    {
        let mut batch = BatchStorage::new(7).into_batch();
        let rows: Vec<_> = (0..8).map(|at| memory.view(at * 2048, lengths[at]).expect("room")).collect();
        for (number, row) in rows.iter().enumerate() {
            assert!(row.write(&frame(mac(1), mac(0), row.len().max(14), number as u32)[..row.len()]));
        }
        let expected = lengths.iter().take(7).take_while(|&&len| len >= 14).count();
        assert_eq!((batch.fill(&rows), batch.len()), (expected, expected), "no more than there is room for");
        assert_eq!(batch.bytes(), lengths[..expected].iter().sum::<usize>() as u64);
        for (index, &len) in lengths[..expected].iter().enumerate() {
            let sent = frame(mac(1), mac(0), len, index as u32);
            assert_eq!(batch.frame_len(index), len);
            assert_eq!(batch.head(index)[..len.min(128)], sent[..len.min(128)], "{len} bytes");
        }
    }
}

#[test]
fn frames_are_placed_together_as_far_as_all_of_their_addresses_agree() {
    let memory = Mapping::private(4096).expect("memory");
    for (odd, byte) in (0..20).flat_map(|odd| (0..12).map(move |byte| (odd, byte))) {
        let mut batch = BatchStorage::new(20).into_batch();
        for number in 0..20 {
            let mut bytes = frame(mac(1), mac(0), 60, number as u32);
            bytes[byte] ^= u8::from(number == odd) << 7;
            let place = memory.view(number * 64, 60).expect("room");
            assert!(place.write(&bytes));
            batch.push(place, 60);
        }
        let mut asked = 0;
        batch.set_destinations(|source, destination| {
            asked += 1;
            if (source, destination) == (mac(0), mac(1)) { Destination::Port(1) } else { Destination::Flood }
        });
        for index in 0..20 {
            let expected = if index == odd { Destination::Flood } else { Destination::Port(1) };
            assert_eq!(batch.destination(index), expected, "frame {index}, byte {byte} of frame {odd} is different");
        }
        assert!(asked <= 3, "asked {asked} times");
    }
}
