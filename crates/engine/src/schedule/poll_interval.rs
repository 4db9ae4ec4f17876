//! The interval at which a sleeping poller polls the ports whose clients cannot kick: 100 us at first, a millisecond
//! soon after, 4 ms after a second without work.

use std::time::Duration;

/// Time between two polls right after the last work.
const SHORTEST: Duration = Duration::from_micros(100);
/// Time between two polls soon after the last work.
const USUAL: Duration = Duration::from_millis(1);
/// Time between two polls, at most.
const LONGEST: Duration = Duration::from_millis(4);
/// The interval is at least this part of the time without work.
const PART: u32 = 256;

/// The time between two polls, after `quiet` without work. A client that sends in bursts is polled soon again, because
/// TCP waits for it. A client that was silent for a second can wait for some milliseconds: each poll wakes a core.
pub(super) fn poll_interval(quiet: Duration) -> Duration {
    (quiet / PART).max(USUAL.min(quiet / 4)).clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_without_kicks_are_polled_less_often_the_longer_there_is_no_work() {
        let interval = |quiet| poll_interval(Duration::from_micros(quiet)).as_micros();
        assert_eq!([0, 100, 400, 1_000, 2_000, 4_000].map(interval), [100, 100, 100, 250, 500, 1_000]);
        let interval = |quiet: u64| interval(quiet * 1_000);
        assert_eq!([100, 256, 512, 1_024, 3_600_000].map(interval), [1_000, 1_000, 2_000, 4_000, 4_000]);
    }
}
