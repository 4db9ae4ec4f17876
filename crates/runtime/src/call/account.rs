//! What is known of the calls to one client, and a bound on the time that calls beyond harmless ones take.
//!
//! What a call takes beyond a harmless one is its *excess*. Time pays it off: [`PART`] nanoseconds one of excess. While more than [`FREE`] is not
//! paid off, the client is *held*: not called. So the excess of one client takes a [`PART`]th of the time, and no client is held for another's.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock;

/// Nanoseconds for which the calls of a client are measured, since the last one with an excess.
const MEASURED: u64 = 10_000_000_000;
/// Nanoseconds in which one nanosecond of excess is paid off.
const PART: u64 = 100;
/// Nanoseconds of excess for which no client is held: a processor is taken away now and then, and for long.
const FREE: u64 = 100_000_000;
/// The longest hold in nanoseconds. Excess that would make a longer one is forgotten.
const LONGEST: u64 = 4_000_000_000;
/// The longest hold of a new client, because of the calls to the last one.
const LONGEST_INHERITED: u64 = 100_000_000;

pub(super) fn nanoseconds_of(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What is known of the calls to one client, by any of its eventfds. It belongs to a port, and no other client has it at the same time.
#[derive(Debug, Default)]
pub struct CallAccount {
    /// Calls are measured until this time in nanoseconds, and until one is found harmless then. 0: they are not.
    measured_until: AtomicU64,
    /// Slow calls, one after the other, that were slow again, and the time of the last one.
    slow_calls: AtomicU8,
    slow_at: AtomicU64,
    /// All excess is paid off at this time.
    paid_at: AtomicU64,
}

impl CallAccount {
    /// The port has another client: slow calls of the last one are not this one's, and hold it for a moment at most.
    pub fn begin_client(&self) {
        self.begin_client_at(clock::nanoseconds());
    }

    /// Excess within [`FREE`] stays: a client that connects anew for each call would have that much each time.
    pub(super) fn begin_client_at(&self, now: u64) {
        self.slow_calls.store(0, Ordering::Relaxed);
        self.paid_at.fetch_min(now.saturating_add(FREE * PART + LONGEST_INHERITED), Ordering::Relaxed);
    }

    /// The time before which the client should not be called, because of what its calls have cost. In nanoseconds of
    /// [`nanoseconds`](crate::nanoseconds); 0: there is none. Calls that are made all the same delay the next one.
    #[inline]
    pub fn held_until(&self) -> u64 {
        self.paid_at.load(Ordering::Relaxed).saturating_sub(FREE * PART)
    }

    /// Returns true if the client should not be called now.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.held_until() != 0 && clock::nanoseconds() < self.held_until()
    }

    /// A call that ended at `now` has cost this much more than a harmless one. Several threads may call the client.
    pub fn charge(&self, now: u64, excess: Duration) {
        let cost = nanoseconds_of(excess).saturating_mul(PART);
        let most = now.saturating_add(FREE * PART + LONGEST);
        let charged = |paid_at: u64| Some(paid_at.max(now).saturating_add(cost).min(most).max(paid_at));
        let _ = self.paid_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, charged);
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
        if now > self.measured_until.load(Ordering::Relaxed) && now > self.paid_at.load(Ordering::Relaxed) {
            self.measured_until.store(0, Ordering::Relaxed);
            self.slow_calls.store(0, Ordering::Relaxed);
            self.paid_at.store(0, Ordering::Relaxed);
        }
    }

    /// Notes a slow call at `now`. Returns the slow calls, one soon after the other, that were slow again.
    pub(super) fn note_slow(&self, now: u64, is_slow_again: bool) -> u8 {
        let is_soon = now.saturating_sub(self.slow_at.swap(now, Ordering::Relaxed)) <= MEASURED;
        let before = if is_soon { self.slow_calls.load(Ordering::Relaxed) } else { 0 };
        let slow_calls = if is_slow_again { before.saturating_add(1) } else { 0 };
        self.slow_calls.store(slow_calls, Ordering::Relaxed);
        slow_calls
    }
}
