//! A driver that rewrites its ring, or takes its memory away, while the device is at work.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use ringway_testing::random::Random;
use ringway_testing::{PATIENCE, until};

use super::testing::{Driver, Guest, LOW_BYTES, Piece, both, collect_some, deliver, receive_queue, transmit_queue};
use super::{F_EVENT_IDX, F_INDIRECT_DESC, RingFault};

both!(
    descriptors_rewritten_meanwhile_hurt_nobody,
    memory_truncated_in_mid_copy_ends_the_ring,
    holes_punched_in_mid_copy_hurt_nobody,
);

const LONGEST: usize = 65_597;

/// Rounds in which the rings are filled and used. Some hundred milliseconds on a machine without other load.
const ROUNDS: u32 = 1000;
/// The same where holes are punched.
const ROUNDS_WITH_HOLES: u32 = 200;

/// A ring full of chains of two pieces each, in one direction.
fn filled<D: Driver>(guest: &Guest, write: bool) -> D {
    let mut driver = D::new(guest, 64, F_EVENT_IDX | F_INDIRECT_DESC);
    let at = guest.alloc(64 * 2048, 64);
    for number in 0..32 {
        let place = at + 4096 * number;
        let chain = [Piece { address: place, len: 12, write }, Piece { address: place + 12, len: 2000, write }];
        driver.put(guest, &chain, if number % 4 == 0 { 0 } else { 2 }).expect("room");
    }
    driver.publish(guest);
    driver
}

fn descriptors_rewritten_meanwhile_hurt_nobody<D: Driver>() {
    let guest = Guest::new();
    let (sender, receiver) = (filled::<D>(&guest, false), filled::<D>(&guest, true));
    let (stop, deadline) = (AtomicBool::new(false), Instant::now() + PATIENCE);
    let rings = [sender.addresses(), receiver.addresses()];
    let (mut frames, mut faults) = (0, 0);
    // The contents of all rings, from the first byte of the first to the last byte of the last, before the other thread
    // writes to them.
    let begin = rings[0].descriptors;
    let good = guest.read(begin, (guest.allocated() - begin) as usize);
    std::thread::scope(|scope| {
        let guest = &guest;
        let writer = scope.spawn(|| {
            let mut rng = Random::new(0x9e37_79b9_7f4a_7c15);
            while !stop.load(Ordering::Relaxed) {
                let random = rng.bits();
                for _ in 0..random >> 56 {
                    std::hint::spin_loop();
                }
                let ring = rings[(random & 1) as usize];
                let slot = (random >> 1) % 64;
                let word = ring.descriptors + 16 * slot + (random >> 7 & 8);
                match random >> 8 & 15 {
                    // A random word, or a nearly valid one.
                    0 => guest.word64(word).store(rng.bits(), Ordering::Relaxed),
                    1..6 => {
                        let old = guest.word64(word).load(Ordering::Relaxed);
                        guest.word64(word).store(old ^ 1 << (random >> 16 & 63), Ordering::Relaxed);
                    }
                    6..9 => {
                        // Available in this lap or in the next.
                        let turn = if random >> 16 & 1 == 0 { 0x80 } else { 0x8000 };
                        let rest = (60 + (random >> 20 & 0xfff)) | slot << 32 | (turn | random >> 40 & 7) << 48;
                        guest.word64(ring.descriptors + 16 * slot + 8).store(rest, Ordering::Relaxed);
                    }
                    9..13 => {
                        let at = ring.driver + 2 * (random >> 16 & 63);
                        guest.word16(at).store(random as u16 >> 1 & 63, Ordering::Relaxed);
                    }
                    _ => {
                        // Advances the index of the available ring. A packed ring has no such index.
                        guest.word16(ring.driver + 2).fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
        let some: Vec<_> = (0..40).map(|n| (vec![n; 60 + 50 * usize::from(n)], None)).collect();
        // Runs so often, and until the writing thread has run.
        for round in 0u32.. {
            if round >= ROUNDS && (frames > 0 && faults > 0 || Instant::now() > deadline) {
                break;
            }
            guest.write(begin, &good);
            let (mut transmit, mut receive) = (transmit_queue(guest, &sender), receive_queue(guest, &receiver, true));
            for _ in 0..20 {
                match collect_some(&mut transmit, guest, 64) {
                    Ok(sent) => {
                        assert!(sent.frames.iter().all(|(bytes, _)| (14..=LONGEST).contains(&bytes.len())));
                        frames += sent.frames.len();
                    }
                    Err(fault) => {
                        assert!(!fault.name().is_empty());
                        faults += 1;
                        break;
                    }
                }
            }
            for _ in 0..20 {
                let (result, tally) = deliver(&mut receive, guest, &some, 500);
                assert_eq!(
                    tally.frames + tally.full + tally.small + tally.long,
                    40,
                    "each frame is delivered or counted"
                );
                if result.is_err() {
                    faults += 1;
                    break;
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("writes");
    });
    assert!(frames > 0 && faults > 0, "{frames} frames, {faults} faults: there was no race");
}

fn memory_truncated_in_mid_copy_ends_the_ring<D: Driver>() {
    for round in 0..12 {
        let guest = Guest::new();
        let (sender, receiver) = (filled::<D>(&guest, false), filled::<D>(&guest, true));
        let (mut transmit, mut receive) = (transmit_queue(&guest, &sender), receive_queue(&guest, &receiver, true));
        let some: Vec<_> = (0..40).map(|n| (vec![n; 1000], None)).collect();
        let deadline = Instant::now() + PATIENCE;
        let (mut fault, started) = (None, AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !started.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                for _ in 0..round * 40 {
                    std::hint::spin_loop();
                }
                rustix::fs::ftruncate(&guest.file, if round % 2 == 0 { 0 } else { 4096 }).expect("truncates");
            });
            started.store(true, Ordering::Release);
            // The queue that first touches the end reports the loss. From then on, the memory is marked as lost.
            while !guest.memory.is_lost() && fault.is_none() {
                assert!(Instant::now() < deadline, "no queue reports the loss");
                fault = collect_some(&mut transmit, &guest, 64).err();
                let (result, tally) = deliver(&mut receive, &guest, &some, 300);
                assert_eq!(tally.frames + tally.full + tally.small, 40);
                fault = fault.or(result.err());
            }
        });
        assert!(guest.memory.is_lost());
        // The remaining memory reads as zeroes: no more frames can come from it than a ring has chains.
        let _ = collect_some(&mut transmit, &guest, 64);
        let (_, tally) = deliver(&mut receive, &guest, &some, 300);
        assert_eq!(tally.frames + tally.full + tally.small, 40);
        assert!(
            fault.is_none_or(|fault| matches!(
                fault,
                RingFault::MemoryLost
                    | RingFault::IndexJump { .. }
                    | RingFault::WritableInTransmit
                    | RingFault::ReadableInReceive
                    | RingFault::IndirectSize(_)
                    | RingFault::BadAddress { .. }
            )),
            "{fault:?}"
        );
    }
}

fn holes_punched_in_mid_copy_hurt_nobody<D: Driver>() {
    use rustix::fs::{FallocateFlags, fallocate};
    let guest = Guest::new();
    let (stop, laps) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&guest.file, how, 0, LOW_BYTES).expect("punches");
                laps.fetch_add(1, Ordering::Relaxed);
            }
        });
        let first = guest.allocated();
        let mut passes = 0;
        until("holes are punched", || laps.load(Ordering::Relaxed) > 0);
        for _ in 0..ROUNDS_WITH_HOLES {
            if guest.allocated() - first >= LOW_BYTES / 2 {
                break;
            }
            let (sender, receiver) = (filled::<D>(&guest, false), filled::<D>(&guest, true));
            let (mut transmit, mut receive) = (transmit_queue(&guest, &sender), receive_queue(&guest, &receiver, true));
            let some: Vec<_> = (0..40).map(|n| (vec![n; 1000], None)).collect();
            for _ in 0..5 {
                let sent = collect_some(&mut transmit, &guest, 64);
                let (result, tally) = deliver(&mut receive, &guest, &some, 300);
                assert_eq!(tally.frames + tally.full + tally.small, 40);
                passes += 1;
                if sent.is_err() || result.is_err() {
                    break;
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(passes > 0);
    });
    assert!(!guest.memory.is_lost(), "a hole in a file reads as zeroes and is no loss");
}
