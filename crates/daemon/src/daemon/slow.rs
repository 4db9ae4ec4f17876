//! Ports over their time budget (`slow_client`): they stay attached and are served less often.

use std::time::Duration;

use ringway_api::types::SlowStatus;
use ringway_engine::{Relieved, SlowReading};

use super::state::Daemon;

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
        // The kernel may keep the thread in the memory of another port, with which this one exchanges frames: no fault of this port.
        for Relieved { poller, port } in self.engine.take_relieved() {
            let port =
                port.as_deref().map_or_else(|| "a port that was removed".to_owned(), |port| format!("port {port}"));
            tracing::warn!(
                "the kernel keeps the thread of poller{poller} that serves {port}: another one serves its other ports"
            );
        }
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
