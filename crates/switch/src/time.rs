//! Time as a pass sees it.

/// A reading of the clock that all pollers share, at most one round of a poller old, or a few rounds that moved few frames.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// Nanoseconds; never 0.
    pub nanoseconds: u64,
    /// Seconds, for the MAC table; never 0.
    pub seconds: u32,
    /// Reads the clock anew, in nanoseconds: for what must be exact and is rare.
    pub read: fn() -> u64,
}

impl Time {
    /// The beginning of a second, on a clock that stands still at its own beginning.
    #[must_use]
    pub fn at_second(seconds: u32) -> Time {
        Time { nanoseconds: u64::from(seconds) * 1_000_000_000, seconds, read: || 1 }
    }
}
