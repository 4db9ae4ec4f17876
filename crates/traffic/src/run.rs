//! The common part of every loop: when to stop, how to wait, and which results to report meanwhile.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::Endpoint;
use crate::report::{Ended, Progress, Throughput};

/// Longest sleep before the end of a run is looked for again.
const NAP: Duration = Duration::from_millis(100);
/// How often a spinning loop asks the endpoint whether the network is still there.
const PROBE: Duration = Duration::from_millis(20);

/// What to do while there is nothing to receive or no room to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Patience {
    /// Try again at once, on a core of one's own.
    Spin,
    /// Sleep until the endpoint says otherwise.
    #[default]
    Wait,
}

/// When a run ends by itself. Without any limit it runs until it is stopped.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// Number of frames.
    pub frames: Option<u64>,
    /// Time.
    pub duration: Option<Duration>,
}

/// A run seen from outside: it can be stopped, and tells how it stands once a second.
#[derive(Default)]
pub struct Watch<'a> {
    stop: Option<&'a AtomicBool>,
    progress: Option<&'a mut dyn FnMut(&Progress)>,
}

impl<'a> Watch<'a> {
    /// Nobody watches, unless added by the methods below.
    #[must_use]
    pub fn none() -> Watch<'a> {
        Watch::default()
    }

    /// The run ends soon (at most 0.1 s) after `stop` becomes true.
    #[must_use]
    pub fn stop_by(mut self, stop: &'a AtomicBool) -> Watch<'a> {
        self.stop = Some(stop);
        self
    }

    /// `progress` is called about once a second.
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
    told: (Duration, u64, u64),
    probed: Duration,
}

impl<'w, 'a> Run<'w, 'a> {
    pub fn start(limits: Limits, watch: &'w mut Watch<'a>) -> Run<'w, 'a> {
        Run { watch, limits, start: Instant::now(), told: (Duration::ZERO, 0, 0), probed: Duration::ZERO }
    }

    /// Time since the start.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Frames that may still be handled, at most `batch`.
    pub fn quota(&self, frames: u64, batch: usize) -> usize {
        let left = self.limits.frames.map_or(u64::MAX, |limit| limit.saturating_sub(frames));
        usize::try_from(left).unwrap_or(usize::MAX).min(batch)
    }

    /// Tells how things stand if a second has passed; answers why the run is over, if it is.
    pub fn over(&mut self, now: Duration, frames: u64, bytes: u64) -> Option<Ended> {
        if now - self.told.0 >= Duration::from_secs(1) {
            self.tell(now, frames, bytes);
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
    fn tell(&mut self, now: Duration, frames: u64, bytes: u64) {
        let (then, old_frames, old_bytes) = std::mem::replace(&mut self.told, (now, frames, bytes));
        if let Some(progress) = &mut self.watch.progress {
            let recent = Throughput::new(frames - old_frames, bytes - old_bytes, (now - then).as_secs_f64());
            progress(&Progress { total: Throughput::new(frames, bytes, now.as_secs_f64()), recent });
        }
    }

    /// Waits for something to receive (`for_rx`) or for room to send, at most `longest`.
    ///
    /// # Errors
    /// The network went away.
    pub fn wait<E: Endpoint>(
        &mut self,
        endpoint: &mut E,
        patience: Patience,
        for_rx: bool,
        longest: Duration,
    ) -> io::Result<()> {
        let now = self.now();
        let left = self.limits.duration.map_or(NAP, |limit| limit.saturating_sub(now));
        match patience {
            Patience::Wait => endpoint.wait(for_rx, longest.min(left).min(NAP)),
            Patience::Spin => self.spin(endpoint, now),
        }
    }

    /// One turn of a spinning loop, with a look at the network now and then.
    ///
    /// # Errors
    /// The network went away.
    pub fn spin<E: Endpoint>(&mut self, endpoint: &mut E, now: Duration) -> io::Result<()> {
        std::hint::spin_loop();
        if self.probe_due(now) { endpoint.wait(true, Duration::ZERO) } else { Ok(()) }
    }

    /// Whether it is time to ask whether the network is still there.
    pub fn probe_due(&mut self, now: Duration) -> bool {
        let due = now - self.probed >= PROBE;
        if due {
            self.probed = now;
        }
        due
    }

    /// Lets `delay` pass, or less when the run ends earlier.
    pub fn pass(&self, patience: Patience, delay: Duration) {
        let left = self.limits.duration.map_or(NAP, |limit| limit.saturating_sub(self.now()));
        match patience {
            Patience::Wait => std::thread::sleep(delay.min(left).min(NAP)),
            Patience::Spin => std::hint::spin_loop(),
        }
    }
}
