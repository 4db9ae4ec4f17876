use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::memory::{self, Fault};
use crate::{Endpoint, FrameSpec, Frames, Mac, Payload};

fn frames(size: usize, flows: usize) -> Frames {
    let spec = FrameSpec { size, flows, ..FrameSpec::default() };
    Frames::new(&spec).expect("a valid description")
}

/// Returns the checker's report after `count` frames over a link with these faults.
fn through(size: usize, flows: usize, count: u64, faults: impl FnMut(u64) -> Fault + Send + 'static) -> CheckReport {
    let (mut a, mut b) = memory::pair(count as usize * 2);
    a.set_faults(faults);
    let mut frames = frames(size, flows);
    for _ in 0..count {
        assert!(a.tx_push(size, |frame| frames.write(frame)));
    }
    let mut checker = Checker::new(Level::Full, Origin::Zero);
    b.rx_batch(usize::MAX, |frame| checker.see(frame));
    checker.report()
}

#[test]
fn a_good_link_is_clean_at_every_size() {
    for size in (28..100).chain([1514, 9014, 65_535]) {
        let report = through(size, 3, 100, |_| Fault::None);
        assert!(report.is_clean(), "size {size}: {report}");
        assert_eq!((report.frames, report.bytes, report.flows, report.unsequenced), (100, 100 * size as u64, 3, 0));
    }
}

#[test]
fn frames_without_a_sequence_number_are_counted_as_ours() {
    for size in 14..28 {
        let report = through(size, 1, 10, |_| Fault::None);
        assert!(report.is_clean(), "size {size}: {report}");
        assert_eq!((report.frames, report.unsequenced), (10, 10));
    }
}

#[test]
fn lost_frames_are_counted() {
    let report = through(60, 1, 100, |number| if number % 10 == 3 { Fault::Drop } else { Fault::None });
    assert_eq!((report.frames, report.lost), (90, 10));
    assert_eq!(
        CheckReport { lost: 0, ..report.clone() }.lost + report.reordered + report.duplicated + report.corrupted,
        0
    );
}

#[test]
fn duplicated_frames_are_counted() {
    let report = through(60, 2, 100, |number| if number % 10 == 3 { Fault::Duplicate } else { Fault::None });
    assert_eq!((report.frames, report.duplicated, report.lost, report.reordered), (110, 10, 0, 0));
}

#[test]
fn reordered_frames_are_counted_once_and_not_as_lost() {
    let report = through(60, 1, 100, |number| if number % 10 == 3 { Fault::Swap } else { Fault::None });
    assert_eq!((report.frames, report.reordered, report.lost, report.duplicated), (100, 10, 0, 0));
}

#[test]
fn order_between_flows_does_not_matter() {
    let report = through(60, 2, 100, |number| if number % 10 == 3 { Fault::Swap } else { Fault::None });
    assert!(report.is_clean(), "{report}");
}

#[test]
fn a_wrong_byte_anywhere_is_seen() {
    for size in [32, 45, 59, 60, 61, 64, 200] {
        for place in 0..size {
            let report =
                through(size, 1, 3, move |number| if number == 1 { Fault::Corrupt(place) } else { Fault::None });
            // A frame that no longer looks like a test frame counts as foreign.
            assert_eq!(report.corrupted + report.foreign, 1, "size {size}, byte {place}: {report}");
            assert_eq!(report.lost, 1);
        }
    }
}

#[test]
fn a_missing_byte_is_seen() {
    for size in [33, 61, 1514] {
        let report = through(size, 1, 3, |number| if number == 1 { Fault::Shorten } else { Fault::None });
        assert_eq!((report.corrupted, report.lost), (1, 1), "size {size}: {report}");
    }
}

#[test]
fn the_payload_of_an_earlier_frame_is_seen() {
    let mut frames = frames(200, 1);
    let (old, mut new) = (frames.next_frame(), frames.next_frame());
    new[60..].copy_from_slice(&old[60..]);
    let mut checker = Checker::new(Level::Full, Origin::Zero);
    checker.see(&new);
    assert_eq!(checker.report().corrupted, 1);
    // The header alone is correct.
    let mut checker = Checker::new(Level::Sequence, Origin::FirstSeen);
    checker.see(&new);
    assert!(checker.report().is_clean());
}

#[test]
fn a_constant_payload_is_checked_as_such() {
    let spec = FrameSpec { size: 300, payload: Payload::Constant, ..FrameSpec::default() };
    let mut frames = Frames::new(&spec).expect("valid");
    let mut checker = Checker::new(Level::Full, Origin::Zero);
    let first = frames.next_frame();
    let mut second = frames.next_frame();
    assert_eq!(first[60..], second[60..]);
    checker.see(&first);
    checker.see(&second);
    assert!(checker.report().is_clean());
    second[299] ^= 1;
    checker.see(&second);
    assert_eq!(checker.report().corrupted, 1);
}

#[test]
fn two_senders_are_told_apart() {
    let sender = |stream| Frames::new(&FrameSpec { stream: Some(stream), ..FrameSpec::default() }).expect("valid");
    let (mut one, mut two) = (sender(1), sender(2));
    let mut checker = Checker::new(Level::Full, Origin::Zero);
    for _ in 0..10 {
        checker.see(&one.next_frame());
        checker.see(&two.next_frame());
    }
    drop(two.next_frame());
    checker.see(&two.next_frame());
    assert_eq!(checker.report().flows, 2);
    assert_eq!(checker.flow_report(1, 0).map(|flow| (flow.frames, flow.lost)), Some((10, 0)));
    assert_eq!(checker.flow_report(2, 0).map(|flow| (flow.frames, flow.lost)), Some((11, 1)));
    assert_eq!(checker.flow_report(3, 0), None);
}

#[test]
fn what_is_not_ours_is_foreign_and_never_a_panic() {
    let mut checker = Checker::new(Level::Full, Origin::Zero);
    let mut count = 0;
    for len in 0..100 {
        for byte in [0x00, 0x52, 0xff] {
            checker.see(&vec![byte; len]);
            count += 1;
        }
    }
    assert_eq!(checker.report().foreign, count);
}

#[test]
fn a_receiver_that_joins_late_can_start_where_it_joins() {
    let mut frames = frames(60, 1);
    (0..500).for_each(|_| drop(frames.next_frame()));
    let mut from_zero = Checker::new(Level::Sequence, Origin::Zero);
    let mut from_first = Checker::new(Level::Sequence, Origin::FirstSeen);
    for _ in 0..10 {
        let frame = frames.next_frame();
        from_zero.see(&frame);
        from_first.see(&frame);
    }
    assert_eq!((from_zero.report().lost, from_first.report().lost), (500, 0));
}

#[test]
fn the_number_of_flows_followed_is_bounded() {
    let mut checker = Checker::new(Level::Sequence, Origin::Zero);
    for stream in [1, 2] {
        let spec = FrameSpec { flows: MAX_TRACKED, stream: Some(stream), ..FrameSpec::default() };
        let mut frames = Frames::new(&spec).expect("valid");
        (0..MAX_TRACKED).for_each(|_| checker.see(&frames.next_frame()));
    }
    let report = checker.report();
    assert_eq!((report.flows, report.untracked, report.lost), (MAX_TRACKED as u64, MAX_TRACKED as u64, 0));
}

#[test]
fn several_destinations_are_used_in_turn_with_their_own_sequences() {
    let destinations: Vec<_> = (10..13).map(Mac::local).collect();
    let spec = FrameSpec { destinations: destinations.clone(), flows: 2, ..FrameSpec::default() };
    let mut frames = Frames::new(&spec).expect("valid");
    let mut checkers = [(); 3].map(|()| Checker::new(Level::Full, Origin::Zero));
    for number in 0..60 {
        let frame = frames.next_frame();
        assert_eq!(frame[..6], destinations[number % 3].0);
        checkers[number % 3].see(&frame);
    }
    for checker in checkers {
        let report = checker.report();
        assert!(report.is_clean() && report.flows == 2, "{report}");
    }
}

/// A model of [`Flow`]'s window that uses sets.
#[derive(Default)]
struct Model {
    seen: HashSet<u64>,
    highest: u64,
    reordered: u64,
    duplicated: u64,
    stale: u64,
}

impl Model {
    fn see(&mut self, sequence: u64) {
        if self.seen.is_empty() || sequence > self.highest {
            self.highest = sequence;
        } else if self.highest - sequence >= WINDOW {
            self.stale += 1;
            return;
        } else if self.seen.contains(&sequence) {
            self.duplicated += 1;
            return;
        } else {
            self.reordered += 1;
        }
        self.seen.insert(sequence);
    }
}

proptest! {
    #[test]
    fn a_flow_counts_as_the_model_does(
        steps in prop::collection::vec(
            prop_oneof![8 => Just(1i64), 3 => -70i64..70, 1 => -1100i64..1100, 1 => -3000i64..5000], 1..600
        )
    ) {
        let (mut flow, mut model) = (Flow::default(), Model::default());
        let mut sequence = 3000u64;
        for step in steps {
            sequence = sequence.saturating_add_signed(step);
            flow.see(sequence);
            model.see(sequence);
        }
        let lowest = model.seen.iter().min().copied().unwrap_or(0);
        prop_assert_eq!(flow.reordered, model.reordered);
        prop_assert_eq!(flow.duplicated, model.duplicated);
        prop_assert_eq!(flow.stale, model.stale);
        prop_assert_eq!(flow.distinct, model.seen.len() as u64);
        prop_assert_eq!(flow.lost(Origin::Zero), model.highest + 1 - model.seen.len() as u64);
        prop_assert_eq!(flow.lost(Origin::FirstSeen), model.highest + 1 - lowest - model.seen.len() as u64);
    }

    #[test]
    fn any_bytes_are_looked_at_without_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..120), kind in 0..3) {
        if bytes.len() > 44 {
            match kind {
                0 => bytes[12..14].copy_from_slice(&wire::TYPE_LOCAL),
                1 => {
                    bytes[12..14].copy_from_slice(&wire::TYPE_IPV4);
                    bytes[36..38].copy_from_slice(&wire::UDP_PORT);
                    bytes[42..44].copy_from_slice(&wire::MAGIC_VARYING);
                }
                _ => {}
            }
        }
        let mut checker = Checker::new(Level::Full, Origin::FirstSeen);
        checker.see(&bytes);
        let report = checker.report();
        prop_assert_eq!(report.flows + report.corrupted + report.foreign + report.unsequenced, 1);
    }
}
