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
