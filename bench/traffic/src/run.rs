//! The common part of every loop: when to stop, how to wait, and which results to report meanwhile.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::endpoint::Endpoint;
use crate::report::{Ended, Progress, Throughput};

/// Longest sleep before the end of a run is checked again.
const NAP: Duration = Duration::from_millis(100);
/// How often a spinning loop checks whether the other side is still connected.
const PROBE: Duration = Duration::from_millis(20);

/// What to do while there is nothing to receive, or no room to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WaitMode {
    /// Try again at once. Needs a core of its own.
    Spin,
    /// Sleep until the endpoint signals a change.
    #[default]
    Wait,
}

/// When a run ends by itself. Without a limit it runs until it is stopped.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// Number of frames.
    pub frames: Option<u64>,
    /// Time.
    pub duration: Option<Duration>,
}

/// External control of a run: it can be stopped, and reports its progress once a second.
#[derive(Default)]
pub struct Watch<'a> {
    stop: Option<&'a AtomicBool>,
    progress: Option<&'a mut dyn FnMut(&Progress)>,
}

impl<'a> Watch<'a> {
    /// No control, unless added by the methods below.
    #[must_use]
    pub fn none() -> Watch<'a> {
        Watch::default()
    }

    /// Ends the run at most 0.1 s after `stop` becomes true.
    #[must_use]
    pub fn stop_by(mut self, stop: &'a AtomicBool) -> Watch<'a> {
        self.stop = Some(stop);
        self
    }

    /// Calls `progress` about once a second.
    #[must_use]
    pub fn tell(mut self, progress: &'a mut dyn FnMut(&Progress)) -> Watch<'a> {
        self.progress = Some(progress);
        self
    }
}

/// The clock of one run.
pub(crate) struct Run<'w, 'a> {
    watch: &'w mut Watch<'a>,
    limits: Limits,
    start: Instant,
    reported: (Duration, u64, u64),
    probed: Duration,
}

impl<'w, 'a> Run<'w, 'a> {
    pub fn start(limits: Limits, watch: &'w mut Watch<'a>) -> Run<'w, 'a> {
        Run { watch, limits, start: Instant::now(), reported: (Duration::ZERO, 0, 0), probed: Duration::ZERO }
    }

    /// Time since the start.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns how many frames may still be handled, at most `batch`.
    pub fn quota(&self, frames: u64, batch: usize) -> usize {
        let left = self.limits.frames.map_or(u64::MAX, |limit| limit.saturating_sub(frames));
        usize::try_from(left).unwrap_or(usize::MAX).min(batch)
    }

    /// Reports the progress if a second has passed. Returns why the run is over, if it is.
    pub fn over(&mut self, now: Duration, frames: u64, bytes: u64) -> Option<Ended> {
        if now - self.reported.0 >= Duration::from_secs(1) {
            self.report(now, frames, bytes);
        }
        if self.limits.frames.is_some_and(|limit| frames >= limit) {
            Some(Ended::Frames)
        } else if self.limits.duration.is_some_and(|limit| now >= limit) {
            Some(Ended::Duration)
        } else if self.watch.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            Some(Ended::Stopped)
        } else {
            None
        }
    }

    #[cold]
    fn report(&mut self, now: Duration, frames: u64, bytes: u64) {
        let (then, old_frames, old_bytes) = std::mem::replace(&mut self.reported, (now, frames, bytes));
        if let Some(progress) = &mut self.watch.progress {
            let recent = Throughput::new(frames - old_frames, bytes - old_bytes, (now - then).as_secs_f64());
            progress(&Progress { total: Throughput::new(frames, bytes, now.as_secs_f64()), recent });
        }
    }

    /// Waits for something to receive (`for_rx`) or for room to send, for at most `longest`.
    ///
    /// # Errors
    /// The other side has disconnected.
    pub fn wait<E: Endpoint>(
        &mut self,
        endpoint: &mut E,
        wait_mode: WaitMode,
        for_rx: bool,
        longest: Duration,
    ) -> io::Result<()> {
        let now = self.now();
        let left = self.limits.duration.map_or(NAP, |limit| limit.saturating_sub(now));
        match wait_mode {
            WaitMode::Wait => endpoint.wait(for_rx, longest.min(left).min(NAP)),
            WaitMode::Spin => self.spin(endpoint, now),
        }
    }

    /// One turn of a spinning loop. From time to time checks whether the other side is still connected.
    ///
    /// # Errors
    /// The other side has disconnected.
    pub fn spin<E: Endpoint>(&mut self, endpoint: &mut E, now: Duration) -> io::Result<()> {
        std::hint::spin_loop();
        if self.probe_due(now) { endpoint.wait(true, Duration::ZERO) } else { Ok(()) }
    }

    /// Returns true if it is time to check whether the other side is still connected.
    pub fn probe_due(&mut self, now: Duration) -> bool {
        let due = now - self.probed >= PROBE;
        if due {
            self.probed = now;
        }
        due
    }

    /// Waits for `delay`, or less if the run ends earlier.
    pub fn pause(&self, wait_mode: WaitMode, delay: Duration) {
        let left = self.limits.duration.map_or(NAP, |limit| limit.saturating_sub(self.now()));
        match wait_mode {
            WaitMode::Wait => std::thread::sleep(delay.min(left).min(NAP)),
            WaitMode::Spin => std::hint::spin_loop(),
        }
    }
}
