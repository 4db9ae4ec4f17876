//! Adaptive pacing: the time between two visits to a busy ring.
//!
//! If the poller visits a ring again at once, it sees each small burst early, but every visit takes cache lines away
//! from the driver that is writing them: a driver with many frames in flight is slowed to a fraction. A driver with few
//! frames in flight is slowed by any wait. The contents of a ring do not show which kind its driver is. So the poller
//! measures for each ring whether its driver sends more if the poller waits 2 to 64 us after a visit that did not fill
//! a batch. At intervals it tries the next longer or shorter wait for 500 us, and keeps the wait that moved more
//! frames, or as many with a shorter wait.
//!
//! A driver with few frames in flight ends at no wait, and a trial that halves its frames ends after 50 us. If visits
//! find 128 frames each, no longer wait is tried: visits cost such a driver nothing. Waits are tried only above 200,000
//! frames a second on one ring.

use std::time::Duration;

/// Waits after a visit that did not fill a batch, in microseconds.
const WAITS_US: [u64; 7] = [0, 2, 4, 8, 16, 32, 64];
/// The length of a trial.
const EPOCH: Duration = Duration::from_micros(500);
/// The time after which a trial ends that moves less than half of the usual frames.
const GLANCE: Duration = Duration::from_micros(50);
/// Frames in an epoch below which no wait is worth a trial: 200,000 per second.
const QUIET: u64 = 100;
/// Mean frames of a visit (of visits that find any) from which on no longer wait is tried.
const MANY: u64 = 128;
/// Epochs between two trials: at the start, and at most.
const FEWEST_EPOCHS: u32 = 2;
const MOST_EPOCHS: u32 = 256;

/// The pace of one ring. Times are nanoseconds of the poller's clock.
#[derive(Debug)]
pub(super) struct Pacing {
    /// The wait in use, as an index of `WAITS_US`.
    level: usize,
    /// During a trial: the wait on trial, as an index of `WAITS_US`.
    trial: Option<usize>,
    /// True if the next trial is of a longer wait.
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
        }
    }

    /// Notes a visit at about `now` that found `frames`; with `more` there may be more. Returns the time of the next
    /// visit; 0: at once.
    #[inline]
    pub(super) fn visited(&mut self, now: u64, frames: u64, more: bool) -> u64 {
        self.frames += frames;
        self.visits += u64::from(frames > 0);
        let wait = WAITS_US[self.trial.unwrap_or(self.level)] * 1000;
        let until = if wait == 0 || more { 0 } else { now + wait };
        let passed = now.wrapping_sub(self.epoch_start);
        if passed >= EPOCH.as_nanos() as u64 || (self.trial.is_some() && self.is_hopeless(passed)) {
            return if self.end_epoch(now, passed) { until } else { 0 };
        }
        until
    }

    /// Returns true if a trial that has lasted for `passed` nanoseconds moves too few frames to continue.
    #[cold]
    fn is_hopeless(&self, passed: u64) -> bool {
        let usual = self.usual.unwrap_or(0).saturating_mul(passed) / EPOCH.as_nanos() as u64;
        passed >= GLANCE.as_nanos() as u64 && self.frames * 2 < usual
    }

    /// Ends an epoch or a trial. Returns false if the ring is quiet, so that pacing begins anew without a wait.
    #[cold]
    fn end_epoch(&mut self, now: u64, passed: u64) -> bool {
        let frames = self.frames.saturating_mul(EPOCH.as_nanos() as u64) / passed;
        let was_gap = passed > 4 * EPOCH.as_nanos() as u64;
        let many = self.frames >= self.visits * MANY;
        (self.epoch_start, self.frames, self.visits) = (now, 0, 0);
        if frames < QUIET || was_gap {
            *self = Pacing { epoch_start: now, ..Pacing::new() };
            return false;
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
            return true;
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
        true
    }
}

#[cfg(test)]
#[path = "pacing_tests.rs"]
mod tests;
