//! The number of the poller that runs on this thread, for forwarding programs: each poller has an instance of its own.

use std::cell::Cell;

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// Sets the number of the poller that this thread is.
pub fn set_poller_number(number: usize) {
    NUMBER.set(number);
}

/// The number of the poller that this thread is; 0 on other threads.
#[inline]
#[must_use]
pub fn poller_number() -> usize {
    NUMBER.get()
}
