//! Destinations and counts of frames.

use std::sync::Arc;

use crate::testing::{Lan, Plan, frame, group, mac, number};
use crate::{DropReason, FloodAction, FloodPolicy, Learning, Mac, MacTable, Member, Owner, PortFault, Switch};

/// Returns a switch whose ports have each sent a frame, so that station `n` is learned at port `n`.
fn acquainted(plan: Plan) -> Lan {
    let ports = plan.ports;
    let mut lan = plan.learning();
    for port in 0..ports.min(8) {
        lan.send(port, &[frame(Mac::BROADCAST, mac(port.into()), 60, 0)]);
    }
    (0..ports).for_each(|port| drop(lan.received(port)));
    lan
}

#[test]
fn broadcast_multicast_and_unknown_frames_reach_every_port_but_the_sender() {
    for to in [Mac::BROADCAST, group(1), mac(99)] {
        let mut lan = Plan::new(5).learning();
        let sent = frame(to, mac(2), 60, 7);
        lan.send(2, std::slice::from_ref(&sent));
        for port in [0, 1, 3, 4] {
            assert_eq!(lan.received(port), std::slice::from_ref(&sent), "{to} at port {port}");
        }
        assert_eq!(lan.received(2), Vec::<Vec<u8>>::new(), "{to} came back");
        assert_eq!(lan.counters(2).drops().count(), 0, "{to}");
    }
}

#[test]
fn a_learned_address_gets_its_frames_at_its_port_only() {
    let mut lan = acquainted(Plan::new(4));
    let sent = frame(mac(3), mac(0), 1514, 1);
    lan.send(0, std::slice::from_ref(&sent));
    assert_eq!(lan.received(3), [sent]);
    assert_eq!(lan.hearers(), []);
}

#[test]
fn a_station_that_moves_gets_its_frames_at_the_new_port_from_its_first_frame_on() {
    let mut lan = acquainted(Plan::new(4));
    lan.send(2, &[frame(mac(1), mac(3), 60, 0)]);
    assert_eq!(lan.hearers(), [1]);
    lan.send(0, &[frame(mac(3), mac(0), 60, 1)]);
    assert_eq!(lan.hearers(), [2]);
    let owners: Vec<_> = lan.switch.table().entries().filter(|e| e.mac == mac(3)).map(|e| e.owner.index()).collect();
    assert_eq!(owners, [2]);
}

#[test]
fn a_frame_for_a_station_on_the_senders_own_port_is_not_sent_back() {
    let mut lan = acquainted(Plan::new(3));
    lan.send(0, &[frame(mac(1), mac(50), 60, 0), frame(mac(50), mac(0), 60, 1), frame(mac(50), mac(50), 60, 2)]);
    assert_eq!(lan.hearers(), [1]);
    assert_eq!(lan.dropped(0, DropReason::SamePort), 2);
}

#[test]
fn a_port_in_its_next_generation_does_not_inherit_the_addresses_of_the_one_before() {
    let mut lan = acquainted(Plan::new(4));
    let members: Vec<Member> = lan.switch.members().cloned().collect();
    let renewed = members.into_iter().map(|mut member| {
        if member.owner.index() == 3 {
            member.owner = Owner::new(3, 1);
        }
        member
    });
    let table = lan.switch.table().clone();
    lan.switch = Switch::new("lan0", renewed, table, Box::new(crate::Learning), FloodPolicy::default());
    lan.send(0, &[frame(mac(3), mac(0), 60, 0)]);
    assert_eq!(lan.hearers(), [1, 2, 3], "unknown again, so flooded");
    lan.send(1, &[frame(mac(0), mac(3), 60, 1)]);
    lan.send(0, &[frame(mac(3), mac(0), 60, 2)]);
    assert_eq!(lan.received(1).len(), 1, "learned anew at another port");
}

#[test]
fn a_map_switch_sends_to_bound_addresses_and_drops_the_rest_by_name() {
    let mut lan = Plan::new(4).map();
    lan.send(0, &[frame(mac(3), mac(0), 60, 0), frame(mac(77), mac(0), 60, 1), frame(mac(0), mac(0), 60, 2)]);
    assert_eq!(lan.received(3).len(), 1);
    assert_eq!(lan.hearers(), []);
    assert_eq!(lan.dropped(0, DropReason::NoDestination), 1);
    assert_eq!(lan.dropped(0, DropReason::SamePort), 1);
    // Sending from an address does not bind it.
    lan.send(1, &[frame(mac(3), mac(77), 60, 3)]);
    lan.send(0, &[frame(mac(77), mac(0), 60, 4)]);
    assert_eq!(lan.hearers(), [3]);
    assert_eq!(lan.dropped(0, DropReason::NoDestination), 2);
    lan.send(0, &[frame(Mac::BROADCAST, mac(0), 60, 5)]);
    assert_eq!(lan.hearers(), [1, 2, 3]);
}

#[test]
fn each_class_of_frames_without_a_single_destination_follows_its_own_setting() {
    let classes = [
        (Mac::BROADCAST, DropReason::GroupDropped),
        (group(9), DropReason::GroupDropped),
        (mac(99), DropReason::NoDestination),
    ];
    for chosen in 0..classes.len() {
        for spread in [FloodAction::Drop, FloodAction::Port(3)] {
            let of = |class| if class == chosen { spread } else { FloodAction::Flood };
            let flood_policy =
                FloodPolicy { broadcast: of(0), multicast: of(1), unknown_unicast: of(2), ..FloodPolicy::default() };
            let mut lan = Plan { flood_policy, ..Plan::new(5) }.learning();
            for (class, (to, reason)) in classes.into_iter().enumerate() {
                lan.send(1, &[frame(to, mac(1), 60, 0)]);
                let expected: &[u16] = match of(class) {
                    FloodAction::Flood => &[0, 2, 3, 4],
                    FloodAction::Drop => &[],
                    FloodAction::Port(_) => &[3],
                };
                assert_eq!(lan.hearers(), expected, "{to} with {flood_policy:?}");
                let dropped = u64::from(of(class) == FloodAction::Drop);
                if class == chosen {
                    assert_eq!(lan.dropped(1, reason), dropped, "{to} with {flood_policy:?}");
                }
            }
        }
    }
}

#[test]
fn the_port_that_answers_a_class_can_send_such_frames_without_hearing_itself() {
    let flood_policy = FloodPolicy { multicast: FloodAction::Port(1), ..FloodPolicy::default() };
    let mut lan = Plan { flood_policy, ..Plan::new(3) }.learning();
    lan.send(1, &[frame(group(1), mac(1), 60, 0)]);
    assert_eq!(lan.hearers(), []);
    assert_eq!(lan.dropped(1, DropReason::SamePort), 1);
    let flood_policy = FloodPolicy { multicast: FloodAction::Port(9), ..FloodPolicy::default() };
    let mut lan = Plan { flood_policy, ..Plan::new(3) }.learning();
    lan.send(1, &[frame(group(1), mac(1), 60, 0)]);
    assert_eq!(lan.dropped(1, DropReason::NoDestination), 1, "the port that answers is not there");
}

#[test]
fn isolated_ports_reach_the_others_but_not_each_other() {
    let mut lan = acquainted(Plan { isolated: vec![1, 2], ..Plan::new(4) });
    lan.send(1, &[frame(mac(2), mac(1), 60, 0), frame(mac(0), mac(1), 60, 1), frame(Mac::BROADCAST, mac(1), 60, 2)]);
    assert_eq!(lan.received(0).len(), 2);
    assert_eq!(lan.received(3).len(), 1);
    assert_eq!(lan.hearers(), []);
    assert_eq!(lan.dropped(1, DropReason::Isolated), 1);
    lan.send(3, &[frame(Mac::BROADCAST, mac(3), 60, 3), frame(mac(2), mac(3), 60, 4)]);
    assert_eq!(lan.received(2).len(), 2);
    assert_eq!(lan.hearers(), [0, 1]);
}

#[test]
fn a_flooded_frame_that_nobody_may_hear_is_counted() {
    let mut lan = Plan { isolated: vec![0, 1], ..Plan::new(2) }.learning();
    lan.send(0, &[frame(Mac::BROADCAST, mac(0), 60, 0), frame(mac(9), mac(0), 60, 1)]);
    assert_eq!(lan.hearers(), []);
    assert_eq!(lan.dropped(0, DropReason::NoDestination), 2);
    let mut alone = Plan::new(1).learning();
    alone.send(0, &[frame(Mac::BROADCAST, mac(0), 60, 0)]);
    assert_eq!(alone.dropped(0, DropReason::NoDestination), 1);
}

#[test]
fn a_flow_keeps_its_order_when_unicast_and_flooded_frames_alternate() {
    for period in [2, 3, 5, 7] {
        let mut lan = acquainted(Plan::new(4));
        let to = |n: u32| match n % period {
            0 => Mac::BROADCAST,
            1 => mac(1),
            2 => mac(2),
            3 => group(1),
            _ => mac(99),
        };
        let sent: Vec<_> = (0..1000).map(|n| frame(to(n), mac(0), 60 + n as usize % 700, n)).collect();
        lan.send(0, &sent);
        for port in 1..4 {
            let expected: Vec<_> = sent
                .iter()
                .filter(|f| {
                    let to = to(number(f));
                    to.is_group() || to == mac(99) || to == mac(u32::from(port))
                })
                .cloned()
                .collect();
            assert!(lan.received(port) == expected, "period {period}, port {port}");
        }
    }
}

#[test]
fn each_destination_of_a_batch_is_served_once() {
    let mut lan = acquainted(Plan::new(6));
    let sent: Vec<_> = (0..250).map(|n| frame(mac(1 + n % 4), mac(0), 60, n)).collect();
    lan.sink(5, |kept| kept.rings = 0);
    for port in 0..6 {
        lan.sink(port, |kept| (kept.deliveries.clear(), kept.rings = 0));
    }
    lan.send(0, &sent);
    for port in 1..5 {
        assert_eq!(lan.sink(port, |kept| kept.deliveries.len()), 1, "port {port}");
        assert_eq!(lan.sink(port, |kept| kept.rings), 1, "port {port}");
        let numbers: Vec<_> = lan.received(port).iter().map(|f| number(f)).collect();
        assert_eq!(numbers, (u32::from(port) - 1..250).step_by(4).collect::<Vec<_>>());
    }
    assert_eq!(lan.sink(5, |kept| (kept.deliveries.len(), kept.rings)), (0, 0), "nothing went there");
}

#[test]
fn every_batch_size_moves_every_frame_once_and_in_order() {
    for batch in [1, 2, 255, 256, 1024] {
        let mut lan = acquainted(Plan { batch, ..Plan::new(3) });
        let sent: Vec<_> = (0..2500).map(|n| frame(mac(1 + n / 2 % 2), mac(0), 60 + n as usize % 64, n)).collect();
        for frame in &sent {
            lan.offers[0].put(frame, &[]);
        }
        let mut most = 0;
        while !lan.offers[0].is_empty() {
            most = most.max(lan.pass(0).frames);
        }
        assert_eq!(most, batch as u64, "a batch is filled when there are frames");
        for port in 1..3 {
            let to = u32::from(port);
            let expected: Vec<_> = sent.iter().filter(|f| 1 + number(f) / 2 % 2 == to).cloned().collect();
            assert!(lan.received(port) == expected, "batch {batch}, port {port}");
        }
        assert_eq!(lan.counters(0).in_frames, 2501, "batch {batch}");
    }
}

#[test]
fn a_switch_of_thousands_of_ports_reaches_each() {
    for ports in [1025, 4096] {
        let mut lan = Plan::new(ports).learning();
        lan.send(0, &[frame(Mac::BROADCAST, mac(0), 60, 0)]);
        assert_eq!(lan.hearers().len(), usize::from(ports) - 1);
        let last = ports - 1;
        lan.send(last, &[frame(mac(0), mac(last.into()), 60, 1)]);
        assert_eq!(lan.hearers(), [0]);
        lan.send(0, &[frame(mac(last.into()), mac(0), 60, 2)]);
        assert_eq!(lan.hearers(), [last]);
        // One batch with a frame for each of many ports, and one for all.
        for port in 1..1025 {
            lan.send(port, &[frame(mac(0), mac(port.into()), 60, 3)]);
        }
        drop(lan.hearers());
        lan.work = crate::Workspace::new(1024);
        let mut sent: Vec<_> = (1..1024).map(|n| frame(mac(n), mac(0), 60, n)).collect();
        sent.push(frame(Mac::BROADCAST, mac(0), 60, 4));
        lan.send(0, &sent);
        for port in 1..ports {
            assert_eq!(lan.received(port).len(), if port < 1024 { 2 } else { 1 }, "port {port} of {ports}");
        }
    }
}

#[test]
fn a_dropped_frame_is_counted_by_its_reason_at_the_port_that_caused_it() {
    let flood_policy = FloodPolicy { unknown_unicast: FloodAction::Drop, ..FloodPolicy::default() };
    let mut lan = acquainted(Plan { flood_policy, isolated: vec![1, 2], ..Plan::new(4) });
    let before = lan.counters(1);
    let reserved: Mac = "01:80:c2:00:00:0e".parse().expect("an address");
    let zero = Mac::new([0; 6]);
    lan.send(
        1,
        &[
            vec![0xff; 13],
            frame(mac(0), group(1), 60, 0),
            frame(mac(0), Mac::BROADCAST, 60, 0),
            frame(mac(0), zero, 60, 0),
            frame(mac(1), mac(1), 60, 0),
            frame(mac(55), mac(1), 60, 0),
            frame(reserved, mac(1), 60, 0),
            frame(mac(2), mac(1), 60, 0),
        ],
    );
    lan.offers[1].refuse = vec![DropReason::Oversize, DropReason::BadBuffer, DropReason::BadBuffer];
    assert_eq!(lan.pass(1).frames, 3);
    let expected = [
        (DropReason::Runt, 1),
        (DropReason::Oversize, 1),
        (DropReason::BadBuffer, 2),
        (DropReason::BadSource, 3),
        (DropReason::SamePort, 1),
        (DropReason::NoDestination, 1),
        (DropReason::BridgeReserved, 1),
        (DropReason::Isolated, 1),
    ];
    assert_eq!(lan.counters(1).drops().collect::<Vec<_>>(), expected);
    assert_eq!(lan.counters(1).in_frames - before.in_frames, 11);
    for other in [0, 2, 3] {
        assert_eq!(lan.counters(other).drops().count(), 0, "port {other} did nothing");
    }
    assert_eq!(lan.hearers(), []);
}

#[test]
fn a_source_that_no_station_can_have_is_refused_even_in_the_very_first_frame() {
    for bad in [Mac::BROADCAST, Mac::new([0; 6]), group(1)] {
        for to in [mac(1), mac(99), Mac::BROADCAST, group(2)] {
            for map in [false, true] {
                let mut lan = if map { Plan::new(3).map() } else { Plan::new(3).learning() };
                lan.send(0, &[frame(to, bad, 60, 0)]);
                assert_eq!(lan.hearers(), [], "{bad} to {to}");
                assert_eq!(lan.dropped(0, DropReason::BadSource), 1, "{bad} to {to}");
                assert_eq!(lan.switch.table().entries().count(), 0);
            }
        }
    }
}

#[test]
fn frames_of_a_port_with_any_source_are_forwarded_and_nothing_is_learned_from_a_source_that_is_no_station() {
    let plan = || Plan { change: Box::new(|member| Member { any_source: true, ..member }), ..Plan::new(3) };
    for bad in [Mac::BROADCAST, Mac::new([0; 6]), group(1)] {
        for to in [mac(1), Mac::new([0; 6]), Mac::BROADCAST, group(2)] {
            let mut lan = plan().learning();
            lan.send(0, &[frame(to, bad, 60, 0)]);
            assert_eq!(lan.hearers(), [1, 2], "{bad} to {to}");
            assert_eq!(lan.switch.table().entries().count(), 0, "{bad} to {to}");
            let mut lan = plan().map();
            lan.send(0, &[frame(to, bad, 60, 0)]);
            assert_eq!((lan.hearers(), lan.dropped(0, DropReason::BadSource)), (vec![], 1), "{bad} to {to}, by map");
        }
    }
    let mut lan = plan().learning();
    lan.send(0, &[frame(mac(1), mac(0), 60, 0), frame(mac(1), Mac::BROADCAST, 60, 0)]);
    assert_eq!(lan.switch.table().entries().count(), 1, "stations are learned");
}

#[test]
fn a_full_receiver_is_counted_at_the_receiver_and_others_still_get_theirs() {
    let mut lan = acquainted(Plan::new(3));
    lan.sink(1, |kept| kept.room = 10);
    let before = [lan.counters(1), lan.counters(2)];
    let sent: Vec<_> = (0..64).map(|n| frame(mac(1 + n % 2), mac(0), 60, n)).collect();
    lan.send(0, &sent);
    assert_eq!(lan.dropped(1, DropReason::ReceiverFull), 22);
    assert_eq!(lan.counters(1).out_frames - before[0].out_frames, 10);
    assert_eq!(lan.counters(2).out_frames - before[1].out_frames, 32);
    assert_eq!(lan.counters(0).drops().count(), 0, "not the sender's doing");
}

#[test]
fn unicast_frames_taken_are_frames_delivered_plus_frames_dropped() {
    let mut lan = acquainted(Plan { bytes: 8 << 20, ..Plan::new(4) });
    lan.sink(2, |kept| kept.room = 100);
    let start: Vec<_> = (0..4).map(|port| lan.counters(port)).collect();
    let to = |n: u32| [mac(1), mac(2), mac(3), mac(0)][n as usize % 4];
    let sent: Vec<_> = (0..3000)
        .map(|n| if n % 11 == 0 { vec![1; 12] } else { frame(to(n), mac(0), 60 + n as usize % 1400, n) })
        .collect();
    lan.send(0, &sent);
    let end: Vec<_> = (0..4).map(|port| lan.counters(port)).collect();
    let taken = end[0].in_frames - start[0].in_frames;
    let given: u64 = (0..4).map(|port| end[port].out_frames - start[port].out_frames).sum();
    let lost: u64 = end.iter().flat_map(|reading| reading.drops().map(|(_, n)| n).collect::<Vec<_>>()).sum();
    assert_eq!(taken, 3000);
    assert_eq!(taken, given + lost);
    let bytes: usize = sent.iter().filter(|f| f.len() > 13).map(Vec::len).sum();
    assert_eq!(end[0].in_bytes - start[0].in_bytes, bytes as u64);
    let received: usize = (1..4).flat_map(|port| lan.received(port)).map(|f| f.len()).sum();
    assert_eq!((0..4).map(|port| end[port].out_bytes - start[port].out_bytes).sum::<u64>(), received as u64);
}

#[test]
fn a_faulty_receiver_is_named_and_costs_the_others_nothing() {
    let mut lan = acquainted(Plan::new(4));
    let fault = PortFault::RxHeadOutOfRange(9);
    lan.sink(2, |kept| kept.fault = Some(fault));
    lan.offers[0].put(&frame(Mac::BROADCAST, mac(0), 60, 0), &[]);
    let passed = lan.pass(0);
    assert!(passed.receiver_fault);
    assert_eq!(passed.fault, None);
    let faults: Vec<_> = lan.switch.members().map(|member| member.port.fault()).collect();
    assert_eq!(faults, [None, None, Some(fault), None]);
    assert_eq!((lan.received(1).len(), lan.received(3).len()), (1, 1));
}

#[test]
fn frames_taken_before_the_sender_broke_the_rules_are_still_delivered() {
    let mut lan = acquainted(Plan::new(2));
    lan.offers[0].put(&frame(mac(1), mac(0), 60, 5), &[]);
    lan.offers[0].fault = Some(PortFault::EndlessFrame);
    let passed = lan.pass(0);
    assert_eq!(passed.fault, Some(PortFault::EndlessFrame));
    assert_eq!(lan.received(1).len(), 1);
    assert!(lan.offers[0].is_empty(), "and their memory is the client's again");
}

#[test]
fn a_port_at_its_limit_of_addresses_can_still_send() {
    let mut lan = Plan { port_limit: 4, ..Plan::new(2) }.learning();
    let sent: Vec<_> = (0..100).map(|n| frame(mac(7777), mac(1000 + n), 60, n)).collect();
    lan.send(0, &sent);
    assert_eq!(lan.received(1).len(), 100);
    assert_eq!(lan.switch.table().entries().count(), 4);
    assert_eq!(lan.switch.table().learned(0), 4);
}

#[test]
fn a_port_that_leaves_takes_nothing_of_the_limit_of_the_next_one_with_its_index() {
    let mut lan = Plan { port_limit: 4, ..Plan::new(2) }.learning();
    let flood = |stations: std::ops::Range<u32>| stations.map(|n| frame(mac(7777), mac(n), 60, n)).collect::<Vec<_>>();
    lan.send(0, &flood(1000..1100));
    let (table, member) = (Arc::clone(lan.switch.table()), lan.switch.member(0).expect("a port").clone());
    let owner = Owner::new(0, 1);
    let new = || Member { owner, ..member.clone() };
    let next = Switch::new("lan0", [new()], Arc::clone(&table), Box::new(Learning), FloodPolicy::default());
    // Its poller has not seen the new topology yet.
    lan.send(0, &flood(2000..2100));
    lan.switch = next;
    lan.send(0, &flood(3000..3100));
    let learned = table.entries().filter(|entry| entry.owner == owner).count();
    assert_eq!((learned, table.learned(0)), (4, 4));
}

#[test]
fn learning_notes_when_an_address_was_last_heard() {
    let mut lan = Plan::new(2).learning();
    let heard = |table: &MacTable| table.entries().map(|e| (e.mac, e.heard)).collect::<Vec<_>>();
    lan.now = 5;
    lan.send(0, &[frame(Mac::BROADCAST, mac(0), 60, 0)]);
    assert_eq!(heard(lan.switch.table()), [(mac(0), 5)]);
    lan.now = 9;
    lan.send(0, &[frame(Mac::BROADCAST, mac(0), 60, 1)]);
    assert_eq!(heard(lan.switch.table()), [(mac(0), 9)]);
}
