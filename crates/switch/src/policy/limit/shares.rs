//! Shares: who may have how much of a bucket that several draw on.
//!
//! A bucket that is shared has a *clock*: how much anyone with weight 1 may have had so far. Each who draws on it keeps
//! what he has had, divided by his weight, and is served while that is behind the clock. All who want more than their share
//! are therefore served the same per weight, exactly, however the clock runs, and whatever their frames and habits are.
//!
//! How fast it runs only decides how well the bucket is used. It goes by the level: with the bucket half full, what comes in
//! is handed out to the weights that were seen lately; below that less, above that more, without bound. So where some want
//! less than their share, the level rises until the others have what is left.
//!
//! Who was away may be behind by his part of the whole bucket, not more. Whoever draws on it alone for some time may have all
//! that is in it, and the clock stands still. If there was another in the last seconds, he leaves an eighth: who sends a frame now
//! and then finds something, however long the flood.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::units::BYTE;

/// For so long (nanoseconds) a weight is remembered.
const EPOCH: u64 = 10_000_000;
/// After so many epochs without another one is alone. Time in which nobody was served, however long, is one epoch.
const ALONE: u64 = 4;
/// More parts than any frame has, with the headers of as many segments as it may have.
const AHEAD: i64 = (256 << 10) * BYTE;
/// For so long after another was there, one that is alone leaves a part of the bucket to who comes now and then.
const COMPANY: u64 = 10_000_000_000;
const LEFT: i64 = 8;

/// A bucket's clock, in parts shifted right by its rate's [`shift`].
#[derive(Debug)]
pub(crate) struct Clock {
    now: AtomicU64,
    /// What the last step left over.
    rest: AtomicU64,
    /// Together of those who were served in the last epoch, and in this one so far.
    weight: AtomicU64,
    seen: AtomicU64,
    epoch: AtomicU64,
    epoch_start: AtomicU64,
    /// Epochs in a row in which one drew on it alone.
    alone: AtomicU64,
    /// Until then one that is alone does not use up all there is.
    company: AtomicU64,
    is_shared: AtomicBool,
}

/// The settings of the bucket that a clock is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pot {
    /// Units per second.
    pub(crate) rate: u64,
    /// In parts.
    pub(crate) burst: i64,
}

/// What one has had of a bucket.
#[derive(Debug, Default)]
pub(crate) struct Share {
    /// The clock's reading up to which he has been served.
    served: AtomicU64,
    epoch: AtomicU64,
}

impl Default for Clock {
    fn default() -> Clock {
        let zero = AtomicU64::default;
        let (rest, weight, seen, epoch_start, alone, company) = (zero(), zero(), zero(), zero(), zero(), zero());
        // Whoever is new has had nothing for long.
        let (now, epoch, is_shared) = (AtomicU64::new(1 << 62), AtomicU64::new(1), AtomicBool::new(false));
        Clock { now, rest, weight, seen, epoch, epoch_start, alone, company, is_shared }
    }
}

/// With this shift the clock of a bucket of any rate takes days to come round.
#[inline]
fn shift(rate: u64) -> u32 {
    (64 - rate.leading_zeros()).saturating_sub(14)
}

impl Clock {
    /// After `gain` parts have come, which made it `level`.
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
        let handed = (gain.max(0) as u128 * level_u / ((burst - level).max(1) as u128)).min(level_u) as u64;
        let weight = self.weights();
        // Whoever fills the bucket does this, so the rest is nearly always one poller's.
        let handed = handed + self.rest.load(Ordering::Relaxed);
        let unit = weight << shift(rate);
        self.rest.store(handed % unit, Ordering::Relaxed);
        self.now.fetch_add(handed / unit, Ordering::Relaxed);
    }

    /// Together of those who are there.
    fn weights(&self) -> u64 {
        self.weight.load(Ordering::Relaxed).max(self.seen.load(Ordering::Relaxed)).max(1)
    }

    /// How many parts one with this weight may have at most, after he was away.
    pub(crate) fn most(&self, burst: i64, weight: u32) -> i64 {
        (burst as u64 / self.weights()).saturating_mul(weight.into()).min(burst as u64) as i64
    }

    /// How many parts one with this `share` and `weight` may have now, at `now` nanoseconds; at least one when he is not
    /// ahead of the clock.
    #[inline]
    pub(crate) fn allowed(&self, share: &Share, weight: u32, pot: Pot, level: impl FnOnce() -> i64, now: u64) -> i64 {
        let Pot { rate, burst } = pot;
        let is_alone = self.count(share, weight, now);
        if is_alone == self.is_shared.load(Ordering::Relaxed) {
            self.is_shared.store(!is_alone, Ordering::Relaxed);
        }
        let clock = self.now.load(Ordering::Relaxed);
        if is_alone {
            share.served.store(clock, Ordering::Relaxed);
            let has_company = now < self.company.load(Ordering::Relaxed);
            return if has_company { (level() - burst / LEFT).max(0) } else { i64::MAX };
        }
        let most = ((burst as u64 / self.weights()) >> shift(rate)).max(1) as i64;
        let mut behind = clock.wrapping_sub(share.served.load(Ordering::Relaxed)) as i64;
        // Nobody is ahead by more than a frame, but after the rate was changed, or after days.
        if behind > most || behind < -(AHEAD >> shift(rate)) {
            behind = behind.clamp(0, most);
            share.served.store(clock.wrapping_sub(behind as u64), Ordering::Relaxed);
        }
        let parts = (i128::from(behind.max(0)) * i128::from(weight)) << shift(rate);
        i64::try_from(parts).unwrap_or(i64::MAX)
    }

    /// Notes that he has had `parts` more.
    #[inline]
    pub(crate) fn served(&self, share: &Share, weight: u32, parts: i64, rate: u64) {
        let had = (parts.max(0) as u64 >> shift(rate)).div_ceil(u64::from(weight.max(1)));
        share.served.store(share.served.load(Ordering::Relaxed).wrapping_add(had), Ordering::Relaxed);
    }

    /// Adds his weight to those that were seen in this epoch; whether there was no other for some time.
    #[inline]
    fn count(&self, share: &Share, weight: u32, now: u64) -> bool {
        let start = self.epoch_start.load(Ordering::Relaxed);
        if now.saturating_sub(start) > EPOCH
            && self.epoch_start.compare_exchange(start, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            let seen = self.seen.swap(0, Ordering::Relaxed);
            self.weight.store(seen, Ordering::Relaxed);
            let alone = if seen == u64::from(weight) { self.alone.load(Ordering::Relaxed) + 1 } else { 0 };
            // Before anybody has been there for an epoch, nobody was seen.
            if alone == 0 && seen > 0 {
                self.company.store(now.saturating_add(COMPANY), Ordering::Relaxed);
            }
            self.alone.store(alone, Ordering::Relaxed);
            self.epoch.fetch_add(1, Ordering::Relaxed);
        }
        let epoch = self.epoch.load(Ordering::Relaxed);
        // Nobody else has this share now.
        if share.epoch.load(Ordering::Relaxed) != epoch {
            share.epoch.store(epoch, Ordering::Relaxed);
            self.seen.fetch_add(weight.into(), Ordering::Relaxed);
        }
        self.alone.load(Ordering::Relaxed) >= ALONE && self.seen.load(Ordering::Relaxed) == u64::from(weight)
    }
}
