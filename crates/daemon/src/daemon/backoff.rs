//! Exponential backoff of pauses: each is twice as long as the one before, and after some time without any the next one is the first again.

use std::ops::{Add, Sub};
use std::time::{Duration, Instant};

/// The first and the longest pause.
const FIRST: Duration = Duration::from_secs(1);
pub(super) const LONGEST: Duration = Duration::from_secs(60);
/// The time after the end of a pause after which the next one is the first again.
pub(super) const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);

/// The last pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Last<T> {
    /// There was none.
    #[default]
    Never,
    /// It ends at this time.
    Until(T),
    /// It has still to begin.
    Due,
}

/// The pauses of one port, or of several together, in the time `T` of some clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Backoff<T = Instant> {
    /// How many pauses there were in a row.
    pub(super) count: u32,
    pub(super) last: Last<T>,
}

impl<T> Default for Backoff<T> {
    fn default() -> Self {
        Self { count: 0, last: Last::Never }
    }
}

impl<T: Copy + Ord + Add<Duration, Output = T> + Sub<Output = Duration>> Backoff<T> {
    /// Begins the next pause and returns its length.
    pub(super) fn begin(&mut self, now: T) -> Duration {
        self.prepare(now);
        self.start(now);
        self.length()
    }

    /// The next pause is due. It lasts until it is started and its length has passed.
    pub(super) fn prepare(&mut self, now: T) {
        if self.is_reset(now) {
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.last = Last::Due;
    }

    /// Starts the pause that is due.
    pub(super) fn start(&mut self, now: T) {
        if self.last == Last::Due {
            self.last = Last::Until(now + self.length());
        }
    }

    fn length(&self) -> Duration {
        (FIRST * (1 << self.count.saturating_sub(1).min(16))).min(LONGEST)
    }

    /// The rest of the present pause.
    pub(super) fn left(&self, now: T) -> Option<Duration> {
        match self.last {
            Last::Never => None,
            Last::Until(until) => (until > now).then(|| until - now),
            Last::Due => Some(self.length()),
        }
    }

    /// Returns true if the next pause is the first.
    pub(super) fn is_reset(&self, now: T) -> bool {
        match self.last {
            Last::Never => true,
            Last::Until(until) => now >= until + FORGOTTEN_AFTER,
            Last::Due => false,
        }
    }

    /// The same by another clock.
    pub(super) fn by<U>(self, clock: impl FnOnce(T) -> U) -> Backoff<U> {
        let last = match self.last {
            Last::Never => Last::Never,
            Last::Until(until) => Last::Until(clock(until)),
            Last::Due => Last::Due,
        };
        Backoff { count: self.count, last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_pause_that_is_due_lasts_until_it_is_started_and_its_length_has_passed() {
        let mut pauses = Backoff::default();
        assert_eq!((pauses.left(seconds(1)), pauses.is_reset(seconds(1))), (None, true));
        pauses.prepare(seconds(1));
        assert_eq!((pauses.left(seconds(1000)), pauses.is_reset(seconds(1000))), (Some(seconds(1)), false));
        pauses.prepare(seconds(1000));
        pauses.start(seconds(2000));
        pauses.start(seconds(2001));
        let left = [2000, 2001, 2002].map(|now| pauses.left(seconds(now)));
        assert_eq!(left, [Some(seconds(2)), Some(seconds(1)), None]);
        assert_eq!([2301, 2302].map(|now| pauses.is_reset(seconds(now))), [false, true]);
    }
}
