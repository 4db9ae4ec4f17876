//! How often a sleeping poller looks at ports whose clients cannot kick.

use std::time::Duration;

/// Time between two looks: right after the last work, soon after it, and at most.
const LOOK_SOON: Duration = Duration::from_micros(100);
const LOOK_EVERY: Duration = Duration::from_millis(1);
const LOOK_SELDOM: Duration = Duration::from_millis(4);
/// The part of the time without work after which there is another look.
const LOOK_PART: u32 = 256;

/// Between two looks at ports whose clients cannot kick, after so long without work: who sends in bursts has the next soon, as TCP waits
/// for it; who was silent for a second can wait for some milliseconds, and each look wakes a core.
pub(crate) fn look_interval(quiet: Duration) -> Duration {
    (quiet / LOOK_PART).max(LOOK_EVERY.min(quiet / 4)).clamp(LOOK_SOON, LOOK_SELDOM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_without_kicks_are_looked_at_less_often_the_longer_there_is_nothing_to_do() {
        let every = |quiet| look_interval(Duration::from_micros(quiet)).as_micros();
        assert_eq!([0, 100, 400, 1_000, 2_000, 4_000].map(every), [100, 100, 100, 250, 500, 1_000]);
        let every = |quiet: u64| every(quiet * 1_000);
        assert_eq!([100, 256, 512, 1_024, 3_600_000].map(every), [1_000, 1_000, 2_000, 4_000, 4_000]);
    }
}
