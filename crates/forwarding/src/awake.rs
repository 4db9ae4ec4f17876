//! Whether the ticker is awake. It sleeps while no program is called; the first call after that wakes it.
//!
//! A call that the ticker slept through would never end. Both sides store, fence and load, so that none misses the other: the caller sets
//! `called`, then reads `is_asleep`; the ticker sets `is_asleep`, then reads `called`.
//!
//! Most calls only read `called`, which the call before has set. What such a call reads may be old: the ticker may have cleared it, and be about
//! to sleep. Therefore a caller sets its deadline first, by the epoch that it sees, and the ticker looks between two ticks. If the epoch was that
//! of the last tick before a sleep, the caller sees what the ticker cleared before that tick. If it was older, its deadline has passed.
//!
//! A call that a tick has interrupted gets its next deadline later. It keeps the ticker awake until it ends.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// Whether the ticker is awake, and has to be.
#[derive(Debug, Default)]
pub(crate) struct Awake {
    /// A program was called since the ticker looked.
    called: AtomicBool,
    is_asleep: AtomicBool,
    /// Calls that keep the ticker awake.
    staying: AtomicUsize,
    ends: AtomicBool,
}

impl Awake {
    /// A call begins, whose deadline is set. Returns true if the ticker has to be unparked.
    #[inline]
    pub(crate) fn call(&self) -> bool {
        fence(Ordering::Acquire);
        !self.called.load(Ordering::Relaxed) && self.call_first()
    }

    #[cold]
    fn call_first(&self) -> bool {
        self.called.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.is_asleep.load(Ordering::Relaxed)
    }

    /// Keeps the ticker awake until [`Awake::leave`]. Returns true if it has to be unparked.
    pub(crate) fn stay(&self) -> bool {
        self.staying.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.is_asleep.load(Ordering::Relaxed)
    }

    pub(crate) fn leave(&self) {
        self.staying.fetch_sub(1, Ordering::Relaxed);
    }

    /// For the ticker, after each tick: returns true if a program was called since the last look.
    pub(crate) fn look(&self) -> bool {
        let was_called = self.called.load(Ordering::Relaxed);
        if was_called {
            self.called.store(false, Ordering::Relaxed);
        }
        fence(Ordering::Release);
        was_called
    }

    /// For the ticker, after a look without a call. Returns true if it may park until it is unparked. [`Awake::rise`] follows in any case.
    pub(crate) fn may_park(&self) -> bool {
        self.is_asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let is_needed = self.called.load(Ordering::Relaxed) || self.staying.load(Ordering::Relaxed) > 0;
        !is_needed && !self.has_ended()
    }

    /// For the ticker: it is awake again.
    pub(crate) fn rise(&self) {
        self.is_asleep.store(false, Ordering::Relaxed);
    }

    /// Ends the ticker, which has to be unparked after this.
    pub(crate) fn end(&self) {
        self.ends.store(true, Ordering::SeqCst);
    }

    /// Returns true if the ticker has to end.
    pub(crate) fn has_ended(&self) -> bool {
        self.ends.load(Ordering::SeqCst)
    }
}
