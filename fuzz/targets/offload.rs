//! An offload header with a frame, to receivers that accept any part of it.
//!
//! The input is the set that one receiver accepts, how the frame lies in memory, the header and the frame. Whatever they
//! are: nothing panics, each frame is delivered or counted, what is delivered is no longer than what was asked for, and
//! the payload bytes add up.
#![no_main]

use std::sync::{Arc, Mutex};

use libfuzzer_sys::fuzz_target;
use ringway_memory::{Mapping, View};
use ringway_switch::{
    Accepts, Asked, Batch, Bell, Counters, Discarded, DropReason, Frames, Gso, Input, Mac, MacMap, MacTable, Member, News,
    Offload, Output, Owner, Port, PortFault, Spreads, Switch, Time, Workspace, pass,
};

const SETS: [Accepts; 6] = [Accepts::CSUM, Accepts::TSO4, Accepts::TSO6, Accepts::ECN, Accepts::UFO, Accepts::USO];

/// Offers one frame, in pieces.
struct Offer {
    memory: Mapping,
    pieces: Vec<(usize, usize)>,
    offload: Option<Offload>,
}

impl Input for Offer {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        let view = |&(at, len): &(usize, usize)| -> View<'m> { self.memory.view(at, len).expect("inside") };
        match (self.pieces.as_slice(), self.offload) {
            ([whole], Some(offload)) => batch.push_offloaded(view(whole), whole.1, offload),
            ([whole], None) => batch.push(view(whole), whole.1),
            (pieces, Some(offload)) => batch.push_pieces_offloaded(pieces.iter().map(view), offload),
            (pieces, None) => batch.push_pieces(pieces.iter().map(view)),
        }
        Ok(())
    }

    fn discard(&mut self, _most: usize) -> Result<Discarded, PortFault> {
        Ok(Discarded::default())
    }

    fn release(&mut self) {}

    fn pending(&mut self) -> bool {
        false
    }

    fn arm(&mut self) -> bool {
        false
    }

    fn disarm(&mut self) {}
}

/// Keeps what it is given.
struct Sink {
    accepts: Accepts,
    kept: Arc<Mutex<Vec<(Vec<u8>, Option<Offload>)>>>,
}

impl Output for Sink {
    fn accepts(&self) -> Accepts {
        self.accepts
    }

    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        for frame in frames {
            let mut bytes = frame.head().0[..frame.head_len()].to_vec();
            for rest in frame.rest() {
                let at = bytes.len();
                bytes.resize(at + rest.len(), 0);
                assert!(rest.read(&mut bytes[at..]));
            }
            assert_eq!(bytes.len(), frame.len());
            counters.add_out(1, frame.len() as u64);
            self.kept.lock().expect("one thread").push((bytes, frame.offload().copied()));
        }
        Ok(())
    }
}

struct Silent;

impl Bell for Silent {
    fn ring(&self, _: News) -> Asked {
        Asked::Unwanted
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&[sets, cuts], data)) = data.split_first_chunk::<2>() else { return };
    let Some((header, data)) = data.split_first_chunk::<{ Offload::BYTES }>() else { return };
    let Ok(offload) = Offload::decode(header) else { return };
    assert_eq!(Offload::decode(&Offload::encode(offload.as_ref())), Ok(offload));

    // The frame: to the receiver, from a station, and the rest of the input, repeated up to a length.
    let Some((more, data)) = data.split_first_chunk::<2>() else { return };
    let len = 14 + usize::from(u16::from_le_bytes(*more));
    let addresses = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0];
    let sent: Vec<u8> = addresses.into_iter().chain(data.iter().copied().chain([0]).cycle()).take(len).collect();
    let memory = Mapping::private(len).expect("memory");
    assert!(memory.whole().write(&sent));
    let step = if cuts == 0 { len } else { (usize::from(cuts) * 7).max(len / 60 + 1) };
    let pieces: Vec<_> = (0..len).step_by(step).map(|at| (at, step.min(len - at))).collect();

    let partial = SETS
        .iter()
        .enumerate()
        .filter(|(bit, _)| sets >> bit & 1 == 1)
        .fold(Accepts::NOTHING, |all, (_, &one)| all | one);
    for accepts in [Accepts::NOTHING, partial, Accepts::EVERYTHING] {
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
        let switch = Switch::new("fuzz", members, table, forward, Spreads::default());
        let mut input = Offer { memory: Mapping::private(len).expect("memory"), pieces: pieces.clone(), offload };
        assert!(input.memory.whole().write(&sent));
        let from = switch.member(0).expect("a port");
        let passed = pass(&switch, from, &mut input, &mut Workspace::new(4), &Time::at_second(1));
        assert_eq!((passed.frames, passed.fault), (1, None));

        let received = std::mem::take(&mut *kept.lock().expect("one thread"));
        let counters = from.port.counters().read();
        let refused = counters.dropped(DropReason::BadOffload) + counters.dropped(DropReason::Oversize);
        assert_eq!(refused == 1, received.is_empty(), "delivered or counted");
        if received.is_empty() {
            continue;
        }
        assert!(received.iter().all(|(_, left)| left.is_none_or(|left| accepts.covers(&left))));
        let Some(offload) = offload.filter(|offload| !accepts.covers(offload)) else {
            assert!(received.len() == 1 && received[0].0 == sent, "unchanged");
            continue;
        };
        if offload.gso == Gso::None {
            let field = usize::from(offload.csum_start) + usize::from(offload.csum_offset);
            assert!(received.len() == 1 && received[0].0.len() == len);
            assert!(
                received[0]
                    .0
                    .iter()
                    .zip(&sent)
                    .enumerate()
                    .all(|(at, (a, b))| a == b || (field..field + 2).contains(&at))
            );
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
    while at < 20 && [[0x81, 0], [0x88, 0xa8], [0x91, 0]].contains(&[frame[at], frame[at + 1]]) {
        at += 4;
    }
    frame[at..at + 2] == [0x86, 0xdd]
}
