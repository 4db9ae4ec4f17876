//! Page faults that no count of the kernel has.
//!
//! A fault in a watched hole ends in SIGBUS ([`crate::guard`] fills the page), and the kernel counts faults that succeed only
//! (getrusage(2)). It may have waited before it ended: a client that punches holes into its memory decides for how long. Who tells a
//! stall by the faults of a thread adds these.

use std::cell::Cell;

thread_local! {
    /// Without a destructor and with a constant value, so that a signal handler can use it. Libraries, where the first use by a
    /// thread can allocate memory, have no watched holes.
    static IN_HOLES: Cell<u64> = const { Cell::new(0) };
}

/// The number of page faults of the calling thread in watched holes.
#[must_use]
pub fn faults_in_holes() -> u64 {
    IN_HOLES.with(Cell::get)
}

/// Counts a fault of the calling thread. Async-signal-safe.
pub(crate) fn note_in_hole() {
    IN_HOLES.with(|count| count.set(count.get().wrapping_add(1)));
}
