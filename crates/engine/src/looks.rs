//! How often a sleeping poller looks at ports whose clients cannot kick.

use std::time::Duration;

/// Time between two looks: after the last work, and at most.
const LOOK_EVERY: Duration = Duration::from_millis(1);
const LOOK_SELDOM: Duration = Duration::from_millis(4);
/// The part of the time without work after which there is another look.
const LOOK_PART: u32 = 256;

/// Between two looks at ports whose clients cannot kick, after so long without work: who was silent for a second can wait for some
/// milliseconds, and each look wakes a core.
pub(crate) fn look_interval(quiet: Duration) -> Duration {
    (quiet / LOOK_PART).clamp(LOOK_EVERY, LOOK_SELDOM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_without_kicks_are_looked_at_less_often_the_longer_there_is_nothing_to_do() {
        let every = |quiet| look_interval(Duration::from_millis(quiet)).as_micros();
        assert_eq!([0, 100, 256, 512, 1_024, 3_600_000].map(every), [1_000, 1_000, 1_000, 2_000, 4_000, 4_000]);
    }
}
