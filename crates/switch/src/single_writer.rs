//! Counters with one writer at a time.

use std::sync::atomic::{AtomicU64, Ordering};

/// Adds `n` without a locked instruction. The caller must be the only writer at the time.
#[inline]
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}
