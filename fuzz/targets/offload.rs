//! An offload header with a frame, to receivers that accept any part of it, in VLANs that put a tag on or take one off.
//!
//! The input says how the frame is made (of the input's own bytes; or of tags, options and extension headers up to the limit of
//! the private copy, with the checksum where it belongs or elsewhere), which tags its receiver wants, what it accepts, how the
//! frame lies in memory, and the header. Whatever they are: nothing panics, each frame is delivered or counted, what is
//! delivered claims what its sender's frame claimed, is no longer than what was asked for, and the payload bytes add up.
#![no_main]

mod frames;

use std::sync::{Arc, Mutex};

use frames::{Offer, Silent, Sink};
use libfuzzer_sys::fuzz_target;
use ringway_switch::policy::{Bound, Claims, Domain, Membership, Rules};
use ringway_switch::{
    Accepts, DropReason, FloodPolicy, Gso, Mac, MacMap, MacTable, Member, Offload, Owner, Port, Switch, Time,
    Workspace, pass,
};

const SETS: [Accepts; 6] = [Accepts::CSUM, Accepts::TSO4, Accepts::TSO6, Accepts::ECN, Accepts::UFO, Accepts::USO];

/// The VLAN of frames without a tag.
const NATIVE: u16 = 9;
/// In the first byte: the frame is made of parts; its sum is where it belongs; what happens to tags.
const MADE: u8 = 0x80;
const RIGHT: u8 = 0x40;
const ADD: u8 = 1;
const REMOVE: u8 = 2;

/// Takes a byte of the input, or a zero behind its end.
fn take(data: &mut &[u8]) -> u8 {
    let (first, others) = data.split_first().map_or((0, &[][..]), |(first, others)| (*first, others));
    *data = others;
    first
}

/// The part of a frame behind its addresses up to its transport header and some of that, and where that begins and its sum goes.
fn make(data: &mut &[u8]) -> (Vec<u8>, u16, u16) {
    let mut frame = Vec::new();
    for _ in 0..take(data) % 4 {
        let kind = [0x81, 0x88, 0x91, 0x93][usize::from(take(data) % 4)];
        frame.extend([kind, if kind == 0x88 { 0xa8 } else { 0 }, take(data), take(data)]);
    }
    let shape = take(data);
    let protocol = [6, 17, 17, 47, 58, 6, 17, take(data)][usize::from(shape >> 5)];
    let extensions: Vec<(u8, u8)> =
        (0..shape % 8).map(|_| ([0, 43, 60, 60][usize::from(take(data) % 4)], take(data) % 12)).collect();
    if shape & 8 == 0 {
        let words = shape % 8 + (shape >> 4 & 1) * 3;
        frame.extend([8, 0, 0x45 + words, 0, 3, 0, 0, 9, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(std::iter::repeat_n(1, 4 * usize::from(words)));
    } else {
        let kinds: Vec<u8> = extensions.iter().map(|(kind, _)| *kind).chain([protocol]).collect();
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 3, 0, kinds[0], 64]);
        frame.extend([0xfd; 16].into_iter().chain([0xfc; 16]));
        for ((_, more), next) in extensions.iter().zip(&kinds[1..]) {
            frame.extend([*next, *more, 1, 8 * more + 4]);
            frame.extend(std::iter::repeat_n(0, 4 + 8 * usize::from(*more)));
        }
    }
    let start = 12 + frame.len() as u16;
    match protocol {
        6 => frame.extend([1, 2, 3, 4, 0, 0, 0, 1, 0, 0, 0, 2, (5 + take(data) % 11) << 4, 0x18, 2, 0, 0, 0, 0, 0]),
        17 => frame.extend([1, 2, 3, 4, 3, 0, 0, 0]),
        _ => frame.extend([0x80, 0, 8, 0, 0, 0, 0, 0]),
    }
    (
        frame,
        start,
        if protocol == 6 {
            16
        } else if protocol == 17 {
            6
        } else {
            4
        },
    )
}

fuzz_target!(|data: &[u8]| {
    let Some((&[shape, sets, cuts], data)) = data.split_first_chunk::<3>() else { return };
    let Some((header, data)) = data.split_first_chunk::<{ Offload::BYTES }>() else { return };
    let Some((more, mut data)) = data.split_first_chunk::<2>().map(|(more, data)| (*more, data)) else { return };
    let mut header = *header;
    let mut begin = Vec::new();
    if shape & MADE != 0 {
        let (bytes, start, offset) = make(&mut data);
        begin = bytes;
        if shape & RIGHT != 0 {
            header[6..8].copy_from_slice(&start.to_le_bytes());
            header[8..10].copy_from_slice(&offset.to_le_bytes());
        }
    }
    let Ok(offload) = Offload::decode(&header) else { return };
    assert_eq!(Offload::decode(&Offload::encode(offload.as_ref())), Ok(offload));

    // The frame: to the receiver, from a station, and the rest of the input, repeated up to a length.
    let len = 14 + usize::from(u16::from_le_bytes(more));
    let addresses = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0];
    let behind = data.iter().copied().chain([0]).cycle();
    let sent: Vec<u8> = addresses.into_iter().chain(begin).chain(behind).take(len).collect();
    let step = if cuts == 0 { len } else { (usize::from(cuts) * 7).max(len / 60 + 1) };
    let tag = (sent[12..14] == [0x81, 0] && len >= 18).then(|| u16::from_be_bytes([sent[14], sent[15]]) & 0x0fff);

    let partial = SETS
        .iter()
        .enumerate()
        .filter(|(bit, _)| sets >> bit & 1 == 1)
        .fold(Accepts::NOTHING, |all, (_, &one)| all | one);
    for accepts in [Accepts::NOTHING, partial, Accepts::EVERYTHING] {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let outputs = [Accepts::NOTHING, accepts].map(|accepts| Sink { accepts, kept: Arc::clone(&kept) });
        let native = if shape & REMOVE != 0 { tag.filter(|tag| *tag > 0).or(Some(NATIVE)) } else { None };
        let vlans = [Membership::trunk(1..4095, Some(NATIVE)), Membership::trunk(1..4095, native)];
        let members: Vec<Member> = (0..)
            .zip(outputs)
            .zip(vlans)
            .map(|((index, output), vlans)| Member {
                macs: vec![Mac::new([2, 0, 0, 0, 0, index as u8])],
                vlans,
                ..Member::new(Owner::new(index, 0), Arc::new(Port::new("fuzz", Box::new(output), Box::new(Silent))))
            })
            .collect();
        let table = Arc::new(MacTable::new(64, 8, [3, 5]));
        let (forward, bound) = (Box::new(MacMap::new(&members)), Bound::new(&members));
        let switch = Switch::new("fuzz", members, table, forward, FloodPolicy::default());
        let vlans = shape & (ADD | REMOVE) != 0;
        let switch = switch.within(Domain { bound, rules: Rules::ALLOW, vlans });
        let mut input = Offer::new(&[(sent.clone(), offload)], |_| step);
        let from = switch.member(0).expect("a port");
        let passed = pass(&switch, from, &mut input, &mut Workspace::new(4), &Time::at_second(1));
        assert_eq!((passed.frames, passed.fault), (1, None));

        let mut received = std::mem::take(&mut *kept.lock().expect("one thread"));
        let counters = from.port.counters().read();
        let refused = counters.drops().map(|(_, frames)| frames).sum::<u64>();
        assert_eq!(refused == 1, received.is_empty(), "delivered or counted");
        let to = switch.member(1).expect("a port").port.counters().read();
        assert_eq!(to.dropped(DropReason::BadOffload), 0, "what was admitted can be finished");
        if received.is_empty() {
            continue;
        }
        assert!(received.iter().all(|(_, left)| left.is_none_or(|left| accepts.covers(&left))));
        // Their tags as they were sent.
        for (bytes, _) in received.iter_mut().filter(|_| vlans) {
            match (tag, native) {
                (None, None) => drop(bytes.drain(12..16)),
                (Some(tag), Some(native)) if tag == native || tag == 0 && native == NATIVE => {
                    bytes.splice(12..12, sent[12..16].iter().copied());
                }
                (Some(0), _) => bytes[14..16].copy_from_slice(&sent[14..16]),
                _ => {}
            }
        }
        // In whose name: of a fragment but the first the ports are not there.
        let claims = |bytes: &[u8]| {
            let claims = Claims::read(&bytes[..bytes.len().min(128)]).ok();
            claims.map(|claims| (claims.source, claims.protocol, claims.hardware, claims.v4, claims.v6, claims.target))
        };
        for (bytes, _) in &received {
            assert_eq!(bytes[..12], sent[..12]);
            let (ours, theirs) = (claims(bytes), claims(&sent));
            assert!(ours.is_none() || theirs.is_none() || ours == theirs, "{ours:?} of {theirs:?}");
        }
        let Some(offload) = offload.filter(|offload| !accepts.covers(offload)) else {
            assert!(received.len() == 1 && received[0].0 == sent, "unchanged");
            continue;
        };
        if offload.gso == Gso::None {
            let field = usize::from(offload.csum_start) + usize::from(offload.csum_offset);
            // Behind where a transport header can begin. What policy reads in front of it is compared above.
            assert!(received.len() == 1 && received[0].0.len() == len && field >= 34);
            let same = |(at, (a, b)): (usize, (&u8, &u8))| a == b || (field..field + 2).contains(&at);
            assert!(received[0].0.iter().zip(&sent).enumerate().all(same));
            continue;
        }
        // Where the payload begins in the frame, and in a segment.
        let transport = usize::from(offload.csum_start);
        let v6 = is_v6(&sent);
        let (from_byte, head) = match offload.gso {
            Gso::Udp4Frag => (transport, transport + if v6 { 8 } else { 0 }),
            Gso::UdpL4 => (transport + 8, transport + 8),
            _ => {
                let end = transport + usize::from(sent[transport + 12] >> 4) * 4;
                (end, end)
            }
        };
        let mut payload = Vec::new();
        for (segment, _) in &received {
            assert!(segment.len() <= head + usize::from(offload.gso_size), "no longer than asked for");
            payload.extend_from_slice(&segment[head..]);
        }
        // A fragmented datagram's checksum is in its first bytes.
        let skip = if offload.gso == Gso::Udp4Frag { 8 } else { 0 };
        assert!(
            payload.len() == len - from_byte
                && payload[skip.min(payload.len())..] == sent[(from_byte + skip).min(len)..]
        );
    }
});

/// Whether the IP header behind the tags is IPv6's.
fn is_v6(frame: &[u8]) -> bool {
    let mut at = 12;
    while [[0x81, 0], [0x88, 0xa8], [0x91, 0], [0x92, 0], [0x93, 0]].contains(&[frame[at], frame[at + 1]]) {
        at += 4;
    }
    frame[at..at + 2] == [0x86, 0xdd]
}
