//! Pacing: how long a poller leaves a ring alone between two visits.
//!
//! A poller that visits a ring again as soon as it can takes each small burst at once. Each visit takes cache lines away from the
//! driver that fills them, so that a driver with many frames in flight falls to a fraction of its rate. A driver with few
//! frames in flight is slowed by any wait. Nothing in a ring tells the two apart. Therefore the poller tries: now and then it
//! serves a ring with another wait for a while, and keeps the wait that moved more frames. Where two waits move equally many
//! frames, the shorter one is kept, for the sake of latency. A trial that slows the driver down a lot ends early. A ring
//! that has many frames ready at each visit gains nothing by a longer wait, so that none is tried there.

use std::time::Duration;

/// Waits after a visit that did not fill a batch, in microseconds.
const WAITS_US: [u64; 7] = [0, 2, 4, 8, 16, 32, 64];
/// The length of a trial.
const EPOCH: Duration = Duration::from_micros(500);
/// The time after which a trial ends that moves less than half of the usual frames.
const GLANCE: Duration = Duration::from_micros(50);
/// Frames in an epoch below which no wait is worth a trial: 200,000 per second.
const QUIET: u64 = 100;
/// Frames of a visit, on average of the visits that find any, from which on no longer wait is tried.
const MANY: u64 = 128;
/// Epochs between two trials: at first, and at most.
const FEWEST_EPOCHS: u32 = 2;
const MOST_EPOCHS: u32 = 256;

/// The pace of one ring. Times are nanoseconds of the poller's clock.
#[derive(Debug)]
pub(super) struct Pacing {
    /// The wait in use, as an index of `WAITS_US`.
    level: usize,
    /// During a trial: the wait on trial, as an index of `WAITS_US`.
    trial: Option<usize>,
    /// The next trial is of a longer wait.
    upward: bool,
    /// Frames of the last epoch without a trial, scaled to the exact length of an epoch.
    usual: Option<u64>,
    epoch_start: u64,
    /// Frames in this epoch.
    frames: u64,
    /// Visits in this epoch that found frames.
    visits: u64,
    /// Epochs until the next trial.
    left: u32,
    /// Epochs between two trials.
    between: u32,
    /// No visit before this time.
    until: u64,
}

impl Pacing {
    pub(super) fn new() -> Pacing {
        Pacing {
            level: 0,
            trial: None,
            upward: true,
            usual: None,
            epoch_start: 0,
            frames: 0,
            visits: 0,
            left: FEWEST_EPOCHS,
            between: FEWEST_EPOCHS,
            until: 0,
        }
    }

    /// Whether no visit is due at `now`.
    #[inline]
    pub(super) fn is_resting(&self, now: u64) -> bool {
        now < self.until
    }

    /// The time of the next visit, if none is due at `now`.
    #[cfg(test)]
    pub(super) fn resting_until(&self, now: u64) -> Option<u64> {
        self.is_resting(now).then_some(self.until)
    }

    /// A visit at about `now` found `frames`; with `more` there may be more.
    #[inline]
    pub(super) fn visited(&mut self, now: u64, frames: u64, more: bool) {
        self.frames += frames;
        self.visits += u64::from(frames > 0);
        let wait = WAITS_US[self.trial.unwrap_or(self.level)] * 1000;
        self.until = if wait == 0 || more { 0 } else { now + wait };
        let passed = now.wrapping_sub(self.epoch_start);
        if passed >= EPOCH.as_nanos() as u64 || (self.trial.is_some() && self.is_hopeless(passed)) {
            self.end_epoch(now, passed);
        }
    }

    /// Whether a trial that has lasted for `passed` nanoseconds moves too few frames to go on.
    #[cold]
    fn is_hopeless(&self, passed: u64) -> bool {
        let usual = self.usual.unwrap_or(0).saturating_mul(passed) / EPOCH.as_nanos() as u64;
        passed >= GLANCE.as_nanos() as u64 && self.frames * 2 < usual
    }

    #[cold]
    fn end_epoch(&mut self, now: u64, passed: u64) {
        let frames = self.frames.saturating_mul(EPOCH.as_nanos() as u64) / passed;
        let was_gap = passed > 4 * EPOCH.as_nanos() as u64;
        let many = self.frames >= self.visits * MANY;
        (self.epoch_start, self.frames, self.visits) = (now, 0, 0);
        if frames < QUIET || was_gap {
            *self = Pacing { epoch_start: now, ..Pacing::new() };
            return;
        }
        if let (Some(trial), Some(usual)) = (self.trial.take(), self.usual) {
            // A longer wait must move a twentieth more; a shorter one may move a fiftieth less.
            let better = if trial > self.level { frames * 20 > usual * 21 } else { frames * 50 > usual * 49 };
            if better {
                (self.level, self.usual, self.between) = (trial, Some(frames), FEWEST_EPOCHS);
            } else {
                self.upward = !self.upward;
                self.between = (self.between * 2).min(MOST_EPOCHS);
            }
            self.left = self.between;
            return;
        }
        self.usual = Some(frames);
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.upward = match self.level {
                0 => true,
                level if level + 1 == WAITS_US.len() || many => false,
                _ => self.upward,
            };
            self.trial = if self.upward { (!many).then_some(self.level + 1) } else { Some(self.level - 1) };
        }
    }
}

#[cfg(test)]
#[path = "pacing_tests.rs"]
mod tests;
