//! Frames from one ring to another arrive unchanged and in order, for all descriptors of both drivers.

use proptest::collection::vec;
use proptest::prelude::*;
use ringway_switch::BatchStorage;

use super::testing::{Driver, Guest, PackedDriver, Piece, SplitDriver, receive_queue, transmit_queue};
use super::{Bounce, F_EVENT_IDX, F_IN_ORDER, F_INDIRECT_DESC, Tally};

/// A frame's length, the ends of its pieces, and the number of direct descriptors among the pieces.
type Sending = (usize, Vec<usize>, usize);
/// The lengths of a buffer's pieces, and the number of direct descriptors among them.
type Room = (Vec<usize>, usize);

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![14..200usize, 14..1600usize, 1500..9100usize, Just(1514), Just(128), Just(129)]
}

fn sendings() -> impl Strategy<Value = Vec<Sending>> {
    let cuts = prop_oneof![vec(0..300usize, 0..4), vec(0..40usize, 0..90), vec(1..4000usize, 0..3)];
    vec((lengths(), cuts, 0..100usize), 1..40)
}

fn rooms() -> impl Strategy<Value = Vec<Room>> {
    let first = prop_oneof![12..2000usize, Just(1526)];
    let buffer = (first, vec(0..600usize, 0..6)).prop_map(|(first, mut others)| {
        others.insert(0, first);
        others
    });
    vec((buffer, 0..8usize), 1..80)
}

fn features() -> impl Strategy<Value = u64> {
    (any::<bool>(), any::<bool>()).prop_map(|(events, in_order)| {
        F_INDIRECT_DESC | if events { F_EVENT_IDX } else { 0 } | if in_order { F_IN_ORDER } else { 0 }
    })
}

fn frame(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(2_654_435_761) >> 7).wrapping_add(seed * 59) as u8).collect()
}

/// Sends frames, takes them in batches of `limit` and delivers them. Exactly the frames that the model
/// refuses have no room.
fn check<S: Driver, R: Driver>(
    sendings: &[Sending],
    rooms: &[Room],
    limit: usize,
    (send_features, receive_features): (u64, u64),
) -> Result<(), TestCaseError> {
    let (sender, receiver) = (Guest::new(), Guest::new());
    let mut from = S::new(&sender, 4096, send_features);
    let mut to = R::new(&receiver, 1024, receive_features);
    let mut transmit = transmit_queue(&sender, &from);
    let mut receive = receive_queue(&receiver, &to, true);
    let mut buffers = std::collections::VecDeque::new();
    for (lens, direct) in rooms {
        let pieces: Vec<Piece> = lens.iter().map(|&len| Piece::write(receiver.alloc(len, 1), len)).collect();
        let id = to.put(&receiver, &pieces, (*direct).min(pieces.len())).expect("room");
        buffers.push_back((id, pieces));
    }
    to.publish(&receiver);
    let (mut frames, mut ids) = (Vec::new(), Vec::new());
    for (number, (len, cuts, direct)) in sendings.iter().enumerate() {
        let bytes = frame(*len, number);
        let whole = [&[0; 12][..], &bytes].concat();
        let (mut pieces, mut at) = (Vec::new(), 0);
        for cut in cuts {
            let cut = (*cut).min(whole.len() - at);
            pieces.push(Piece::read(sender.place(&whole[at..at + cut]), cut));
            at += cut;
        }
        pieces.push(Piece::read(sender.place(&whole[at..]), whole.len() - at));
        ids.push((from.put(&sender, &pieces, (*direct).min(pieces.len())).expect("room"), 0));
        frames.push(bytes);
    }
    from.publish(&sender);

    let (mut tally, mut taken) = (Tally::default(), 0);
    let mut bounce = Bounce::default();
    let mut empty = 0;
    while empty < 2 {
        bounce.begin().expect("memory");
        let mut batch = BatchStorage::new(limit).into_batch();
        transmit.collect(&sender.memory, &bounce, &mut batch).expect("no fault");
        empty = if batch.is_empty() { empty + 1 } else { 0 };
        taken += batch.len();
        let given = (0..batch.len()).map(|index| batch.frame(index));
        receive.deliver(&receiver.memory, given, &mut tally).expect("no fault");
        drop(batch);
        transmit.release(&sender.memory).expect("no fault");
    }
    prop_assert_eq!(taken, frames.len());
    prop_assert_eq!(from.all_used(&sender), ids);

    let mut used = to.all_used(&receiver).into_iter();
    let (mut given, mut lost) = (0, false);
    for bytes in &frames {
        // The expected contents of the remaining buffers, in order.
        let mut need = Vec::new();
        for (_, pieces) in &buffers {
            need.push(pieces.iter().map(|piece| piece.len as usize).sum::<usize>());
            if need.iter().sum::<usize>() >= 12 + bytes.len() {
                break;
            }
        }
        if need.iter().sum::<usize>() < 12 + bytes.len() {
            lost = true;
            continue;
        }
        let (mut got, mut left) = (Vec::new(), 12 + bytes.len());
        for room in &need {
            let (id, pieces) = buffers.pop_front().expect("counted above");
            let part = left.min(*room);
            prop_assert_eq!(used.next(), Some((id, part as u32)));
            left -= part;
            let all: Vec<u8> =
                pieces.iter().flat_map(|piece| receiver.read(piece.address, piece.len as usize)).collect();
            got.extend_from_slice(&all[..part]);
            // A frame that found too few buffers may have written to some of them.
            let clean = lost || all[part..].iter().all(|&byte| byte == 0);
            prop_assert!(clean, "bytes beyond the frame");
        }
        let header = [[0; 10].as_slice(), &(need.len() as u16).to_le_bytes()].concat();
        prop_assert_eq!(&got[..12], header);
        prop_assert!(got[12..] == bytes[..], "the frame's bytes differ");
        given += 1;
    }
    prop_assert_eq!(used.next(), None);
    prop_assert_eq!((tally.frames, tally.full), (given, frames.len() as u64 - given));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn frames_pass_from_split_to_split(
        sent in sendings(), rooms in rooms(), limit in 1..64usize, features in (features(), features())
    ) {
        check::<SplitDriver, SplitDriver>(&sent, &rooms, limit, features)?;
    }

    #[test]
    fn frames_pass_from_split_to_packed(
        sent in sendings(), rooms in rooms(), limit in 1..64usize, features in (features(), features())
    ) {
        check::<SplitDriver, PackedDriver>(&sent, &rooms, limit, features)?;
    }

    #[test]
    fn frames_pass_from_packed_to_split(
        sent in sendings(), rooms in rooms(), limit in 1..64usize, features in (features(), features())
    ) {
        check::<PackedDriver, SplitDriver>(&sent, &rooms, limit, features)?;
    }

    #[test]
    fn frames_pass_from_packed_to_packed(
        sent in sendings(), rooms in rooms(), limit in 1..64usize, features in (features(), features())
    ) {
        check::<PackedDriver, PackedDriver>(&sent, &rooms, limit, features)?;
    }
}
