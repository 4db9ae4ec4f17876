//! Token buckets, exact: nothing is rounded and no fraction is lost.
//!
//! A bucket of `rate` units per second gains `rate` parts per nanosecond, a part being a billionth of a unit. Frames pass
//! while there is anything in it; the last one may take more than there is, which is paid back before the next. So any frame
//! passes whatever its size, and no interval sees more than burst, rate and one frame.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::shares::{Clock, Pot, Share};
use super::units::PARTS;

/// Largest burst in units: 1 GiB of bits.
pub const MAX_BURST: u64 = 8 << 30;
/// A clock that is behind by more was set back; time counts from there on.
const SET_BACK: u64 = 1_000_000_000;

/// A limit of one kind, of bits or of frames. A clone is the same bucket, and so is one that was made by
/// [`Bucket::changed`]: what is in it stays.
#[derive(Clone, Debug)]
pub struct Bucket {
    rate: u64,
    burst: i64,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    /// In parts; less than nothing after a frame that took more than there was.
    level: AtomicI64,
    /// Up to when the level is right, in nanoseconds.
    filled: AtomicU64,
    clock: Clock,
}

impl Bucket {
    /// A full bucket: `rate` units per second (at least 1) and a `burst` of units, up to [`MAX_BURST`].
    #[must_use]
    pub fn new(rate: u64, burst: u64) -> Bucket {
        let burst = parts(burst);
        let state = State { level: AtomicI64::new(burst), filled: AtomicU64::new(0), clock: Clock::default() };
        Bucket { rate: rate.max(1), burst, state: Arc::new(state) }
    }

    /// This bucket with another rate and burst.
    #[must_use]
    pub fn changed(&self, rate: u64, burst: u64) -> Bucket {
        Bucket { rate: rate.max(1), burst: parts(burst), state: Arc::clone(&self.state) }
    }

    /// Units per second.
    #[must_use]
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// In units.
    #[must_use]
    pub fn burst(&self) -> u64 {
        (self.burst / PARTS) as u64
    }

    /// How full it would be at `now`, from 0 (also when it owes) to 1.
    #[must_use]
    pub fn fill_at(&self, now: u64) -> f64 {
        self.level_at(now).max(0) as f64 / self.burst as f64
    }

    #[inline]
    pub(crate) fn burst_parts(&self) -> i64 {
        self.burst
    }

    /// What would be in it at `now`, in parts.
    #[must_use]
    pub fn level_at(&self, now: u64) -> i64 {
        let passed = now.saturating_sub(self.state.filled.load(Ordering::Relaxed));
        self.state.level.load(Ordering::Relaxed).saturating_add(self.gain(passed)).min(self.burst)
    }

    /// Parts that come in so many nanoseconds.
    #[inline]
    fn gain(&self, passed: u64) -> i64 {
        // One billion parts per unit and one billion nanoseconds per second are the same.
        i64::try_from(u128::from(self.rate) * u128::from(passed)).unwrap_or(i64::MAX)
    }

    /// Adds what came since it was last filled, and tells what is in it.
    #[inline]
    pub(crate) fn fill(&self, now: u64) -> i64 {
        let filled = self.state.filled.load(Ordering::Relaxed);
        if now <= filled {
            if filled - now > SET_BACK {
                self.state.filled.store(now, Ordering::Relaxed);
            }
            return self.level();
        }
        // Of several pollers, one adds what came between these two moments.
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

    /// As [`Bucket::fill`], for a bucket that only one at a time fills and takes from.
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

    /// Takes parts out, also more than there are, of a bucket that only one at a time fills and takes from.
    #[inline]
    pub(crate) fn take(&self, parts: i64) {
        self.state.level.store(self.level().wrapping_sub(parts), Ordering::Relaxed);
    }

    /// What is in it.
    #[inline]
    pub(crate) fn level(&self) -> i64 {
        self.state.level.load(Ordering::Relaxed)
    }

    /// Takes up to `most` parts of what there is.
    #[inline]
    pub(crate) fn reserve(&self, most: i64) -> i64 {
        let less = |level: i64| (level > 0).then(|| level - level.min(most));
        match self.state.level.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
            Ok(before) => before.min(most),
            Err(_) => 0,
        }
    }

    /// Puts back parts that were reserved and not used; fewer than none when more was used.
    #[inline]
    pub(crate) fn settle(&self, unused: i64) {
        if unused != 0 {
            let add = |level: i64| Some(level.saturating_add(unused).min(self.burst));
            let _ = self.state.level.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        }
    }

    /// Most parts that a sender of this weight may have after it was away.
    pub(crate) fn most(&self, weight: u32) -> i64 {
        self.state.clock.most(self.burst, weight)
    }

    /// Parts that the sender with this `share` and `weight` may have now; at least one when it is not ahead of the clock.
    #[inline]
    pub(crate) fn allowed(&self, share: &Share, weight: u32, now: u64) -> i64 {
        let pot = Pot { rate: self.rate, burst: self.burst };
        self.state.clock.allowed(share, weight, pot, || self.level(), now)
    }

    /// Notes that a sender has had `parts` more.
    #[inline]
    pub(crate) fn served(&self, share: &Share, weight: u32, parts: i64) {
        self.state.clock.served(share, weight, parts, self.rate);
    }

    /// When it is worth coming back after it was found empty: with `batch` parts in it, half full, or with what comes in a
    /// few milliseconds, whichever is first.
    pub(crate) fn resume_at(&self, now: u64, batch: i64) -> u64 {
        let worth = (self.burst / 2).min(self.gain(WORTH)).min(batch).max(1);
        let lacking = worth.saturating_sub(self.level_at(now)).max(0);
        now.saturating_add((lacking as u64).div_ceil(self.rate))
    }

    /// How long to wait for a share of it: until `batch` parts have come, or a part of the time in which it would be filled.
    pub(crate) fn pause(&self, batch: i64) -> u64 {
        ((self.burst / 4).min(batch).max(0) as u64 / self.rate).clamp(SHORTEST_PAUSE, WORTH)
    }
}

/// Time in nanoseconds whose gain is worth a visit.
const WORTH: u64 = 5_000_000;
/// In nanoseconds.
const SHORTEST_PAUSE: u64 = 20_000;

fn parts(units: u64) -> i64 {
    units.min(MAX_BURST) as i64 * PARTS
}
