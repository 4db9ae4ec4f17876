//! Frames taken from a client's transmit rings when a limit allows only some of them.

use std::sync::Arc;

use parking_lot::Mutex;
use ringway_abi::Shape;
use ringway_abi::offload::PREFIX_BYTES;
use ringway_abi::slot::NS_MOREFRAG;
use ringway_port_tests::support::{Client, Lan, frame};
use ringway_switch::policy::{Bucket, Excess, Limit, Policy, Rates};
use ringway_switch::{Discarded, DropReason, Member, PortFault, Tap, TappedFrame, Watch};

fn lan(slots: u32) -> Lan {
    Lan::of(2, Shape { tx_slots: slots, rx_slots: 256, buffer_size: 128, ..Shape::default() })
}

fn discard(client: &mut Client, most: usize) -> Result<(u64, u64), PortFault> {
    client.input.discard(most).map(|Discarded { frames, bytes }| (frames, bytes))
}

#[test]
fn frames_beyond_a_limit_are_skipped_whole_around_the_ring_and_the_next_arrives() {
    let mut lan = lan(16);
    for round in 0..40 {
        // Frames of one slot, three slots and one slot, and then a frame that arrives.
        for (number, len) in [(0, 60), (1, 300), (2, 128), (3, 200)] {
            lan.clients[0].queue(0, &frame(1, 0, len, round * 4 + number), 128);
        }
        lan.clients[0].publish(0);
        assert_eq!(discard(&mut lan.clients[0], 2), Ok((2, 360)));
        assert_eq!(discard(&mut lan.clients[0], 1), Ok((1, 128)));
        assert_eq!(lan.pass(0).frames, 1);
        assert_eq!(lan.clients[1].receive(0), [frame(1, 0, 200, round * 4 + 3)]);
        assert_eq!(discard(&mut lan.clients[0], 9), Ok((0, 0)));
        assert_eq!(lan.clients[0].tx_room(0), 15);
    }
}

#[test]
fn a_frame_without_an_end_is_left_until_it_has_one_and_one_that_cannot_have_one_is_a_fault() {
    let mut lan = lan(16);
    lan.clients[0].queue(0, &frame(1, 0, 300, 1), 128);
    let head = lan.clients[0].tx_head[0];
    lan.clients[0].set_tx_head(0, head - 1);
    assert_eq!(discard(&mut lan.clients[0], 9), Ok((0, 0)));
    assert!(!lan.clients[0].input.pending(), "the poller does not spin for it");
    lan.clients[0].publish(0);
    assert!(lan.clients[0].input.pending());
    assert_eq!(discard(&mut lan.clients[0], 9), Ok((1, 300)));
    for slot in 0..16 {
        let old = lan.clients[0].tx_slot(0, slot);
        lan.clients[0].set_tx(0, slot, ringway_abi::Slot { flags: NS_MOREFRAG, ..old });
    }
    lan.clients[0].set_tx_head(0, (head + 15) % 16);
    assert_eq!(discard(&mut lan.clients[0], 9), Err(PortFault::EndlessFrame));
    lan.clients[0].set_tx_head(0, 16);
    assert_eq!(discard(&mut lan.clients[0], 9), Err(PortFault::TxHeadOutOfRange(16)));
}

#[test]
fn several_rings_are_skipped_by_turns() {
    let mut lan = Lan::of(2, Shape { tx_rings: 2, rx_rings: 2, buffer_size: 128, ..Shape::default() });
    for ring in [0, 0, 1, 1] {
        lan.clients[0].queue(ring, &frame(1, 0, 60, 1), 128);
    }
    (0..2).for_each(|ring| lan.clients[0].publish(ring));
    let room = |lan: &Lan| [lan.clients[0].tx_room(0), lan.clients[0].tx_room(1)];
    let all = room(&lan)[0] + 2;
    assert_eq!(discard(&mut lan.clients[0], 2), Ok((2, 120)));
    assert_eq!(room(&lan), [all, all - 2]);
    assert_eq!(discard(&mut lan.clients[0], 1), Ok((1, 60)));
    assert_eq!(room(&lan), [all, all - 1]);
}

#[test]
fn frames_with_the_same_addresses_are_skipped_up_to_any_other_around_the_ring() {
    let mut lan = Lan::of(3, Shape { tx_slots: 16, rx_slots: 256, buffer_size: 128, ..Shape::default() });
    let like: [u8; 12] = frame(1, 0, 60, 0)[..12].try_into().expect("two addresses");
    let discard_like = |client: &mut Client, most| {
        client.input.discard_like(&like, most).map(|Discarded { frames, bytes }| (frames, bytes))
    };
    for round in 0..40 {
        let sent = [(1, 60), (1, 128), (1, 14), (2, 60), (1, 60)];
        for (number, (to, len)) in (0..).zip(sent) {
            lan.clients[0].queue(0, &frame(to, 0, len, round * 8 + number), 128);
        }
        lan.clients[0].publish(0);
        assert_eq!(discard_like(&mut lan.clients[0], 2), Ok((2, 188)));
        assert_eq!(discard_like(&mut lan.clients[0], 9), Ok((1, 14)));
        assert_eq!(discard_like(&mut lan.clients[0], 9), Ok((0, 0)), "the next frame is for another receiver");
        assert_eq!(lan.pass(0).frames, 2);
        assert_eq!(lan.clients[2].receive(0), [frame(2, 0, 60, round * 8 + 3)]);
        assert_eq!(lan.clients[1].receive(0), [frame(1, 0, 60, round * 8 + 4)]);
        // The receiver of a frame in several slots is not known at once.
        lan.clients[0].queue(0, &frame(1, 0, 200, round), 128);
        lan.clients[0].publish(0);
        assert_eq!(discard_like(&mut lan.clients[0], 9), Ok((0, 0)));
        assert_eq!(lan.pass(0).frames, 1);
        assert_eq!(lan.clients[1].receive(0), [frame(1, 0, 200, round)]);
        assert_eq!(lan.clients[0].tx_room(0), 15);
    }
    // Invalid slots are not discarded here. `collect` counts them.
    for wrong in [
        ringway_abi::Slot { buffer: 1, len: 60, flags: 0 },
        ringway_abi::Slot { len: 200, ..lan.clients[0].tx_slot(0, 0) },
    ] {
        let at = lan.clients[0].tx_head[0];
        lan.clients[0].queue(0, &frame(1, 0, 60, 0), 128);
        lan.clients[0].set_tx(0, at, wrong);
        lan.clients[0].publish(0);
        assert_eq!(discard_like(&mut lan.clients[0], 9), Ok((0, 0)));
        assert_eq!(lan.pass(0).frames, 1);
    }
    lan.clients[0].set_tx_head(0, 16);
    assert_eq!(discard_like(&mut lan.clients[0], 9), Err(PortFault::TxHeadOutOfRange(16)));
}

#[test]
fn any_frame_that_is_not_like_the_others_ends_them_wherever_it_is() {
    let mut lan = Lan::of(3, Shape { tx_slots: 256, rx_slots: 256, buffer_size: 128, ..Shape::default() });
    let like: [u8; 12] = frame(1, 0, 60, 0)[..12].try_into().expect("two addresses");
    for odd in 0..140u32 {
        let head = lan.clients[0].tx_head[0];
        for number in 0..140 {
            let to = if number == odd && odd % 4 == 0 { 2 } else { 1 };
            lan.clients[0].queue(0, &frame(to, 0, 60 + number as usize % 8, number), 128);
        }
        let at = (head + odd) % 256;
        let slot = lan.clients[0].tx_slot(0, at);
        match odd % 4 {
            0 => {}
            1 => lan.clients[0].set_tx(0, at, ringway_abi::Slot { len: 13, ..slot }),
            2 => lan.clients[0].set_tx(0, at, ringway_abi::Slot { len: 129, ..slot }),
            _ => lan.clients[0].set_tx(0, at, ringway_abi::Slot { buffer: u32::MAX, ..slot }),
        }
        lan.clients[0].publish(0);
        let bytes = (0..u64::from(odd)).map(|number| 60 + number % 8).sum();
        assert_eq!(lan.clients[0].input.discard_like(&like, 200), Ok(Discarded { frames: odd.into(), bytes }), "{odd}");
        assert_eq!(discard(&mut lan.clients[0], 200).map(|(frames, _)| frames), Ok(140 - u64::from(odd)));
        lan.clients[0].set_tx(0, at, slot);
    }
}

#[test]
fn what_waits_for_its_rate_arrives_byte_for_byte_whatever_its_length() {
    for offload in [false, true] {
        let shape = Shape { tx_slots: 64, rx_slots: 64, buffer_size: 2112, offload, ..Shape::default() };
        let waits = |member: Member| {
            let mut limit = Limit::new(Rates { bits: None, frames: Some(Bucket::new(1, 40)) });
            limit.excess = Excess::Wait;
            let policy = Policy { ingress: Some(Arc::new(limit)), ..Policy::default() };
            Member { policy: (member.owner.index() == 0).then_some(policy), ..member }
        };
        let mut lan = Lan::of(2, shape).changed(waits, []);
        let prefix = if offload { PREFIX_BYTES } else { 0 };
        let sent: Vec<_> = (0..80u32)
            .map(|number| {
                let len = [60, 128, 129, 191, 192, 193, 900, 1514][number as usize % 8] + number as usize / 8;
                [vec![0; prefix], frame(1, 0, len, number)].concat()
            })
            .collect();
        // The first 40 frames pass at once. The limit holds back the others.
        for half in sent.chunks(40) {
            for frame in half {
                lan.clients[0].queue(0, frame, 2112);
            }
            lan.clients[0].publish(0);
            assert_eq!(lan.pass(0).frames, 40);
            assert!(lan.clients[1].receive(0) == half, "offloads: {offload}");
            assert!(lan.pass(0).until.is_some());
            lan.second += 1000;
        }
    }
}

/// Records the outcome of a port's frames.
#[derive(Default)]
struct Recorder(Mutex<Vec<(usize, Option<DropReason>)>>);

impl Tap for Recorder {
    fn see<'b, 'm: 'b>(&self, frames: &mut dyn Iterator<Item = TappedFrame<'b, 'm>>) {
        self.0.lock().extend(frames.map(|seen| (seen.frame.len(), seen.dropped)));
    }

    fn ring(&self) {}
}

#[test]
fn of_frames_that_a_watched_receiver_loses_each_is_told_apart() {
    // 9 free slots of 128 bytes; a frame of 300 takes three, and one of 1,100 nine.
    let shape = Shape { tx_slots: 256, rx_slots: 10, buffer_size: 128, ..Shape::default() };
    let recorder = Arc::new(Recorder::default());
    let watch = Watch { taps: vec![Arc::clone(&recorder) as Arc<dyn Tap>], ..Watch::default() };
    let mut lan = Lan::of(2, shape).changed(|member| member, [(1, watch)]);
    let lens = [60, 1280, 60, 300, 60, 900, 60, 60, 300, 60];
    for (number, len) in (0..).zip(lens) {
        lan.clients[0].queue(0, &frame(1, 0, len, number), 128);
    }
    lan.clients[0].publish(0);
    assert_eq!(lan.pass(0).frames, 10);
    let (full, small) = (Some(DropReason::ReceiverFull), Some(DropReason::ReceiverTooSmall));
    let fates = [None, small, None, None, None, full, None, None, full, None];
    assert_eq!(*recorder.0.lock(), lens.into_iter().zip(fates).collect::<Vec<_>>());
    assert_eq!((lan.dropped(1, DropReason::ReceiverFull), lan.dropped(1, DropReason::ReceiverTooSmall)), (2, 1));
    assert_eq!(lan.clients[1].receive(0).iter().map(Vec::len).collect::<Vec<_>>(), [60, 60, 300, 60, 60, 60, 60]);
}
