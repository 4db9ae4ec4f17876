//! How long to leave a ring alone.
//!
//! A poller that looks at a ring again as soon as it can takes each small burst at once, and each look takes cache lines
//! away from the driver that is filling them: a driver with many frames in flight is slowed to a fraction. One with few
//! frames in flight is slowed by any wait. Nothing in a ring tells the two apart, so the poller finds out: now and then
//! it serves a ring with another wait for a while, and keeps the wait that moved more frames. Where two waits move as
//! many, the shorter one is kept, for the sake of latency. A trial that slows the driver down a lot ends early, and a ring
//! that has many frames ready at each look gains nothing by a longer wait, so none is tried.

use std::time::Duration;

/// Waits after a look that did not fill a batch, in microseconds.
const WAITS_US: [u64; 7] = [0, 2, 4, 8, 16, 32, 64];
/// A trial's length.
const EPOCH: Duration = Duration::from_micros(500);
/// A trial that moves less than half of the usual is over after so long.
const GLANCE: Duration = Duration::from_micros(50);
/// Frames in an epoch below which no wait is worth a trial: 200,000 per second.
const QUIET: u64 = 100;
/// Frames that a look finds, on average of those that find any, from which on no longer wait is tried.
const MANY: u64 = 128;
/// Epochs between two trials: at first, and at most.
const FEWEST_EPOCHS: u32 = 2;
const MOST_EPOCHS: u32 = 256;

/// One ring's pace. Times are nanoseconds of the poller's clock.
#[derive(Debug)]
pub(crate) struct Pacing {
    /// The wait in use, as a place in `WAITS_US`.
    level: usize,
    /// The wait on trial, during a trial.
    trial: Option<usize>,
    upward: bool,
    /// Frames of the last epoch without trial, brought to an epoch's exact length.
    usual: Option<u64>,
    epoch_start: u64,
    frames: u64,
    /// That found frames, in this epoch.
    looks: u64,
    /// Epochs until the next trial, and between two.
    left: u32,
    between: u32,
    /// No look before.
    until: u64,
}

impl Pacing {
    pub(crate) fn new() -> Pacing {
        Pacing {
            level: 0,
            trial: None,
            upward: true,
            usual: None,
            epoch_start: 0,
            frames: 0,
            looks: 0,
            left: FEWEST_EPOCHS,
            between: FEWEST_EPOCHS,
            until: 0,
        }
    }

    /// Whether the ring is to be left alone at `now`.
    #[inline]
    pub(crate) fn is_resting(&self, now: u64) -> bool {
        now < self.until
    }

    /// A look at about `now` found `frames`; `full` when there may be more.
    #[inline]
    pub(crate) fn looked(&mut self, now: u64, frames: u64, full: bool) {
        self.frames += frames;
        self.looks += u64::from(frames > 0);
        let wait = WAITS_US[self.trial.unwrap_or(self.level)] * 1000;
        self.until = if wait == 0 || full { 0 } else { now + wait };
        let passed = now.wrapping_sub(self.epoch_start);
        if passed >= EPOCH.as_nanos() as u64 || (self.trial.is_some() && self.is_hopeless(passed)) {
            self.end_epoch(now, passed);
        }
    }

    #[cold]
    fn is_hopeless(&self, passed: u64) -> bool {
        let usual = self.usual.unwrap_or(0).saturating_mul(passed) / EPOCH.as_nanos() as u64;
        passed >= GLANCE.as_nanos() as u64 && self.frames * 2 < usual
    }

    #[cold]
    fn end_epoch(&mut self, now: u64, passed: u64) {
        let frames = self.frames.saturating_mul(EPOCH.as_nanos() as u64) / passed;
        let was_gap = passed > 4 * EPOCH.as_nanos() as u64;
        let many = self.frames >= self.looks * MANY;
        (self.epoch_start, self.frames, self.looks) = (now, 0, 0);
        if frames < QUIET || was_gap {
            *self = Pacing { epoch_start: now, ..Pacing::new() };
            return;
        }
        if let (Some(trial), Some(usual)) = (self.trial.take(), self.usual) {
            // More by a twentieth is worth a longer wait; as many, a shorter one.
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
