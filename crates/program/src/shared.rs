//! What the instances of a program share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::keeper::{Job, Jobs};
use crate::limits::{LOG_LINE, LOG_LINES};
use crate::map::SharedMap;
use crate::meters::Meters;

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
            map,
            log: Log { gate: Mutex::new(None), lost: AtomicU64::new(0), jobs },
        }
    }

    /// Writes a line of the log, if the program has not written too many.
    pub(crate) fn log(&self, line: &str) {
        self.log.write(&self.switch, line);
    }

    /// Lines that were not written.
    pub(crate) fn lost_lines(&self) -> u64 {
        self.log.lost.load(Ordering::Relaxed)
    }
}

/// A bounded log.
#[derive(Debug)]
struct Log {
    /// The second that began here, and the lines in it.
    gate: Mutex<Option<(Instant, u32)>>,
    lost: AtomicU64,
    jobs: Jobs,
}

impl Log {
    fn write(&self, switch: &str, line: &str) {
        let passes = {
            let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let (_, lines) = match &mut *gate {
                Some(second) if now - second.0 < Duration::from_secs(1) => second,
                gate => gate.insert((now, 0)),
            };
            *lines = lines.saturating_add(1);
            *lines <= LOG_LINES
        };
        let line = format!("the program of switch {switch}: {line}");
        if !passes || self.jobs.give(Job::Log(line)).is_some() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A program's text as a line: at most [`LOG_LINE`] bytes, one line, without control characters.
pub(crate) fn line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(LOG_LINE)]);
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] }).collect()
}
