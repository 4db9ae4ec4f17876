//! Time as the data path sees it.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ringway_switch::Time;

/// Since the process first asked. Starting at one second keeps 0 free.
fn passed(now: Instant) -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    now.saturating_duration_since(start) + Duration::from_secs(1)
}

/// The second of the MAC table.
#[must_use]
pub fn seconds(now: Instant) -> u32 {
    // 136 years fit.
    passed(now).as_secs() as u32
}

/// The same moment for every poller, also for those of another engine in this process.
pub(crate) fn time(now: Instant) -> Time {
    let passed = passed(now);
    Time { nanoseconds: passed.as_nanos() as u64, seconds: passed.as_secs() as u32, read: nanoseconds }
}

/// The pollers' time.
#[must_use]
pub fn nanoseconds() -> u64 {
    passed(Instant::now()).as_nanos() as u64
}
