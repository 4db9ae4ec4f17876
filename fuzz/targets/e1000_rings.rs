//! The descriptor rings of an e1000 on memory with anything in it.
//!
//! The first bytes of the input choose settings, sizes and what changes between two rounds; the others are the guest's
//! memory, which begins with the ring. Whatever it is: nothing panics, every frame is given or counted, sending changes
//! nothing but the status of descriptors that want it, and around the guest's memory nothing changes.
#![no_main]

use std::os::fd::AsFd;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use ringway_memory::Mapping;
use ringway_port_e1000::rings::{
    Bounce, CsbLocation, Destination, Format, Receive, ReceiveSettings, Received, Transmit, TransmitSettings,
};
use ringway_port::guest::{GuestMemory, Region};
use ringway_switch::{BatchStorage, Discarded, Gso, Offload};

const PAGE: usize = 4096;
/// Bytes of each of two regions that meet; in the file there is something between them.
const BYTES: usize = 2 * PAGE;
const FILE: usize = 2 * BYTES + 3 * PAGE;
const PLACES: [usize; 2] = [PAGE, 2 * PAGE + BYTES];
/// Where the guest has them.
const BASE: u64 = 0x1_0000;
const GUARD: u8 = 0x5a;
const ROUNDS: usize = 4;
/// Bytes that are compared at once.
const PART: usize = 256;
/// Bytes of the input before the memory.
const CHOICES: usize = 16 + ROUNDS * 8;

struct Guest {
    memory: GuestMemory,
    whole: Mapping,
    /// What frames to the guest are made of.
    source: Mapping,
}

impl Guest {
    fn new() -> Guest {
        let file = rustix::fs::memfd_create("fuzz", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
        rustix::fs::ftruncate(&file, FILE as u64).expect("memory");
        let whole = Mapping::shared(file.as_fd(), FILE).expect("memory");
        assert!(whole.whole().write(&vec![GUARD; FILE]));
        let region = |number: usize| {
            let guest = BASE + (number * BYTES) as u64;
            Arc::new(Region::map(&file, guest, BYTES as u64, guest, PLACES[number] as u64).expect("a region"))
        };
        let source = Mapping::private(1 << 16).expect("memory");
        Guest { memory: GuestMemory::new(vec![region(1), region(0)]), whole, source }
    }

    fn fill(&self, bytes: &[u8]) {
        let mut all = vec![0; 2 * BYTES];
        let len = bytes.len().min(2 * BYTES);
        all[..len].copy_from_slice(&bytes[..len]);
        for (place, part) in PLACES.into_iter().zip(all.chunks(BYTES)) {
            assert!(self.whole.view(place, BYTES).expect("inside").write(part));
        }
    }

    fn content(&self) -> Vec<u8> {
        let mut bytes = vec![0; FILE];
        assert!(self.whole.whole().read(&mut bytes));
        // Whole slices at a time: comparisons of bytes are what the fuzzer watches, which costs far more than they do.
        let guard = [GUARD; PAGE];
        for page in [0, PLACES[0] + BYTES, PLACES[1] + BYTES] {
            assert!(bytes[page..page + PAGE] == guard, "a byte outside the guest's memory was written");
        }
        PLACES.map(|place| bytes[place..place + BYTES].to_vec()).concat()
    }

    /// What a driver changes: a word anywhere.
    fn disturb(&self, choice: &[u8]) {
        let at = word(choice) as usize % (2 * BYTES - 4) & !3;
        let place = PLACES[at / BYTES] + at % BYTES;
        assert!(self.whole.view(place, 4).expect("inside").write(&choice[4..8]));
    }
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fuzz_target!(|data: &[u8]| {
    thread_local!(static GUEST: Guest = Guest::new());
    if data.len() < CHOICES {
        return;
    }
    let (choices, memory) = data.split_at(CHOICES);
    GUEST.with(|guest| {
        guest.fill(memory);
        send(guest, choices);
        guest.fill(memory);
        receive(guest, choices);
        let address = BASE + u64::from(word(choices));
        if let Ok(place) = CsbLocation::new(address, &guest.memory) {
            let block = place.block(&guest.memory).expect("it was there");
            block.begin(0, 0);
            let _ =
                (block.wants_sent(word(choices), block.transmit_tail(), word(&choices[4..])), block.wants_received());
            let _ = place.check(u64::from(word(choices)) << 8, word(&choices[4..]));
            guest.content();
        }
        assert!(!guest.memory.is_lost());
    });
});

/// Descriptors of the ring: mostly what is in memory.
fn count(choices: &[u8]) -> u32 {
    if choices[0] == 0xff { word(&choices[1..]) } else { 8 * (1 + u32::from(choices[0] % 64)) }
}

fn send(guest: &Guest, choices: &[u8]) {
    let count = count(choices);
    let settings = TransmitSettings {
        vlan: (choices[1] & 1 != 0).then_some(0x8100),
        pad: choices[1] & 2 != 0,
        longest: if choices[1] & 4 != 0 { 1518 } else { 16_288 },
    };
    let Ok(mut ring) = Transmit::start(BASE, count, u32::from(choices[2]) % count.max(1)) else { return };
    let mut bounce = Bounce::default();
    for choice in choices[16..].chunks_exact(8) {
        bounce.begin().expect("memory");
        let (before, from) = (guest.content(), ring.head());
        let tail = u32::from(choice[6]) * if choice[7] & 0x80 != 0 { 1000 } else { 2 };
        let limit = 1 + usize::from(choice[5]) % 64;
        let mut batch = BatchStorage::new(limit).into_batch();
        let mut discarded = Discarded::default();
        let failed = if choice[7] & 0x40 != 0 {
            ring.discard(&guest.memory, tail, limit, &mut discarded).is_err()
        } else {
            ring.collect(&guest.memory, &bounce, tail, &settings, &mut batch).is_err()
        };
        assert!(batch.len() <= limit && discarded.frames <= limit as u64);
        let mut segments = 0;
        for index in 0..batch.len() {
            let frame = batch.frame(index);
            let rest: usize = frame.rest().iter().map(|view| view.len()).sum();
            assert_eq!(frame.head_len() + rest, frame.len());
            assert!(frame.head_len() <= 128 && frame.len() >= 14);
            let cut = frame.offload().filter(|offload| offload.gso_size > 0);
            assert!(cut.is_none_or(|offload| frame.len() > usize::from(offload.hdr_len)));
            segments += cut.map_or(1, |offload| {
                (frame.len() - usize::from(offload.hdr_len)).div_ceil(usize::from(offload.gso_size)) as u64
            });
        }
        drop(batch);
        if let Ok(completed) = ring.release(&guest.memory) {
            assert_eq!((completed.traffic.frames, completed.descriptors < count), (segments, true));
            assert_eq!(completed.traffic.sizes.iter().sum::<u64>(), segments);
            assert_eq!((from + completed.descriptors) % count, ring.head());
        }
        let after = guest.content();
        for part in (0..after.len()).step_by(PART).filter(|&part| before[part..part + PART] != after[part..part + PART])
        {
            for at in (part..part + PART).filter(|&at| before[at] != after[at]) {
                let (old, new) = (before[at], after[at]);
                // Descriptor done, where it was asked for.
                assert!(at < 16 * count as usize && at % 16 == 12 && new == old | 1, "{at}: {old:#x} {new:#x}");
                assert!(before[at - 1] & 8 != 0, "nobody asked for the status");
            }
        }
        if failed {
            return;
        }
        guest.disturb(choice);
    }
}

fn receive(guest: &Guest, choices: &[u8]) {
    let count = count(choices);
    let format = match choices[3] & 3 {
        0 => Format::Legacy { buffer: 256 << (choices[3] >> 2 & 7) },
        1 => Format::Extended { buffer: 256 << (choices[3] >> 2 & 7) },
        _ => Format::Split { buffers: [4, 5, 6, 7].map(|at| u32::from(choices[at] & 0x3f) << 7) },
    };
    let mut settings = ReceiveSettings {
        strip_tag: choices[1] & 8 != 0,
        strip_fcs: choices[1] & 16 != 0,
        ip_sums: choices[1] & 32 != 0,
        transport_sums: choices[1] & 64 != 0,
        longest: if choices[1] & 4 != 0 { 1518 } else { 16_380 },
        low: 3,
        ..ReceiveSettings::default()
    };
    settings.filters.set_control(word(&choices[8..]) & 0x001c_b018);
    settings.filters.set_address(0, 2, 0x8000_0100);
    let Ok(mut ring) = Receive::start(BASE, count, u32::from(choices[2]) % count.max(1), format) else { return };
    for choice in choices[16..].chunks_exact(8) {
        let before = guest.content();
        let tail = u32::from(choice[6]) * if choice[7] & 0x80 != 0 { 1000 } else { 2 };
        let mut batch = BatchStorage::new(8).into_batch();
        for number in 0..8 {
            let len = [60, 200, 1514, 14, 2047, 9000, 129, 16_000][(usize::from(choice[5]) + number) % 8];
            let (head, rests) = batch.draft();
            head.0[..16].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0, choice[0]]);
            head.0[6 * (number % 2)] ^= choice[1] & 1;
            head.0[16..].fill(choice[2]);
            let first: usize = len.min(128);
            rests.extend(guest.source.view(0, len - first).filter(|rest| rest.len() > 0));
            let start = 14 + usize::from(choice[3]) % (len - 13).max(1);
            let (start, offset) = (start.min(len.saturating_sub(4)), usize::from(choice[4]) % 2);
            let offload = Offload {
                needs_csum: true,
                gso: Gso::None,
                csum_start: start as u16,
                csum_offset: offset as u16,
                ..Offload::default()
            };
            batch.seal(first, (len > 40 && choice[7] & 1 != 0).then_some(offload));
        }
        let mut received = Received::default();
        let frames = (0..batch.len()).map(|index| batch.frame(index));
        let result = ring.deliver(
            &Destination { writable: &guest.memory, settings: &settings, tail },
            frames,
            &mut received,
            |frame, received| {
                received.full += u64::from(received.judge(frame, &settings));
            },
        );
        let all = received.traffic.frames + received.filtered + received.full + received.long;
        assert_eq!((all, ring.head() < count), (8, true), "every frame is given or counted");
        if received.traffic.frames == 0 && result.is_ok() {
            assert!(guest.content() == before, "nothing was given");
        }
        if result.is_err() {
            return;
        }
        guest.disturb(choice);
    }
    guest.content();
}
