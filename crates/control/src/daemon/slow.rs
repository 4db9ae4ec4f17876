//! Ports over their time budget (`slow_client`): they stay attached and are served less often.

use std::time::Duration;

use ringway_engine::{Relieved, SlowReading};

use super::state::Daemon;
use crate::api::types::SlowStatus;

/// The name of this fault.
const SLOW_CLIENT: &str = "slow_client";

impl Daemon {
    /// Notes a fault for each port that became slow.
    pub fn note_slow(&mut self) {
        let newly = self.switches.iter().flat_map(|(switch, s)| {
            let newly = s.ports().iter().filter_map(|(name, live)| Some((name.clone(), live.source.newly_slow()?)));
            newly.map(move |(name, reading)| ((switch.clone(), name), reading))
        });
        let newly: Vec<_> = newly.collect();
        for (key, reading) in newly {
            let detail = detail(&reading);
            if let Some(line) = self.log_line(&key, &format!(" is served less: {detail}")) {
                tracing::warn!("{line}");
            }
            self.note_fault(&key, SLOW_CLIENT, detail, None);
        }
        for relieved in self.engine.take_relieved() {
            self.note_relieved(&relieved);
        }
    }

    /// Notes a fault of the port in whose memory, or at whose frames, the kernel keeps a thread.
    fn note_relieved(&mut self, Relieved { poller, port }: &Relieved) {
        let what = format!(
            "the kernel keeps the thread of poller{poller} that serves it, and another one serves the poller's other ports"
        );
        let parts = port.as_deref().and_then(|label| label.split_once(':'));
        let key = parts.and_then(|(switch, name)| Some((switch.parse().ok()?, name.parse().ok()?)));
        let Some(key) = key else {
            // An end of a pipe, or a port that has been removed.
            return tracing::warn!("{}: {what}", port.as_deref().unwrap_or("a port that was removed"));
        };
        if let Some(line) = self.log_line(&key, &format!(": {what}")) {
            tracing::warn!("{line}");
        }
        self.note_fault(&key, SLOW_CLIENT, what, None);
    }
}

fn detail(reading: &SlowReading) -> String {
    let longest = Duration::from_nanos(reading.longest_ns);
    format!(
        "serving it takes too long, {} times up to now, at most {longest:.1?} beyond what it may: page faults in its memory, or \
         frames in very many pieces",
        reading.charged_visits
    )
}

/// Returns the status of a port that was ever over its budget.
pub(super) fn slow_status(reading: &SlowReading) -> Option<SlowStatus> {
    (reading.charged_visits > 0).then(|| SlowStatus {
        slow: reading.slow,
        quarantined: reading.quarantined,
        times: reading.times,
        visits: reading.charged_visits,
        seconds: Duration::from_nanos(reading.charged_ns).as_secs_f64(),
        longest: Duration::from_nanos(reading.longest_ns).as_secs_f64(),
    })
}
