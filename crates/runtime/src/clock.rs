//! The clock of the data path: nanoseconds and seconds of a monotonic clock.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ringway_switch::Time;

/// The time at the start of the process: later than what a predecessor has heard and passes on, by an age that is at most so much. 0 is never a time.
const START_AT: Duration = Duration::from_secs(1 << 22);

/// The time since the first call in this process, after [`START_AT`].
fn passed(now: Instant) -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    now.saturating_duration_since(start) + START_AT
}

/// The seconds of [`nanoseconds`], for the MAC table.
#[must_use]
pub fn seconds(now: Instant) -> u32 {
    // Enough for 136 years.
    passed(now).as_secs() as u32
}

/// Converts a moment to the time of the pollers. All engines of this process share it.
pub fn time(now: Instant) -> Time {
    let passed = passed(now);
    Time { nanoseconds: passed.as_nanos() as u64, seconds: passed.as_secs() as u32, read: nanoseconds }
}

/// The pollers' time: nanoseconds of a monotonic clock.
#[must_use]
pub fn nanoseconds() -> u64 {
    passed(Instant::now()).as_nanos() as u64
}
