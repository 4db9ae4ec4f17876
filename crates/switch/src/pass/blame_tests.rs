//! Whose a panic is: only what a port's own client did alone is held against that port.

use std::task::Waker;

use crate::testing::{Lan, Plan, frame, mac};
use crate::{DropReason, Mac, PortFault, Role, Time, Workspace, contain, empty};

/// As what a port was retired.
fn role(lan: &Lan, port: u16) -> Option<Role> {
    match lan.switch.member(port).expect("a port").port.fault() {
        Some(PortFault::InternalError(defect)) => Some(defect.role),
        _ => None,
    }
}

/// What a poller does when a pass of this port panics.
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
    assert!(!Role::Sender.is_own_doing() && !Role::Receiver.is_own_doing());
    // All frames go to one port.
    lan.sink(1, |kept| kept.panics_at = 1);
    lan.send(1, &[frame(Mac::BROADCAST, mac(1), 60, 2)]);
    (0..2).for_each(|number| lan.offers[3].put(&frame(mac(1), mac(3), 60, number), &[]));
    panics(&mut lan, 3);
    assert_eq!([1, 3].map(|port| role(&lan, port)), [Some(Role::Receiver), Some(Role::Sender)]);
}

/// Port 1 has a detour, and frames that port 0 left.
fn left(frames: u32) -> Lan {
    let mut lan = Plan::new(2).map();
    assert!(lan.switch.member(1).expect("a port").port.begin_detour(Waker::noop().clone()));
    let sent: Vec<Vec<u8>> = (0..frames).map(|number| frame(mac(1), mac(0), 60, number)).collect();
    lan.send(0, &sent);
    assert!(lan.received(1).is_empty());
    lan
}

#[test]
fn a_port_in_quarantine_is_not_blamed_for_frames_that_others_left_for_it() {
    for given in [0, 1, 7] {
        let lan = left(10);
        lan.sink(1, |kept| kept.panics_at = given);
        let (mut work, member) = (Workspace::new(4), lan.switch.member(1).expect("a port"));
        let place = contain(|| empty(member, &mut work, &Time::at_second(1))).expect_err("a panic");
        assert!(work.blame(&lan.switch, member, place));
        assert_eq!([0, 1].map(|port| role(&lan, port)), [None, Some(Role::Receiver)]);
        let lost = lan.dropped(1, DropReason::InternalError);
        assert_eq!((lan.counters(1).out_frames + lost, lost), (10, 10 - given as u64), "each frame is in a counter");
        assert!(!member.port.has_left(), "nobody empties it");
    }
}

#[test]
fn what_was_left_for_an_output_that_fails_is_counted_to_the_last_frame() {
    let lan = left(10);
    lan.sink(1, |kept| kept.fault = Some(PortFault::MemoryLost));
    // Several deliveries.
    let mut work = Workspace::new(4);
    let emptied = empty(lan.switch.member(1).expect("a port"), &mut work, &Time::at_second(1));
    assert!(emptied.fault && emptied.frames == 10);
    assert_eq!(lan.sink(1, |kept| kept.deliveries.clone()), [4, 4, 2], "the output counts what it is given");
    assert_eq!(lan.switch.member(1).expect("a port").port.fault(), Some(PortFault::MemoryLost), "the first fault");
}
