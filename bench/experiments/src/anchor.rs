//! The anchor: a bare single-producer single-consumer ring between the same two cores that hands over one copied frame.
//!
//! 256 slots of whole cache lines. The producer copies a frame's lines from its private memory into the next slot, with a
//! sequence number and the length in the first line, and publishes its index every [`BATCH`] frames. The consumer checks
//! number and length of every frame and reads nothing else of the frame (as the generator's sink does), and gives the slots
//! back every [`BATCH`] frames. Both keep a cached copy of the other's index and read the shared one only when the cached one
//! is used up. There is no lookup, no descriptor, no notification: no switch that copies once can be faster, so a switch's
//! rate is stated as a fraction of the anchor's.

use std::cell::UnsafeCell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::patience::PATIENCE;
use crate::placement::{CachePadded, Cores, pin};

/// Slots of the ring.
pub const SLOTS: u64 = 256;
/// Frames between two publications, on either side.
pub const BATCH: u64 = 32;
/// The longest frame the anchor hands over.
pub const MAX_FRAME_LEN: usize = 24 * 64 - 4;

/// One cache line.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line([u64; 8]);

/// What the producer did.
struct Produced {
    /// Frames, with those of the warm-up.
    total: u64,
    /// Frames in `elapsed`.
    counted: u64,
    elapsed: Duration,
}

struct Ring<const LINES: usize> {
    produced: CachePadded<AtomicU64>,
    consumed: CachePadded<AtomicU64>,
    ready: CachePadded<AtomicBool>,
    over: CachePadded<AtomicBool>,
    lines: Box<[UnsafeCell<Line>]>,
}

// SAFETY: a slot's lines are written by the producer only while `consumed + SLOTS > index >= produced`, and read by the
// consumer only while `consumed <= index < produced`; the release stores of the two indices order these uses.
unsafe impl<const LINES: usize> Sync for Ring<LINES> {}

impl<const LINES: usize> Ring<LINES> {
    /// Lines from one slot to the next: an odd number, so that slots spread over all cache sets.
    const STRIDE: usize = LINES | 1;

    fn new() -> Self {
        let lines = (0..SLOTS as usize * Self::STRIDE).map(|_| UnsafeCell::new(Line([0; 8]))).collect();
        Ring {
            produced: CachePadded::default(),
            consumed: CachePadded::default(),
            ready: CachePadded::default(),
            over: CachePadded::default(),
            lines,
        }
    }

    fn slot(&self, index: u64) -> *mut [Line; LINES] {
        let first = (index % SLOTS) as usize * Self::STRIDE;
        // SAFETY: `first + LINES <= SLOTS * STRIDE`, the number of lines.
        UnsafeCell::raw_get(unsafe { self.lines.as_ptr().add(first) }).cast()
    }

    /// Waits for the consumer, warms up for an eighth of `span`, then counts for `span`.
    fn produce(&self, len: usize, span: Duration) -> io::Result<Produced> {
        let waiting = Instant::now();
        while !self.ready.0.load(Ordering::Acquire) {
            if waiting.elapsed() > PATIENCE {
                return Err(io::Error::other("the anchor's consumer does not start"));
            }
            std::hint::spin_loop();
        }
        let mut next = 0;
        self.publish_until(&mut next, len, Instant::now() + span / 8);
        let (start, first) = (Instant::now(), next);
        self.publish_until(&mut next, len, start + span);
        // On a machine busy with something else the consumer may not have run at all in a short window.
        while next == first && start.elapsed() < PATIENCE {
            self.publish_until(&mut next, len, Instant::now() + span);
        }
        Ok(Produced { total: next, counted: next - first, elapsed: start.elapsed() })
    }

    /// Publishes frames from number `next` on.
    fn publish_until(&self, next: &mut u64, len: usize, end: Instant) {
        let mut frame = [Line([0; 8]); LINES];
        frame[0].0[1] = len as u64;
        let frame = std::hint::black_box(frame);
        let mut limit = self.consumed.0.load(Ordering::Acquire) + SLOTS;
        while Instant::now() < end {
            for _ in 0..16 {
                if limit - *next < BATCH {
                    limit = self.consumed.0.load(Ordering::Acquire) + SLOTS;
                    if limit - *next < BATCH {
                        std::hint::spin_loop();
                        continue;
                    }
                }
                for index in *next..*next + BATCH {
                    let slot = self.slot(index).cast::<Line>();
                    // The first line is made in registers: writing the number to memory and reading the line back at once
                    // would stall the core.
                    let [_, rest @ ..] = frame[0].0;
                    let [a, b, c, d, e, f, g] = rest;
                    // SAFETY: `index < consumed + SLOTS`, so the slot is the producer's until `produced` passes it;
                    // `slot` is in bounds and aligned, `frame` is elsewhere and as long.
                    unsafe {
                        slot.write(Line([index, a, b, c, d, e, f, g]));
                        frame.as_ptr().add(1).copy_to_nonoverlapping(slot.add(1), LINES - 1);
                    }
                }
                *next += BATCH;
                self.produced.0.store(*next, Ordering::Release);
            }
        }
    }

    /// Takes everything until the producer is over; returns the frames taken, or the first one that was not as sent.
    fn consume(&self, len: usize) -> Result<u64, u64> {
        self.ready.0.store(true, Ordering::Release);
        let mut next = 0;
        loop {
            let over = self.over.0.load(Ordering::Acquire);
            let limit = self.produced.0.load(Ordering::Acquire);
            if limit == next {
                if over {
                    return Ok(next);
                }
                std::hint::spin_loop();
                continue;
            }
            while next < limit {
                let until = limit.min(next + BATCH);
                for index in next..until {
                    // SAFETY: `index < produced`, so the slot is the consumer's until `consumed` passes it, and nobody
                    // writes it meanwhile; `slot` is in bounds and aligned.
                    let frame = unsafe { &*self.slot(index) };
                    if frame[0].0[0] != index || frame[0].0[1] != len as u64 {
                        return Err(index);
                    }
                }
                next = until;
                self.consumed.0.store(next, Ordering::Release);
            }
        }
    }
}

fn run<const LINES: usize>(cores: Cores, len: usize, span: Duration) -> io::Result<f64> {
    pin(cores.generator)?;
    let ring = Ring::<LINES>::new();
    thread::scope(|scope| {
        let consumer = scope.spawn(|| pin(cores.switch).map(|()| ring.consume(len)));
        let produced = ring.produce(len, span);
        ring.over.0.store(true, Ordering::Release);
        let consumed = consumer.join().map_err(|_| io::Error::other("the anchor's consumer panicked"))??;
        let Produced { total, counted, elapsed } = produced?;
        match consumed {
            Ok(frames) if frames == total => Ok(counted as f64 / elapsed.as_secs_f64()),
            Ok(frames) => Err(io::Error::other(format!("the anchor lost frames: {total} sent, {frames} taken"))),
            Err(index) => Err(io::Error::other(format!("the anchor's frame {index} arrived damaged"))),
        }
    })
}

/// Frames per second of the bare ring for frames of `len` bytes, over about `span`.
///
/// # Errors
/// A core cannot be used; `len` above [`MAX_FRAME_LEN`].
pub fn frames_per_second(cores: Cores, len: usize, span: Duration) -> io::Result<f64> {
    macro_rules! by_lines {
        ($($lines:literal)*) => {
            match (len + 4).div_ceil(64) {
                $($lines => run::<$lines>(cores, len, span),)*
                _ => Err(io::Error::other(format!("no anchor for frames of {len} bytes; the longest has {MAX_FRAME_LEN}"))),
            }
        };
    }
    by_lines!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_anchor_hands_over_every_frame_of_every_size() {
        let Ok(cores) = Cores::choose() else { ringway_testing::skip!("needs two processors") };
        thread::spawn(move || {
            for len in [60, 61, 124, 1000, 1514] {
                assert!(frames_per_second(cores, len, Duration::from_millis(5)).unwrap() > 0.0, "{len} bytes");
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_frame_too_long_for_the_anchor_is_refused() {
        let cores = Cores { generator: 0, switch: 0 };
        let error = frames_per_second(cores, 9000, Duration::from_millis(1)).unwrap_err().to_string();
        assert!(error.contains("9000 bytes"), "{error}");
    }
}
