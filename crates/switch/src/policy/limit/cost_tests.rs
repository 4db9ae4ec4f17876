//! A frame that needs segmentation costs as much as its segments on a wire.

use std::sync::Arc;

use crate::policy::{Bucket, Egress, Excess, Limit, Policy, Rates, Shared, Storm};
use crate::testing::samples::Sample;
use crate::testing::{Lan, Plan, frame, mac};
use crate::{DropReason, Mac, Member};

/// The cost of one of the frames, with headers of 66 bytes each.
const SEGMENTS: u64 = 14;
const BYTES: u64 = 20_000 + SEGMENTS * 66;

/// Limits of a unit a second with these bursts.
fn rates(bytes: Option<u64>, frames: Option<u64>) -> Rates {
    Rates { bits: bytes.map(|bytes| Bucket::new(1, bytes * 8)), frames: frames.map(|frames| Bucket::new(1, frames)) }
}

fn limit(own: Rates, excess: Excess, shared: Option<&Arc<Shared>>) -> Limit {
    let mut limit = Limit::new(own);
    (limit.shared, limit.excess) = (shared.cloned(), excess);
    limit
}

/// Ports 0 and 1 with these policies.
fn lan(policies: [Policy; 2]) -> Lan {
    let give = move |member: Member| {
        let policy = policies.get(usize::from(member.owner.index())).cloned().and_then(Policy::in_use);
        Member { policy, ..member }
    };
    Plan { bytes: 8 << 20, change: Box::new(give), ..Plan::new(2) }.map()
}

/// Sends ten such frames from port 0 to port 1 or to all, this many at once. Returns the number of frames that arrived,
/// and their bytes.
fn send(policies: [Policy; 2], to: Mac, most: usize) -> (Lan, (u64, u64)) {
    let mut lan = lan(policies);
    lan.work = crate::Workspace::new(most);
    let (mut bytes, offload) = Sample { payload: vec![7; 20_000], ..Sample::default() }.build();
    bytes[..6].copy_from_slice(&to.octets());
    (0..10).for_each(|_| lan.offers[0].put_offloaded(&bytes, &[], Some(offload)));
    while lan.pass(0).frames > 0 {}
    let received = lan.received(1);
    let sum = received.iter().map(|frame| frame.len() as u64).sum();
    (lan, (received.len() as u64, sum))
}

fn egress(limit: Limit) -> (Arc<Egress>, [Policy; 2]) {
    let egress = Arc::new(Egress::new(limit));
    (Arc::clone(&egress), [Policy::default(), Policy { egress: Some(egress), ..Policy::default() }])
}

/// Bursts of bytes and frames, and how many of the ten frames pass: the last is the one that begins within the limit.
const LIMITS: [(Option<u64>, Option<u64>, u64); 4] = [
    (None, Some(2 * SEGMENTS), 2),
    (None, Some(2 * SEGMENTS + 1), 3),
    (Some(2 * BYTES), None, 2),
    (Some(2 * BYTES + 1), None, 3),
];

#[test]
fn segments_are_counted_by_a_senders_limit_and_a_receivers_limit_and_storm_control() {
    for (bytes, frames, given) in LIMITS {
        let wanted = (given * SEGMENTS, given * BYTES);
        for (excess, most) in [(Excess::Drop, 64), (Excess::Drop, 1), (Excess::Wait, 64), (Excess::Wait, 1)] {
            let limit = || limit(rates(bytes, frames), excess, None);
            let refused = if excess == Excess::Drop { 10 - given } else { 0 };
            let what = format!("{bytes:?} {frames:?} {excess:?}, {most} at a time");

            let ingress = Arc::new(limit());
            let policy = Policy { ingress: Some(Arc::clone(&ingress)), ..Policy::default() };
            let (lan, came) = send([policy, Policy::default()], mac(1), most);
            let tally = ingress.tally().read();
            assert_eq!((came, (tally.frames, tally.bytes)), (wanted, wanted), "sender: {what}");
            assert_eq!(lan.dropped(0, DropReason::RateLimited), refused, "{what}");
            assert_eq!(lan.offers[0].is_empty(), excess == Excess::Drop, "{what}");

            let (egress, policies) = egress(limit());
            let (lan, came) = send(policies, mac(1), most);
            let tally = egress.limit().tally().read();
            assert_eq!((came, (tally.frames, tally.bytes)), (wanted, wanted), "receiver: {what}");
            assert_eq!(lan.dropped(1, DropReason::EgressLimited), refused, "{what}");
            assert_eq!(lan.offers[0].is_empty(), excess == Excess::Drop, "{what}");
        }
        let storm = Arc::new(Storm::new(rates(bytes, frames), Rates::default(), Rates::default()));
        let policy = Policy { storm: Some(Arc::clone(&storm)), ..Policy::default() };
        let (lan, came) = send([policy, Policy::default()], Mac::BROADCAST, 64);
        let tally = storm.tallies()[0].read();
        assert_eq!((came, (tally.frames, tally.bytes)), (wanted, wanted));
        assert_eq!(lan.dropped(0, DropReason::StormLimited), 10 - given);
    }
}

#[test]
fn a_shared_bucket_with_enough_in_it_lets_any_batch_pass() {
    let shared = Arc::new(Shared::new(rates(Some(8 << 20), None)));
    let limit = || limit(Rates::default(), Excess::Drop, Some(&shared));
    let ingress = Policy { ingress: Some(Arc::new(limit())), ..Policy::default() };
    let (_, policies) = egress(limit());
    for policies in [[ingress, Policy::default()], policies] {
        let mut lan = lan(policies);
        // Short frames first, so that the estimated length of the next ones is wrong.
        for (len, count) in [(60, 256), (1514, 512)] {
            (0..count).for_each(|number| lan.offers[0].put(&frame(mac(1), mac(0), len, number), &[]));
            while !lan.offers[0].is_empty() {
                lan.pass(0);
            }
            assert_eq!(lan.received(1).len(), count as usize, "{len} bytes");
        }
    }
}
