//! Clocks.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Nanoseconds of a clock that never goes back.
pub(crate) fn monotonic_ns() -> u64 {
    u64::try_from(read(ClockId::Monotonic).as_nanos()).unwrap_or(u64::MAX)
}

/// Processor time of this thread.
pub(crate) fn thread_time() -> Duration {
    read(ClockId::ThreadCPUTime)
}
