//! Conditions that are awaited. A deadline only ends a test that would hang: no test measures a time with it.
//!
//! [`PATIENCE`] is the one deadline of all tests. A test that needs another time gives it as an argument to what it tests.

use std::time::{Duration, Instant};

/// Longest wait for anything. A test that ends by it hangs, on any machine and under any load.
pub const PATIENCE: Duration = Duration::from_secs(300);
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
        // Many conditions ask the daemon or execute a program. Their tries leave most of the processor time to what the test waits for.
        if start.elapsed() < IMPATIENT {
            std::thread::yield_now();
        } else {
            std::thread::sleep((8 * begun.elapsed()).min(LONGEST_PAUSE));
        }
    }
}
