//! Frames beyond a driver's limit go back to the driver unread, for every way of dividing them into descriptors, or
//! stay in the ring.

use ringway_switch::{BatchStorage, Discarded};

use super::testing::{Driver, Guest, HIGH, Piece, both, collect, transmit_queue};
use super::{Bounce, F_IN_ORDER, F_INDIRECT_DESC, RingFault};

both!(
    frames_of_any_framing_are_skipped_in_order_and_the_next_arrives,
    addresses_are_not_followed_and_what_is_no_transmit_chain_is_a_fault,
    what_has_to_wait_stays_in_the_ring_and_comes_again_in_order,
    plain_frames_with_the_same_addresses_are_skipped_up_to_any_other,
);

const HEADER: usize = 12;

fn frames_of_any_framing_are_skipped_in_order_and_the_next_arrives<D: Driver>() {
    for features in [F_INDIRECT_DESC, F_INDIRECT_DESC | F_IN_ORDER] {
        let guest = Guest::new();
        let mut driver = D::new(&guest, 64, features);
        let mut queue = transmit_queue(&guest, &driver);
        let place = guest.place(&[0; HEADER + 100]);
        let whole = [Piece::read(place, HEADER + 100)];
        let two = [Piece::read(place, HEADER), Piece::read(place + HEADER as u64, 60)];
        for round in 0..50 {
            let chains: [(&[Piece], usize); 5] = [(&whole, 1), (&two, 2), (&two, 0), (&whole, 1), (&whole, 1)];
            let put = |&(pieces, direct): &(&[Piece], usize)| (driver.put(&guest, pieces, direct).expect("room"), 0);
            let ids: Vec<(u16, u32)> = chains.iter().map(put).collect();
            driver.publish(&guest);
            let mut discarded = Discarded::default();
            queue.discard(&guest.memory, 3, &mut discarded).expect("no fault");
            queue.release(&guest.memory).expect("no fault");
            assert_eq!(discarded, Discarded { frames: 3, bytes: 220 }, "round {round}");
            assert_eq!(driver.all_used(&guest), ids[..3]);
            // `most` limits the total count in `discarded`.
            queue.discard(&guest.memory, 4, &mut discarded).expect("no fault");
            queue.release(&guest.memory).expect("no fault");
            assert_eq!(discarded.frames, 4);
            assert_eq!(collect(&mut queue, &guest).expect("no fault").frames.len(), 1);
            assert_eq!(driver.all_used(&guest), ids[3..]);
            queue.discard(&guest.memory, 9, &mut discarded).expect("an empty ring is no fault");
            assert_eq!(discarded.frames, 4);
        }
    }
}

fn addresses_are_not_followed_and_what_is_no_transmit_chain_is_a_fault<D: Driver>() {
    let guest = Guest::new();
    let mut driver = D::new(&guest, 64, 0);
    let mut queue = transmit_queue(&guest, &driver);
    driver.send(&guest, &[Piece::read(HIGH << 8, HEADER + 60)]);
    driver.send(&guest, &[Piece::read(0, 3)]);
    let mut discarded = Discarded::default();
    queue.discard(&guest.memory, 9, &mut discarded).expect("no fault: the ring was not read");
    queue.release(&guest.memory).expect("no fault");
    assert_eq!(discarded, Discarded { frames: 2, bytes: 60 });
    driver.send(&guest, &[Piece::write(guest.place(&[0; 80]), 80)]);
    assert_eq!(queue.discard(&guest.memory, 9, &mut discarded), Err(RingFault::WritableInTransmit));
}

fn what_has_to_wait_stays_in_the_ring_and_comes_again_in_order<D: Driver>() {
    for features in [F_INDIRECT_DESC, F_INDIRECT_DESC | F_IN_ORDER] {
        let guest = Guest::new();
        let mut driver = D::new(&guest, 64, features);
        let mut queue = transmit_queue(&guest, &driver);
        let bounce = Bounce::default();
        for round in 0..50 {
            let mut ids = Vec::new();
            for number in 0..4u8 {
                let place = guest.place(&[&[0; HEADER][..], &[number; 60]].concat());
                let pieces = [Piece::read(place, HEADER + 20), Piece::read(place + HEADER as u64 + 20, 40)];
                let direct = [2, 0][usize::from(number) % 2];
                ids.push((driver.put(&guest, &pieces, direct).expect("room"), 0));
            }
            driver.publish(&guest);
            let mut storage = Some(BatchStorage::new(256));
            for (kept, from) in [(0, 0), (1, 0), (2, 1), (9, 3)] {
                let mut batch = storage.take().expect("the storage of the batch").into_batch();
                queue.collect(&guest.memory, &bounce, &mut batch).expect("no fault");
                assert_eq!(batch.len(), 4 - from, "round {round}");
                assert_eq!(batch.frame(0).head().0[0], from as u8);
                storage = Some(batch.into_storage());
                let taken = kept.min(4 - from);
                assert_eq!(queue.rewind(kept), taken);
                queue.release(&guest.memory).expect("no fault");
                assert_eq!(driver.all_used(&guest), ids[from..from + taken]);
            }
        }
    }
}

fn plain_frames_with_the_same_addresses_are_skipped_up_to_any_other<D: Driver>() {
    const LIKE: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    let unlike = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 3];
    let asks = [1, 0, 0, 0, 0, 0, 34, 0, 6, 0, 0, 0];
    let long = [0; 12];
    for features in [F_INDIRECT_DESC, F_INDIRECT_DESC | F_IN_ORDER] {
        let guest = Guest::new();
        let mut driver = D::new(&guest, 64, features);
        let mut queue = transmit_queue(&guest, &driver);
        let place = |header: &[u8], addresses: &[u8]| guest.place(&[header, addresses, &[8; 48]].concat());
        let like = Piece::read(place(&[0; HEADER], &LIKE), HEADER + 60);
        let high = {
            guest.write(HIGH, &[&[0; HEADER], &LIKE, &[8; 48][..]].concat());
            Piece::read(HIGH, HEADER + 60)
        };
        let others: [&[Piece]; 6] = [
            &[Piece::read(place(&[0; HEADER], &unlike), HEADER + 60)],
            &[Piece::read(place(&asks, &LIKE), HEADER + 60)],
            &[Piece { len: HEADER as u32, ..like }, Piece::read(like.address + HEADER as u64, 60)],
            &[Piece { len: HEADER as u32 + 13, ..like }],
            &[Piece::read(HIGH << 8, HEADER + 60)],
            &[Piece::write(place(&long, &LIKE), HEADER + 60)],
        ];
        for (round, other) in (0..).zip(others) {
            let mut ids = vec![(driver.put(&guest, &[like], 1).expect("room"), 0)];
            ids.extend([high, like].map(|piece| (driver.put(&guest, &[piece], 1).expect("room"), 0)));
            driver.put(&guest, other, other.len()).expect("room");
            driver.put(&guest, &[like], 1).expect("room");
            driver.publish(&guest);
            for (most, frames) in [(2, 2), (9, 1), (9, 0)] {
                let mut discarded = Discarded::default();
                assert_eq!(queue.discard_like(&guest.memory, &LIKE, most, &mut discarded), Ok(()));
                assert_eq!(discarded, Discarded { frames, bytes: 60 * frames }, "round {round}, at most {most}");
                queue.release(&guest.memory).expect("no fault");
            }
            assert_eq!(driver.all_used(&guest), ids, "round {round}");
            // `discard` does not check what `collect` checks, so the fault appears in `collect`.
            if collect(&mut queue, &guest).is_err() {
                queue = {
                    driver = D::new(&guest, 64, features);
                    transmit_queue(&guest, &driver)
                };
            }
            driver.all_used(&guest);
        }
    }
}
