//! Time limits of waits.

use libc::timespec;

use crate::clock::monotonic;

const SECOND: i64 = 1_000_000_000;

/// When a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// At once.
    Now,
    /// Never.
    Never,
    /// After so many nanoseconds, from the first sleep on.
    After(i64),
    /// At this time of the monotonic clock, in nanoseconds.
    At(i64),
}

impl Limit {
    /// A limit in milliseconds, as of `poll`.
    pub(crate) fn milliseconds(milliseconds: i32) -> Limit {
        match milliseconds {
            0 => Limit::Now,
            1.. => Limit::After(i64::from(milliseconds) * 1_000_000),
            _ => Limit::Never,
        }
    }

    /// A limit as of `ppoll`. `None`: the time is invalid.
    pub(crate) fn time(time: Option<&timespec>) -> Option<Limit> {
        let Some(time) = time else { return Some(Limit::Never) };
        if time.tv_sec < 0 || !(0..SECOND).contains(&time.tv_nsec) {
            return None;
        }
        let nanoseconds = time.tv_sec.saturating_mul(SECOND).saturating_add(time.tv_nsec);
        Some(if nanoseconds == 0 { Limit::Now } else { Limit::After(nanoseconds) })
    }

    /// Fixes the end of the wait.
    pub(crate) fn begin(&mut self) {
        if let Limit::After(nanoseconds) = *self {
            *self = Limit::At(monotonic().saturating_add(nanoseconds));
        }
    }

    /// The limit, or this time from now on if that is earlier.
    pub(crate) fn at_most(self, nanoseconds: i64) -> Limit {
        let left = match self {
            Limit::Now => return self,
            Limit::Never => nanoseconds,
            Limit::After(left) => left,
            Limit::At(end) => (end - monotonic()).max(0),
        };
        Limit::After(left.min(nanoseconds))
    }

    /// Returns the time that is left; `None`: no limit.
    pub(crate) fn left(self) -> Option<timespec> {
        let left = match self {
            Limit::Now => 0,
            Limit::Never => return None,
            Limit::After(nanoseconds) => nanoseconds,
            Limit::At(end) => (end - monotonic()).max(0),
        };
        Some(timespec { tv_sec: left / SECOND, tv_nsec: left % SECOND })
    }

    /// Returns the time that is left as `epoll_wait` takes it, rounded up.
    pub(crate) fn left_milliseconds(self) -> i32 {
        self.left().map_or(-1, |left| {
            let milliseconds = left.tv_sec.saturating_mul(1000).saturating_add((left.tv_nsec + 999_999) / 1_000_000);
            i32::try_from(milliseconds).unwrap_or(i32::MAX)
        })
    }

    /// Returns true when the time has passed.
    pub(crate) fn is_over(self) -> bool {
        matches!(self.left(), Some(timespec { tv_sec: 0, tv_nsec: 0 }))
    }
}
