//! Call moderation: a lower bound on the time between two calls (DESIGN §7; thesis §3.2, and §4.3.4 for virtio, which has
//! none of its own).
//!
//! A call is made at once when the last one is long enough ago. News that come earlier are *pending*: no question is put
//! to the client's memory, and whoever brought them asks when the interval ends, without needing further traffic.
//! Frames to receive and room to send are moderated apart, as NICs do, so that a busy sender does not delay what it
//! receives; a port may therefore be called twice per interval, once for each.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use super::event::News;

/// A port's moderation. No interval: every call is made at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moderation {
    /// Least time between two calls for the same [`crate::News`].
    pub interval: Duration,
    /// Frames per second, in the call's direction, up to which calls are made at once all the same.
    pub above: Option<u64>,
}

/// One kind of call of one port: when the last was made, and whether one is pending.
///
/// One word: the time of the last call in nanoseconds, and a bit for "pending". Exactly one poller has each pending call in
/// its list: the one that set the bit, or, where it was set while somebody asked, the one that asked.
#[derive(Debug, Default)]
pub struct Gate(AtomicU64);

/// What to do with news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Ask the client now, and then [`Gate::leave`].
    Ask,
    /// Somebody will ask after this.
    Covered,
    /// A call is pending now: `interval` after this time of the last call, [`Gate::enter_pending`].
    Pending(u64),
}

const PENDING: u64 = 1;
/// No call that matters: the next may be made at once.
const LONG_AGO: u64 = 0;
/// Instead of a time: somebody is asking.
const ASKING: u64 = u64::MAX >> 1;

/// Whether a call after one at `last` has to wait at `now`.
#[inline]
fn is_held(last: u64, interval: u64, now: u64) -> bool {
    last != LONG_AGO && now < last.saturating_add(interval)
}

impl Gate {
    /// There are news at about `now`, published before a full fence. Times are in nanoseconds.
    pub fn enter(&self, now: u64, interval: u64) -> Entry {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let last = seen >> 1;
            let held = last == ASKING || is_held(last, interval, now);
            // What is pending without a call before it is asked for soon.
            if seen & PENDING != 0 && (held || last == LONG_AGO) {
                return Entry::Covered;
            }
            let next = if held { seen | PENDING } else { ASKING << 1 };
            match self.0.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed) {
                Err(other) => seen = other,
                Ok(_) if last == ASKING => return Entry::Covered,
                Ok(_) if held => return Entry::Pending(last),
                Ok(_) => {
                    // Who found the pending bit set does nothing more: its news were before this.
                    fence(Ordering::SeqCst);
                    return Entry::Ask;
                }
            }
        }
    }

    /// The call that became pending after the one at `last` is due. [`Entry::Covered`] when somebody else saw to it.
    pub fn enter_pending(&self, last: u64, now: u64, interval: u64) -> Entry {
        let pending = last << 1 | PENDING;
        if is_held(last, interval, now) {
            let still = self.0.load(Ordering::Relaxed) == pending;
            return if still { Entry::Pending(last) } else { Entry::Covered };
        }
        match self.0.compare_exchange(pending, ASKING << 1, Ordering::AcqRel, Ordering::Relaxed) {
            Err(_) => Entry::Covered,
            Ok(_) => {
                fence(Ordering::SeqCst);
                Entry::Ask
            }
        }
    }

    /// After [`Entry::Ask`]: the client was called, at the latest at the time `called`, or did not want it. A time of the
    /// last call when there were news meanwhile: a call is pending, as with [`Entry::Pending`].
    pub fn leave(&self, called: Option<u64>) -> Option<u64> {
        let last = called.unwrap_or(LONG_AGO);
        // While somebody asks, others only set the bit.
        let before = self.0.compare_exchange(ASKING << 1, last << 1, Ordering::AcqRel, Ordering::Relaxed);
        before.is_err().then(|| {
            self.0.store(last << 1 | PENDING, Ordering::Release);
            last
        })
    }

    /// After [`Entry::Ask`]: the client could not be asked. The call is pending, after this time of the last call.
    pub fn give_up(&self) -> u64 {
        self.0.store(LONG_AGO << 1 | PENDING, Ordering::Release);
        LONG_AGO
    }

    /// Without having entered: the client could not be asked. When nobody will ask after this, a call is pending, after
    /// this time of the last call.
    pub fn postpone(&self) -> Option<u64> {
        let before = self.0.fetch_or(PENDING, Ordering::AcqRel);
        (before & PENDING == 0 && before >> 1 != ASKING).then_some(before >> 1)
    }
}

/// A port's settings as they can change while frames flow, and its gates.
#[derive(Debug, Default)]
pub(crate) struct Moderated {
    interval: AtomicU64,
    above: AtomicU64,
    gates: [(Gate, Pace); 2],
}

impl Moderated {
    pub(crate) fn set(&self, moderation: Moderation) {
        let interval = u64::try_from(moderation.interval.as_nanos()).unwrap_or(u64::MAX);
        self.above.store(moderation.above.unwrap_or(0), Ordering::Relaxed);
        self.interval.store(interval, Ordering::Relaxed);
    }

    /// In nanoseconds; 0: none.
    #[inline]
    pub(crate) fn interval(&self) -> u64 {
        self.interval.load(Ordering::Relaxed)
    }

    pub(crate) fn gate(&self, news: News) -> &Gate {
        &self.gates[news as usize].0
    }

    /// Whether a port whose counter of the direction stands at `frames` is fast enough to be moderated.
    pub(crate) fn applies(&self, news: News, frames: u64, now: u64, interval: u64) -> bool {
        let above = self.above.load(Ordering::Relaxed);
        above == 0 || self.gates[news as usize].1.is_above(above, frames, now, interval)
    }
}

/// Whether frames come faster than a rate, judged once per interval.
#[derive(Debug, Default)]
pub struct Pace {
    since: AtomicU64,
    frames: AtomicU64,
    fast: AtomicU64,
}

impl Pace {
    /// `frames` is a counter's reading at about `now` nanoseconds.
    pub fn is_above(&self, rate: u64, frames: u64, now: u64, interval: u64) -> bool {
        let since = self.since.load(Ordering::Relaxed);
        let passed = now.saturating_sub(since);
        if passed >= interval && self.since.compare_exchange(since, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let new = frames.wrapping_sub(self.frames.swap(frames, Ordering::Relaxed));
            let fast = u128::from(new) * 1_000_000_000 > u128::from(rate) * u128::from(passed);
            self.fast.store(fast.into(), Ordering::Relaxed);
        }
        self.fast.load(Ordering::Relaxed) != 0
    }
}
