//! Conditions that are awaited. A deadline only ends a test that would hang: no test measures a time with it.

use std::time::{Duration, Instant};

/// Longest wait for anything: long enough for a machine ten times slower than this one whose processors are busy.
pub const PATIENCE: Duration = Duration::from_secs(120);

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
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = get() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::yield_now();
    }
}
