//! A flood beyond the receiver's limit is dropped cheaply, with results equal to those of the whole path.

use std::sync::Arc;

use crate::policy::{Bucket, Checks, Egress, Guard, Limit, Policy, Rates, Storm};
use crate::testing::{Lan, Plan, frame, mac, number};
use crate::{CountersReading, DropReason, Member};

/// Returns a switch where port 1 has an egress limit of 40 frames a second and a burst of 50, and port 0 has the policy
/// `sender`.
fn lan(sender: Option<Policy>, alike: bool) -> Lan {
    let rates = Rates { bits: None, frames: Some(Bucket::new(40, 50)) };
    let egress = Policy { egress: Some(Arc::new(Egress::new(Limit::new(rates)))), ..Policy::default() };
    let give = move |member: Member| {
        let policy = match member.owner.index() {
            0 => sender.clone(),
            1 => Some(egress.clone()),
            _ => None,
        };
        Member { policy, ..member }
    };
    let mut lan = Plan { change: Box::new(give), ..Plan::new(3) }.map();
    lan.offers[0].alike = alike;
    lan
}

/// Returns a policy that guards the port's Ethernet address.
fn guarded() -> Policy {
    let checks = Checks { mac: true, ..Checks::NONE };
    Policy { guard: Some(Arc::new(Guard::new(checks, &[mac(0)], &[]))), ..Policy::default() }
}

/// Sends the frames of one second from port 0: `flood` frames to port 1, frame `odd` of them in several pieces, then a
/// few to port 2, and then more to port 1.
fn send(lan: &mut Lan, flood: u32, odd: u32) {
    for count in 0..flood + 20 {
        let to = if (flood..flood + 5).contains(&count) { 2 } else { 1 };
        let pieces: &[usize] = if count == odd { &[40, 10] } else { &[] };
        lan.offers[0].put(&frame(mac(to), mac(0), 60 + count as usize % 7, count), pieces);
    }
    lan.now += 1;
    while !lan.offers[0].is_empty() {
        assert_eq!(lan.pass(0).fault, None);
    }
}

fn got(lan: &Lan) -> (Vec<Vec<u32>>, Vec<CountersReading>) {
    let numbers = |port| lan.received(port).iter().map(|frame| number(frame)).collect();
    ((1..3).map(numbers).collect(), (0..3).map(|port| lan.counters(port)).collect())
}

#[test]
fn a_flood_beyond_its_receivers_limit_is_dropped_in_the_ring_and_comes_to_the_same() {
    for sender in [None, Some(guarded())] {
        let (mut one, mut other) = (lan(sender.clone(), true), lan(sender, false));
        for second in 0..60 {
            let (flood, odd) = (second * 137 % 3000, second * 91 % 2000);
            for lan in [&mut one, &mut other] {
                send(lan, flood, odd);
            }
            assert_eq!(got(&one), got(&other), "second {second}: {flood} frames, number {odd} in pieces");
        }
        let (dropped, limited) = (one.offers[0].dropped_alike, one.dropped(1, DropReason::EgressLimited));
        assert!(dropped * 10 > limited * 5, "{dropped} of {limited} were dropped in the ring");
        assert_eq!(other.offers[0].dropped_alike, 0);
    }
}

#[test]
fn what_a_guard_rejects_goes_nowhere_and_is_counted_once_in_a_flood_beyond_its_receivers_limit_too() {
    let mut lan = lan(Some(guarded()), true);
    for second in 0..20u32 {
        for count in 0..1000 {
            let source = if count * 7 % 1000 < second * 20 { mac(9) } else { mac(0) };
            lan.offers[0].put(&frame(mac(1), source, 60, if source == mac(0) { 0 } else { 1 }), &[]);
        }
        lan.now += 1;
        while !lan.offers[0].is_empty() {
            assert_eq!(lan.pass(0).fault, None);
        }
    }
    let received = lan.received(1);
    assert!(received.iter().all(|frame| number(frame) == 0));
    let dropped = lan.dropped(0, DropReason::SpoofedMac) + lan.dropped(1, DropReason::EgressLimited);
    assert_eq!(received.len() as u64 + dropped, 20_000);
    assert_eq!(lan.dropped(0, DropReason::SpoofedMac), (0..20).map(|second| second * 20).sum::<u64>());
    assert!(lan.offers[0].dropped_alike > 0);
}

#[test]
fn frames_of_a_sender_for_whom_more_than_addresses_decides_are_all_looked_at() {
    let storm = Policy { storm: Some(Arc::new(Storm::default())), ..Policy::default() };
    let mut lan = lan(Some(storm), true);
    for _ in 0..5 {
        send(&mut lan, 900, 0);
    }
    assert!(lan.dropped(1, DropReason::EgressLimited) > 1000);
    assert_eq!(lan.offers[0].dropped_alike, 0);
}
