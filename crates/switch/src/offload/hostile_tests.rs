//! Frames of hostile senders, to receivers that accept any part of their offloads, in VLANs of all kinds.

use proptest::prelude::*;

use super::hostile::{Hostile, accepts, hostile};
use super::reading::Reading;
use super::samples::complete;
use super::{Accepts, Gso};
use crate::policy::{Bound, Domain, Membership, Rules};
use crate::testing::{Lan, Plan};
use crate::{DropReason, Member};

/// How tags change on the way from port 0 to port 1.
#[derive(Clone, Copy, Debug)]
enum Tags {
    /// There are no VLANs.
    Kept,
    /// Put on.
    Added,
    /// Taken off, where there is one.
    Removed,
}

fn lan(tags: Tags, accepts: Accepts) -> Lan {
    let all = || Membership::trunk(1..4095, Some(9));
    let change = move |member: Member| {
        let vlans = match (tags, member.owner.index()) {
            (Tags::Added, 0) => all(),
            (Tags::Added, _) => Membership::trunk(1..4095, None),
            (_, 0) => Membership::trunk(1..4095, None),
            // What is not untagged is told apart from the others.
            _ => all(),
        };
        Member { vlans, ..member }
    };
    let mut lan = Plan { change: Box::new(change), bytes: 1 << 20, ..Plan::new(2) }.map();
    let vlans = !matches!(tags, Tags::Kept);
    let bound = Bound::new(lan.switch.members());
    lan.switch = lan.switch.within(Domain { bound, rules: Rules::ALLOW, vlans });
    lan.sink(1, |kept| kept.accepts = accepts);
    lan
}

/// Every frame that was taken reached its receiver, in a piece at least, or was counted.
fn conserve(lan: &Lan, sent: u64, received: usize) {
    let drops = |port: u16| lan.counters(port).drops().map(|(_, count)| count).sum::<u64>();
    assert_eq!(lan.counters(0).in_frames, sent);
    assert_eq!(lan.counters(1).out_frames, received as u64);
    assert!(drops(0) + drops(1) <= sent, "counted twice");
    assert!(received as u64 + drops(0) + drops(1) >= sent, "{sent} frames, {received} received");
}

/// No header is too long for the code that cuts it, or gets too long by a tag.
#[test]
fn frames_with_headers_of_any_length_are_cut_or_refused() {
    let mut all = Vec::new();
    for tags in 0..4usize {
        for options in 0..11 {
            all.push((tags, None, options));
        }
        for bytes in 0..12u8 {
            all.push((tags, Some(if bytes == 0 { vec![] } else { vec![(60, bytes - 1)] }), 0));
        }
    }
    for (tags, extensions, options) in all {
        for (protocol, words) in (5..16).map(|words| (6, words)).chain([(17, 0)]) {
            for gso in [Gso::Tcp4, Gso::Tcp6, Gso::Udp4Frag, Gso::UdpL4] {
                for way in [Tags::Kept, Tags::Added, Tags::Removed] {
                    // From no tag at all to stacked ones.
                    let tags = vec![(if tags > 2 { 0x88a8 } else { 0x8100 }, 9); tags];
                    let extensions = extensions.clone();
                    let one = Hostile { tags, extensions, options, protocol, words, gso, ..Hostile::default() };
                    let (bytes, offload) = one.build();
                    for accepts in [Accepts::NOTHING, Accepts::CSUM] {
                        let mut lan = lan(way, accepts);
                        lan.offers[0].put_offloaded(&bytes, &[200, 30], Some(offload));
                        lan.pass(0);
                        let received = lan.received_offloaded(1);
                        conserve(&lan, 1, received.len());
                        if lan.counters(0).drops().next().is_none() {
                            assert!(received.len() >= 10, "{} of {one:?} by {way:?}", received.len());
                        }
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    /// Whatever is sent, and whatever the receiver accepts.
    #[test]
    fn no_frame_ends_a_pass_or_is_lost_without_being_counted(
        sent in proptest::collection::vec((hostile(), proptest::collection::vec(1..300usize, 0..4)), 1..40),
        way in prop_oneof![Just(Tags::Kept), Just(Tags::Added), Just(Tags::Removed)],
        accepts in accepts(),
    ) {
        let mut lan = lan(way, accepts);
        for (one, pieces) in &sent {
            let (bytes, offload) = one.build();
            lan.offers[0].put_offloaded(&bytes, pieces, Some(offload));
        }
        while !lan.offers[0].is_empty() {
            lan.pass(0);
        }
        let received = lan.received_offloaded(1);
        conserve(&lan, sent.len() as u64, received.len());
        prop_assert_eq!(lan.dropped(1, DropReason::BadOffload), 0, "admission finds what cannot be finished");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    /// Of what policy judges no byte is another when a frame is delivered, whatever its sender left undone; of one that is not cut
    /// only the own checksum field of its transport header may be.
    #[test]
    fn what_was_judged_is_what_is_delivered(
        one in hostile(),
        pieces in proptest::collection::vec(1..300usize, 0..4),
        way in prop_oneof![Just(Tags::Kept), Just(Tags::Added), Just(Tags::Removed)],
        accepts in accepts(),
    ) {
        let mut lan = lan(way, accepts);
        let (bytes, offload) = one.build();
        lan.offers[0].put_offloaded(&bytes, &pieces, Some(offload));
        lan.pass(0);
        let judged = Reading::of(&bytes);
        for (mut frame, left) in lan.received_offloaded(1) {
            // What the receiver will make of it itself.
            if let Some(left) = left.filter(|left| left.needs_csum) {
                complete(&mut frame, &left);
            }
            let tag = |frame: &[u8]| frame.get(12..14) == Some(&[0x81, 0]);
            let told = match way {
                Tags::Added if !tag(&bytes) => [&frame[..12], &frame[16..]].concat(),
                Tags::Removed if tag(&bytes) && frame.len() + 4 <= bytes.len() + 8 && !same_tag(&frame, &bytes) => {
                    [&frame[..12], &bytes[12..16], &frame[12..]].concat()
                }
                _ => frame.clone(),
            };
            let mut found = Reading::of(&told);
            // A fragment but the first has no transport header.
            if offload.gso == Gso::Udp4Frag && found.transport.is_none() {
                found.transport = judged.transport;
            }
            // A tag without a number gets one.
            if judged.tags.first().is_some_and(|tag| tag & 0xfff == 0) && !found.tags.is_empty() {
                found.tags[0] = judged.tags[0];
            }
            prop_assert_eq!(&found, &judged, "{:?}", frame);
            if offload.gso == Gso::None {
                prop_assert_eq!(told.len(), bytes.len());
                let own = one.transport() + match one.protocol { 6 => 16, 17 => 6, _ => 4 };
                let other = |at: &usize| told[*at] != bytes[*at] && !(14..16).contains(at);
                let changed: Vec<usize> = (0..bytes.len()).filter(other).collect();
                prop_assert!(
                    !one.changes.is_empty() || changed.iter().all(|at| (own..own + 2).contains(at)),
                    "{changed:?} but not {own}"
                );
            }
        }
    }
}

/// Whether a frame still has the tag that it was sent with.
fn same_tag(frame: &[u8], sent: &[u8]) -> bool {
    frame.get(12..14) == sent.get(12..14)
        && frame.get(14..16).is_some_and(|tag| tag[0] & 0x0f == sent[14] & 0x0f && tag[1] == sent[15])
}

/// Of 200 frames the first 150 cannot be cut any more once they have a tag.
#[test]
fn frames_behind_many_that_cannot_be_finished_arrive() {
    let bad = Hostile { gso: Gso::Udp4Frag, ..Hostile::default() };
    for (tags, stretch) in [(0, 6), (1, 6), (2, 6), (3, 5)] {
        let bad = Hostile { tags: vec![(0x88a8, 9); tags], extensions: Some(vec![(60, stretch)]), ..bad.clone() };
        let good = Hostile { extensions: None, ..bad.clone() };
        let mut lan = lan(Tags::Added, Accepts::NOTHING);
        for number in 0..200 {
            let (bytes, offload) = if number < 150 { bad.build() } else { good.build() };
            lan.offers[0].put_offloaded(&bytes, &[], Some(offload));
        }
        while !lan.offers[0].is_empty() {
            lan.pass(0);
        }
        let received = lan.received(1).len();
        conserve(&lan, 200, received);
        assert!(received >= 50 * 10, "{received} pieces of 50 frames behind {tags} tags");
    }
}
