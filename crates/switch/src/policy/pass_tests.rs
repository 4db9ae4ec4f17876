//! Tests of limits in a pass.

use std::sync::Arc;

use super::{Bucket, Checks, Egress, Excess, Guard, Limit, Policy, Rates, Shared, Storm};
use crate::testing::{Lan, Plan, frame, group, mac, number};
use crate::{DropReason, FloodAction, FloodPolicy, Mac, Member};

/// A limit of a frame a second with this burst of frames. Filling begins in the second of `Bucket::new`.
fn frames(burst: u64, excess: Excess) -> Limit {
    let mut limit = Limit::new(Rates { bits: None, frames: Some(Bucket::new(1, burst)) });
    limit.excess = excess;
    limit
}

fn bytes(burst: u64, excess: Excess) -> Limit {
    let mut limit = Limit::new(Rates { bits: Some(Bucket::new(8_000, burst * 8)), frames: None });
    limit.excess = excess;
    limit
}

/// Ports 0 to 3. One of them has this policy.
fn lan(port: u16, policy: Policy) -> Lan {
    let give = move |member: Member| {
        let policy = (member.owner.index() == port).then(|| policy.clone());
        Member { policy, ..member }
    };
    Plan { change: Box::new(give), ..Plan::new(4) }.map()
}

fn ingress(limit: Limit) -> Lan {
    lan(0, Policy { ingress: Some(Arc::new(limit)), ..Policy::default() })
}

fn egress(limit: Limit) -> Lan {
    lan(1, Policy { egress: Some(Arc::new(Egress::new(limit))), ..Policy::default() })
}

fn put(lan: &mut Lan, to: Mac, len: usize, numbers: std::ops::Range<u32>) {
    for number in numbers {
        lan.offers[0].put(&frame(to, mac(0), len, number), &[]);
    }
}

fn numbers(lan: &Lan, port: u16) -> Vec<u32> {
    lan.received(port).iter().map(|frame| number(frame)).collect()
}

#[test]
fn what_is_more_than_a_port_may_send_is_dropped_and_counted_at_it() {
    let mut lan = ingress(bytes(3000, Excess::Drop));
    put(&mut lan, mac(1), 1000, 0..10);
    let passed = lan.pass(0);
    assert_eq!((passed.frames, passed.until), (10, None));
    // The third frame uses up the tokens exactly.
    assert_eq!(numbers(&lan, 1), [0, 1, 2]);
    assert_eq!(lan.dropped(0, DropReason::RateLimited), 7);
    assert_eq!((lan.counters(0).in_frames, lan.counters(0).in_bytes), (10, 10_000));
    // A thousand bytes a second: one frame.
    lan.now += 1;
    put(&mut lan, mac(1), 1000, 10..13);
    assert_eq!(lan.pass(0).frames, 3);
    assert_eq!(numbers(&lan, 1), [10]);
    lan.offers[0].put(&frame(mac(1), mac(0), 60, 99), &[]);
    lan.pass(0);
    assert_eq!(lan.dropped(0, DropReason::RateLimited), 10);
}

#[test]
fn what_is_rejected_counts_so_that_a_flood_of_it_is_held_to_the_limit_too() {
    for (from, to, reason) in [(7, mac(1), DropReason::SpoofedMac), (0, mac(99), DropReason::NoDestination)] {
        let guard = Guard::new(Checks { mac: true, ..Checks::NONE }, &[mac(0)], &[]);
        let limit = frames(3, Excess::Drop);
        let policy = Policy { guard: Some(Arc::new(guard)), ingress: Some(Arc::new(limit)), ..Policy::default() };
        let mut lan = lan(0, policy);
        for number in 0..10 {
            lan.offers[0].put(&frame(to, mac(from), 60, number), &[]);
        }
        put(&mut lan, mac(1), 60, 10..11);
        assert_eq!(lan.pass(0).frames, 11);
        assert_eq!((lan.dropped(0, reason), lan.dropped(0, DropReason::RateLimited)), (3, 8));
        assert_eq!(numbers(&lan, 1), []);
        lan.now += 1;
        put(&mut lan, mac(1), 60, 11..12);
        lan.pass(0);
        assert_eq!(numbers(&lan, 1), [11]);
    }
}

#[test]
fn a_flood_is_dropped_a_few_at_a_time_so_that_others_have_their_turn_in_between() {
    let mut lan = ingress(frames(3, Excess::Drop));
    put(&mut lan, mac(1), 60, 0..200);
    let passed: Vec<u64> = (0..3).map(|_| lan.pass(0).frames).collect();
    assert_eq!(passed, [128, 72, 0]);
    assert_eq!(numbers(&lan, 1), [0, 1, 2]);
    assert_eq!(lan.dropped(0, DropReason::RateLimited), 197);
}

#[test]
fn receivers_are_told_of_batches_whose_sender_has_waited_and_of_no_others() {
    let waited = |excess| {
        let mut lan = ingress(bytes(3000, excess));
        let mut passes = Vec::new();
        // Three pass at once, one a second later, and the last together with a new one. Then no frame waits.
        for (numbers, seconds) in [(0..5, 0), (5..5, 1), (5..6, 9), (6..7, 9)] {
            put(&mut lan, mac(1), 1001, numbers);
            lan.now += seconds;
            lan.pass(0);
            passes.push(lan.sink(1, |kept| (std::mem::take(&mut kept.waited), std::mem::take(&mut kept.frames).len())));
        }
        passes
    };
    assert_eq!(waited(Excess::Wait), [(0, 3), (1, 1), (2, 2), (0, 1)]);
    assert_eq!(waited(Excess::Drop), [(0, 3), (0, 0), (0, 1), (0, 1)]);
}

#[test]
fn what_waits_stays_with_its_sender_and_comes_in_order() {
    let mut lan = ingress(bytes(3000, Excess::Wait));
    put(&mut lan, mac(1), 1001, 0..5);
    let passed = lan.pass(0);
    assert_eq!(passed.frames, 3);
    let until = passed.until.expect("the others wait");
    assert!(until > u64::from(lan.now) * 1_000_000_000);
    assert_eq!(lan.pass(0).frames, 0);
    lan.now += 3;
    assert_eq!(lan.pass(0).frames, 2);
    assert_eq!(numbers(&lan, 1), [0, 1, 2, 3, 4]);
    assert_eq!(lan.counters(0).drops().count(), 0);
    assert_eq!(lan.counters(0).in_frames, 5);
}

#[test]
fn what_else_came_up_is_told_while_nothing_may_pass() {
    for (excess, waiting) in [(Excess::Wait, 1), (Excess::Wait, 0), (Excess::Drop, 0)] {
        let mut lan = ingress(bytes(60, excess));
        put(&mut lan, mac(1), 9014, 0..1 + waiting);
        assert_eq!(lan.pass(0).frames, 1);
        lan.sink(0, |kept| kept.rings = 0);
        lan.offers[0].news = true;
        assert_eq!(lan.pass(0).frames, 0);
        assert_eq!((lan.sink(0, |kept| kept.rings), lan.offers[0].news), (1, false), "{excess:?}");
        // There was no event since.
        lan.pass(0);
        assert_eq!(lan.sink(0, |kept| kept.rings), 1);
    }
}

#[test]
fn a_frame_longer_than_the_burst_passes_and_is_paid_for() {
    let mut lan = ingress(bytes(1514, Excess::Wait));
    put(&mut lan, mac(1), 9014, 0..2);
    assert_eq!(lan.pass(0).frames, 1);
    lan.now += 7;
    assert_eq!(lan.pass(0).frames, 0);
    lan.now += 1;
    assert_eq!(lan.pass(0).frames, 1);
}

#[test]
fn a_port_is_given_the_first_frames_flooded_ones_among_them_in_order() {
    let mut lan = egress(frames(5, Excess::Drop));
    for number in 0..8 {
        let to = if number % 2 == 0 { mac(1) } else { Mac::BROADCAST };
        put(&mut lan, to, 60, number..number + 1);
    }
    lan.pass(0);
    assert_eq!(numbers(&lan, 1), [0, 1, 2, 3, 4]);
    assert_eq!(numbers(&lan, 2), [1, 3, 5, 7]);
    assert_eq!(lan.dropped(1, DropReason::EgressLimited), 3);
    put(&mut lan, mac(1), 60, 8..9);
    lan.pass(0);
    assert_eq!((numbers(&lan, 1).len(), lan.dropped(1, DropReason::EgressLimited)), (0, 4));
}

#[test]
fn what_has_to_wait_for_its_receiver_stays_with_its_sender_and_all_after_it() {
    let mut lan = egress(frames(2, Excess::Wait));
    put(&mut lan, mac(2), 60, 0..1);
    put(&mut lan, mac(1), 60, 1..4);
    put(&mut lan, mac(2), 60, 4..6);
    let passed = lan.pass(0);
    assert_eq!(passed.frames, 3);
    assert!(passed.until.is_some());
    assert_eq!((numbers(&lan, 1), numbers(&lan, 2)), (vec![1, 2], vec![0]));
    lan.now += 1;
    assert_eq!(lan.pass(0).frames, 3);
    assert_eq!((numbers(&lan, 1), numbers(&lan, 2)), (vec![3], vec![4, 5]));
    assert_eq!(lan.counters(1).drops().count(), 0);
    assert_eq!((lan.counters(0).in_frames, lan.counters(0).in_bytes), (6, 360));
}

#[test]
fn what_cannot_wait_is_dropped() {
    let mut lan = egress(frames(2, Excess::Wait));
    lan.offers[0].keeps = false;
    put(&mut lan, mac(1), 60, 0..3);
    assert_eq!(lan.pass(0).until, None);
    assert_eq!(lan.dropped(1, DropReason::EgressLimited), 1);
    // Frames behind a refused one cannot wait either, because their positions in the ring are not known.
    lan.offers[0].keeps = true;
    lan.offers[0].refuse = vec![DropReason::Runt];
    put(&mut lan, mac(1), 60, 3..4);
    assert_eq!(lan.pass(0).until, None);
    assert_eq!(lan.dropped(1, DropReason::EgressLimited), 2);
}

#[test]
fn frames_to_any_number_of_ports_that_have_them_wait_are_never_dropped() {
    const PORTS: u16 = 20;
    let limits: Vec<Arc<Egress>> = (0..=PORTS).map(|_| Arc::new(Egress::new(frames(1, Excess::Wait)))).collect();
    let give = move |member: Member| {
        let egress = limits.get(usize::from(member.owner.index())).filter(|_| member.owner.index() > 0).cloned();
        Member { policy: Policy { egress, ..Policy::default() }.in_use(), ..member }
    };
    let mut lan = Plan { change: Box::new(give), ..Plan::new(PORTS + 1) }.map();
    // The last ports have a second frame before the first ones.
    let second = (1..=PORTS).rev().map(|port| (port, 1));
    for (port, number) in (1..=PORTS).map(|port| (port, 0)).chain(second) {
        put(&mut lan, mac(port.into()), 60, number..number + 1);
    }
    let mut given = 0;
    while given < u64::from(PORTS) {
        let passed = lan.pass(0);
        // The rest goes on at the next visit, or waits.
        assert!(passed.frames > 0 && passed.more && passed.is_exhausted);
        given += passed.frames;
    }
    // All ports have had their first frame, and all wait for the second.
    assert_eq!(lan.pass(0).frames, 0);
    lan.now += 1;
    while !lan.offers[0].is_empty() {
        assert!(lan.pass(0).frames > 0);
    }
    for port in 1..=PORTS {
        assert_eq!(numbers(&lan, port), [0, 1]);
        assert_eq!(lan.dropped(port, DropReason::EgressLimited), 0);
    }
}

#[test]
fn frames_that_are_held_back_are_charged_to_their_sender_once() {
    let both = Policy {
        ingress: Some(Arc::new(frames(4, Excess::Drop))),
        egress: Some(Arc::new(Egress::new(frames(2, Excess::Wait)))),
        ..Policy::default()
    };
    let give = move |member: Member| {
        let policy = match member.owner.index() {
            0 => Some(Policy { ingress: both.ingress.clone(), ..Policy::default() }),
            1 => Some(Policy { egress: both.egress.clone(), ..Policy::default() }),
            _ => None,
        };
        Member { policy, ..member }
    };
    let mut lan = Plan { change: Box::new(give), ..Plan::new(2) }.map();
    put(&mut lan, mac(1), 60, 0..3);
    assert_eq!(lan.pass(0).frames, 2);
    lan.now += 1;
    assert_eq!(lan.pass(0).frames, 1);
    assert_eq!(numbers(&lan, 1), [0, 1, 2]);
    // Tokens of four and of two seconds, less three: one frame may still pass, and one for each second.
    put(&mut lan, mac(1), 60, 3..5);
    lan.now += 1;
    lan.pass(0);
    assert_eq!(lan.dropped(0, DropReason::RateLimited), 0);
}

#[test]
fn what_was_reserved_of_a_shared_bucket_and_could_not_be_used_is_given_back() {
    let tenant = Arc::new(Shared::new(Rates { bits: Some(Bucket::new(8_000, 8_000_000)), frames: None }));
    let mut limit = Limit::new(Rates::default());
    limit.shared = Some(Arc::clone(&tenant));
    let policies = [
        Policy { ingress: Some(Arc::new(limit)), ..Policy::default() },
        Policy { egress: Some(Arc::new(Egress::new(frames(1, Excess::Wait)))), ..Policy::default() },
    ];
    let give = move |member: Member| {
        let policy = policies.get(usize::from(member.owner.index())).cloned();
        Member { policy, ..member }
    };
    let mut lan = Plan { change: Box::new(give), ..Plan::new(2) }.map();
    let level = || tenant.rates.bits.as_ref().expect("bits").level();
    let full = level();
    put(&mut lan, mac(1), 1000, 0..3);
    assert_eq!(lan.pass(0).frames, 1);
    assert_eq!(full - level(), 1000 * 8 * 1_000_000_000);
    for _ in 0..100 {
        // The limit allows no frame; then there are no frames to send.
        assert_eq!(lan.pass(0).frames, 0);
    }
    lan.offers[0] = crate::testing::Offer::new(4096);
    for _ in 0..100 {
        assert_eq!(lan.pass(0).frames, 0);
    }
    assert_eq!(full - level(), 1000 * 8 * 1_000_000_000);
}

#[test]
fn storms_are_limited_by_class_and_nothing_else_is() {
    let rates = |burst| Rates { bits: None, frames: Some(Bucket::new(1, burst)) };
    let storm = Storm::new(rates(1), rates(2), rates(3));
    let give = move |member: Member| {
        let policy = Policy { storm: Some(Arc::new(storm.clone())), ..Policy::default() };
        Member { policy: (member.owner.index() == 0).then_some(policy), ..member }
    };
    let mut lan = Plan { change: Box::new(give), ..Plan::new(3) }.learning();
    lan.send(1, &[frame(mac(0), mac(1), 60, 0)]);
    lan.hearers();
    for number in 0..10 {
        for to in [Mac::BROADCAST, group(1), mac(77), mac(1)] {
            put(&mut lan, to, 60, number..number + 1);
        }
    }
    lan.pass(0);
    assert_eq!(numbers(&lan, 2), [0, 0, 0, 1, 1, 2]);
    assert_eq!(lan.received(1).len(), 6 + 10);
    assert_eq!(lan.dropped(0, DropReason::StormLimited), 9 + 8 + 7);
}

#[test]
fn a_storm_to_a_group_that_one_port_gets_is_limited_too() {
    let multicast = Rates { bits: None, frames: Some(Bucket::new(1, 2)) };
    let storm = Storm::new(Rates::default(), multicast, Rates::default());
    let give = move |member: Member| {
        let policy = Policy { storm: Some(Arc::new(storm.clone())), ..Policy::default() };
        Member { policy: (member.owner.index() == 0).then_some(policy), ..member }
    };
    let flood_policy = FloodPolicy { multicast: FloodAction::Port(2), ..FloodPolicy::default() };
    let mut lan = Plan { change: Box::new(give), flood_policy, ..Plan::new(3) }.learning();
    for number in 0..10 {
        put(&mut lan, group(1), 60, number..number + 1);
    }
    lan.pass(0);
    assert_eq!(numbers(&lan, 2), [0, 1]);
    assert_eq!(lan.dropped(0, DropReason::StormLimited), 8);
}

#[test]
fn what_is_beyond_a_receivers_limit_waits_although_its_sender_has_one_that_drops() {
    let rates = |bytes: u64| Rates { bits: Some(Bucket::new(1, bytes * 8)), frames: None };
    let drops = Arc::new(Limit::new(rates(10_000)));
    let mut waits = Limit::new(rates(4_000));
    waits.excess = Excess::Wait;
    let waits = Arc::new(Egress::new(waits));
    let give = move |member: Member| {
        let policy = match member.owner.index() {
            0 => Some(Policy { ingress: Some(Arc::clone(&drops)), ..Policy::default() }),
            1 => Some(Policy { egress: Some(Arc::clone(&waits)), ..Policy::default() }),
            _ => None,
        };
        Member { policy, ..member }
    };
    let mut lan = Plan { change: Box::new(give), ..Plan::new(2) }.map();
    // Short frames first, so that the mean length says little about the next ones.
    for number in 0..40 {
        lan.offers[0].put(&frame(mac(1), mac(0), if number < 20 { 60 } else { 1514 }, number), &[]);
    }
    for _ in 0..4 {
        lan.pass(0);
    }
    // 20 * 60 and 2 * 1514 bytes; the last frame begins within the limit.
    assert_eq!(lan.received(1).len(), 22);
    assert_eq!(lan.dropped(1, DropReason::EgressLimited), 0);
    assert_eq!(lan.dropped(0, DropReason::RateLimited), 0);
    assert_eq!(lan.offers[0].len(), 18);
}
