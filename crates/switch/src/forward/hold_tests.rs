//! Frames that wait for their receiver's limit are not dropped by it, whatever else their sender has.

use std::sync::Arc;

use crate::frame::Cost;
use crate::policy::{Bound, Bucket, Domain, Egress, Excess, Limit, Membership, Policy, Rates, Rules, Shared};
use crate::testing::{Lan, Plan, frame, mac, number};
use crate::{DropReason, Mac, Member, Time, Workspace, pass};

/// A limit of a frame a second with this burst of frames, which makes senders wait.
fn waits(burst: u64) -> Arc<Egress> {
    let mut limit = Limit::new(Rates { bits: None, frames: Some(Bucket::new(1, burst)) });
    limit.excess = Excess::Wait;
    Arc::new(Egress::new(limit))
}

/// Ports 0 to 3. Port 1 has this limit. With VLANs, 0 and 2 are in a second one.
fn lan(egress: &Arc<Egress>) -> Lan {
    let egress = Arc::clone(egress);
    let give = move |member: Member| {
        let policy = Policy { egress: Some(Arc::clone(&egress)), ..Policy::default() };
        let index = member.owner.index();
        let vlans = if index.is_multiple_of(2) { Membership::trunk([5], Some(1)) } else { Membership::access(1) };
        Member { policy: (index == 1).then_some(policy), vlans, ..member }
    };
    Plan { change: Box::new(give), ..Plan::new(4) }.map()
}

fn put(lan: &mut Lan, to: &[Mac]) {
    for (number, &to) in (0..).zip(to) {
        lan.offers[0].put(&frame(to, mac(0), 60, number), &[]);
    }
}

fn numbers(lan: &Lan, port: u16) -> Vec<u32> {
    lan.received(port).iter().map(|frame| number(frame)).collect()
}

#[test]
fn what_is_flooded_to_a_port_takes_no_room_that_was_found_for_frames_of_the_same_batch() {
    const ALL: Mac = Mac::BROADCAST;
    let (one, two) = (mac(1), mac(2));
    for (frames, first) in [
        (&[ALL, one, one][..], &[0, 1][..]),
        (&[one, ALL, one], &[0, 1]),
        (&[two, ALL, two, ALL, one], &[1, 3]),
        (&[one, ALL, two, ALL, one], &[0, 1]),
    ] {
        let mut lan = lan(&waits(2));
        put(&mut lan, frames);
        let passed = lan.pass(0);
        let held = passed.frames as usize;
        assert!(held < frames.len() && passed.until.is_some(), "{frames:?}: the last one waits");
        assert_eq!((numbers(&lan, 1), frames[held]), (first.to_vec(), one));
        while !lan.offers[0].is_empty() {
            lan.now += 1;
            lan.pass(0);
        }
        assert!(numbers(&lan, 1).ends_with(&[frames.len() as u32 - 1]));
        assert_eq!(lan.dropped(1, DropReason::EgressLimited), u64::from(first == [0, 1] && frames.len() == 5));
    }
}

#[test]
fn what_is_flooded_where_a_port_does_not_hear_it_leaves_it_its_room() {
    let mut lan = lan(&waits(2));
    lan.switch = lan.switch.within(Domain { bound: Bound::default(), rules: Rules::ALLOW, vlans: true });
    let tagged = |to| [&frame(to, mac(0), 60, 0)[..12], &[0x81, 0, 0, 5], &frame(to, mac(0), 60, 0)[12..]].concat();
    for _ in 0..3 {
        lan.offers[0].put(&tagged(Mac::BROADCAST), &[]);
    }
    put(&mut lan, &[mac(1), mac(1)]);
    assert_eq!(lan.pass(0).until, None);
    assert_eq!((numbers(&lan, 1), lan.received(2).len()), (vec![0, 1], 3));
}

#[test]
fn what_follows_frames_that_could_not_wait_is_not_dropped_with_them() {
    let mut lan = lan(&waits(1));
    lan.work = Workspace::new(16);
    put(&mut lan, &[mac(1); 40]);
    let (mut taken, mut given) = (0, 0);
    for _ in 0..2 {
        // One of them is a frame whose class is not known.
        lan.offers[0].refuse = vec![DropReason::Runt];
        taken += lan.pass(0).frames - 1;
        given += lan.received(1).len() as u64;
    }
    assert_eq!((lan.offers[0].dropped_alike, given, lan.dropped(1, DropReason::EgressLimited)), (0, 1, taken - 1));
    // The frames behind them wait.
    assert_eq!(lan.pass(0).frames, 0);
    assert!(!lan.offers[0].is_empty());
}

/// Runs passes, one a second, until the port has sent all frames. Returns the number of passes.
fn seconds(lan: &mut Lan) -> u32 {
    let began = lan.now;
    while !lan.offers[0].is_empty() {
        lan.now += 1;
        lan.pass(0);
    }
    lan.now - began
}

#[test]
fn ports_that_share_a_bucket_may_overdraw_it_by_what_each_was_found_to_have_room_for_and_pay_it_back() {
    let shared = Arc::new(Shared::new(Rates { bits: None, frames: Some(Bucket::new(1, 1)) }));
    let give = move |member: Member| {
        let mut limit = Limit::new(Rates::default());
        (limit.excess, limit.shared) = (Excess::Wait, Some(Arc::clone(&shared)));
        let policy = Policy { egress: Some(Arc::new(Egress::new(limit))), ..Policy::default() };
        Member { policy: (member.owner.index() > 0).then_some(policy), ..member }
    };
    let mut lan = Plan { change: Box::new(give), ..Plan::new(4) }.map();
    put(&mut lan, &[mac(1), mac(2), mac(3)]);
    assert_eq!(lan.pass(0).frames, 3);
    assert_eq!([1, 2, 3].map(|port| numbers(&lan, port).len()), [1; 3]);
    // The bucket is two frames below zero.
    put(&mut lan, &[mac(1)]);
    assert_eq!(seconds(&mut lan), 3);
    assert_eq!([1, 2, 3].map(|port| lan.dropped(port, DropReason::EgressLimited)), [0; 3]);
}

#[test]
fn a_frame_of_another_sender_takes_no_room_that_was_found_and_is_paid_for() {
    let egress = waits(4);
    let mut lan = lan(&egress);
    let now = 1_000_000_000;
    let member = |port| lan.switch.member(port).expect("a port");
    let costs = |frames| std::iter::repeat_n(Cost::of_one(60), frames);
    assert!(egress.room(member(0).sender(), now).covers(Cost { bytes: 180, frames: 3 }));
    // Another port sends first.
    assert_eq!(egress.admit(member(2).sender(), costs(4), None, 4, now).given, 4);
    let admitted = egress.admit(member(0).sender(), costs(5), None, 4, now);
    assert_eq!((admitted.given, admitted.refused), (4, 1));
    assert_eq!(egress.admit(member(0).sender(), costs(1), None, 0, now).given, 0);
    put(&mut lan, &[mac(1)]);
    assert_eq!(seconds(&mut lan), 5);
}

/// Ports 0 and 2 send to port 1, whose limit makes senders wait and borrows from a shared bucket. Port 1 may not receive
/// from port 2: both are isolated, or with `has_vlans` the frames are of VLAN 5. Returns the frames that port 1 received in
/// 400 ms, and the waits that it counts.
fn beside_a_denied_sender(has_vlans: bool, sends: bool) -> (usize, u64) {
    let shared = Arc::new(Shared::new(Rates { bits: Some(Bucket::new(1_000_000_000, 10_000_000)), frames: None }));
    let mut limit = Limit::new(Rates::default());
    (limit.excess, limit.shared) = (Excess::Wait, Some(shared));
    let egress = Arc::new(Egress::new(limit));
    let its = Arc::clone(&egress);
    let give = move |member: Member| {
        let policy = Policy { egress: Some(Arc::clone(&its)), ..Policy::default() };
        let index = member.owner.index();
        let vlans = if index == 2 { Membership::trunk([5], Some(1)) } else { Membership::access(1) };
        Member { policy: (index == 1).then_some(policy), isolated: !has_vlans && index > 0, vlans, ..member }
    };
    let mut lan = Plan { bytes: 8 << 20, change: Box::new(give), ..Plan::new(3) }.map();
    if has_vlans {
        lan.switch = lan.switch.within(Domain { bound: Bound::default(), rules: Rules::ALLOW, vlans: true });
    }
    let frames = [0u16, 2].map(|from| frame(mac(1), mac(from.into()), 1250, 0));
    let denied = [&frames[1][..12], &[0x81, 0, 0, 5], &frames[1][12..]].concat();
    let denied = if has_vlans { &denied } else { &frames[1] };
    let (mut received, mut due) = (0, [0; 2]);
    for step in 0..40_000u64 {
        let now = Time { nanoseconds: 1_000_000_000 + step * 10_000, ..Time::at_second(1) };
        for (place, port, bytes) in [(0, 0u16, &frames[0]), (1, 2, denied)] {
            if now.nanoseconds < due[place] || port == 2 && !sends {
                continue;
            }
            let offer = &mut lan.offers[usize::from(port)];
            while offer.len() < 4 {
                offer.put(bytes, &[]);
            }
            let from = lan.switch.member(port).expect("a port");
            due[place] = pass(&lan.switch, from, offer, &mut lan.work, &now).until.unwrap_or(0);
        }
        received += lan.received(1).len();
    }
    (received, egress.limit().tally().read().waits)
}

#[test]
fn a_sender_that_a_port_may_not_receive_from_neither_waits_for_its_limit_nor_restricts_others() {
    for has_vlans in [false, true] {
        let alone = beside_a_denied_sender(has_vlans, false);
        assert!(alone.0 >= 40_000 && alone.1 > 0, "{alone:?}");
        assert_eq!(beside_a_denied_sender(has_vlans, true), alone, "VLANs: {has_vlans}");
    }
}
