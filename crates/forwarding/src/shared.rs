//! What the instances of a program share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::clock::monotonic_ns;
use crate::keeper::{Job, Jobs};
use crate::limits::{LOG_LINE, LOG_LINES};
use crate::map::SharedMap;
use crate::meters::Meters;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// What the instances of a program share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The switch's name, for messages.
    pub(crate) switch: String,
    /// The text `config`.
    pub(crate) config: String,
    /// Number of instances.
    pub(crate) instances: usize,
    pub(crate) meters: Meters,
    /// Instead of the system's clock: the time in nanoseconds that a caller has set.
    pub(crate) given_time: Option<AtomicU64>,
    /// Handed over to the next program if it restores the state of this one.
    pub(crate) map: std::sync::Arc<SharedMap>,
    log: Log,
}

impl Shared {
    pub(crate) fn new(
        switch: &str,
        config: &str,
        instances: usize,
        map: std::sync::Arc<SharedMap>,
        jobs: Jobs,
    ) -> Shared {
        Shared {
            switch: switch.to_owned(),
            config: config.to_owned(),
            instances,
            meters: Meters::new(instances),
            given_time: None,
            map,
            log: Log { gate: Mutex::new(None), lost: AtomicU64::new(0), jobs },
        }
    }

    /// Writes a line of the log, if the program has not written too many.
    pub(crate) fn log(&self, line: &str) {
        self.log.write(&self.switch, line, self.now_ns());
    }

    /// What stands before each line of the log.
    pub(crate) fn log_prefix(&self) -> String {
        prefix(&self.switch)
    }

    /// Nanoseconds of a clock that never goes back.
    pub(crate) fn now_ns(&self) -> u64 {
        self.given_time.as_ref().map_or_else(monotonic_ns, |time| time.load(Ordering::Relaxed))
    }

    /// Lines that were not written.
    pub(crate) fn lost_lines(&self) -> u64 {
        self.log.lost.load(Ordering::Relaxed)
    }
}

/// A bounded log.
#[derive(Debug)]
struct Log {
    /// The second that began at this time in nanoseconds, and the lines in it.
    gate: Mutex<Option<(u64, u32)>>,
    lost: AtomicU64,
    jobs: Jobs,
}

impl Log {
    fn write(&self, switch: &str, line: &str, now: u64) {
        let passes = {
            let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
            let (_, lines) = match &mut *gate {
                Some(second) if now.saturating_sub(second.0) < SECOND => second,
                gate => gate.insert((now, 0)),
            };
            *lines = lines.saturating_add(1);
            *lines <= LOG_LINES
        };
        if !passes || self.jobs.give(Job::Log(format!("{}{line}", prefix(switch)))).is_some() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn prefix(switch: &str) -> String {
    format!("the program of switch {switch}: ")
}

/// A program's text as a line: at most [`LOG_LINE`] bytes, one line, without control characters.
pub(crate) fn line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(LOG_LINE)]);
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] }).collect()
}
