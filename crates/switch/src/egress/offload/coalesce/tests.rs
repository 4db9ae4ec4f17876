//! Tests of joined TCP segments: cutting them gives the frames that were sent, byte by byte.

use std::collections::HashMap;

use proptest::prelude::*;
use ringway_memory::Mapping;

use crate::testing::samples::{Sample, complete};
use crate::testing::{Lan, Plan, frame, mac};
use crate::{Accepts, Gso, Offload};
use crate::{DropReason, Examined, Headers, Moment, Time, TimeSpent, pass};

const TSO: Accepts = Accepts::EVERYTHING;
type Received = Vec<(Vec<u8>, Option<Offload>)>;

fn lan(accepts: Accepts) -> Lan {
    let lan = Plan { bytes: 4 << 20, ..Plan::new(2) }.map();
    lan.sink(1, |kept| kept.accepts = accepts);
    lan
}

/// A sender of TCP segments.
#[derive(Clone, Debug)]
struct Sender {
    /// The low byte of its port.
    number: u8,
    v6: bool,
    tags: usize,
    tcp_options: usize,
    sequence: u32,
    id: u16,
}

impl Sender {
    fn v4(number: u8) -> Sender {
        Sender { number, v6: false, tags: 0, tcp_options: 3, sequence: u32::MAX - 3000, id: 65_534 }
    }

    /// Returns the next segment with an incomplete checksum, and the offload that names the place of the checksum.
    fn next(&mut self, len: usize, flags: u8) -> (Vec<u8>, Offload) {
        let payload = (0..len).map(|at| (at * 7 + self.id as usize) as u8).collect();
        let Sender { v6, tags, tcp_options, id, sequence, .. } = *self;
        let sample = Sample {
            gso: Gso::None,
            tcp: true,
            v6,
            tags,
            tcp_options,
            id,
            sequence,
            flags,
            payload,
            ..Sample::default()
        };
        let (mut bytes, offload) = sample.build();
        bytes[usize::from(offload.csum_start) + 1] = self.number;
        (self.sequence, self.id) = (sequence.wrapping_add(len as u32), id.wrapping_add(1));
        (bytes, offload)
    }

    fn complete(&mut self, len: usize, flags: u8) -> Vec<u8> {
        let (mut bytes, offload) = self.next(len, flags);
        complete(&mut bytes, &offload);
        bytes
    }
}

/// Cuts what was received into the frames that a wire would have.
fn cut(received: Received) -> Vec<Vec<u8>> {
    let mut wire = Vec::new();
    for (mut bytes, offload) in received {
        match offload {
            None => wire.push(bytes),
            Some(offload) if offload.gso == Gso::None => {
                complete(&mut bytes, &offload);
                wire.push(bytes);
            }
            Some(offload) => {
                let mut lan = lan(Accepts::NOTHING);
                lan.offers[0].put_offloaded(&bytes, &[], Some(offload));
                lan.pass(0);
                let pieces = lan.received(1);
                assert!(pieces.len() > 1, "joined frames are admitted: {:?}", lan.counters(0));
                wire.extend(pieces);
            }
        }
    }
    wire
}

/// Sends frames in one batch to a receiver that accepts these offloads.
fn send(frames: &[(Vec<u8>, Option<Offload>)], accepts: Accepts) -> (Received, u64) {
    let mut lan = lan(accepts);
    for (bytes, offload) in frames {
        lan.offers[0].put_offloaded(bytes, &[], *offload);
    }
    lan.pass(0);
    assert_eq!(lan.counters(0).drops().chain(lan.counters(1).drops()).collect::<Vec<_>>(), []);
    let counters = lan.counters(1);
    let received = lan.received_offloaded(1);
    assert_eq!(counters.out_frames, received.len() as u64);
    assert_eq!(counters.out_frames + counters.coalesced, frames.len() as u64);
    (received, counters.coalesced)
}

fn plain(frames: Vec<Vec<u8>>) -> Vec<(Vec<u8>, Option<Offload>)> {
    frames.into_iter().map(|bytes| (bytes, None)).collect()
}

#[test]
fn segments_of_one_flow_arrive_as_one_frame() {
    for (v6, tags) in [(false, 0), (true, 0), (false, 1), (true, 1), (false, 2)] {
        let mut sender = Sender { v6, tags, ..Sender::v4(1) };
        let mut sent: Vec<_> = (0..9).map(|_| sender.complete(1448, 0x10)).collect();
        sent.push(sender.complete(100, 0x19));
        let (received, coalesced) = send(&plain(sent.clone()), TSO);
        assert_eq!((received.len(), coalesced), (1, 9), "IPv6: {v6}, {tags} tags");
        let offload = received[0].1.expect("an offload");
        assert_eq!((offload.gso, offload.gso_size), (if v6 { Gso::Tcp6 } else { Gso::Tcp4 }, 1448));
        assert!(offload.needs_csum && !offload.ecn);
        assert_eq!(received[0].0.len(), usize::from(offload.hdr_len) + 9 * 1448 + 100);
        assert!(cut(received) == sent);
    }
}

#[test]
fn segments_without_checksum_are_joined_unread() {
    let mut sender = Sender::v4(1);
    let sent: Vec<_> = (0..5).map(|_| sender.next(1000, 0x10)).collect();
    let offloaded: Vec<_> = sent.iter().map(|(bytes, offload)| (bytes.clone(), Some(*offload))).collect();
    let (received, coalesced) = send(&offloaded, TSO);
    assert_eq!((received.len(), coalesced), (1, 4));
    let finished: Vec<_> =
        sent.into_iter().map(|(mut bytes, offload)| (complete(&mut bytes, &offload), bytes).1).collect();
    assert!(cut(received) == finished);
}

#[test]
fn flows_that_alternate_are_joined_each() {
    let mut senders: Vec<Sender> = (0..16).map(Sender::v4).collect();
    let sent: Vec<_> =
        (0..10).flat_map(|_| senders.iter_mut().map(|sender| sender.complete(200, 0x10)).collect::<Vec<_>>()).collect();
    let (received, _) = send(&plain(sent.clone()), TSO);
    assert_eq!(received.len(), 16);
    let (mut wire, mut sent) = (cut(received), sent);
    wire.sort();
    sent.sort();
    assert!(wire == sent);
}

#[test]
fn only_receivers_that_accept_it_are_given_joined_frames() {
    let mut sender = Sender::v4(1);
    let sent = plain((0..4).map(|_| sender.complete(1000, 0x10)).collect());
    for (accepts, frames) in [
        (Accepts::NOTHING, 4),
        (Accepts::CSUM, 4),
        (Accepts::CSUM | Accepts::TSO6, 4),
        (Accepts::TSO4, 4),
        (Accepts::CSUM | Accepts::TSO4, 1),
    ] {
        assert_eq!(send(&sent, accepts).0.len(), frames, "{accepts:?}");
    }
    let mut lan =
        Plan { change: Box::new(|member| crate::Member { coalesces: false, ..member }), ..Plan::new(2) }.map();
    lan.sink(1, |kept| kept.accepts = TSO);
    sent.iter().for_each(|(bytes, _)| lan.offers[0].put(bytes, &[]));
    lan.pass(0);
    assert!(plain(lan.received(1)) == sent, "a port that does not coalesce");
}

/// Each of these differs from a segment that could be appended.
#[test]
fn a_segment_that_differs_is_not_appended_and_keeps_its_place() {
    let mut sender = Sender::v4(1);
    let before: Vec<_> = (0..2).map(|_| sender.complete(500, 0x10)).collect();
    let right = sender.clone();
    let next: Vec<_> = (0..2).map(|_| sender.complete(500, 0x10)).collect();
    let changed = |change: &dyn Fn(&mut Sender) -> Vec<u8>| change(&mut right.clone());
    let byte = |at: usize, xor: u8| {
        changed(&|sender| {
            let (mut bytes, offload) = sender.next(500, 0x10);
            bytes[at] ^= xor;
            fix(&mut bytes, 34, false);
            complete(&mut bytes, &offload);
            bytes
        })
    };
    let others = [
        (
            "a gap",
            changed(&|sender| {
                sender.sequence += 1;
                sender.complete(500, 0x10)
            }),
        ),
        (
            "an overlap",
            changed(&|sender| {
                sender.sequence -= 1;
                sender.complete(500, 0x10)
            }),
        ),
        ("no data", changed(&|sender| sender.complete(0, 0x10))),
        ("a larger segment", changed(&|sender| sender.complete(501, 0x10))),
        (
            "another identification",
            changed(&|sender| {
                sender.id += 1;
                sender.complete(500, 0x10)
            }),
        ),
        (
            "options",
            changed(&|sender| {
                sender.tcp_options = 4;
                sender.complete(496, 0x10)
            }),
        ),
        ("a reset", changed(&|sender| sender.complete(500, 0x14))),
        ("a SYN", changed(&|sender| sender.complete(500, 0x12))),
        ("no ACK", changed(&|sender| sender.complete(500, 0))),
        ("urgent data", changed(&|sender| sender.complete(500, 0x30))),
        ("CWR", changed(&|sender| sender.complete(500, 0x90))),
        ("ECE", changed(&|sender| sender.complete(500, 0x50))),
        ("another type of service", byte(15, 3)),
        ("another time to live", byte(22, 1)),
        ("do not fragment", byte(20, 0x40)),
        ("another acknowledgement", byte(34 + 11, 1)),
        ("another window", byte(34 + 15, 1)),
        ("an urgent pointer", byte(34 + 19, 1)),
        ("a bit that is reserved", byte(34 + 12, 1)),
        ("another option", byte(34 + 25, 1)),
        ("a fragment", byte(20, 0x20)),
        ("a wrong checksum", {
            let mut bytes = next[0].clone();
            bytes[300] ^= 4;
            bytes
        }),
        ("a wrong checksum of IP", {
            let mut bytes = next[0].clone();
            bytes[25] ^= 4;
            bytes
        }),
        ("padding", [&next[0][..], &[0]].concat()),
        ("a frame that is too short", {
            let mut bytes = next[0].clone();
            bytes[17] += 1;
            fix(&mut bytes, 34, true);
            bytes
        }),
    ];
    for (name, other) in others {
        let sent = [before.clone(), vec![other], next.clone()].concat();
        let (received, _) = send(&plain(sent.clone()), TSO);
        assert!((3..=4).contains(&received.len()), "{name}: {} frames", received.len());
        assert!(cut(received) == sent, "{name}");
    }
    // The same with nothing that differs.
    let (received, _) = send(&plain([before, next].concat()), TSO);
    assert_eq!(received.len(), 1);
}

#[test]
fn a_push_or_a_fin_ends_a_joined_frame() {
    let mut sender = Sender::v4(1);
    let flags = [0x10, 0x18, 0x10, 0x10, 0x11, 0x10];
    let sent: Vec<_> = flags.into_iter().map(|flags| sender.complete(500, flags)).collect();
    let (received, _) = send(&plain(sent.clone()), TSO);
    assert_eq!(received.iter().map(|(_, offload)| offload.is_some()).collect::<Vec<_>>(), [true, true, false]);
    assert!(cut(received) == sent);
}

#[test]
fn frames_of_others_stay_and_joined_frames_are_no_longer_than_ip_allows() {
    let mut sender = Sender::v4(1);
    let mut sent: Vec<_> = (0..100).map(|_| sender.complete(1448, 0x10)).collect();
    sent.insert(10, frame(mac(1), mac(0), 300, 7));
    let (received, _) = send(&plain(sent.clone()), TSO);
    assert!(received.iter().all(|(bytes, _)| bytes.len() <= 65_535));
    assert_eq!(received.len(), 4, "45 segments at most, and the other frame");
    let (mut wire, mut sent) = (cut(received), sent);
    wire.sort();
    sent.sort();
    assert!(wire == sent);
}

/// Nothing is joined only to be cut again.
#[test]
fn frames_that_leave_work_to_others_are_joined_for_receivers_that_accept_that_only() {
    let mut sender = Sender::v4(1);
    let mut sent: Vec<_> = (0..4).map(|_| sender.next(500, 0x10)).map(|(bytes, sum)| (bytes, Some(sum))).collect();
    let (datagrams, asks) =
        Sample { gso: Gso::UdpL4, gso_size: 600, payload: vec![1; 1200], ..Sample::default() }.build();
    sent.push((datagrams, Some(asks)));
    for (accepts, joined) in
        [(Accepts::NOTHING, 0), (Accepts::CSUM | Accepts::TSO6, 0), (Accepts::CSUM | Accepts::TSO4, 3)]
    {
        let mut lan = lan(accepts);
        sent.iter().for_each(|(bytes, offload)| lan.offers[0].put_offloaded(bytes, &[], *offload));
        lan.pass(0);
        assert_eq!((lan.counters(1).coalesced, lan.received(1).len()), (joined, 6 - joined as usize), "{accepts:?}");
    }
}

#[test]
fn tags_that_linux_does_not_segment_behind_keep_frames_apart() {
    for (tag, frames) in [([0x88, 0xa8], 1), ([0x91, 0], 3)] {
        let mut sender = Sender { tags: 1, ..Sender::v4(1) };
        let mut sent: Vec<_> = (0..3).map(|_| sender.complete(500, 0x10)).collect();
        sent.iter_mut().for_each(|bytes| bytes[12..14].copy_from_slice(&tag));
        assert_eq!(send(&plain(sent), TSO).0.len(), frames, "{tag:x?}");
    }
}

#[test]
fn joined_frames_are_no_longer_than_the_receiver_takes() {
    let mut sender = Sender::v4(1);
    let segments: Vec<_> = (0..40).map(|_| sender.complete(1448, 0x10)).collect();
    let mut lan = lan(TSO);
    lan.sink(1, |kept| (kept.longest, kept.told_longest) = (9000, 9000));
    lan.send(0, &segments);
    assert_eq!((lan.counters(1).drops().count(), lan.received(1).len()), (0, 7));
    // It does not say so: the first delivery is lost, and the next ones are not joined.
    lan.sink(1, |kept| kept.told_longest = usize::MAX);
    lan.send(0, &segments);
    assert_eq!((lan.dropped(1, DropReason::ReceiverTooSmall), lan.received(1).len()), (1, 0));
    lan.send(0, &segments);
    assert_eq!((lan.dropped(1, DropReason::ReceiverTooSmall), lan.received(1)), (1, segments));
}

#[test]
fn a_congested_receiver_that_is_nearly_full_is_given_what_fits() {
    let mut sender = Sender::v4(1);
    let mut segments = |count: usize| (0..count).map(|_| sender.complete(500, 0x10)).collect::<Vec<_>>();
    let mut lan = lan(TSO);
    lan.sink(1, |kept| kept.room = 0);
    lan.send(0, &segments(2));
    lan.sink(1, |kept| kept.room = 20);
    let (sent, before) = (segments(100), lan.counters(1).coalesced);
    lan.send(0, &sent);
    assert_eq!((lan.received(1), lan.counters(1).coalesced), (sent[..20].to_vec(), before));
    // With room for all of them they are joined.
    lan.sink(1, |kept| kept.room = 100);
    lan.send(0, &segments(100));
    assert_eq!(lan.received(1).len(), 1);
}

#[test]
fn frames_in_vain_for_one_receiver_keep_nothing_from_another() {
    let mut lan = Plan { bytes: 4 << 20, ..Plan::new(3) }.map();
    (1..3).for_each(|port| lan.sink(port, |kept| kept.accepts = TSO));
    let mut sender = Sender::v4(1);
    for _ in 0..30 {
        (0..4).for_each(|number| lan.offers[0].put(&frame(mac(2), mac(0), 300, number), &[]));
        (0..4).for_each(|_| lan.offers[0].put(&sender.complete(500, 0x10), &[]));
        lan.pass(0);
    }
    assert_eq!((lan.counters(1).out_frames, lan.counters(2).out_frames), (30, 120));
}

/// A tenant whose segments cannot be joined, or whose receiver loses joined ones, keeps nothing from any other pair of ports, nor from those
/// of another switch at the same poller.
#[test]
fn frames_that_cannot_be_joined_cost_their_own_pair_only() {
    const PORTS: u16 = 70;
    const TENANTS: [(u16, u16); 4] = [(0, 1), (1, 0), (2, 1), (3, 67)];
    let plan = || {
        let lan = Plan { bytes: 1 << 20, ..Plan::new(PORTS) }.map();
        (0..PORTS).for_each(|port| lan.sink(port, |kept| kept.accepts = TSO));
        lan
    };
    let offer = |lan: &mut Lan, (from, to): (u16, u16), mut sender: Sender, step: u32| {
        for _ in 0..4 {
            let mut bytes = sender.complete(500, 0x10);
            bytes[..6].copy_from_slice(&mac(to.into()).octets());
            lan.offers[usize::from(from)].put(&bytes, &[]);
            sender.sequence = sender.sequence.wrapping_add(step);
        }
        lan.pass(from);
        lan.received(to).len()
    };
    let (mut lan, mut other) = (plan(), plan());
    lan.sink(67, |kept| kept.longest = 1000);
    for _ in 0..190 {
        for pair in TENANTS {
            offer(&mut lan, pair, Sender::v4(1), u32::from(pair.1 != 67));
        }
    }
    assert_eq!(lan.dropped(67, DropReason::ReceiverTooSmall), 1, "joined and lost once");
    assert_eq!(offer(&mut lan, TENANTS[0], Sender::v4(2), 0), 4, "looked at seldom");
    other.work = std::mem::replace(&mut lan.work, crate::Workspace::new(256));
    for (from, to) in (0..8).flat_map(|from| (0..PORTS).map(move |to| (from, to))).filter(|(from, to)| from != to) {
        assert_eq!(offer(&mut other, (from, to), Sender::v4(2), 0), 1, "{from} to {to} in another switch");
    }
    lan.work = other.work;
    for (from, to) in (0..8).flat_map(|from| (0..PORTS).map(move |to| (from, to))).filter(|(from, to)| from != to) {
        if !TENANTS.contains(&(from, to)) && to != 67 {
            assert_eq!(offer(&mut lan, (from, to), Sender::v4(2), 0), 1, "{from} to {to}");
        }
    }
}

/// While passes are examined, a port is told as many frames as it counts, and the bytes of all.
#[test]
fn the_time_that_a_receiver_took_is_told_with_the_bytes_of_joined_frames() {
    let (mut sender, mut lan) = (Sender::v4(1), lan(TSO));
    (0..5).for_each(|_| lan.offers[0].put(&sender.complete(1000, 0x10), &[]));
    let area = Mapping::private(Examined::AREA).expect("memory");
    let mut input = Examined::new(&mut lan.offers[0], &area, Moment::default);
    lan.work.examine(Some(Moment::default));
    pass(&lan.switch, lan.switch.member(0).expect("a port"), &mut input, &mut lan.work, &Time::at_second(1));
    let TimeSpent { frames, bytes, .. } = lan.work.given()[0].spent;
    assert_eq!((lan.counters(1).coalesced, frames, bytes), (4, 1, 5 * (14 + 20 + 32 + 1000)));
}

#[test]
fn a_full_receiver_loses_joined_frames_as_one() {
    let mut lan = lan(TSO);
    lan.sink(1, |kept| kept.room = 1);
    let mut senders = [Sender::v4(1), Sender::v4(2)];
    for _ in 0..4 {
        senders.iter_mut().for_each(|sender| lan.offers[0].put(&sender.complete(500, 0x10), &[]));
    }
    lan.pass(0);
    assert_eq!(
        (lan.counters(1).out_frames, lan.counters(1).coalesced, lan.dropped(1, DropReason::ReceiverFull)),
        (1, 6, 1)
    );
}

/// Corrects the checksum of an IPv4 header, and with `all` that of TCP.
fn fix(frame: &mut [u8], transport: usize, all: bool) {
    let ip = transport - 20;
    frame[ip + 10..ip + 12].fill(0);
    let field = ip as u16;
    let mut header = frame[..transport].to_vec();
    complete(&mut header, &Offload { csum_start: field, csum_offset: 10, needs_csum: true, ..Offload::default() });
    frame[ip + 10..ip + 12].copy_from_slice(&header[ip + 10..ip + 12]);
    if all {
        let len = (frame.len() - transport) as u16;
        let pseudo: Vec<u8> = [&frame[ip + 12..transport], &[0, 6], &len.to_be_bytes()].concat();
        frame[transport + 16..transport + 18].fill(0);
        let mut whole = [&pseudo[..], &frame[transport..]].concat();
        complete(&mut whole, &Offload { csum_start: 0, csum_offset: 28, needs_csum: true, ..Offload::default() });
        frame[transport + 16..transport + 18].copy_from_slice(&whole[28..30]);
    }
}

/// The addresses and ports of a TCP segment. Frames of other protocols have no flow.
fn flow_of(frame: &[u8]) -> Option<&[u8]> {
    let headers = Headers::read(&frame[..frame.len().min(128)]).filter(|headers| headers.protocol == 6)?;
    let addresses = headers.ip + if headers.v6 { 8 } else { 12 };
    frame.get(addresses..headers.transport + 4)
}

/// What happens to one segment of a hostile sender.
#[derive(Clone, Debug)]
struct Step {
    sender: usize,
    len: usize,
    flags: u8,
    /// Added to the sequence number and to the identification before the segment.
    jump: (i8, u16),
    /// A byte of the headers that changes, and whether the checksums are corrected afterwards.
    change: Option<(usize, u8, bool)>,
    /// The checksum is left to the receiver.
    is_partial: bool,
    pieces: Vec<usize>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = prop_oneof![6 => Just(700usize), 1 => 0..701usize, 1 => 0..1500usize];
    let flags = prop_oneof![8 => Just(0x10u8), 1 => Just(0x18), 1 => any::<u8>()];
    let jump = prop_oneof![8 => Just((0i8, 0u16)), 1 => (-2..3i8, 0..2u16)];
    let change = proptest::option::weighted(0.15, (12..80usize, any::<u8>(), any::<bool>()));
    let pieces = prop_oneof![3 => Just(Vec::new()), 1 => proptest::collection::vec(1..200usize, 0..6)];
    let step = (0..4usize, len, flags, jump, change, any::<bool>(), pieces).prop_map(
        |(sender, len, flags, jump, change, is_partial, pieces)| Step {
            sender,
            len,
            flags,
            jump,
            change,
            is_partial,
            pieces,
        },
    );
    proptest::collection::vec(step, 1..100)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever senders do to their segments: each frame arrives as it was sent, and the frames of a flow in their order.
    #[test]
    fn whatever_is_joined_is_cut_to_what_was_sent(
        steps in steps(),
        shapes in proptest::collection::vec((any::<bool>(), 0..3usize, 0..11usize, any::<u32>(), any::<u16>()), 4),
    ) {
        let mut senders: Vec<Sender> = (1..).zip(&shapes).map(|(number, &(v6, tags, tcp_options, sequence, id))| {
            Sender { number, v6, tags, tcp_options, sequence, id }
        }).collect();
        let mut lan = lan(TSO);
        let mut sent = Vec::new();
        for step in &steps {
            let sender = &mut senders[step.sender];
            sender.sequence = sender.sequence.wrapping_add_signed(step.jump.0.into());
            sender.id = sender.id.wrapping_add(step.jump.1);
            let (mut bytes, offload) = sender.next(step.len, step.flags);
            let mut finished = bytes.clone();
            let offload = match step.change {
                None => {
                    complete(&mut finished, &offload);
                    if !step.is_partial { bytes.clone_from(&finished) }
                    step.is_partial.then_some(offload)
                }
                Some((at, value, is_fixed)) => {
                    complete(&mut bytes, &offload);
                    if let Some(place) = bytes.get_mut(at) { *place = value }
                    if is_fixed && !sender.v6 { fix(&mut bytes, offload.csum_start.into(), true) }
                    finished.clone_from(&bytes);
                    None
                }
            };
            lan.offers[0].put_offloaded(&bytes, &step.pieces, offload);
            sent.push(finished);
        }
        lan.pass(0);
        prop_assert_eq!(lan.counters(0).drops().collect::<Vec<_>>(), []);
        let coalesced = lan.counters(1).coalesced;
        let received = lan.received_offloaded(1);
        prop_assert_eq!(received.len() as u64 + coalesced, sent.len() as u64);
        let wire = cut(received);
        prop_assert_eq!(wire.len(), sent.len());
        let mut of_flows: HashMap<_, (Vec<_>, Vec<_>)> = HashMap::new();
        for (cut, sent) in wire.iter().zip(&sent) {
            of_flows.entry(flow_of(cut)).or_default().0.push(cut);
            of_flows.entry(flow_of(sent)).or_default().1.push(sent);
        }
        for (flow, (mut cut, mut sent)) in of_flows {
            if flow.is_none() {
                cut.sort();
                sent.sort();
            }
            prop_assert!(cut == sent, "{flow:?}");
        }
    }
}
