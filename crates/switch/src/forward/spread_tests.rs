//! Flooded frames to many ports: what a visit delivers is bounded.

use crate::testing::samples::Sample;
use crate::testing::{Lan, Plan, frame, mac, number};
use crate::{DropReason, Mac};

/// Port 0 floods, and this many ports hear it. Of the others, none does: they are isolated, as port 0 is.
fn lan(hearing: u16, others: u16) -> Lan {
    let isolated = (1 + hearing..1 + hearing + others).chain([0]).collect();
    Plan { isolated, bytes: 16 << 20, batch: 1024, ..Plan::new(1 + hearing + others) }.learning()
}

/// A flooded frame of this many segments of `size` bytes.
fn put_segmented(lan: &mut Lan, segments: usize, size: u16) {
    let sample = Sample { gso_size: size, payload: vec![1; segments * usize::from(size)], ..Sample::default() };
    let (mut bytes, offload) = sample.build();
    bytes[..6].copy_from_slice(&[0xff; 6]);
    bytes[6..12].copy_from_slice(&frame(mac(1), mac(0), 60, 0)[6..12]);
    lan.offers[0].put_offloaded(&bytes, &[], Some(offload));
}

/// Runs passes until all frames are taken. Returns the segments delivered in each, of all ports.
fn passes(lan: &mut Lan, ports: u16) -> Vec<u64> {
    let mut delivered = Vec::new();
    while !lan.offers[0].is_empty() {
        let passed = lan.pass(0);
        assert_eq!((passed.until, passed.more), (None, passed.is_exhausted));
        delivered.push((1..=ports).map(|port| lan.received(port).len() as u64).sum());
    }
    delivered
}

/// The most segments that a pass may cut for all receivers together: a thirtieth of a second would be 500,000.
const MOST: u64 = 32_768;

#[test]
fn segments_times_receivers_of_a_visit_are_bounded_and_the_rest_waits() {
    for (ports, segments, size) in [(64, 128, 1), (64, 45, 1448), (200, 30, 1), (12, 900, 8)] {
        let mut lan = lan(ports, 0);
        (0..24).for_each(|_| put_segmented(&mut lan, segments, size));
        let delivered = passes(&mut lan, ports);
        assert!(
            delivered.iter().all(|&delivered| delivered <= MOST),
            "{ports} ports, {segments} of {size}: {delivered:?}"
        );
        assert_eq!(delivered.iter().sum::<u64>(), 24 * segments as u64 * u64::from(ports), "{ports} ports");
        assert_eq!(lan.dropped(0, DropReason::FloodLimited), 0);
    }
}

#[test]
fn plain_frames_times_receivers_are_bounded_too_and_keep_their_order() {
    let mut lan = lan(100, 0);
    let sent: Vec<u32> = (0..600).collect();
    for &number in &sent {
        let to = if number % 50 == 49 { mac(3) } else { Mac::BROADCAST };
        lan.offers[0].put(&frame(to, mac(0), 60, number), &[]);
    }
    let (mut received, mut most) = (Vec::new(), 0);
    lan.switch.table().learn(mac(3), crate::Owner::new(3, 0), 1, |_| true);
    while !lan.offers[0].is_empty() {
        most = most.max(lan.pass(0).frames);
        received.extend(lan.received(3).iter().map(|frame| number(frame)));
    }
    assert_eq!(received, sent);
    assert!(most <= 320, "{most} frames in a visit");
}

#[test]
fn what_cannot_wait_is_dropped_and_counted() {
    let mut lan = lan(64, 0);
    lan.offers[0].keeps = false;
    (0..24).for_each(|_| put_segmented(&mut lan, 128, 1));
    lan.offers[0].put(&frame(mac(5), mac(0), 60, 7), &[]);
    lan.switch.table().learn(mac(5), crate::Owner::new(5, 0), 1, |_| true);
    let passed = lan.pass(0);
    assert_eq!((passed.frames, passed.until, passed.more), (25, None, false));
    let dropped = lan.dropped(0, DropReason::FloodLimited);
    assert!(dropped > 0 && dropped < 24);
    assert_eq!(lan.received(1).len() as u64, (24 - dropped) * 128);
    // A frame for one port is not a part of this.
    assert_eq!(lan.received(5).len() as u64, (24 - dropped) * 128 + 1);
    // Also where a frame is refused, so that none may wait.
    lan.offers[0].keeps = true;
    lan.offers[0].refuse = vec![DropReason::Runt];
    (0..24).for_each(|_| put_segmented(&mut lan, 128, 1));
    lan.pass(0);
    assert!(lan.offers[0].is_empty() && lan.received(2).len() as u64 <= 2 * MOST / 64);
}

#[test]
fn a_frame_of_more_segments_than_a_visit_may_cut_is_dropped_and_holds_up_nothing() {
    let mut lan = lan(64, 0);
    put_segmented(&mut lan, 1000, 1);
    put_segmented(&mut lan, 45, 1448);
    let delivered = passes(&mut lan, 64);
    assert_eq!((delivered, lan.dropped(0, DropReason::FloodLimited)), (vec![64 * 45], 1));
}

#[test]
fn ports_that_do_not_hear_a_frame_do_not_count_and_a_small_switch_is_not_bounded() {
    for (hearing, others) in [(4, 60), (7, 0)] {
        let mut lan = lan(hearing, others);
        (0..4).for_each(|_| put_segmented(&mut lan, 1000, 1));
        let delivered = passes(&mut lan, hearing);
        let all: u64 = delivered.iter().sum();
        assert_eq!(all, 4 * 1000 * u64::from(hearing), "{hearing} of {}", hearing + others);
        assert!(delivered.len() <= 4, "{hearing} of {}: {delivered:?}", hearing + others);
        assert_eq!(lan.dropped(0, DropReason::FloodLimited), 0);
    }
}
