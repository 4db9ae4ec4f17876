//! A driver that rewrites its rings and buffers while the device is at work, and one whose memory goes away.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ringway_port::gather::Bounce;
use ringway_port::testing::{Guest, HIGH, LOW, LOW_BYTES};
use ringway_switch::BatchStorage;
use ringway_testing::PATIENCE;
use ringway_testing::random::Random;

use super::testing::{DATA, LAST, Ring, TX, collect, collect_some, deliver, frame, open};
use super::{Format, Receive, RingFault, Transmit, TransmitSettings};

/// Returns a word for the first or second half of a descriptor. It is almost valid in most cases.
fn word(rng: &mut Random, second: bool) -> u64 {
    let random = rng.bits();
    match (second, random >> 60) {
        (_, 0) => random,
        (false, _) => LOW + random % LOW_BYTES,
        (true, 1..=3) => random & 0xffff_ffff_3f0f_ffff | 1 << 29,
        (true, _) => random & 0xffff_ff00_ff00_0fff | LAST,
    }
}

#[test]
fn descriptors_rewritten_meanwhile_hurt_nobody() {
    const COUNT: u32 = 64;
    /// Some hundred milliseconds on a machine without other load.
    const ROUNDS: u32 = 10_000;
    let guest = Guest::new();
    let rings = [Ring::new(&guest, COUNT), Ring::new(&guest, COUNT)];
    let (stop, deadline) = (AtomicBool::new(false), Instant::now() + PATIENCE);
    let (mut sent, mut received, mut faults) = (0, 0, 0);
    std::thread::scope(|scope| {
        let (guest, rings, stop) = (&guest, &rings, &stop);
        let writer = scope.spawn(move || {
            let mut rng = Random::new(0x9e37_79b9_7f4a_7c15);
            while !stop.load(Ordering::Relaxed) {
                let at = (rng.bits() % u64::from(COUNT)) as u32;
                for ring in rings {
                    ring.set(guest, at, [word(&mut rng, false), word(&mut rng, true)]);
                }
            }
        });
        let settings = TransmitSettings { vlan: Some(0x8100), pad: true, ..TX };
        let mut rng = Random::new(7);
        let formats = [
            Format::Legacy { buffer: 2048 },
            Format::Extended { buffer: 256 },
            Format::Split { buffers: [128, 1024, 0, 1024] },
        ];
        // Runs so often, and until the writer has run.
        for round in 0u32.. {
            let is_enough = sent > 100 && received > 100 && faults > 10;
            if round >= ROUNDS && (is_enough || Instant::now() > deadline) {
                break;
            }
            let random = rng.bits();
            let (head, tail) = ((random >> 8) as u32 % COUNT, (random >> 16) as u32 % COUNT);
            let mut transmit = Transmit::start(rings[0].base, COUNT, head).expect("a ring");
            match collect_some(&mut transmit, guest, tail, &settings, 32) {
                Ok(got) => sent += got.frames.len(),
                Err(_) => faults += 1,
            }
            let mut receive = Receive::start(rings[1].base, COUNT, head, formats[random as usize % 3]).expect("a ring");
            let frames = [60, 1514, 200].map(|len| (frame(len, 1), None));
            let (result, got) = deliver(&mut receive, guest, &frames, 500, &open(), tail);
            assert_eq!(got.traffic.frames + got.full + got.long + got.filtered, 3);
            received += got.traffic.frames;
            faults += usize::from(result.is_err());
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("writes");
    });
    assert!(sent > 100 && received > 100 && faults > 10, "{sent} sent, {received} received, {faults} faults");
}

#[test]
fn memory_that_is_taken_away_ends_the_ring_by_name() {
    let guest = Guest::new();
    let (mut ring, receiving) = (Ring::new(&guest, 64), Ring::new(&guest, 64));
    let buffer = guest.alloc(4096, 4096);
    let mut transmit = Transmit::start(ring.base, 64, 0).expect("a ring");
    let mut receive = Receive::start(receiving.base, 64, 0, Format::Legacy { buffer: 2048 }).expect("a ring");
    ring.put(&guest, buffer, 1000 | DATA | LAST);
    receiving.set(&guest, 0, [buffer, 0]);
    rustix::fs::ftruncate(&guest.file, 0).expect("truncated");
    let (result, _) = deliver(&mut receive, &guest, &[(frame(1000, 1), None)], 500, &open(), 63);
    assert_eq!(result, Err(RingFault::MemoryLost));
    // Lost pages read as zeroes: descriptors without data, which are completed.
    assert_eq!(collect(&mut transmit, &guest, ring.tail), Err(RingFault::MemoryLost));
}

#[test]
fn frames_whose_memory_is_taken_away_end_the_ring_whose_own_memory_stays() {
    let guest = Guest::new();
    let mut ring = Ring::new(&guest, 64);
    let mut transmit = Transmit::start(ring.base, 64, 0).expect("a ring");
    for page in 0..4 {
        ring.put(&guest, HIGH + (page << 12), 60 | DATA | LAST);
    }
    rustix::fs::ftruncate(&guest.file, LOW_BYTES).expect("truncated");
    // `release` sees memory for writing, which may be other memory. Without the error, every page that is read would be
    // replaced by new memory of the daemon.
    let (mut bounce, mut batch) = (Bounce::default(), BatchStorage::new(8).into_batch());
    bounce.begin().expect("memory");
    let collected = transmit.collect(&guest.memory, &bounce, ring.tail, &TX, &mut batch);
    assert_eq!(collected, Err(RingFault::MemoryLost));
}

#[test]
fn frames_that_have_to_wait_are_collected_again_with_their_contexts() {
    let guest = Guest::new();
    let mut ring = Ring::new(&guest, 64);
    let mut transmit = Transmit::start(ring.base, 64, 0).expect("a ring");
    // Two frames for each context. The UDP header is where the context says, after more and more words of IPv4
    // options.
    let bytes = (0..6).map(|seed| {
        let mut bytes = frame(200, seed);
        bytes[12..15].copy_from_slice(&[8, 0, 0x45 + seed as u8]);
        bytes[20..24].copy_from_slice(&[0, 0, 64, 17]);
        bytes
    });
    let bytes: Vec<Vec<u8>> = bytes.collect();
    for (number, frame) in (0..).zip(&bytes) {
        let start = 34 + 4 * number;
        ring.put(&guest, start << 32 | (start + 6) << 40, 1 << 29);
        ring.send(&guest, frame, DATA | LAST | 1 << 41);
        ring.send(&guest, frame, DATA | LAST | 1 << 41);
    }
    let mut starts = Vec::new();
    for keep in [5, 0, 1, 100] {
        let (bounce, mut batch) = (super::Bounce::default(), ringway_switch::BatchStorage::new(64).into_batch());
        transmit.collect(&guest.memory, &bounce, ring.tail, &TX, &mut batch).expect("fine");
        let count = batch.len().min(keep);
        let frames = (0..count).map(|index| batch.frame(index));
        starts.extend(frames.map(|frame| frame.offload().map(|offload| offload.csum_start)));
        drop(batch);
        transmit.rewind(&guest.memory, keep);
        let completed = transmit.release(&guest.memory).expect("fine");
        assert_eq!(completed.traffic.frames, count as u64, "only taken frames are counted");
    }
    let expected: Vec<_> = (0..6).flat_map(|number| [Some(34 + 4 * number); 2]).collect();
    assert_eq!(starts, expected);
    assert_eq!(transmit.head(), ring.tail);
}
