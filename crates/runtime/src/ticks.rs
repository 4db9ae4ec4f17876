//! The processor's time-stamp counter. A reading costs half as much as a reading of the clock, and is less exact.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Time for which the counter is compared with the clock.
const COMPARED: Duration = Duration::from_micros(200);
/// Longest reading of the counter in nanoseconds. If it takes longer, a hypervisor traps it, and the clock is used
/// instead.
const SLOWEST_NS: u64 = 100;
/// Attempts to read the clock and the counter at one moment.
const ATTEMPTS: u32 = 16;

/// The counter in use, and its pace.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    counter: Counter,
    /// Nanoseconds of 2^20 ticks.
    scale: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counter {
    Processor,
    Clock,
}

impl Ticks {
    /// The counter of this machine.
    pub fn of_this_machine() -> Ticks {
        static MACHINE: OnceLock<Ticks> = OnceLock::new();
        *MACHINE.get_or_init(|| compare().unwrap_or(Ticks { counter: Counter::Clock, scale: 1 << 20 }))
    }

    /// Reads the counter, in ticks.
    #[inline(always)]
    pub fn read(self) -> u64 {
        match self.counter {
            Counter::Processor => counter(),
            Counter::Clock => crate::clock::nanoseconds(),
        }
    }

    /// Converts nanoseconds to ticks.
    pub fn of_nanoseconds(self, nanoseconds: u64) -> u64 {
        ((u128::from(nanoseconds) << 20) / u128::from(self.scale.max(1))) as u64
    }

    /// Converts ticks to nanoseconds. The counters of two processors may differ a little: a negative difference is 0.
    pub fn nanoseconds(self, ticks: u64) -> u64 {
        if ticks > i64::MAX as u64 {
            return 0;
        }
        ((u128::from(ticks) * u128::from(self.scale)) >> 20).min(u128::from(u64::MAX)) as u64
    }
}

/// Compares the processor's counter with the clock. `None`: no counter runs at one pace and is cheap to read.
fn compare() -> Option<Ticks> {
    if !has_steady_counter() {
        return None;
    }
    let (start, first) = clock_and_counter();
    let mut readings = 0u32;
    let looped = Instant::now();
    while looped.elapsed() < COMPARED {
        for _ in 0..16 {
            std::hint::black_box(counter());
        }
        readings += 16;
    }
    // A thread that waited for its processor meanwhile may find the counter slow and use the clock, which is not much slower.
    let is_cheap = looped.elapsed().as_nanos() as u64 <= SLOWEST_NS * u64::from(readings);
    let (end, last) = clock_and_counter();
    let ticks = last.checked_sub(first).filter(|&ticks| ticks > 0)?;
    let scale = ((end - start).as_nanos() << 20) / u128::from(ticks);
    is_cheap.then_some(Ticks { counter: Counter::Processor, scale: u64::try_from(scale).ok()?.max(1) })
}

/// Reads the clock and the counter at one moment: of several attempts the shortest, so that the thread does not lose its
/// processor in between.
fn clock_and_counter() -> (Instant, u64) {
    let attempt = |_| {
        let (before, counter, after) = (Instant::now(), counter(), Instant::now());
        (after - before, before, counter)
    };
    let shortest = (0..ATTEMPTS).map(attempt).min_by_key(|(took, ..)| *took);
    shortest.map_or_else(|| (Instant::now(), counter()), |(_, at, counter)| (at, counter))
}

#[cfg(target_arch = "x86_64")]
fn has_steady_counter() -> bool {
    use std::arch::x86_64::__cpuid;
    // Invariant TSC: CPUID 0x8000_0007, EDX bit 8 (Intel SDM volume 3, 18.17.1).
    const LEAF: u32 = 0x8000_0007;
    __cpuid(0x8000_0000).eax >= LEAF && __cpuid(LEAF).edx & 1 << 8 != 0
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and it reads nothing but the counter.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "aarch64")]
fn has_steady_counter() -> bool {
    true
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn counter() -> u64 {
    let ticks: u64;
    // SAFETY: reads the virtual counter, which Linux permits to every process; touches neither memory nor stack.
    unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags)) };
    ticks
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn has_steady_counter() -> bool {
    false
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn counter() -> u64 {
    crate::clock::nanoseconds()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_nanoseconds_and_back() {
        let ticks = Ticks { counter: Counter::Processor, scale: (1 << 20) / 3 };
        assert_eq!(ticks.nanoseconds(3_000_000), 999_999);
        assert!(ticks.of_nanoseconds(1_000_000).abs_diff(3_000_000) < 10);
        assert_eq!(ticks.nanoseconds(5u64.wrapping_sub(6)), 0, "a counter that seems to go back");
        assert_eq!(Ticks { counter: Counter::Clock, scale: 1 << 20 }.nanoseconds(77), 77);
    }

    #[test]
    fn the_counter_keeps_the_clocks_pace() {
        let ticks = Ticks::of_this_machine();
        // A reading of the counter between two of the clock: however long the thread waits for its processor, the counter's
        // time is between those.
        let read = || (Instant::now(), ticks.read(), Instant::now());
        let (before, first, after) = read();
        while after.elapsed() < Duration::from_millis(20) {}
        let (end_before, last, end_after) = read();
        let counted = ticks.nanoseconds(last - first) as f64;
        let [least, most] = [end_before - after, end_after - before].map(|time| time.as_nanos() as f64);
        assert!(counted >= 0.95 * least && counted <= 1.05 * most, "{counted} ns are not between {least} and {most}");
    }
}
