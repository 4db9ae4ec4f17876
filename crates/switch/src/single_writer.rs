//! Counters that one thread at a time writes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Adds without a locked instruction: the caller is the only writer at the time.
#[inline]
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}
