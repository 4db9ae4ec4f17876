//! Measurement of a poller's visits, and division of their time between ports.
//!
//! Each visit that moved frames ends with one reading of the time-stamp counter (12 ns, [`ringway_runtime::ticks`]), where the
//! next visit begins. A visit within the least allowance is not examined. After a longer one the poller reads its
//! thread's run delay, page faults and sleeps ([`ringway_runtime::thread_usage`]): time that the thread waited for its processor
//! is charged to no port. The rest cannot be charged yet, because a copy touches the memory of both its ends. So for 10
//! s (twice as long each time that this repeats, up to an hour) the poller *examines* its visits
//! ([`ringway_switch::Examined`]): what was collected is copied to memory of the poller's own first, so that collecting
//! is the source's time and delivering the receiver's. A port that takes too long then is charged ([`crate::budget`]), as far as something
//! explains the time: a page fault in which the thread slept while it was at the port's memory, or work. A hypervisor that takes the
//! processor away, and does not say so, leaves time that nothing explains, and the thread's processor time grows all the same.

use ringway_memory::Mapping;
use ringway_runtime::clock;
use ringway_runtime::thread_usage::{Usage, UsageReader};
use ringway_runtime::ticks::Ticks;
use ringway_switch::{Examined, TimeSpent};

use crate::budget::{self, LEAST_ALLOWANCE, Overwork};

/// Nanoseconds after which an awake poller reads its thread's usage again, so that a reading is about the last visits.
const READ_EVERY_NS: u64 = 50_000_000;
/// Nanoseconds after which it reads its usage again while visits are examined.
const READ_EVERY_EXAMINED_NS: u64 = 5_000_000;
/// Nanoseconds for which visits are examined after one that took too long. The time doubles if the last such time was
/// recent, up to a bound.
pub(crate) const EXAMINED_NS: u64 = 10_000_000_000;
const EXAMINED_LONGEST_NS: u64 = 3_600_000_000_000;
/// The last time was recent within this many times its length.
const SOON: u64 = 10;
/// Visits that computed for too long, without a sleep in a page fault, start the examination if their excess takes more than the
/// time that the thread ran, divided by this.
const PART: u64 = 4;

/// The meter of one poller (see the module's comment).
#[derive(Debug)]
pub(crate) struct Meter {
    ticks: Ticks,
    /// The least that any visit may take, in ticks.
    least: u64,
    /// When the next visit began, in ticks.
    mark: u64,
    usage: UsageReader,
    /// Visits are examined.
    pub(crate) examining: bool,
    /// The time until which visits are examined.
    until: u64,
    /// How long visits were examined last, in nanoseconds.
    term: u64,
    /// Where the frames of examined visits are copied to.
    area: Option<Mapping>,
    /// Work beyond a part of the time that the thread ran.
    work: Overwork,
    /// Nanoseconds that the thread ran since the last visit that computed for too long.
    ran: u64,
}

impl Meter {
    /// A meter for the thread that calls [`Meter::enter_thread`].
    pub(crate) fn new() -> Meter {
        let ticks = Ticks::of_this_machine();
        Meter {
            ticks,
            least: ticks.of_nanoseconds(LEAST_ALLOWANCE),
            mark: ticks.read(),
            usage: UsageReader::new(clock::nanoseconds()),
            examining: false,
            until: 0,
            term: EXAMINED_NS,
            area: None,
            work: Overwork::default(),
            ran: 0,
        }
    }

    /// Maps the memory that examined visits need.
    ///
    /// # Errors
    /// There is no memory for that.
    pub(crate) fn prepare(&mut self) -> std::io::Result<()> {
        self.area = Some(Mapping::resident(Examined::AREA)?);
        Ok(())
    }

    /// Examines every visit from now on.
    pub(crate) fn examine_always(&mut self) {
        (self.examining, self.until) = (self.area.is_some(), u64::MAX);
    }

    /// Makes the meter read the usage of the calling thread.
    pub(crate) fn enter_thread(&mut self) {
        self.usage = UsageReader::new(clock::nanoseconds());
        self.mark();
    }

    /// The meter's reader.
    pub(crate) fn usage(&self) -> &UsageReader {
        &self.usage
    }

    /// Starts the next visit now: the time before belongs to no visit.
    #[inline]
    pub(crate) fn mark(&mut self) {
        self.mark = self.ticks.read();
    }

    /// Ends a visit. Returns its ticks if it may have taken too long.
    #[inline(always)]
    pub(crate) fn lap(&mut self) -> Option<u64> {
        let now = self.ticks.read();
        let took = now.wrapping_sub(self.mark);
        self.mark = now;
        (took > self.least).then_some(took)
    }

    /// To be called when the poller has read the clock. Visits are examined while `must_examine` is true, also if none took too long.
    #[inline]
    pub(crate) fn look_at_clock(&mut self, now: u64, must_examine: impl FnOnce() -> bool) {
        let every = if self.examining { READ_EVERY_EXAMINED_NS } else { READ_EVERY_NS };
        if now.saturating_sub(self.usage.at()) > every {
            self.read_usage(now);
            if now > self.until {
                self.examining = must_examine() && self.area.is_some();
            }
        }
    }

    /// To be called after the poller slept, which was no stall.
    #[inline]
    pub(crate) fn slept(&mut self) {
        if self.examining {
            self.usage.since_last(clock::nanoseconds());
        }
        self.mark();
    }

    /// The usage of the thread since the last reading.
    pub(crate) fn read_usage(&mut self, now: u64) -> Usage {
        let seen = self.usage.since_last(now);
        self.ran = self.ran.saturating_add(seen.ran);
        seen
    }

    /// Where the frames of examined visits are copied to.
    pub(crate) fn area(&self) -> Option<&Mapping> {
        self.area.as_ref()
    }

    /// Examines visits for the usual time from `now` on, at least.
    pub(crate) fn extend(&mut self, now: u64) {
        self.until = self.until.max(now.saturating_add(EXAMINED_NS));
    }

    /// Decides whether visits are examined, after a visit that moved `frames` and `bytes` took `ticks`.
    #[cold]
    pub(crate) fn took_long(&mut self, ticks: u64, frames: u64, bytes: u64) {
        let took = self.ticks.nanoseconds(ticks);
        let now = clock::nanoseconds();
        let seen = self.read_usage(now);
        let spent = TimeSpent { nanoseconds: took, frames, bytes, ..TimeSpent::default() };
        if let Some(nanoseconds) = beyond(spent, seen)
            && self.must_examine(nanoseconds, seen)
        {
            self.work = Overwork::default();
            self.examine(now);
        }
    }

    /// Returns true if visits must be examined after this excess.
    fn must_examine(&mut self, nanoseconds: u64, seen: Usage) -> bool {
        let ran = std::mem::take(&mut self.ran);
        // The number of visits does not matter: short ones between the long ones cost a client little.
        seen.may_have_stalled() || self.work.note(nanoseconds, ran.saturating_sub(nanoseconds) / (PART - 1))
    }

    /// Examines visits from now on, for some time.
    #[cold]
    pub(crate) fn examine(&mut self, now: u64) {
        let again = self.until > 0 && now.saturating_sub(self.until) < SOON * self.term;
        self.term = if again { (2 * self.term).min(EXAMINED_LONGEST_NS) } else { EXAMINED_NS };
        if self.area.is_none() {
            self.area = Mapping::resident(Examined::AREA).ok();
        }
        // Without memory for the copies no visit is examined; the next long visit tries again.
        self.examining = self.area.is_some();
        self.until = now.saturating_add(self.term);
    }
}

/// The nanoseconds of `spent` beyond the allowance that may be some port's doing, for a thread whose usage meanwhile was `seen`.
fn beyond(spent: TimeSpent, seen: Usage) -> Option<u64> {
    let beyond = spent.nanoseconds.saturating_sub(budget::allowance(spent.frames, spent.bytes));
    let own = beyond.saturating_sub(seen.waited);
    // A thread that did not sleep in a page fault computed, at most for as long as it ran.
    let own = if seen.may_have_stalled() { own } else { own.min(seen.ran) };
    (own > 0).then_some(own)
}

/// The nanoseconds of `spent` beyond the allowance that are the port's doing, for a thread whose usage meanwhile was `seen`, and whether they
/// are a stall rather than work. `all_explained`: the port's frames go through the kernel, which works for as long as it takes.
pub(crate) fn excess(spent: TimeSpent, seen: Usage, all_explained: bool) -> Option<(u64, bool)> {
    let beyond = spent.nanoseconds.saturating_sub(budget::allowance(spent.frames, spent.bytes));
    let explained = if all_explained { spent.nanoseconds } else { spent.explained };
    // A thread computed at most for as long as it ran.
    let work = explained.min(seen.ran);
    let own = beyond.saturating_sub(seen.waited).min(spent.stalled.saturating_add(work));
    (own > 0).then_some((own, spent.stalled > work))
}

/// The part of `spent` within the allowance.
pub(crate) fn within(spent: TimeSpent) -> u64 {
    spent.nanoseconds.min(budget::allowance(spent.frames, spent.bytes))
}

/// Returns true if `spent` is beyond the allowance, perhaps because the thread waited for its processor.
pub(crate) fn is_long(spent: TimeSpent) -> bool {
    spent.nanoseconds > budget::allowance(spent.frames, spent.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    fn spent(milliseconds: u64) -> TimeSpent {
        TimeSpent { nanoseconds: milliseconds * MILLISECOND + LEAST_ALLOWANCE, ..TimeSpent::default() }
    }

    /// The first access to a page may have to wait for the kernel.
    #[test]
    fn memory_for_examined_visits_is_there_before_they_are_examined() {
        let mut meter = Meter::new();
        meter.prepare().expect("memory");
        let area = meter.area().expect("memory").whole();
        assert!(ringway_testing::memory::is_resident(area.as_ptr(), area.len()));
    }

    #[test]
    fn only_time_that_something_explains_is_charged_to_a_port() {
        let ms = |milliseconds: u64| milliseconds * MILLISECOND;
        // Milliseconds of the visit beyond its allowance, stalled and explained of it; ran, waited since the last reading; charged, and
        // whether as a stall.
        let table = [
            // The thread slept in page faults of the port's memory.
            ((100, 100, 0), (1, 0), Some((100, true))),
            ((100, 100, 0), (1, 30), Some((70, true))),
            // Another thread had the processor for all that time, or for longer, in other visits, too.
            ((100, 100, 0), (1, 100), None),
            ((100, 0, 100), (1, 500), None),
            // The thread computed; what it ran before does not count.
            ((5, 0, 5), (5, 0), Some((5, false))),
            ((5, 0, 5), (50, 0), Some((5, false))),
            ((5, 0, 5), (5, 3), Some((2, false))),
            // It ran for a part of the time.
            ((5, 0, 5), (3, 0), Some((3, false))),
            // Nothing explains the time, although the thread's processor time grew: the machine took the processor away.
            ((100, 0, 0), (100, 0), None),
            ((50, 0, 0), (0, 0), None),
            ((50, 0, 1), (50, 0), Some((1, false))),
            // A short stall does not make a long one of the work beside it.
            ((10, 1, 9), (20, 0), Some((10, false))),
            ((10, 9, 1), (20, 0), Some((10, true))),
            ((0, 5, 5), (5, 0), None),
        ];
        for ((took, stalled, explained), (ran, waited), charged) in table {
            let spent = TimeSpent { stalled: ms(stalled), explained: ms(explained), ..spent(took) };
            // Faults and sleeps of the thread elsewhere are none of the port's.
            let seen = Usage { ran: ms(ran), waited: ms(waited), faults: 7, sleeps: 7, preempted: 7 };
            let charged = charged.map(|(charged, stalled)| (ms(charged), stalled));
            assert_eq!(excess(spent, seen, false), charged, "{spent:?}, {seen:?}");
        }
        let seen = Usage { ran: ms(100), ..Usage::default() };
        assert_eq!(excess(spent(50), seen, true), Some((ms(50), false)), "the kernel worked for a device");
        let unknown = Usage { ran: u64::MAX, waited: u64::MAX, ..Usage::default() };
        let stalled = TimeSpent { stalled: ms(100), ..spent(100) };
        assert_eq!(excess(stalled, unknown, false), None, "a kernel that does not tell how long it waited");
    }

    #[test]
    fn a_long_stall_has_visits_examined_and_many_long_computations_do() {
        let took_long = |meter: &mut Meter| {
            // A visit that takes an hour. The usage of this thread is the real one.
            let ticks = meter.ticks.of_nanoseconds(3_600_000 * MILLISECOND);
            meter.took_long(ticks, 1, 60);
        };
        let mut meter = Meter::new();
        let page = Mapping::private(4096).expect("memory");
        assert!(page.whole().write(&[1; 64]));
        std::thread::sleep(std::time::Duration::from_millis(1));
        took_long(&mut meter);
        assert!(meter.examining);
        let (first, term) = (meter.until, meter.term);
        assert_eq!(term, EXAMINED_NS);
        meter.look_at_clock(first + READ_EVERY_NS + 1, || true);
        assert!(meter.examining, "a thread is kept");
        meter.look_at_clock(first + 2 * (READ_EVERY_NS + 1), || false);
        assert!(!meter.examining, "there was no further long visit");
        meter.look_at_clock(first + 3 * (READ_EVERY_NS + 1), || true);
        assert!(meter.examining, "a thread is kept, in whose memory the next one may be kept");
        meter.look_at_clock(first + 4 * (READ_EVERY_NS + 1), || false);
        assert!(!meter.examining);
        // Another one soon after.
        meter.examine(first + 1);
        assert_eq!((meter.examining, meter.term), (true, 2 * EXAMINED_NS));
        meter.examine(meter.until + SOON * meter.term + 1);
        assert_eq!(meter.term, EXAMINED_NS);
    }

    #[test]
    fn visits_that_compute_for_long_are_examined_however_many_short_ones_are_between_them() {
        // Milliseconds that the thread runs for each long visit, with an excess of 17 ms.
        let examined = |ran: u64| {
            let mut meter = Meter::new();
            let visits = (1..=1_000).find(|_| {
                meter.ran = ran * MILLISECOND;
                meter.must_examine(17 * MILLISECOND, Usage::default())
            });
            visits.is_some_and(|visits| visits < 100)
        };
        assert_eq!([17, 20, 30, 60].map(examined), [true; 4]);
        assert_eq!([70, 100, 1_000].map(examined), [false; 3], "a processor that was taken away looks the same");
    }
}
