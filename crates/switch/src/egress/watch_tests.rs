//! Captures and mirror ports see the right frames, and do not change what other ports get.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::policy::{Bound, Bucket, Domain, Limit, Membership, Policy, Rates, Rules};
use crate::testing::samples::Sample;
use crate::testing::{Lan, Plan, frame, mac, number};
use crate::{DropReason, FloodPolicy, FrameDirection, Mac, Member, Owner, Switch, Tap, TappedFrame, Watch};

/// The direction of a frame, its bytes, and its drop reason.
type Sight = (FrameDirection, Vec<u8>, Option<DropReason>);

/// A capture that keeps the frames it sees.
#[derive(Default)]
struct Eye {
    seen: Mutex<Vec<Sight>>,
    rings: AtomicUsize,
    sees_refused: bool,
}

impl Tap for Eye {
    fn see<'b, 'm: 'b>(&self, frames: &mut dyn Iterator<Item = TappedFrame<'b, 'm>>) {
        for TappedFrame { frame, way, dropped } in frames {
            let mut bytes = frame.head().0[..frame.head_len()].to_vec();
            for rest in frame.rest() {
                let at = bytes.len();
                bytes.resize(at + rest.len(), 0);
                assert!(rest.read(&mut bytes[at..]));
            }
            self.seen.lock().unwrap().push((way, bytes, dropped));
        }
    }

    fn sees_refused(&self) -> bool {
        self.sees_refused
    }

    fn ring(&self) {
        self.rings.fetch_add(1, Ordering::Relaxed);
    }
}

impl Eye {
    fn taken(&self) -> Vec<Sight> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    /// Direction, number and drop reason of the frames seen.
    fn numbers(&self) -> Vec<(FrameDirection, u32, Option<DropReason>)> {
        self.taken().into_iter().map(|(way, bytes, dropped)| (way, number(&bytes), dropped)).collect()
    }
}

/// Returns the switch of `plan` with captures and mirrors. The addresses of the first ports are learned.
fn watched(plan: Plan, watches: impl IntoIterator<Item = (u16, Watch)>) -> Lan {
    let ports = plan.ports;
    let mut lan = plan.learning();
    let members: Vec<_> = lan.switch.members().cloned().collect();
    let table = lan.switch.table().clone();
    for port in 0..ports {
        table.learn(mac(port.into()), Owner::new(port, 0), 1, |_| true);
    }
    lan.switch =
        Switch::new("lan0", members, table, Box::new(crate::Learning), FloodPolicy::default()).with_watches(watches);
    lan
}

fn tapped(eye: &Arc<Eye>) -> Watch {
    Watch { taps: vec![Arc::clone(eye) as Arc<dyn Tap>], ..Watch::default() }
}

fn mirror() -> Watch {
    Watch { is_mirror: true, ..Watch::default() }
}

fn mirrored(mirrors_in: &[u16], mirrors_out: &[u16]) -> Watch {
    Watch { mirrors_in: mirrors_in.to_vec(), mirrors_out: mirrors_out.to_vec(), ..Watch::default() }
}

#[test]
fn a_capture_sees_what_its_port_sends_and_is_given_and_nothing_else() {
    let eye = Arc::new(Eye::default());
    let mut lan = watched(Plan::new(4), [(1, tapped(&eye))]);
    let sent = frame(mac(2), mac(1), 1514, 1);
    lan.send(1, std::slice::from_ref(&sent));
    lan.send(0, &[frame(mac(2), mac(0), 60, 9), frame(mac(1), mac(0), 700, 2), frame(Mac::BROADCAST, mac(0), 60, 3)]);
    lan.send(2, &[frame(mac(3), mac(2), 60, 9)]);
    let seen = eye.taken();
    assert_eq!(seen[0], (FrameDirection::In, sent.clone(), None), "byte for byte");
    assert_eq!(seen[1], (FrameDirection::Out, frame(mac(1), mac(0), 700, 2), None));
    assert_eq!((seen.len(), number(&seen[2].1)), (3, 3));
    assert_eq!(eye.rings.load(Ordering::Relaxed), 2, "once per pass in which it saw something");
    assert_eq!(lan.received(2), [sent, frame(mac(2), mac(0), 60, 9), frame(Mac::BROADCAST, mac(0), 60, 3)]);
    assert_eq!(lan.received(1).len(), 2, "a watched port is given what it would be given");
}

#[test]
fn frames_that_their_source_loses_are_seen_with_the_reason() {
    let eye = Arc::new(Eye::default());
    let plan = Plan { isolated: vec![0, 1], ..Plan::new(3) };
    let mut lan = watched(plan, [(0, tapped(&eye))]);
    let zero = Mac::new([0; 6]);
    lan.send(
        0,
        &[
            frame(mac(1), mac(0), 60, 1),
            frame(mac(0), mac(0), 60, 2),
            frame(mac(2), mac(0), 60, 3),
            frame(mac(2), zero, 60, 4),
        ],
    );
    let lost = |reason| Some(reason);
    assert_eq!(
        eye.numbers(),
        [
            (FrameDirection::In, 1, lost(DropReason::Isolated)),
            (FrameDirection::In, 2, lost(DropReason::SamePort)),
            (FrameDirection::In, 3, None),
            (FrameDirection::In, 4, lost(DropReason::BadSource)),
        ]
    );
    let mut alone = watched(Plan { isolated: vec![0, 1], ..Plan::new(2) }, [(0, tapped(&eye))]);
    alone.send(0, &[frame(Mac::BROADCAST, mac(0), 60, 5)]);
    assert_eq!(eye.numbers(), [(FrameDirection::In, 5, lost(DropReason::NoDestination))], "nobody hears it");
    let counted: u64 = lan.counters(0).drops().map(|(_, count)| count).sum();
    assert_eq!(counted, 3, "and each is counted once");
}

#[test]
fn a_tag_behind_a_tag_that_would_come_to_light_is_seen_with_the_reason() {
    let eye = Arc::new(Eye::default());
    let vlans = |port| if port == 0 { Membership::trunk([1], None) } else { Membership::access(1) };
    let change = Box::new(move |member: Member| Member { vlans: vlans(member.owner.index()), ..member });
    let mut lan = watched(Plan { change, ..Plan::new(2) }, [(0, tapped(&eye))]);
    lan.switch = lan.switch.within(Domain { bound: Bound::default(), rules: Rules::ALLOW, vlans: true });
    lan.send(1, &[frame(mac(0), mac(1), 60, 0)]);
    eye.taken();
    let tagged = |frame: &[u8]| [&frame[..12], &[0x81, 0, 0, 1], &frame[12..]].concat();
    let (to_one, to_all) = (tagged(&frame(mac(1), mac(0), 60, 0)), tagged(&frame(Mac::BROADCAST, mac(0), 60, 0)));
    lan.send(0, &[to_one.clone(), tagged(&to_one), to_one, tagged(&to_all)]);
    let fates: Vec<_> = eye.taken().into_iter().map(|(_, _, dropped)| dropped).collect();
    assert_eq!(fates, [None, Some(DropReason::VlanStacked), None, Some(DropReason::VlanStacked)]);
    assert_eq!((lan.received(1).len(), lan.dropped(0, DropReason::VlanStacked)), (2, 2));
}

#[test]
fn frames_that_a_receiver_has_no_room_for_are_seen_with_the_reason_and_each_is_told_apart() {
    for names_losses in [false, true] {
        let eye = Arc::new(Eye::default());
        let mut lan = watched(Plan::new(2), [(1, tapped(&eye))]);
        lan.sink(1, |kept| (kept.room, kept.names_losses) = (2, names_losses));
        let sent: Vec<_> = (1..=4).map(|n| frame(mac(1), mac(0), 60, n)).collect();
        lan.send(0, &sent);
        let full = Some(DropReason::ReceiverFull);
        let seen = [
            (FrameDirection::Out, 1, None),
            (FrameDirection::Out, 2, None),
            (FrameDirection::Out, 3, full),
            (FrameDirection::Out, 4, full),
        ];
        assert_eq!(eye.numbers(), seen);
        assert_eq!((lan.counters(1).out_frames, lan.dropped(1, DropReason::ReceiverFull)), (2, 2));
        let together = lan.sink(1, |kept| (kept.deliveries.len(), kept.room = 9).0 == 1);
        assert_eq!(together, names_losses, "one that says which is given all of them at once");
        lan.send(0, &sent);
        assert_eq!(
            eye.numbers(),
            (1..=4).map(|n| (FrameDirection::Out, n, None)).collect::<Vec<_>>(),
            "what was lost before is over"
        );
    }
}

#[test]
fn a_frame_finished_for_its_receiver_is_seen_as_it_was_delivered() {
    let (sender, receiver) = (Arc::new(Eye::default()), Arc::new(Eye::default()));
    let mut lan = watched(Plan::new(2), [(0, tapped(&sender)), (1, tapped(&receiver))]);
    let (frame, offload) = Sample::default().build();
    lan.offers[0].put_offloaded(&frame, &[], Some(offload));
    lan.pass(0);
    let (whole, segments) = (sender.taken(), receiver.taken());
    assert_eq!((whole.len(), &whole[0].1), (1, &frame), "in: as it was sent");
    let delivered = lan.received(1);
    assert!(delivered.len() > 1);
    assert_eq!(
        segments.into_iter().map(|(_, bytes, _)| bytes).collect::<Vec<_>>(),
        delivered,
        "out: as it was delivered"
    );
}

#[test]
fn a_mirror_is_given_copies_both_ways_in_order_and_hears_nothing_else() {
    let mut lan = watched(Plan::new(4), [(3, mirror()), (1, mirrored(&[3], &[3]))]);
    lan.send(1, &[frame(mac(2), mac(1), 900, 1), frame(Mac::BROADCAST, mac(1), 60, 2), frame(mac(1), mac(1), 60, 3)]);
    lan.send(0, &[frame(mac(1), mac(0), 60, 4), frame(Mac::BROADCAST, mac(0), 60, 5), frame(mac(2), mac(0), 60, 9)]);
    let copies = lan.received(3);
    assert_eq!(copies.iter().map(|copy| number(copy)).collect::<Vec<_>>(), [1, 2, 3, 4, 5], "also what was dropped");
    assert_eq!(copies[0], frame(mac(2), mac(1), 900, 1), "byte for byte");
    assert_eq!(lan.received(1).len(), 2);
    assert_eq!(lan.sink(3, |kept| kept.rings), 2, "it is told once per pass");
}

#[test]
fn a_mirror_has_one_direction_if_asked_and_what_it_sends_is_dropped_by_name() {
    let mut lan = watched(Plan::new(4), [(2, mirror()), (3, mirror()), (1, mirrored(&[2], &[3]))]);
    lan.send(1, &[frame(mac(0), mac(1), 60, 1)]);
    lan.send(0, &[frame(mac(1), mac(0), 60, 2)]);
    let numbers = |port| lan.received(port).iter().map(|copy| number(copy)).collect::<Vec<_>>();
    assert_eq!((numbers(2), numbers(3)), (vec![1], vec![2]));
    (0..4).for_each(|port| drop(lan.received(port)));
    lan.send(2, &[frame(mac(0), mac(77), 60, 3), frame(Mac::BROADCAST, mac(77), 60, 4)]);
    assert_eq!(lan.hearers(), []);
    assert_eq!(lan.dropped(2, DropReason::MirrorPort), 2);
    assert!(lan.switch.table().entries().all(|entry| entry.mac != mac(77)), "nothing is learned from it");
}

#[test]
fn a_mirror_that_is_full_costs_the_ports_it_mirrors_nothing() {
    let mut lan = watched(Plan::new(3), [(2, mirror()), (1, mirrored(&[2], &[2]))]);
    lan.sink(2, |kept| kept.room = 1);
    let sent: Vec<_> = (0..5).map(|n| frame(mac(0), mac(1), 60, n)).collect();
    lan.send(1, &sent);
    assert_eq!((lan.received(0).len(), lan.received(2).len()), (5, 1));
    assert_eq!((lan.dropped(2, DropReason::ReceiverFull), lan.counters(1).drops().count()), (4, 0));
}

#[test]
fn a_mirror_can_be_captured() {
    let eye = Arc::new(Eye::default());
    let watch = Watch { is_mirror: true, ..tapped(&eye) };
    let mut lan = watched(Plan::new(3), [(2, watch), (1, mirrored(&[2], &[]))]);
    lan.send(1, &[frame(mac(0), mac(1), 60, 1)]);
    lan.send(2, &[frame(mac(0), mac(2), 60, 2)]);
    assert_eq!(eye.numbers(), [(FrameDirection::Out, 1, None), (FrameDirection::In, 2, Some(DropReason::MirrorPort))]);
}

#[test]
fn a_capture_that_asks_for_it_sees_what_its_port_sends_beyond_its_limit() {
    for sees_refused in [true, false] {
        let eye = Arc::new(Eye { sees_refused, ..Eye::default() });
        let limit = Limit::new(Rates { bits: None, frames: Some(Bucket::new(1, 3)) });
        let policy = Policy { ingress: Some(Arc::new(limit)), ..Policy::default() };
        let give = move |member: Member| {
            let policy = (member.owner.index() == 1).then(|| policy.clone());
            Member { policy, ..member }
        };
        let mut lan = watched(Plan { change: Box::new(give), ..Plan::new(3) }, [(1, tapped(&eye))]);
        let expected = |passed: u32, numbers: std::ops::Range<u32>| -> Vec<_> {
            let end = if sees_refused { numbers.end } else { numbers.start + passed };
            let limited = |number| (number >= numbers.start + passed).then_some(DropReason::RateLimited);
            (numbers.start..end).map(|number| (FrameDirection::In, number, limited(number))).collect()
        };
        // The limit is used up within a batch, or before the pass.
        for (passed, numbers) in [(3, 0..8), (0, 8..12)] {
            let rings = eye.rings.load(Ordering::Relaxed);
            for number in numbers.clone() {
                lan.offers[1].put(&frame(mac(2), mac(1), 200, number), &[50]);
            }
            assert_eq!(u64::from(numbers.end - numbers.start), lan.pass(1).frames);
            assert_eq!(eye.numbers(), expected(passed, numbers));
            assert!(!sees_refused || eye.rings.load(Ordering::Relaxed) > rings, "its reader is woken");
        }
        assert_eq!(lan.received(2).len(), 3);
        assert_eq!(lan.dropped(1, DropReason::RateLimited), 9);
        assert_eq!((lan.counters(1).in_frames, lan.counters(1).in_bytes), (12, 2400));
    }
}
