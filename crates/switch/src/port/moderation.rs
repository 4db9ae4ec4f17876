//! Call moderation: a lower bound on the time between two calls (DESIGN §7; thesis §3.2, and §4.3.4 for virtio, which has
//! none of its own).
//!
//! A port is called at once if its last call is long enough ago. Otherwise the call is *pending*: the poller that has a reason to
//! call does not read the client's memory, and asks the client when the interval ends, without further traffic. The two reasons,
//! frames to receive and room to send, are moderated separately, as in NICs, so that a busy sender does not delay what it receives.
//! So a port may be called twice in an interval, once for each reason.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::atomic::AtomicBool;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::event::CallReason;
use super::tuner::{Totals, Tuner};

/// A port's moderation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moderation {
    /// One interval for both reasons. Zero: every call is made at once.
    Fixed {
        /// Least time between two calls for the same [`crate::CallReason`].
        interval: Duration,
        /// Frames per second, in the call's direction, up to which calls are made at once all the same.
        above: Option<u64>,
    },
    /// The intervals follow from what calls bring, for each reason by itself.
    Auto,
}

impl Default for Moderation {
    /// Every call is made at once.
    fn default() -> Moderation {
        Moderation::Fixed { interval: Duration::ZERO, above: None }
    }
}

/// The calls of one port for one reason: the time of the last call, and whether a call is pending.
///
/// One word: the time of the last call in nanoseconds, and a bit for "pending". Exactly one poller has each pending call in
/// its list: the poller that set the bit, or, if the bit was set while a poller asked the client, the poller that asked.
#[derive(Debug, Default)]
pub struct CallGate(AtomicU64);

/// What a poller with a reason to call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Ask the client now, and then [`CallGate::leave`].
    Ask,
    /// Another poller will ask after this.
    Covered,
    /// A call is pending now: `interval` after this time of the last call, [`CallGate::enter_pending`].
    Pending(u64),
}

const PENDING: u64 = 1;
/// There was no call that matters: the next may be made at once.
const LONG_AGO: u64 = 0;
/// Instead of a time: a poller is asking the client.
const ASKING: u64 = u64::MAX >> 1;

/// Returns true if a call after one at `last` has to wait at `now`. Without an interval no call waits: `now` may be older than
/// `last`, as pollers read the clock once a pass and the time of a call is read after it.
#[inline]
fn is_held(last: u64, interval: u64, now: u64) -> bool {
    interval != 0 && last != LONG_AGO && now < last.saturating_add(interval)
}

/// Time at which a call that is pending after one at `last` is due.
#[inline]
pub(super) fn due_after(last: u64, interval: u64) -> u64 {
    if last == LONG_AGO { 0 } else { last.saturating_add(interval) }
}

impl CallGate {
    /// There is a reason to call at about `now`: it was published before a full fence. Times are in nanoseconds.
    pub fn enter(&self, now: u64, interval: u64) -> Entry {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let last = seen >> 1;
            let held = last == ASKING || is_held(last, interval, now);
            // A pending call without a call before it is due at once.
            if seen & PENDING != 0 && (held || last == LONG_AGO) {
                return Entry::Covered;
            }
            let next = if held { seen | PENDING } else { ASKING << 1 };
            match self.0.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed) {
                Err(other) => seen = other,
                Ok(_) if last == ASKING => return Entry::Covered,
                Ok(_) if held => return Entry::Pending(last),
                Ok(_) => {
                    // A poller that found the pending bit set does nothing more: it published its reason before this fence.
                    fence(Ordering::SeqCst);
                    return Entry::Ask;
                }
            }
        }
    }

    /// The call that became pending after the one at `last` is due. Returns [`Entry::Covered`] if another poller made it.
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

    /// After [`Entry::Ask`]: the client was called, at the latest at the time `called`, or wanted no call. Returns a time of
    /// the last call if another reason came meanwhile: a call is pending, as with [`Entry::Pending`]. `interval` is the one of
    /// [`CallGate::enter`]: without one, the pending call is due at once.
    pub fn leave(&self, called: Option<u64>, interval: u64) -> Option<u64> {
        let last = called.unwrap_or(LONG_AGO);
        // While a poller asks, others only set the bit.
        let before = self.0.compare_exchange(ASKING << 1, last << 1, Ordering::AcqRel, Ordering::Relaxed);
        before.is_err().then(|| {
            let last = if interval == 0 { LONG_AGO } else { last };
            self.0.store(last << 1 | PENDING, Ordering::Release);
            last
        })
    }

    /// After [`Entry::Ask`]: the client could not be asked. The call is pending, after this time of the last call.
    pub fn give_up(&self) -> u64 {
        self.0.store(LONG_AGO << 1 | PENDING, Ordering::Release);
        LONG_AGO
    }

    /// Without [`CallGate::enter`] before: the client was called at `now`, perhaps for the other reason. A call that is pending stays pending
    /// after the call before.
    pub(crate) fn note_call(&self, now: u64) {
        let seen = self.0.load(Ordering::Relaxed);
        if seen & PENDING == 0 && seen >> 1 != ASKING {
            let _ = self.0.compare_exchange(seen, now << 1, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// No call is pending, whoever had it: the next reason asks the client. A poller that asks at this moment finds a reason that came meanwhile,
    /// and one that has a pending call finds that another has made it.
    pub fn forget(&self) {
        self.0.store(LONG_AGO << 1, Ordering::Release);
    }

    /// Without [`CallGate::enter`] before: the client could not be asked. Returns the time of the last call if a call is pending
    /// now, after that time; `None` if another poller will ask.
    pub fn postpone(&self) -> Option<u64> {
        let before = self.0.fetch_or(PENDING, Ordering::AcqRel);
        (before & PENDING == 0 && before >> 1 != ASKING).then_some(before >> 1)
    }
}

/// A port's settings as they can change while frames flow, and its gates.
#[derive(Debug, Default)]
pub(crate) struct Moderated {
    above: AtomicU64,
    is_auto: AtomicBool,
    /// Nanoseconds before the next call for either reason, because of what the last one cost.
    held: AtomicU64,
    reasons: [OfReason; 2],
}

/// What a port has for one reason.
#[derive(Debug, Default)]
struct OfReason {
    /// What the moderation says.
    own: AtomicU64,
    /// The interval in use: `own`, or a longer one for which calls are held.
    interval: AtomicU64,
    gate: CallGate,
    meter: FrameRateMeter,
    /// Also for changes of `own`. A poller that finds it locked leaves its call out: another notes one.
    tuner: Mutex<Tuner>,
}

impl Moderated {
    pub(crate) fn set(&self, moderation: Moderation) {
        let (interval, above) = match moderation {
            Moderation::Auto if self.is_auto.swap(true, Ordering::Relaxed) => return,
            Moderation::Auto => (Duration::ZERO, None),
            Moderation::Fixed { interval, above } => (interval, above),
        };
        self.is_auto.store(moderation == Moderation::Auto, Ordering::Relaxed);
        let interval = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        self.above.store(above.unwrap_or(0), Ordering::Relaxed);
        for reason in &self.reasons {
            let mut tuner = reason.tuner.lock().unwrap_or_else(PoisonError::into_inner);
            *tuner = Tuner::default();
            self.set_own(reason, interval);
        }
    }

    /// The interval in nanoseconds; 0: none.
    #[inline]
    pub(crate) fn interval(&self, reason: CallReason) -> u64 {
        self.reasons[reason as usize].interval.load(Ordering::Relaxed)
    }

    pub(crate) fn gate(&self, reason: CallReason) -> &CallGate {
        &self.reasons[reason as usize].gate
    }

    /// Returns true if a port with this count of frames in the call's direction is fast enough to be moderated.
    pub(crate) fn applies(&self, reason: CallReason, frames: u64, now: u64, interval: u64) -> bool {
        let above = self.above.load(Ordering::Relaxed);
        above == 0 || self.reasons[reason as usize].meter.is_above(above, frames, now, interval)
    }

    /// Notes that the client was called at about `now`; `totals` are those of the call's direction.
    pub(crate) fn note_call(&self, reason: CallReason, now: u64, totals: impl FnOnce() -> Totals) {
        let reason = &self.reasons[reason as usize];
        let is_auto = || self.is_auto.load(Ordering::Relaxed);
        // Asked again under the lock: what `set` has just set must stay.
        if is_auto()
            && let Ok(mut tuner) = reason.tuner.try_lock()
            && is_auto()
        {
            let interval = tuner.note_call(now, totals());
            self.set_own(reason, interval);
        }
    }

    /// Under the lock of the tuner.
    fn set_own(&self, reason: &OfReason, interval: u64) {
        reason.own.store(interval, Ordering::Relaxed);
        reason.interval.store(interval.max(self.held()), Ordering::Relaxed);
    }

    /// Nanoseconds between the last call and the next, however slow the port is. 0: the next may be made at once.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// After a call: the next one for either reason is made at this time at the earliest. `clock` reads the time.
    #[inline]
    pub(crate) fn hold_until(&self, time: u64, clock: fn() -> u64) {
        if (time | self.held()) != 0 {
            self.change_hold(time, clock());
        }
    }

    #[cold]
    fn change_hold(&self, until: u64, now: u64) {
        let held = until.saturating_sub(now);
        self.held.store(held, Ordering::Relaxed);
        for reason in &self.reasons {
            // What `set` has just set must stay.
            let _tuner = reason.tuner.lock().unwrap_or_else(PoisonError::into_inner);
            self.set_own(reason, reason.own.load(Ordering::Relaxed));
            if held > 0 {
                reason.gate.note_call(now);
            }
        }
    }
}

/// Tells whether frames come faster than a rate, once per interval.
#[derive(Debug, Default)]
pub struct FrameRateMeter {
    since: AtomicU64,
    frames: AtomicU64,
    fast: AtomicU64,
}

impl FrameRateMeter {
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
