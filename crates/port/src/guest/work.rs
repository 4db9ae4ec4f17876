//! Counters of a visit's work besides its frames, for tests: comparisons in searches for regions, pieces of buffers,
//! descriptors of chains.

#[cfg(any(test, feature = "testing"))]
thread_local!(static WORK: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });

/// Adds `amount` to the work counted on this thread. Does nothing outside tests.
#[inline(always)]
pub fn count_work(amount: usize) {
    let _ = amount;
    #[cfg(any(test, feature = "testing"))]
    WORK.set(WORK.get().saturating_add(amount));
}

/// Returns the work counted on this thread since the last call.
#[cfg(any(test, feature = "testing"))]
pub fn work_done() -> usize {
    WORK.take()
}
