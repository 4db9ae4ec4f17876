//! How long frames have waited: from when they were seen to until they pass.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Of one sender, in nanoseconds. Used by one at a time.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Since when, and until when at most: who comes back later than he was to waits for something else. Both 0: nothing waits.
    since: AtomicU64,
    until: AtomicU64,
    /// How long before that.
    before: AtomicU64,
    /// It is for a bucket that several share.
    is_shared: AtomicBool,
}

impl Waiting {
    /// Frames are there and may not pass before `until`.
    pub(crate) fn begin(&self, now: u64, until: u64, is_shared: bool) {
        self.before.store(self.time(now), Ordering::Relaxed);
        self.since.store(now, Ordering::Relaxed);
        self.until.store(until, Ordering::Relaxed);
        self.is_shared.store(is_shared, Ordering::Relaxed);
    }

    /// They may pass: how long they have waited, if they have.
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

    /// What they waited for last.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    fn time(&self, now: u64) -> u64 {
        let [since, until, before] = [&self.since, &self.until, &self.before].map(|cell| cell.load(Ordering::Relaxed));
        before + now.min(until).saturating_sub(since)
    }
}
