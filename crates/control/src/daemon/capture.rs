//! Captures that run. A capture belongs to the port's name: it outlasts clients that come and go.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringway_capture::{Capture, Options, Reader};
use ringway_switch::Tap;

use super::{Daemon, PortRef, Refused};
use crate::api::types::CaptureStatus;
use crate::config::Name;

/// Most captures at once: each is a copy more of its port's frames, and memory.
const CAPTURES_MAX: usize = 16;

/// What runs, by number.
#[derive(Debug, Default)]
pub(super) struct Captures {
    last: u64,
    running: BTreeMap<u64, Running>,
}

#[derive(Debug)]
struct Running {
    switch: Name,
    port: Name,
    capture: Arc<Capture>,
}

impl Captures {
    /// The captures of one switch's ports.
    pub(super) fn of(&self, switch: &Name) -> Vec<(Name, Arc<dyn Tap>)> {
        let mine = self.running.values().filter(|running| running.switch == *switch);
        mine.map(|running| (running.port.clone(), Arc::clone(&running.capture) as Arc<dyn Tap>)).collect()
    }

    /// What runs, for the status.
    pub(super) fn report(&self) -> Vec<CaptureStatus> {
        let one = |(&id, running): (&u64, &Running)| {
            let counts = running.capture.counts();
            CaptureStatus {
                id,
                switch: running.switch.to_string(),
                port: running.port.to_string(),
                captured: counts.captured,
                lost: counts.lost,
            }
        };
        self.running.iter().map(one).collect()
    }

    /// Ends those whose port is not there any more.
    pub(super) fn keep(&mut self, is_there: impl Fn(&Name, &Name) -> bool) {
        self.running.retain(|_, running| {
            let stays = is_there(&running.switch, &running.port);
            if !stays {
                running.capture.end();
            }
            stays
        });
    }
}

impl Daemon {
    /// Starts to capture frames of a port, which may be waiting for its client. `options` names the interface. Gives the
    /// capture's number.
    ///
    /// # Errors
    /// There is no such port, there are too many captures, or the kernel refuses.
    pub fn capture(
        &mut self,
        port: &PortRef,
        options: impl FnOnce(String) -> Options,
    ) -> Result<(u64, Reader), Refused> {
        let (switch, port) = self.find(port)?;
        if self.captures.running.len() >= CAPTURES_MAX {
            return Err(Refused::Conflict(format!("{CAPTURES_MAX} captures are running: end one of them first")));
        }
        let (capture, reader) = Capture::start(&options(format!("{switch}:{port}")))
            .map_err(|error| Refused::Failed(format!("cannot capture: {error}")))?;
        self.captures.last += 1;
        let id = self.captures.last;
        self.captures.running.insert(id, Running { switch, port, capture });
        self.publish();
        Ok((id, reader))
    }

    /// Ends a capture: its reader still finds what was captured before.
    ///
    /// # Errors
    /// There is none of this number.
    pub fn end_capture(&mut self, id: u64) -> Result<Vec<String>, Refused> {
        let Some(running) = self.captures.running.remove(&id) else {
            return Err(Refused::Unknown(format!("there is no capture {id}")));
        };
        running.capture.end();
        self.publish();
        Ok(vec![format!("ended capture {id} of port {}", running.port)])
    }
}
