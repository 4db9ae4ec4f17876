//! The counters of limits agree with the counters of frames.

use std::sync::Arc;

use crate::policy::{Bucket, Egress, Excess, Limit, Policy, Rates, Shared, Storm, Tally, TallyReading};
use crate::testing::{Lan, Plan, frame, mac};
use crate::{DropReason, Mac, Member};

/// Limits of a unit a second with these bursts.
fn rates(bytes: Option<u64>, frames: Option<u64>) -> Rates {
    Rates { bits: bytes.map(|bytes| Bucket::new(1, bytes * 8)), frames: frames.map(|frames| Bucket::new(1, frames)) }
}

fn limit(own: Rates, shared: Option<&Arc<Shared>>, excess: Excess) -> Limit {
    let mut limit = Limit::new(own);
    (limit.shared, limit.excess) = (shared.cloned(), excess);
    limit
}

fn lan(policies: [Policy; 2]) -> Lan {
    let give = move |member: Member| {
        let policy = policies.get(usize::from(member.owner.index())).cloned().and_then(Policy::in_use);
        Member { policy, ..member }
    };
    Plan { change: Box::new(give), ..Plan::new(3) }.map()
}

fn ingress(limit: &Arc<Limit>) -> Policy {
    Policy { ingress: Some(Arc::clone(limit)), ..Policy::default() }
}

/// Sends this many frames of 100 bytes from port 0 to port 1.
fn send(lan: &mut Lan, frames: u32) {
    for number in 0..frames {
        lan.offers[0].put(&frame(mac(1), mac(0), 100, number), &[]);
    }
    while lan.pass(0).frames > 0 && !lan.offers[0].is_empty() {}
}

fn passed(tally: &Tally) -> (u64, u64) {
    let now = tally.read();
    (now.frames, now.bytes)
}

#[test]
fn a_senders_limit_counts_what_it_let_pass_and_of_what_it_had_no_more() {
    for (own, refused) in [
        (rates(Some(300), None), TallyReading { refused_bits: 7, ..TallyReading::default() }),
        (rates(None, Some(3)), TallyReading { refused_frames: 7, ..TallyReading::default() }),
        (rates(Some(500), Some(3)), TallyReading { refused_frames: 7, ..TallyReading::default() }),
        (rates(Some(300), Some(5)), TallyReading { refused_bits: 7, ..TallyReading::default() }),
    ] {
        let limit = Arc::new(limit(own, None, Excess::Drop));
        let mut lan = lan([ingress(&limit), Policy::default()]);
        send(&mut lan, 4);
        send(&mut lan, 6);
        assert_eq!(limit.tally().read(), TallyReading { frames: 3, bytes: 300, ..refused });
        assert_eq!(lan.dropped(0, DropReason::RateLimited), limit.tally().read().refused());
        // With other settings the counters continue.
        let after = Limit::new(Rates::default()).continuing(&limit);
        assert_eq!(passed(after.tally()), (3, 300));
    }
}

#[test]
fn a_shared_bucket_counts_all_that_its_ports_sent_and_what_it_and_not_their_ceilings_refused() {
    let shared = Arc::new(Shared::new(rates(Some(500), None)));
    let free = Arc::new(limit(Rates::default(), Some(&shared), Excess::Drop));
    let mut bounded = limit(Rates::default(), Some(&shared), Excess::Drop);
    bounded.ceiling = rates(Some(200), None).bits;
    let bounded = Arc::new(bounded);
    let mut one = lan([ingress(&bounded), Policy::default()]);
    send(&mut one, 10);
    let mut other = lan([ingress(&free), Policy::default()]);
    send(&mut other, 10);
    let of = |limit: &Limit| {
        let now = limit.tally().read();
        [now.frames, now.refused_bits, now.refused_shared_bits]
    };
    assert_eq!((of(&bounded), of(&free)), ([2, 8, 0], [3, 0, 7]));
    let all = shared.tally().read();
    assert_eq!([all.frames, all.bytes, all.refused_shared_bits, all.refused()], [5, 500, 7, 7]);
    let after = shared.changed(Rates::default());
    assert_eq!(passed(after.tally()), (5, 500));
    // A limit of frames instead of bits.
    let shared = Arc::new(Shared::new(rates(Some(9000), Some(4))));
    let free = Arc::new(limit(Rates::default(), Some(&shared), Excess::Drop));
    send(&mut lan([ingress(&free), Policy::default()]), 10);
    assert_eq!((free.tally().read().refused_shared_frames, shared.tally().read().refused_shared_frames), (6, 6));
}

#[test]
fn a_receivers_limit_counts_what_is_refused_unseen_as_well() {
    let egress = Arc::new(Egress::new(Limit::new(rates(None, Some(20)))));
    let mut lan = lan([Policy::default(), Policy { egress: Some(Arc::clone(&egress)), ..Policy::default() }]);
    lan.work = crate::Workspace::new(16);
    send(&mut lan, 1000);
    assert!(lan.offers[0].dropped_alike > 0);
    let wanted = TallyReading { frames: 20, bytes: 2000, refused_frames: 980, ..TallyReading::default() };
    assert_eq!(egress.limit().tally().read(), wanted);
    assert_eq!(lan.dropped(1, DropReason::EgressLimited), 980);
}

/// Limits of senders and of a receiver, and their shared bucket.
type Limits = [(Arc<Limit>, [Policy; 2]); 3];

/// Limits of 100 bytes a second that make senders wait: a sender's own, a shared one and a receiver's own; and the
/// shared bucket.
fn waiting_limits() -> (Limits, Arc<Shared>) {
    let slow = || Rates { bits: Some(Bucket::new(800, 2400)), frames: None };
    let shared = Arc::new(Shared::new(slow()));
    let own = Arc::new(limit(slow(), None, Excess::Wait));
    let lent = Arc::new(limit(Rates::default(), Some(&shared), Excess::Wait));
    // Another limit with the same counters.
    let given = limit(slow(), None, Excess::Wait);
    let account = Arc::new(limit(Rates::default(), None, Excess::Wait).continuing(&given));
    let egress = Policy { egress: Some(Arc::new(Egress::new(given))), ..Policy::default() };
    let [first, second] = [&own, &lent].map(|limit| [ingress(limit), Policy::default()]);
    ([(own, first), (lent, second), (account, [Policy::default(), egress])], shared)
}

#[test]
fn waiting_is_counted_at_the_limit_and_at_the_bucket_that_caused_it_when_something_has_passed() {
    const SECOND: u64 = 1_000_000_000;
    let (limits, shared) = waiting_limits();
    for (limit, policies) in &limits {
        let mut lan = lan(policies.clone());
        for number in 0..4 {
            lan.offers[0].put(&frame(mac(1), mac(0), 1000, number), &[]);
        }
        let (mut waits, mut waited, mut open) = (0, 0, 0);
        while !lan.offers[0].is_empty() {
            let now = u64::from(lan.now) * SECOND;
            let passed = lan.pass(0);
            if passed.frames > 0 && open > 0 {
                (waits, waited, open) = (waits + 1, waited + open, 0);
            }
            // Visits come more often than planned, as after a change of the configuration.
            if let Some(until) = passed.until.filter(|_| !lan.offers[0].is_empty()) {
                open += until.min(now + SECOND) - now;
            }
            let tally = limit.tally().read();
            assert_eq!((tally.waits, tally.waited, tally.refused()), (waits, waited, 0));
            lan.now += 1;
        }
        assert_eq!(waits, 3);
        assert!(waited > 20 * SECOND, "{waited}");
    }
    let (lent, shared) = (limits[1].0.tally().read(), shared.tally().read());
    assert_eq!((shared.waits, shared.waited), (lent.waits, lent.waited));
}

#[test]
fn a_sender_that_has_nothing_more_does_not_wait() {
    let ([own, lent, _], _) = waiting_limits();
    for (limit, policies) in [own, lent] {
        let mut lan = lan(policies);
        for number in 0..5 {
            lan.offers[0].put(&frame(mac(1), mac(0), 1000, number), &[]);
            let passed = lan.pass(0);
            assert!(lan.offers[0].is_empty() && passed.until.is_some());
            for _ in 0..20 {
                // Some visits find no frames.
                if number.is_multiple_of(2) {
                    lan.pass(0);
                }
                lan.now += 1;
            }
        }
        let tally = limit.tally().read();
        assert_eq!((tally.frames, tally.waits, tally.waited), (5, 0, 0));
    }
}

#[test]
fn a_client_that_went_while_its_frames_waited_waits_no_longer_than_it_was_to() {
    let ([(limit, policies), ..], _) = waiting_limits();
    let mut lan = lan(policies);
    for number in 0..2 {
        lan.offers[0].put(&frame(mac(1), mac(0), 1000, number), &[]);
    }
    let until = lan.pass(0).until.expect("the second waits");
    let planned = until - u64::from(lan.now) * 1_000_000_000;
    lan.offers[0] = crate::testing::Offer::new(4096);
    lan.now += 3600;
    lan.offers[0].put(&frame(mac(1), mac(0), 1000, 2), &[]);
    assert_eq!(lan.pass(0).frames, 1);
    assert_eq!(limit.tally().read().waited, planned);
}

#[test]
fn storm_control_counts_by_class() {
    let storm = Arc::new(Storm::new(rates(None, Some(2)), Rates::default(), Rates::default()));
    let mut lan = lan([Policy { storm: Some(Arc::clone(&storm)), ..Policy::default() }, Policy::default()]);
    for number in 0..10 {
        lan.offers[0].put(&frame(Mac::BROADCAST, mac(0), 60, number), &[]);
        lan.offers[0].put(&frame(Mac::new([1, 0, 0x5e, 0, 0, 1]), mac(0), 60, number), &[]);
    }
    lan.pass(0);
    let tallies = storm.tallies().each_ref().map(|tally| (tally.read().frames, tally.read().refused()));
    assert_eq!(tallies, [(2, 8), (10, 0), (0, 0)]);
    assert_eq!(lan.dropped(0, DropReason::StormLimited), 8);
    let after = Storm::default().continuing(&storm);
    assert_eq!(after.tallies()[0].read().refused_frames, 8);
}
