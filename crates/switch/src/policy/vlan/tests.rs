//! VLANs compared with a model of a bridge (IEEE 802.1Q; Linux, net/bridge/br_vlan.c).

use proptest::prelude::*;

use crate::policy::{Bound, Checks, Domain, Guard, Membership, Policy, Reach, Rules};
use crate::testing::samples::Sample;
use crate::testing::{Lan, Plan, frame, mac};
use crate::{Accepts, DropReason, Mac, Member};

/// The VLAN settings of a port.
#[derive(Clone, Debug)]
enum Kind {
    Access(u16),
    Trunk(Vec<u16>, Option<u16>),
}

impl Kind {
    fn membership(&self) -> Membership {
        match self {
            Kind::Access(vlan) => Membership::access(*vlan),
            Kind::Trunk(tagged, native) => Membership::trunk(tagged.iter().copied(), *native),
        }
    }

    fn untagged(&self) -> Option<u16> {
        match self {
            Kind::Access(vlan) => Some(*vlan),
            Kind::Trunk(_, native) => *native,
        }
    }

    fn has(&self, vlan: u16) -> bool {
        self.untagged() == Some(vlan) || matches!(self, Kind::Trunk(tagged, _) if tagged.contains(&vlan))
    }
}

fn lan_of(kinds: &[Kind]) -> Lan {
    let own: Vec<Kind> = kinds.to_vec();
    let change = move |member: Member| {
        let vlans = own[usize::from(member.owner.index())].membership();
        Member { vlans, ..member }
    };
    let plan = Plan { change: Box::new(change), bytes: 8 << 20, ..Plan::new(kinds.len() as u16) };
    within(plan.learning(), Rules::ALLOW, true)
}

fn within(mut lan: Lan, rules: Rules, vlans: bool) -> Lan {
    let bound = if vlans { Bound::default() } else { Bound::new(lan.switch.members()) };
    lan.switch = lan.switch.within(Domain { bound, rules, vlans });
    lan
}

/// A frame with a tag: priority and VLAN ID.
fn tagged(frame: &[u8], priority: u8, vlan: u16) -> Vec<u8> {
    let [high, low] = vlan.to_be_bytes();
    [&frame[..12], &[0x81, 0, priority << 5 | high, low], &frame[12..]].concat()
}

fn kinds() -> impl Strategy<Value = Kind> {
    let vlan = || prop_oneof![1..5u16, Just(4094)];
    let some = proptest::collection::vec(vlan(), 0..4);
    prop_oneof![
        vlan().prop_map(Kind::Access),
        (some, proptest::option::of(vlan())).prop_map(|(tagged, native)| Kind::Trunk(tagged, native)),
    ]
}

/// One frame of a batch: its length, its tag and its destination.
#[derive(Clone, Debug)]
struct Sent {
    len: usize,
    tag: Option<(u8, u16)>,
    to: u32,
    pieces: Vec<usize>,
}

fn sent() -> impl Strategy<Value = Sent> {
    let len = prop_oneof![14..70usize, 110..140usize, 200..300usize];
    let number = prop_oneof![0..6u16, Just(4094), Just(4095)];
    let tag = proptest::option::of((0..8u8, number));
    (len, tag, 0..6u32, proptest::collection::vec(1..130usize, 0..3)).prop_map(|(len, tag, to, pieces)| Sent {
        len,
        tag,
        to,
        pieces,
    })
}

/// The model's result for a frame: its VLAN, its priority, and the frame without a tag.
fn ingress(kind: &Kind, sent: &Sent, plain: &[u8]) -> Option<(u16, Option<u8>, Vec<u8>)> {
    let vlan = match sent.tag {
        None | Some((_, 0)) => kind.untagged()?,
        Some((_, number)) => number,
    };
    kind.has(vlan).then(|| (vlan, sent.tag.map(|(priority, _)| priority), plain.to_vec()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Stations 0 to 4 are known at ports 0 to 4, in each port's VLANs. 5 is the broadcast address.
    #[test]
    fn frames_reach_the_ports_of_their_vlan_in_the_form_that_each_wants(
        kinds in proptest::collection::vec(kinds(), 5),
        batch in proptest::collection::vec(sent(), 1..12),
    ) {
        let mut lan = lan_of(&kinds);
        for (port, kind) in kinds.iter().enumerate().skip(1) {
            for vlan in (1..5).chain([4094]).filter(|&vlan| kind.has(vlan)) {
                let hello = frame(Mac::BROADCAST, mac(port as u32), 60, 0);
                lan.send(port as u16, &[tagged(&hello, 0, vlan)]);
            }
        }
        for port in 0..5 {
            lan.received(port);
        }
        let drops = |lan: &Lan| lan.counters(0).drops().map(|(_, count)| count).sum::<u64>();
        let before = drops(&lan);
        let mut wanted: Vec<Vec<Vec<u8>>> = vec![Vec::new(); 5];
        let mut lost = 0;
        for (number, sent) in batch.iter().enumerate() {
            let to = if sent.to == 5 { Mac::BROADCAST } else { mac(sent.to) };
            let plain = frame(to, mac(0), sent.len, number as u32);
            let bytes = match sent.tag {
                Some((priority, vlan)) => tagged(&plain, priority, vlan),
                None => plain.clone(),
            };
            lan.offers[0].put(&bytes, &sent.pieces);
            let mut heard = false;
            if let Some((vlan, priority, plain)) = ingress(&kinds[0], sent, &plain) {
                let known = (1..5u32).contains(&sent.to) && kinds[sent.to as usize].has(vlan);
                for (port, kind) in kinds.iter().enumerate().skip(1) {
                    let is_for = if known { port as u32 == sent.to } else { sent.to != 0 };
                    if is_for && kind.has(vlan) {
                        let wants_tag = kind.untagged() != Some(vlan);
                        wanted[port].push(if wants_tag { tagged(&plain, priority.unwrap_or(0), vlan) } else { plain.clone() });
                        heard = true;
                    }
                }
            }
            lost += u64::from(!heard);
        }
        lan.pass(0);
        for port in 1..5 {
            prop_assert_eq!(lan.received(port), std::mem::take(&mut wanted[usize::from(port)]), "port {}", port);
        }
        prop_assert_eq!(drops(&lan) - before, lost, "what nobody got is counted");
    }

    /// The offsets of segments and checksums that the receiver completes stay correct.
    #[test]
    fn a_tag_moves_what_an_offload_points_at(into_trunk in any::<bool>(), accepts in any::<bool>(), payload in 100..9000usize) {
        let kinds = [Kind::Access(2), Kind::Trunk(vec![2], None)];
        let (from, to) = if into_trunk { (0u16, 1u16) } else { (1, 0) };
        let mut lan = lan_of(&kinds);
        if accepts {
            lan.sink(to, |kept| kept.accepts = Accepts::EVERYTHING);
        }
        let sample = Sample { payload: vec![7; payload], tags: usize::from(!into_trunk), ..Sample::default() };
        let (mut bytes, offload) = sample.build();
        if !into_trunk {
            bytes[12..16].copy_from_slice(&[0x81, 0, 0, 2]);
        }
        lan.offers[usize::from(from)].put_offloaded(&bytes, &[100, 700], Some(offload));
        lan.pass(from);
        let received = lan.received_offloaded(to);
        prop_assert!(!received.is_empty(), "{:?}", lan.counters(from));
        let mut bare = bytes.clone();
        if !into_trunk { bare.drain(12..16); }
        let other = if into_trunk { tagged(&bytes, 0, 2) } else { bare };
        if accepts {
            let shift = |at: u16| if into_trunk { at + 4 } else { at - 4 };
            let (got, left) = &received[0];
            let left = left.expect("left to the receiver");
            prop_assert_eq!((left.csum_start, left.hdr_len), (shift(offload.csum_start), shift(lan_hdr_len(&bytes, offload))));
            prop_assert_eq!(got, &other);
        } else {
            let finished: Vec<Vec<u8>> = received.into_iter().map(|(bytes, left)| {
                assert_eq!(left, None);
                bytes
            }).collect();
            Sample { tags: usize::from(into_trunk), ..sample }.check(&normal(finished, into_trunk));
        }
    }
}

/// The length of the headers that the switch found.
fn lan_hdr_len(bytes: &[u8], offload: crate::Offload) -> u16 {
    crate::frame::headers::admit(bytes.get(..128).expect("a long frame"), bytes.len(), offload)
        .expect("a good one")
        .0
        .hdr_len
}

/// Sets the tag of the samples.
fn normal(mut frames: Vec<Vec<u8>>, tagged: bool) -> Vec<Vec<u8>> {
    let (with_tag, _) = Sample { tags: 1, ..Sample::default() }.build();
    if tagged {
        frames.iter_mut().for_each(|frame| frame[12..16].copy_from_slice(&with_tag[12..16]));
    }
    frames
}

#[test]
fn an_address_is_learned_once_for_each_vlan() {
    let trunk = || Kind::Trunk(vec![1, 2], None);
    let mut lan = lan_of(&[trunk(), trunk(), trunk()]);
    let from_nine = |to, vlan| tagged(&frame(to, mac(9), 60, 0), 0, vlan);
    lan.send(0, &[from_nine(mac(100), 1)]);
    lan.send(1, &[from_nine(mac(100), 2)]);
    (0..3).for_each(|port| drop(lan.received(port)));
    let to_nine = |vlan| tagged(&frame(mac(9), mac(8), 60, 0), 0, vlan);
    lan.send(2, &[to_nine(1), to_nine(2), to_nine(1)]);
    assert_eq!((lan.received(0), lan.received(1)), (vec![to_nine(1); 2], vec![to_nine(2)]));
    let mut entries: Vec<_> = lan.switch.table().entries().map(|e| (e.vlan, e.mac, e.owner.index())).collect();
    entries.sort_unstable();
    assert_eq!(entries, [(1, mac(8), 2), (1, mac(9), 0), (2, mac(8), 2), (2, mac(9), 1)]);
}

#[test]
fn a_tag_behind_a_tag_does_not_hop_into_another_vlan() {
    let mut lan = lan_of(&[Kind::Access(1), Kind::Trunk(vec![2], Some(1)), Kind::Access(2)]);
    let hop = tagged(&tagged(&frame(Mac::BROADCAST, mac(0), 60, 0), 0, 2), 0, 1);
    let by_priority = tagged(&tagged(&frame(Mac::BROADCAST, mac(0), 60, 0), 0, 2), 7, 0);
    lan.send(0, &[hop, by_priority]);
    assert!(lan.hearers().is_empty());
    assert_eq!(lan.dropped(0, DropReason::VlanStacked), 2);
    // A frame that ends within its tag.
    lan.send(0, &[[&frame(Mac::BROADCAST, mac(0), 12, 0)[..12], &[0x81, 0]].concat()]);
    assert_eq!(lan.dropped(0, DropReason::Runt), 1);
    lan.send(0, &[tagged(&frame(Mac::BROADCAST, mac(0), 60, 0), 0, 2)]);
    assert_eq!(lan.dropped(0, DropReason::VlanDenied), 1);
}

#[test]
fn a_tag_behind_a_tag_is_dropped_where_the_first_would_be_taken_off() {
    // Port 0 is in VLAN 10, and in 1 without tags. The others remove tags of 1, of 10 and of neither.
    let trunk = |vlans: &[u16], native| Kind::Trunk(vlans.to_vec(), native);
    let kinds = [trunk(&[10], Some(1)), trunk(&[10, 20], Some(1)), trunk(&[1, 20], Some(10)), trunk(&[1, 10], None)];
    let mut lan = lan_of(&kinds);
    let stacked = |to, outer| tagged(&tagged(&frame(to, mac(0), 60, 0), 0, 20), 0, outer);
    let counted = |lan: &Lan| lan.dropped(0, DropReason::VlanStacked);
    // (outer tag, ports that get the frame unchanged)
    for (outer, hearers) in [(1, [2, 3]), (0, [2, 3]), (10, [1, 3])] {
        let before = counted(&lan);
        let hop = stacked(Mac::BROADCAST, outer);
        lan.send(0, std::slice::from_ref(&hop));
        let expected = if outer == 0 { stacked(Mac::BROADCAST, 1) } else { hop };
        for port in 1..4 {
            let given = if hearers.contains(&port) { vec![expected.clone()] } else { vec![] };
            assert_eq!(lan.received(port), given, "port {port}, outer tag {outer}");
        }
        assert_eq!(counted(&lan) - before, 1, "outer tag {outer}");
    }
    // As a unicast frame, alone and among others that pass.
    for (port, outer) in [(1, 1), (2, 10)] {
        lan.send(port, &[tagged(&frame(Mac::BROADCAST, mac(port.into()), 60, 0), 0, outer)]);
        (0..4).for_each(|port| drop(lan.received(port)));
        let before = counted(&lan);
        let plain = frame(mac(port.into()), mac(0), 60, 0);
        lan.send(0, &[stacked(mac(port.into()), outer)]);
        lan.send(0, &[stacked(mac(port.into()), outer), tagged(&plain, 0, outer)]);
        assert_eq!((lan.received(port), counted(&lan) - before), (vec![plain], 2), "port {port}");
    }
}

#[test]
fn floods_that_only_a_mirror_could_hear_are_counted() {
    let mut lan = lan_of(&[Kind::Trunk(vec![2, 3], None), Kind::Access(2), Kind::Access(3)]);
    let mirror = crate::Watch { is_mirror: true, ..crate::Watch::default() };
    lan.switch = lan.switch.with_watches([(2, mirror)]);
    let to_all = |vlan| tagged(&frame(Mac::BROADCAST, mac(0), 60, 0), 0, vlan);
    lan.offers[0].put(&to_all(2), &[]);
    lan.offers[0].put(&to_all(3), &[]);
    lan.pass(0);
    assert_eq!(lan.hearers(), [1]);
    assert_eq!(lan.dropped(0, DropReason::VlanDenied), 1, "alone in its VLAN");
}

fn reaching(reach: impl Fn(u16) -> Reach + 'static, ports: u16) -> Lan {
    let change = move |member: Member| Member { reach: reach(member.owner.index()), ..member };
    Plan { change: Box::new(change), ..Plan::new(ports) }.map()
}

#[test]
fn pairs_that_are_not_allowed_and_foreign_uplinks_are_not_reached_by_name() {
    // 0 and 1 allow each other. 2 allows 0, but 0 does not allow 2. 3 and 4 are uplinks; 0 may use only 3.
    let list = |ports: &[u16]| Some(ports.into());
    let reach = move |port| match port {
        0 => Reach { allow: list(&[1]), uplinks: list(&[3]), default_uplink: Some(3), ..Reach::default() },
        2 => Reach { allow: list(&[0, 1]), default_uplink: Some(4), ..Reach::default() },
        3 | 4 => Reach { uplink: true, ..Reach::default() },
        _ => Reach { default_uplink: Some(3), ..Reach::default() },
    };
    let mut lan = reaching(reach, 5);
    let to = |from: u32, to: u32| [frame(mac(to), mac(from), 60, 0)];
    for (from, to_port, denied) in [
        (0, 1, None),
        (1, 0, None),
        (2, 0, Some(DropReason::PairDenied)),
        (0, 2, Some(DropReason::PairDenied)),
        (2, 1, None),
        (0, 3, None),
        (3, 0, None),
        (0, 4, Some(DropReason::UplinkDenied)),
        (4, 0, Some(DropReason::UplinkDenied)),
        (1, 4, None),
        (2, 4, None),
        (3, 4, None),
    ] {
        lan.send(from as u16, &to(from, to_port));
        let heard = lan.hearers();
        match denied {
            None => assert_eq!(heard, [to_port as u16], "{from} to {to_port}"),
            Some(reason) => {
                assert!(heard.is_empty() && lan.dropped(from as u16, reason) > 0, "{from} to {to_port}: {heard:?}");
            }
        }
    }
    // Frames for unknown addresses leave by the port's own uplink. From an uplink they reach no port.
    for (from, hearers) in [(0, &[3u16][..]), (1, &[3]), (2, &[4]), (3, &[]), (4, &[])] {
        lan.send(from, &to(from.into(), 77));
        assert_eq!(lan.hearers(), hearers, "from {from}");
    }
    // A broadcast from 0 reaches the allowed ports.
    lan.send(0, &[frame(Mac::BROADCAST, mac(0), 60, 0)]);
    assert_eq!(lan.hearers(), [1, 3]);
    lan.send(4, &[frame(Mac::BROADCAST, mac(4), 60, 0)]);
    assert_eq!(lan.hearers(), [1, 2, 3]);
}

#[test]
fn the_four_cases_of_known_and_unknown_have_a_rule_each() {
    // Station n is bound to port n. Port 3 is the uplink; 88 and 99 are behind it.
    let reach = |port| Reach { uplink: port == 3, default_uplink: (port != 3).then_some(3), ..Reach::default() };
    let cases = [
        (0u16, mac(0), mac(1), DropReason::LocalDenied),
        (0, mac(0), mac(99), DropReason::OutboundDenied),
        (3, mac(99), mac(0), DropReason::InboundDenied),
        (1, mac(88), mac(99), DropReason::TransitDenied),
    ];
    for denied in 0..16u32 {
        let is = |case: usize| denied >> case & 1 == 0;
        let rules = Rules { local: is(0), outbound: is(1), inbound: is(2), transit: is(3) };
        let mut lan = within(reaching(reach, 4), rules, false);
        for (case, &(from, source, destination, reason)) in cases.iter().enumerate() {
            lan.send(from, &[frame(destination, source, 60, 0)]);
            assert_eq!(lan.hearers().len(), usize::from(is(case)), "{reason:?} under {rules:?}");
            assert_eq!(lan.dropped(from, reason), u64::from(!is(case)), "{reason:?} under {rules:?}");
        }
    }
}

#[test]
fn a_guarded_address_stays_at_its_port_whatever_others_send() {
    let guard = |member: &Member| Guard::new(Checks { mac: true, ..Checks::NONE }, &member.macs, &[]);
    let change = move |member: Member| match member.owner.index() {
        0 => Member {
            policy: Some(Policy { guard: Some(std::sync::Arc::new(guard(&member))), ..Policy::default() }),
            ..member
        },
        _ => member,
    };
    let lan = Plan { change: Box::new(change), port_limit: 10, ..Plan::new(3) }.learning();
    let mut lan = within(lan, Rules::ALLOW, false);
    // Before its first frame, and after another station has claimed the address.
    lan.send(1, &[frame(mac(2), mac(0), 60, 0)]);
    assert!(lan.hearers().is_empty());
    assert_eq!(lan.dropped(1, DropReason::SpoofedMac), 1);
    // Another station that uses all its entries of the table.
    lan.send(1, &(100..200).map(|n| frame(mac(2), mac(n), 60, n)).collect::<Vec<_>>());
    lan.received(2);
    lan.received(0);
    lan.send(2, &[frame(mac(0), mac(2), 60, 0)]);
    assert_eq!(lan.hearers(), [0], "not flooded");
    assert!(lan.switch.table().entries().all(|entry| entry.mac != mac(0)), "nothing of it is learned");
}

#[test]
fn an_address_that_is_bound_and_not_guarded_is_where_it_was_heard_last_also_at_its_own_port() {
    let mut lan = within(Plan::new(3).learning(), Rules::ALLOW, false);
    for port in [0, 1, 0] {
        lan.send(port, &[frame(Mac::BROADCAST, mac(0), 60, 0)]);
        (0..3).for_each(|port| drop(lan.received(port)));
        lan.send(2, &[frame(mac(0), mac(2), 60, 0)]);
        assert_eq!(lan.hearers(), [port], "not flooded");
    }
}
