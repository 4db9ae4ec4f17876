//! TCP segments that may be joined, and everything that looks like them.
//!
//! The input is a list of segments of a few flows: each continues its flow, with lengths, flags and changes of any bytes that the input
//! says, and correct or other checksums. Whatever they are: nothing panics, and cutting what is delivered gives the frames that were
//! sent, those of each flow in their order.
#![no_main]

mod frames;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use frames::{Frame, Offer, Silent, Sink};
use libfuzzer_sys::fuzz_target;
use ringway_switch::{
    Accepts, FloodPolicy, Gso, Headers, Mac, MacMap, MacTable, Member, Offload, Owner, Port, Switch, Time, Workspace,
    pass,
};

/// Most segments of an input.
const SEGMENTS: usize = 64;
const FLOWS: usize = 3;

/// What each flow's next segment begins with.
struct Flow {
    v6: bool,
    tagged: bool,
    options: usize,
    sequence: u32,
    id: u16,
}

fn take(data: &mut &[u8]) -> u8 {
    let (first, others) = data.split_first().map_or((0, &[][..]), |(first, others)| (*first, others));
    *data = others;
    first
}

fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))).sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// A checksum, as segmentation writes it: never zero.
fn checksum(total: u32) -> [u8; 2] {
    let sum = !fold(total);
    if sum == 0 { 0xffff_u16 } else { sum }.to_be_bytes()
}

impl Flow {
    /// A segment's bytes without the checksum of TCP, where its transport header begins, and the sum of its pseudo header.
    fn segment(&mut self, number: usize, len: usize, flags: u8) -> (Vec<u8>, usize, u32) {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0];
        if self.tagged {
            frame.extend([0x81, 0, 0, 5]);
        }
        let bytes = 20 + 4 * self.options + len;
        let ip = frame.len() + 2;
        if self.v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((bytes as u16).to_be_bytes());
            frame.extend([6, 64]);
            frame.extend([0xfd; 16].into_iter().chain([0xfc; 16]));
        } else {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + bytes as u16).to_be_bytes());
            frame.extend(self.id.to_be_bytes());
            frame.extend([0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            let header = checksum(sum(&frame[ip..]));
            frame[ip + 10..ip + 12].copy_from_slice(&header);
        }
        let transport = frame.len();
        let pseudo = sum(&frame[if self.v6 { ip + 8 } else { ip + 12 }..]) + 6 + bytes as u32;
        frame.extend([1, number as u8, 0, 80]);
        frame.extend(self.sequence.to_be_bytes());
        frame.extend([0, 0, 0, 9, ((5 + self.options) << 4) as u8, flags, 2, 0, 0, 0, 0, 0]);
        frame.extend(std::iter::repeat_n(1, 4 * self.options));
        frame.extend((0..len).map(|at| (at as u8).wrapping_mul(31) ^ self.id as u8));
        (self.sequence, self.id) = (self.sequence.wrapping_add(len as u32), self.id.wrapping_add(1));
        (frame, transport, pseudo)
    }
}

/// Sends frames in one batch to a receiver that accepts these offloads.
fn send(frames: &[Frame], step: impl Fn(usize) -> usize, accepts: Accepts) -> (Vec<Frame>, u64) {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let outputs = [Accepts::NOTHING, accepts].map(|accepts| Sink { accepts, kept: Arc::clone(&kept) });
    let members: Vec<Member> = (0..)
        .zip(outputs)
        .map(|(index, output)| Member {
            macs: vec![Mac::new([2, 0, 0, 0, 0, index as u8])],
            ..Member::new(Owner::new(index, 0), Arc::new(Port::new("fuzz", Box::new(output), Box::new(Silent))))
        })
        .collect();
    let table = Arc::new(MacTable::new(64, 8, [3, 5]));
    let forward = Box::new(MacMap::new(&members));
    let switch = Switch::new("fuzz", members, table, forward, FloodPolicy::default());
    let mut input = Offer::new(frames, step);
    let from = switch.member(0).expect("a port");
    let passed = pass(&switch, from, &mut input, &mut Workspace::new(SEGMENTS), &Time::at_second(1));
    assert_eq!((passed.frames, passed.fault), (frames.len() as u64, None));
    assert_eq!(from.port.counters().read().drops().count(), 0);
    let to = switch.member(1).expect("a port").port.counters().read();
    assert_eq!(to.drops().count(), 0);
    let kept = std::mem::take(&mut *kept.lock().expect("one thread"));
    (kept, to.coalesced)
}

fuzz_target!(|data: &[u8]| {
    let mut data = data;
    let mut flows: Vec<Flow> = (0..FLOWS)
        .map(|_| {
            let shape = take(&mut data);
            Flow {
                v6: shape & 1 != 0,
                tagged: shape & 2 != 0,
                options: usize::from(shape >> 2) % 11,
                sequence: u32::MAX - 400 * u32::from(shape),
                id: u16::MAX - u16::from(shape),
            }
        })
        .collect();
    let pieces = usize::from(take(&mut data));
    let (mut sent, mut wire) = (Vec::<Frame>::new(), Vec::new());
    while !data.is_empty() && sent.len() < SEGMENTS {
        // In the first byte: the flow, other lengths, other flags, a change of a byte, checksums that are right all the same, a checksum
        // that is left to the receiver, a jump.
        let choice = take(&mut data);
        let flow = usize::from(choice & 3) % FLOWS;
        let len = if choice & 4 != 0 { usize::from(take(&mut data)) * 5 } else { 300 };
        let flags = if choice & 8 != 0 { take(&mut data) } else { 0x10 };
        if choice & 0x80 != 0 {
            flows[flow].sequence = flows[flow].sequence.wrapping_add(take(&mut data).into());
        }
        let (mut frame, transport, pseudo) = flows[flow].segment(flow, len, flags);
        let mut offload = None;
        if choice & 0x10 != 0 {
            let (at, value) = (usize::from(take(&mut data) % 128), take(&mut data));
            if let Some(place) = frame.get_mut(at + 12) {
                *place = value;
            }
        }
        let field = transport + 16..transport + 18;
        let mut whole = frame.clone();
        if choice & 0x30 != 0x10 {
            whole[field.clone()].fill(0);
            let sum = checksum(pseudo + sum(&whole[transport..]));
            whole[field.clone()].copy_from_slice(&sum);
        }
        if choice & 0x50 == 0x40 {
            frame[field].copy_from_slice(&fold(pseudo).to_be_bytes());
            let (csum_start, csum_offset) = (transport as u16, 16);
            offload = Some(Offload { needs_csum: true, csum_start, csum_offset, ..Offload::default() });
        } else {
            frame.clone_from(&whole);
        }
        sent.push((frame, offload));
        wire.push(whole);
    }
    let step = |number: usize| if pieces == 0 { usize::MAX } else { 40 + pieces * (1 + number % 3) };
    let (received, coalesced) = send(&sent, step, Accepts::EVERYTHING);
    assert_eq!(received.len() as u64 + coalesced, sent.len() as u64);
    let cut: Vec<Frame> = received
        .into_iter()
        .flat_map(|frame| match frame.1 {
            None => vec![frame],
            Some(offload) => {
                let cut = send(&[frame], |_| usize::MAX, Accepts::NOTHING).0;
                assert_eq!(cut.len() > 1, offload.gso != Gso::None);
                cut
            }
        })
        .collect();
    assert_eq!(cut.len(), wire.len());
    let mut of_flows: HashMap<_, (Vec<_>, Vec<_>)> = HashMap::new();
    for (cut, sent) in cut.iter().zip(&wire) {
        of_flows.entry(flow_of(&cut.0)).or_default().0.push(&cut.0);
        of_flows.entry(flow_of(sent)).or_default().1.push(sent);
    }
    for (flow, (mut cut, mut sent)) in of_flows {
        if flow.is_none() {
            cut.sort();
            sent.sort();
        }
        assert!(cut == sent, "{flow:?}");
    }
});

/// The addresses and ports of a TCP segment. Frames of other protocols have no flow.
fn flow_of(frame: &[u8]) -> Option<&[u8]> {
    let headers = Headers::read(&frame[..frame.len().min(128)]).filter(|headers| headers.protocol == 6)?;
    let addresses = headers.ip + if headers.v6 { 8 } else { 12 };
    frame.get(addresses..headers.transport + 4)
}
