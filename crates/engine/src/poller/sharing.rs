//! Whether a poller without a processor of its own shares one with threads that want it.
//!
//! A poller that spins on a processor that its clients' threads need delays the very frames that it waits for
//! (`docs/decisions/shared-processor.md`). The scheduler's account of the poller's thread shows that: others get the processor
//! while the poller wants it. A poller that is pinned does not ask: the scheduler could not give it another processor when it wakes, so
//! that a thread that does not sleep would delay it by a slice each time.

use ringway_runtime::thread_usage::{Usage, UsageReader};

/// Least time between two readings, in nanoseconds.
const WINDOW: u64 = 16_000_000;
/// Fewest involuntary context switches of such a time on a shared processor. The kernel's own threads cause some, too.
const PREEMPTIONS: u64 = 4;

/// What the scheduler's account says of a poller's processor. Belongs to the poller's thread.
#[derive(Debug)]
pub(super) struct Sharing {
    usage: UsageReader,
    is_shared: bool,
}

impl Sharing {
    /// For the thread of this reader.
    pub(super) fn new(usage: UsageReader) -> Sharing {
        Sharing { usage, is_shared: false }
    }

    /// Returns true if others want the poller's processor. Reads the account when a window has passed.
    #[inline]
    pub(super) fn is_shared(&mut self, now: u64) -> bool {
        if now.saturating_sub(self.usage.at()) >= WINDOW {
            let elapsed = now - self.usage.at();
            let window = self.usage.since_last(now);
            self.judge(&window, elapsed);
        }
        self.is_shared
    }

    /// A shared processor becomes one's own at half the wait that makes it shared.
    fn judge(&mut self, window: &Usage, elapsed: u64) {
        let share = if self.is_shared { 8 } else { 4 };
        let wanted = window.ran.saturating_add(window.waited);
        let is_preempted = u128::from(window.preempted) * u128::from(WINDOW) >= u128::from(PREEMPTIONS * elapsed);
        self.is_shared = is_preempted && wanted > 0 && window.waited >= wanted / share;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use ringway_testing::PATIENCE;

    use super::super::thread::pin;
    use super::*;
    use ringway_runtime::clock;

    fn window(ran: u64, waited: u64, preempted: u64) -> Usage {
        Usage { ran, waited, preempted, ..Usage::default() }
    }

    #[test]
    fn who_waits_for_a_quarter_of_the_time_shares_until_it_waits_for_less_than_an_eighth() {
        let mut sharing = Sharing::new(UsageReader::new(clock::nanoseconds()));
        let mut judge = |ran, waited, preempted| {
            sharing.judge(&window(ran, waited, preempted), WINDOW);
            sharing.is_shared
        };
        assert!(!judge(80, 20, 40));
        assert!(judge(60, 20, 40));
        assert!(judge(80, 20, 40));
        assert!(!judge(80, 10, 40));
        // Slow wake-ups alone are nobody's.
        assert!(!judge(10, 90, 3));
        assert!(judge(10, 90, 4));
        assert!(!judge(10, 90, 3));
        // A kernel that does not tell the times of threads, or not the thread's times.
        assert!(!judge(0, 0, 40));
        assert!(judge(u64::MAX, u64::MAX, 4));
        assert!(!judge(u64::MAX, 0, 0));
    }

    #[test]
    fn a_busy_thread_on_the_same_processor_is_noticed() {
        let core = rustix::thread::sched_getaffinity(None).expect("affinity");
        let core = (0..rustix::thread::CpuSet::MAX_CPU).find(|&cpu| core.is_set(cpu)).expect("a processor");
        let busy = AtomicBool::new(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pin(core).expect("pinned");
                // A thread that sleeps now and then gets the processor when it wakes.
                while busy.load(Ordering::Relaxed) {
                    let woken = Instant::now();
                    while woken.elapsed() < Duration::from_micros(500) {
                        std::hint::spin_loop();
                    }
                    std::thread::sleep(Duration::from_micros(100));
                }
            });
            let poller = scope.spawn(|| {
                pin(core).expect("pinned");
                let mut sharing = Sharing::new(UsageReader::new(clock::nanoseconds()));
                let began = Instant::now();
                while !sharing.is_shared(clock::nanoseconds()) && began.elapsed() < PATIENCE {}
                busy.store(false, Ordering::Relaxed);
                sharing.is_shared
            });
            assert!(poller.join().expect("no panic"));
        });
    }
}
