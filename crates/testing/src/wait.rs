//! Conditions that are awaited. A deadline only ends a test that would hang: no test measures a time with it.

use std::time::{Duration, Instant};

/// Longest wait for anything: long enough for a machine ten times slower than this one whose processors are busy.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Until then a condition is tried without a pause.
const IMPATIENT: Duration = Duration::from_millis(1);
/// Longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Waits until `condition` holds.
///
/// # Panics
/// The condition does not hold within [`PATIENCE`].
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    until_some(what, || condition().then_some(()));
}

/// Waits until `get` gives a value, and returns it.
///
/// # Panics
/// There is no value within [`PATIENCE`].
#[track_caller]
pub fn until_some<T>(what: &str, mut get: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        let begun = Instant::now();
        if let Some(value) = get() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        // Many conditions execute a program. Their tries leave most of the processor time to what the test waits for.
        if start.elapsed() < IMPATIENT {
            std::thread::yield_now();
        } else {
            std::thread::sleep((2 * begun.elapsed()).min(LONGEST_PAUSE));
        }
    }
}
