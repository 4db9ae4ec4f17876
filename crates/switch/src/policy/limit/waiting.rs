//! How long frames wait: from when they are first found waiting until they pass.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The wait of one sender's frames, in nanoseconds. One user at a time.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Begin of the wait, and its end at the latest: a sender that comes back later was delayed by something else. Both
    /// 0: nothing waits.
    since: AtomicU64,
    until: AtomicU64,
    /// Time waited before `since`.
    before: AtomicU64,
    /// True if the wait is for a shared bucket.
    is_shared: AtomicBool,
}

impl Waiting {
    /// Notes that frames may not pass before `until`.
    pub(crate) fn begin(&self, now: u64, until: u64, is_shared: bool) {
        self.before.store(self.time(now), Ordering::Relaxed);
        self.since.store(now, Ordering::Relaxed);
        self.until.store(until, Ordering::Relaxed);
        self.is_shared.store(is_shared, Ordering::Relaxed);
    }

    /// Ends the wait, if there is one. Returns how long the frames waited.
    #[inline]
    pub(crate) fn end(&self, now: u64) -> u64 {
        if self.until.load(Ordering::Relaxed) == 0 { 0 } else { self.end_at(now) }
    }

    #[inline(never)]
    fn end_at(&self, now: u64) -> u64 {
        let time = self.time(now);
        [&self.since, &self.until, &self.before].into_iter().for_each(|cell| cell.store(0, Ordering::Relaxed));
        time
    }

    /// Returns true if the last wait was for a shared bucket.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    fn time(&self, now: u64) -> u64 {
        let [since, until, before] = [&self.since, &self.until, &self.before].map(|cell| cell.load(Ordering::Relaxed));
        before + now.min(until).saturating_sub(since)
    }
}
