//! Blame for a panic: a port is retired as the source only if no other port took part.

use std::sync::Arc;
use std::task::Waker;

use crate::policy::{Bucket, Egress, Limit, Policy, Rates};
use crate::testing::{Lan, Plan, begin_detour, frame, mac};
use crate::{DropReason, Mac, Member, PortFault, Role, Tap, TappedFrame, Time, Watch, Workspace, contain, empty, pass};

/// Returns the role in which a port was retired.
fn role(lan: &Lan, port: u16) -> Option<Role> {
    match lan.switch.member(port).expect("a port").port.fault() {
        Some(PortFault::InternalError(defect)) => Some(defect.role),
        _ => None,
    }
}

/// Does what a poller does when a pass of this port panics.
fn panics(lan: &mut Lan, from: u16) {
    let place = contain(|| lan.pass(from)).expect_err("a panic");
    let member = lan.switch.member(from).expect("a port");
    assert!(lan.work.blame(&lan.switch, member, place), "its input is of no use any more");
}

#[test]
fn a_sender_is_not_blamed_alone_for_what_happened_while_a_receiver_was_given_its_frames() {
    let mut lan = Plan::new(4).learning();
    lan.sink(2, |kept| kept.panics_at = 0);
    lan.offers[0].put(&frame(Mac::BROADCAST, mac(0), 60, 1), &[]);
    panics(&mut lan, 0);
    assert_eq!([0, 1, 2, 3].map(|port| role(&lan, port)), [Some(Role::Sender), None, Some(Role::Receiver), None]);
    assert!(!Role::Sender.is_attributable() && !Role::Receiver.is_attributable());
    // All frames go to one port.
    lan.sink(1, |kept| kept.panics_at = 1);
    lan.send(1, &[frame(Mac::BROADCAST, mac(1), 60, 2)]);
    (0..2).for_each(|number| lan.offers[3].put(&frame(mac(1), mac(3), 60, number), &[]));
    panics(&mut lan, 3);
    assert_eq!([1, 3].map(|port| role(&lan, port)), [Some(Role::Receiver), Some(Role::Sender)]);
}

/// Returns a switch where port 1 has a detour with frames from port 0 in its backlog.
fn with_backlog(frames: u32) -> Lan {
    let mut lan = Plan::new(2).map();
    begin_detour(&lan.switch.member(1).expect("a port").port, Waker::noop().clone());
    let sent: Vec<Vec<u8>> = (0..frames).map(|number| frame(mac(1), mac(0), 60, number)).collect();
    lan.send(0, &sent);
    assert!(lan.received(1).is_empty());
    lan
}

#[test]
fn a_port_in_quarantine_is_not_blamed_for_frames_that_others_left_for_it() {
    for given in [0, 1, 7] {
        let lan = with_backlog(10);
        lan.sink(1, |kept| kept.panics_at = given);
        let (mut work, member) = (Workspace::new(4), lan.switch.member(1).expect("a port"));
        let place = contain(|| empty(&member.port, &mut work, &Time::at_second(1))).expect_err("a panic");
        assert!(work.blame(&lan.switch, member, place));
        assert_eq!([0, 1].map(|port| role(&lan, port)), [None, Some(Role::Receiver)]);
        let lost = lan.dropped(1, DropReason::InternalError);
        assert_eq!((lan.counters(1).out_frames + lost, lost), (10, 10 - given as u64), "each frame is in a counter");
        assert!(!member.port.has_detoured_frames(), "nobody empties it");
    }
}

#[test]
fn what_was_left_for_an_output_that_fails_is_counted_to_the_last_frame() {
    let lan = with_backlog(10);
    lan.sink(1, |kept| kept.fault = Some(PortFault::MemoryLost));
    // The backlog takes several deliveries.
    let mut work = Workspace::new(4);
    let emptied = empty(&lan.switch.member(1).expect("a port").port, &mut work, &Time::at_second(1));
    assert!(emptied.fault && emptied.frames == 10);
    assert_eq!(lan.sink(1, |kept| kept.deliveries.clone()), [4, 4, 2], "the output counts what it is given");
    assert_eq!(lan.switch.member(1).expect("a port").port.fault(), Some(PortFault::MemoryLost), "the first fault");
}

#[test]
fn copies_that_a_mirror_was_not_given_before_a_panic_are_counted_there() {
    for (mirrors_in, mirrors_out, sent) in [(vec![2], vec![], 1), (vec![], vec![2], 0)] {
        let mut lan = Plan::new(3).map();
        // The mirrored port and its mirror were given different numbers of frames before.
        lan.send(0, &[frame(mac(1), mac(0), 60, 0)]);
        lan.send(0, &[frame(mac(1), mac(0), 60, 0)]);
        let watch = Watch { mirrors_in, mirrors_out, ..Watch::default() };
        lan.switch = lan.switch.with_watches([(1, watch), (2, Watch { is_mirror: true, ..Watch::default() })]);
        lan.sink(2, |kept| kept.panics_at = 2);
        let other = 1 - sent;
        (0..5).for_each(|number| lan.offers[sent as usize].put(&frame(mac(other), mac(sent), 60, number), &[]));
        let before = lan.counters(other as u16).out_frames;
        panics(&mut lan, sent as u16);
        assert_eq!(lan.counters(other as u16).out_frames - before, 5);
        assert_eq!((lan.counters(2).out_frames, lan.dropped(2, DropReason::InternalError)), (2, 3));
        assert_eq!([0, 1].map(|port| lan.dropped(port, DropReason::InternalError)), [0, 0], "they have all frames");
    }
}

/// A capture with a defect.
struct Panics;

impl Tap for Panics {
    fn see<'b, 'm: 'b>(&self, _: &mut dyn Iterator<Item = TappedFrame<'b, 'm>>) {
        panic!("injected");
    }

    fn ring(&self) {}
}

#[test]
fn frames_that_are_left_for_a_port_in_quarantine_are_not_counted_at_another() {
    let limit = Limit::new(Rates { bits: None, frames: Some(Bucket::new(1, 3)) });
    let policy = Policy { egress: Some(Arc::new(Egress::new(limit))), ..Policy::default() };
    let change = move |member: Member| {
        let policy = (member.owner.index() == 1).then(|| policy.clone());
        Member { policy, ..member }
    };
    let mut lan = Plan { change: Box::new(change), ..Plan::new(4) }.map();
    let watch = Watch { taps: vec![Arc::new(Panics)], ..Watch::default() };
    lan.switch = lan.switch.with_watches([(1, watch)]);
    begin_detour(&lan.switch.member(1).expect("a port").port, Waker::noop().clone());
    // Meanwhile another poller panics while it gives frames to port 2.
    lan.sink(2, |kept| kept.panics_at = 0);
    lan.offers[3].put(&frame(mac(2), mac(3), 60, 0), &[]);
    let (from, mut other) = (lan.switch.member(3).expect("a port"), Workspace::new(4));
    let time = Time::at_second(1);
    assert!(contain(|| pass(&lan.switch, from, &mut lan.offers[3], &mut other, &time)).is_err());

    (0..5).for_each(|number| lan.offers[0].put(&frame(mac(1), mac(0), 60, number), &[]));
    panics(&mut lan, 0);
    assert_eq!(lan.dropped(1, DropReason::EgressLimited), 2);
    assert_eq!(lan.dropped(2, DropReason::InternalError), 0);
}
