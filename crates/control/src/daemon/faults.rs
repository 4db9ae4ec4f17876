//! Ports that lost their clients because of what these did.

use std::collections::VecDeque;
use std::time::Instant;

use super::Daemon;
use crate::api::types;
use crate::config::Name;

/// How many are remembered.
const REMEMBERED: usize = 64;

/// The last faults, latest first.
#[derive(Debug, Default)]
pub struct Faults(VecDeque<Record>);

#[derive(Debug)]
struct Record {
    switch: Name,
    port: Name,
    reason: &'static str,
    detail: String,
    at: Instant,
}

impl Faults {
    /// What the API says of them.
    pub fn report(&self) -> Vec<types::Fault> {
        let one = |record: &Record| types::Fault {
            port: record.port.to_string(),
            switch: record.switch.to_string(),
            reason: record.reason.to_owned(),
            detail: record.detail.clone(),
            age: record.at.elapsed().as_secs_f64(),
        };
        self.0.iter().map(one).collect()
    }

    /// Remembers one that happened now.
    pub fn note(&mut self, switch: Name, port: Name, reason: &'static str, detail: String) {
        self.0.truncate(REMEMBERED - 1);
        self.0.push_front(Record { switch, port, reason, detail, at: Instant::now() });
    }
}

impl Daemon {
    /// Takes away every port that has a fault. What a configured one had is tried again.
    pub fn end_faulty(&mut self) {
        let faulty = self.switches.iter().flat_map(|(switch, s)| {
            s.ports().iter().filter_map(move |(name, live)| Some((switch.clone(), name.clone(), live.port.fault()?)))
        });
        let faulty: Vec<_> = faulty.collect();
        for (switch, port, fault) in faulty {
            let detail = fault.to_string();
            tracing::warn!("port {switch}:{port} ended: {detail}");
            self.end_port(&switch, &port, &detail);
            self.lose(&switch, &port, detail.clone());
            self.faults.note(switch, port, fault.name(), detail);
        }
    }
}
