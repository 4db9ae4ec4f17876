//! The time that a pass works with.

/// A reading of the clock that all pollers share. It is at most one round of a poller old, or a few rounds if these
/// moved few frames.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// Nanoseconds; never 0.
    pub nanoseconds: u64,
    /// Seconds, for the MAC table; never 0.
    pub seconds: u32,
    /// Reads the clock anew, in nanoseconds. For rare uses that must be exact.
    pub read: fn() -> u64,
}

impl Time {
    /// The beginning of second `seconds`, for tests. `read` returns 1 always.
    #[must_use]
    pub fn at_second(seconds: u32) -> Time {
        Time { nanoseconds: u64::from(seconds) * 1_000_000_000, seconds, read: || 1 }
    }
}

/// A moment of the calling thread, while passes are examined: the time, and what the thread's account says. Two moments tell what happened
/// between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The time in nanoseconds, of the clock of [`Time`].
    pub nanoseconds: u64,
    /// Page faults of the thread.
    pub faults: u64,
    /// How often the thread has blocked. A thread that loses its processor has not.
    pub sleeps: u64,
    /// Nanoseconds of calls that took long because of what their clients had arranged.
    pub slow_calls: u64,
}

/// Returns the present moment of the calling thread.
pub type Measure = fn() -> Moment;
