//! Fair shares of a bucket with several senders.
//!
//! A shared bucket has a *virtual clock*: the parts that a sender of weight 1 may have taken so far. Each sender's
//! record holds the parts that it took, divided by its weight. The sender is served while that is behind the clock. So
//! all senders that want more than their share get exactly the same per weight, whatever the clock's speed, their frame
//! sizes and the times at which they send.
//!
//! The clock's speed only decides how well the bucket is used. It depends on the level. If the bucket is half full, the
//! clock hands out the gain to the weights that were seen recently; below that less, above that more, without bound. So
//! if some senders want less than their share, the level rises until the others get the remainder.
//!
//! A sender that was idle may be behind by its part of the whole burst at most. A sender that was alone for some time
//! may take all that is in the bucket, and the clock stands still. If there was another sender in the last seconds, it
//! leaves an eighth of the burst, so that an occasional sender finds tokens during a flood.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::units::BYTE;

/// Nanoseconds of an epoch: how long a weight counts as present.
const EPOCH_NS: u64 = 10_000_000;
/// Epochs without another sender after which a sender is alone. Any time in which no sender was served is one epoch.
const ALONE: u64 = 4;
/// More parts than any frame costs, including the headers of all its segments, and as many for short frames on credit.
const MAX_AHEAD: i64 = (512 << 10) * BYTE;
/// Nanoseconds after the presence of another sender for which a lone sender leaves one part in [`RESERVE`] of the burst.
const COMPETITION_NS: u64 = 10_000_000_000;
const RESERVE: i64 = 8;

/// A bucket's virtual clock, in parts shifted right by the [`shift`] of its rate.
#[derive(Debug)]
pub(crate) struct VirtualClock {
    now: AtomicU64,
    /// Remainder of the last step.
    rest: AtomicU64,
    /// Sum of the weights of the senders in the last epoch, and in this one so far.
    weight: AtomicU64,
    seen: AtomicU64,
    epoch: AtomicU64,
    epoch_start: AtomicU64,
    /// Consecutive epochs with a single sender.
    alone: AtomicU64,
    /// Time until which a lone sender leaves a reserve.
    competition: AtomicU64,
    is_shared: AtomicBool,
}

/// The settings of a clock's bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketSettings {
    /// Units per second.
    pub(crate) rate: u64,
    /// The burst in parts.
    pub(crate) burst: i64,
}

/// A sender's record at a bucket.
#[derive(Debug, Default)]
pub(crate) struct Share {
    /// Virtual time up to which the sender has been served.
    served: AtomicU64,
    epoch: AtomicU64,
}

impl Default for VirtualClock {
    fn default() -> VirtualClock {
        let zero = AtomicU64::default;
        let (rest, weight, seen, epoch_start, alone, competition) = (zero(), zero(), zero(), zero(), zero(), zero());
        // Far ahead of zero, so that a new sender counts as idle for long.
        let (now, epoch, is_shared) = (AtomicU64::new(1 << 62), AtomicU64::new(1), AtomicBool::new(false));
        VirtualClock { now, rest, weight, seen, epoch, epoch_start, alone, competition, is_shared }
    }
}

/// With this shift the clock of a bucket of any rate takes days to wrap.
#[inline]
fn shift(rate: u64) -> u32 {
    (64 - rate.leading_zeros()).saturating_sub(14)
}

impl VirtualClock {
    /// Advances the clock after the bucket gained `gain` parts and has `level` parts.
    #[inline]
    pub(crate) fn advance(&self, gain: i64, level: i64, burst: i64, rate: u64) {
        if self.is_shared.load(Ordering::Relaxed) {
            self.step(gain, level, burst, rate);
        }
    }

    fn step(&self, gain: i64, level: i64, burst: i64, rate: u64) {
        if level <= 0 {
            return;
        }
        let level_u = level as u128;
        let issued = (gain.max(0) as u128 * level_u / ((burst - level).max(1) as u128)).min(level_u) as u64;
        let weight = self.weights();
        // Only the poller that filled the bucket gets here, so there is rarely a race on the remainder.
        let issued = issued + self.rest.load(Ordering::Relaxed);
        let unit = weight << shift(rate);
        self.rest.store(issued % unit, Ordering::Relaxed);
        self.now.fetch_add(issued / unit, Ordering::Relaxed);
    }

    /// Sum of the weights of the present senders.
    fn weights(&self) -> u64 {
        self.weight.load(Ordering::Relaxed).max(self.seen.load(Ordering::Relaxed)).max(1)
    }

    /// Most parts that a sender of this weight may take after it was idle.
    pub(crate) fn most(&self, burst: i64, weight: u32) -> i64 {
        (burst as u64 / self.weights()).saturating_mul(weight.into()).min(burst as u64) as i64
    }

    /// Parts that the sender with this `share` and `weight` may take at `now` (nanoseconds): at least one if it is not
    /// ahead of the clock.
    #[inline]
    pub(crate) fn allowed(
        &self,
        share: &Share,
        weight: u32,
        settings: BucketSettings,
        level: impl FnOnce() -> i64,
        now: u64,
    ) -> i64 {
        let BucketSettings { rate, burst } = settings;
        let is_alone = self.count(share, weight, now);
        if is_alone == self.is_shared.load(Ordering::Relaxed) {
            self.is_shared.store(!is_alone, Ordering::Relaxed);
        }
        let clock = self.now.load(Ordering::Relaxed);
        if is_alone {
            share.served.store(clock, Ordering::Relaxed);
            let has_competition = now < self.competition.load(Ordering::Relaxed);
            return if has_competition { (level() - burst / RESERVE).max(0) } else { i64::MAX };
        }
        let most = ((burst as u64 / self.weights()) >> shift(rate)).max(1) as i64;
        let mut behind = clock.wrapping_sub(share.served.load(Ordering::Relaxed)) as i64;
        // A sender is ahead by a frame at most, except after a change of the rate or after days.
        if behind > most || behind < -(MAX_AHEAD >> shift(rate)) {
            behind = behind.clamp(0, most);
            share.served.store(clock.wrapping_sub(behind as u64), Ordering::Relaxed);
        }
        let parts = (i128::from(behind.max(0)) * i128::from(weight)) << shift(rate);
        i64::try_from(parts).unwrap_or(i64::MAX)
    }

    /// Parts by which the sender is ahead of the clock. The clock does not bound a sender that is alone.
    pub(crate) fn ahead(&self, share: &Share, weight: u32, rate: u64) -> i64 {
        if !self.is_shared.load(Ordering::Relaxed) {
            return 0;
        }
        let ahead = share.served.load(Ordering::Relaxed).wrapping_sub(self.now.load(Ordering::Relaxed)) as i64;
        let parts = (i128::from(ahead.max(0)) * i128::from(weight)) << shift(rate);
        i64::try_from(parts).unwrap_or(i64::MAX)
    }

    /// Notes that the sender took `parts` more.
    #[inline]
    pub(crate) fn served(&self, share: &Share, weight: u32, parts: i64, rate: u64) {
        let had = (parts.max(0) as u64 >> shift(rate)).div_ceil(u64::from(weight.max(1)));
        share.served.store(share.served.load(Ordering::Relaxed).wrapping_add(had), Ordering::Relaxed);
    }

    /// Begins a sender's record: it may take something at once, and no more.
    pub(crate) fn begin(&self, share: &Share) {
        share.served.store(self.now.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Relaxed);
    }

    /// Adds the sender's weight to those of this epoch. Returns true if there was no other sender for some time.
    #[inline]
    fn count(&self, share: &Share, weight: u32, now: u64) -> bool {
        let start = self.epoch_start.load(Ordering::Relaxed);
        if now.saturating_sub(start) > EPOCH_NS
            && self.epoch_start.compare_exchange(start, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            let seen = self.seen.swap(0, Ordering::Relaxed);
            self.weight.store(seen, Ordering::Relaxed);
            let alone = if seen == u64::from(weight) { self.alone.load(Ordering::Relaxed) + 1 } else { 0 };
            // `seen` is 0 at the end of an epoch without senders.
            if alone == 0 && seen > 0 {
                self.competition.store(now.saturating_add(COMPETITION_NS), Ordering::Relaxed);
            }
            self.alone.store(alone, Ordering::Relaxed);
            self.epoch.fetch_add(1, Ordering::Relaxed);
        }
        let epoch = self.epoch.load(Ordering::Relaxed);
        // A share has one user at a time, so a load and a store are enough.
        if share.epoch.load(Ordering::Relaxed) != epoch {
            share.epoch.store(epoch, Ordering::Relaxed);
            self.seen.fetch_add(weight.into(), Ordering::Relaxed);
        }
        self.alone.load(Ordering::Relaxed) >= ALONE && self.seen.load(Ordering::Relaxed) == u64::from(weight)
    }
}
