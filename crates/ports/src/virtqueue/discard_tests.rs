//! What a driver sends beyond its limit goes back to it unseen, whatever descriptors it is in.

use ringway_switch::Discarded;

use super::testing::{Driver, Guest, HIGH, Piece, both, collect, transmit_queue};
use super::{F_IN_ORDER, F_INDIRECT_DESC, RingFault};

both!(
    frames_of_any_framing_are_skipped_in_order_and_the_next_arrives,
    addresses_are_not_followed_and_what_is_no_transmit_chain_is_a_fault,
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
            queue.discard(&guest.memory, 3, &mut discarded).expect("nothing is wrong");
            queue.release(&guest.memory).expect("nothing is wrong");
            assert_eq!(discarded, Discarded { frames: 3, bytes: 220 }, "round {round}");
            assert_eq!(driver.all_used(&guest), ids[..3]);
            // Others count towards the same turn.
            queue.discard(&guest.memory, 4, &mut discarded).expect("nothing is wrong");
            queue.release(&guest.memory).expect("nothing is wrong");
            assert_eq!(discarded.frames, 4);
            assert_eq!(collect(&mut queue, &guest).expect("nothing is wrong").frames.len(), 1);
            assert_eq!(driver.all_used(&guest), ids[3..]);
            queue.discard(&guest.memory, 9, &mut discarded).expect("an empty ring is no mistake");
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
    queue.discard(&guest.memory, 9, &mut discarded).expect("nothing of it was looked at");
    queue.release(&guest.memory).expect("nothing is wrong");
    assert_eq!(discarded, Discarded { frames: 2, bytes: 60 });
    driver.send(&guest, &[Piece::write(guest.place(&[0; 80]), 80)]);
    assert_eq!(queue.discard(&guest.memory, 9, &mut discarded), Err(RingFault::WritableInTransmit));
}
