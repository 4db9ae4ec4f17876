//! What is known of the calls to one client.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::clock;

/// Nanoseconds for which the calls of a client are measured, since the last one with an excess.
const MEASURED: u64 = 10_000_000_000;

/// What is known of the calls to one client, by any of its eventfds. It belongs to a port, and no other client has it at the same time.
#[derive(Debug, Default)]
pub struct CallAccount {
    /// Calls are measured until this time in nanoseconds, and until one is found harmless then. 0: they are not.
    measured_until: AtomicU64,
    /// Slow calls, one after the other, that were slow again.
    slow_calls: AtomicU8,
    held_until: AtomicU64,
}

impl CallAccount {
    /// The port has another client: slow calls of the last one are not this one's.
    pub fn begin_client(&self) {
        self.slow_calls.store(0, Ordering::Relaxed);
    }

    /// The time before which the client should not be called, because of what its calls have cost. In nanoseconds of
    /// [`nanoseconds`](crate::nanoseconds); 0: there is none. Calls that are made all the same delay the next one.
    #[inline]
    pub fn held_until(&self) -> u64 {
        self.held_until.load(Ordering::Relaxed)
    }

    /// Returns true if the client should not be called now.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.held_until() != 0 && clock::nanoseconds() < self.held_until()
    }

    #[inline]
    pub(super) fn is_measured(&self) -> bool {
        self.measured_until.load(Ordering::Relaxed) != 0
    }

    #[cold]
    pub(super) fn measure_from(&self, now: u64) {
        self.measured_until.store(now.saturating_add(MEASURED), Ordering::Relaxed);
    }

    /// A measured call was harmless at `now`.
    pub(super) fn note_harmless(&self, now: u64) {
        if now > self.measured_until.load(Ordering::Relaxed) {
            self.measured_until.store(0, Ordering::Relaxed);
            self.slow_calls.store(0, Ordering::Relaxed);
            self.held_until.store(0, Ordering::Relaxed);
        }
    }

    /// Notes a slow call. Returns the slow calls, one after the other, that were slow again.
    pub(super) fn note_slow(&self, is_slow_again: bool) -> u8 {
        let slow_calls = if is_slow_again { self.slow_calls.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
        self.slow_calls.store(slow_calls, Ordering::Relaxed);
        slow_calls
    }

    /// The client should not be called before this time.
    pub(super) fn hold_until(&self, time: u64) {
        self.held_until.fetch_max(time, Ordering::Relaxed);
    }
}
