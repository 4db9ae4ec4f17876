//! Exact token buckets: nothing is rounded and no fraction is lost.
//!
//! A bucket of `rate` units per second gains `rate` parts per nanosecond. A part is a billionth of a unit. Frames pass
//! while the level is above zero. The last one may take the level below zero, and the next waits until it is above
//! again. So a frame of any size passes, and an interval sees at most burst, rate times its length, and one frame.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::shares::{BucketSettings, Share, VirtualClock};
use super::units::PARTS;

/// Largest burst in units: 1 GiB of bits.
pub const MAX_BURST: u64 = 8 << 30;
/// If the time is this many nanoseconds behind, the clock was set back, and filling continues from there.
const SET_BACK_NS: u64 = 1_000_000_000;

/// A token bucket of bits or of frames. A clone shares the level with the original, and so does a bucket made by
/// [`Bucket::changed`].
#[derive(Clone, Debug)]
pub struct Bucket {
    rate: u64,
    burst: i64,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    /// The level in parts; negative after a frame that took more than there was.
    level: AtomicI64,
    /// Time in nanoseconds up to which the level is filled.
    filled: AtomicU64,
    clock: VirtualClock,
}

impl Bucket {
    /// A full bucket: `rate` units per second (at least 1) and a `burst` of units, up to [`MAX_BURST`].
    #[must_use]
    pub fn new(rate: u64, burst: u64) -> Bucket {
        let burst = parts(burst);
        let state = State { level: AtomicI64::new(burst), filled: AtomicU64::new(0), clock: VirtualClock::default() };
        Bucket { rate: rate.max(1), burst, state: Arc::new(state) }
    }

    /// A bucket with another rate and burst that shares the level.
    #[must_use]
    pub fn changed(&self, rate: u64, burst: u64) -> Bucket {
        Bucket { rate: rate.max(1), burst: parts(burst), state: Arc::clone(&self.state) }
    }

    /// Units per second.
    #[must_use]
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// The burst in units.
    #[must_use]
    pub fn burst(&self) -> u64 {
        (self.burst / PARTS) as u64
    }

    /// The fill level at `now`, from 0 (empty or negative) to 1.
    #[must_use]
    pub fn fill_at(&self, now: u64) -> f64 {
        self.level_at(now).max(0) as f64 / self.burst as f64
    }

    #[inline]
    pub(crate) fn burst_parts(&self) -> i64 {
        self.burst
    }

    /// The level at `now`, in parts.
    #[must_use]
    pub fn level_at(&self, now: u64) -> i64 {
        let passed = now.saturating_sub(self.state.filled.load(Ordering::Relaxed));
        self.state.level.load(Ordering::Relaxed).saturating_add(self.gain(passed)).min(self.burst)
    }

    /// Parts gained in `passed` nanoseconds.
    #[inline]
    pub(super) fn gain(&self, passed: u64) -> i64 {
        // 10^9 parts per unit and 10^9 nanoseconds per second cancel out.
        i64::try_from(u128::from(self.rate) * u128::from(passed)).unwrap_or(i64::MAX)
    }

    /// Adds the gain since the last fill and returns the level in parts.
    #[inline]
    pub(crate) fn fill(&self, now: u64) -> i64 {
        let filled = self.state.filled.load(Ordering::Relaxed);
        if now <= filled {
            if filled - now > SET_BACK_NS {
                self.state.filled.store(now, Ordering::Relaxed);
            }
            return self.level();
        }
        // If several pollers get here, one adds the gain of this interval.
        let exchange = self.state.filled.compare_exchange(filled, now, Ordering::Relaxed, Ordering::Relaxed);
        if exchange.is_err() {
            return self.level();
        }
        let gain = self.gain(now - filled);
        let add = |level: i64| Some(level.saturating_add(gain).min(self.burst));
        let before = match self.state.level.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(before) | Err(before) => before,
        };
        let level = before.saturating_add(gain).min(self.burst);
        self.state.clock.advance(gain, level, self.burst, self.rate);
        level
    }

    /// Adds the gain since the last fill and returns the level in parts. Only for a bucket with one user at a time.
    #[inline]
    pub(crate) fn fill_alone(&self, now: u64) -> i64 {
        let filled = self.state.filled.load(Ordering::Relaxed);
        if now <= filled {
            return self.fill(now);
        }
        let gain = self.gain(now - filled);
        let level = self.level().saturating_add(gain).min(self.burst);
        self.state.filled.store(now, Ordering::Relaxed);
        self.state.level.store(level, Ordering::Relaxed);
        self.state.clock.advance(gain, level, self.burst, self.rate);
        level
    }

    /// Takes parts from the bucket; the level may become negative. Only for a bucket with one user at a time.
    #[inline]
    pub(crate) fn take(&self, parts: i64) {
        self.state.level.store(self.level().saturating_sub(parts), Ordering::Relaxed);
    }

    /// The level in parts.
    #[inline]
    pub(crate) fn level(&self) -> i64 {
        self.state.level.load(Ordering::Relaxed)
    }

    /// Takes up to `most` parts, as far as the level allows. Returns how many.
    #[inline]
    pub(crate) fn reserve(&self, most: i64) -> i64 {
        let less = |level: i64| (level > 0).then(|| level - level.min(most));
        match self.state.level.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
            Ok(before) => before.min(most),
            Err(_) => 0,
        }
    }

    /// Returns reserved parts that were not used. Negative if more was used than reserved.
    #[inline]
    pub(crate) fn settle(&self, unused: i64) {
        if unused != 0 {
            let add = |level: i64| Some(level.saturating_add(unused).min(self.burst));
            let _ = self.state.level.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        }
    }

    /// Most parts that a sender of this weight may take after it was idle.
    pub(crate) fn most(&self, weight: u32) -> i64 {
        self.state.clock.most(self.burst, weight)
    }

    /// The part of `amount` for a sender of this weight.
    pub(crate) fn part(&self, amount: u64, weight: u32) -> u64 {
        self.state.clock.most(amount.min(i64::MAX as u64) as i64, weight) as u64
    }

    /// Parts that the sender with this `share` and `weight` may take now: at least one if it is not ahead of the
    /// virtual clock.
    #[inline]
    pub(crate) fn allowed(&self, share: &Share, weight: u32, now: u64) -> i64 {
        let settings = BucketSettings { rate: self.rate, burst: self.burst };
        self.state.clock.allowed(share, weight, settings, || self.level(), now)
    }

    /// Parts by which the sender is ahead of the virtual clock.
    pub(crate) fn ahead(&self, share: &Share, weight: u32) -> i64 {
        self.state.clock.ahead(share, weight, self.rate)
    }

    /// Begins a sender's record: it may take something at once, and no more.
    pub(crate) fn begin(&self, share: &Share) {
        self.state.clock.begin(share);
    }

    /// Notes that a sender took `parts` more.
    #[inline]
    pub(crate) fn served(&self, share: &Share, weight: u32, parts: i64) {
        self.state.clock.served(share, weight, parts, self.rate);
    }

    /// Time for the next visit after the bucket was found empty: when it holds `batch` parts, is half full, or has
    /// gained for a few milliseconds, whichever is first.
    pub(crate) fn resume_at(&self, now: u64, batch: i64) -> u64 {
        let worth = (self.burst / 2).min(self.gain(WORTH_NS)).min(batch).max(1);
        let lacking = worth.saturating_sub(self.level_at(now)).max(0);
        now.saturating_add((lacking as u64).div_ceil(self.rate))
    }

    /// Most parts that come while a sender waits for its share.
    pub(crate) fn worth_of_a_wait(&self) -> i64 {
        self.gain(LONGEST_PAUSE_NS)
    }

    /// Nanoseconds to wait for a share: until `batch` parts have come, or a quarter of the time to fill the bucket.
    pub(crate) fn pause(&self, batch: i64) -> u64 {
        ((self.burst / 4).min(batch).max(0) as u64 / self.rate).clamp(SHORTEST_PAUSE_NS, WORTH_NS)
    }
}

/// Nanoseconds of gain that are worth a visit.
const WORTH_NS: u64 = 5_000_000;
/// Nanoseconds after which a sender that waits is visited again, also if its poller is late.
const LONGEST_PAUSE_NS: u64 = 2 * WORTH_NS;
/// Shortest pause, in nanoseconds.
const SHORTEST_PAUSE_NS: u64 = 20_000;

fn parts(units: u64) -> i64 {
    units.min(MAX_BURST) as i64 * PARTS
}
