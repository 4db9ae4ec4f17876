//! Running captures. A capture belongs to the port's name: it continues when clients of the port change.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringway_api::types::CaptureStatus;
use ringway_capture::{Capture, Options, Reader};
use ringway_config::keys::Name;
use ringway_switch::Tap;

use super::refused::Refused;

/// Most captures at once. Each takes memory and one more copy of its port's frames.
const CAPTURES_MAX: usize = 16;

/// The running captures by number.
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
    /// Starts a capture of a port. Returns its number and its reader.
    ///
    /// # Errors
    /// There are too many captures, or the kernel refuses.
    pub(super) fn start(&mut self, switch: Name, port: Name, options: &Options) -> Result<(u64, Reader), Refused> {
        if self.running.len() >= CAPTURES_MAX {
            return Err(Refused::Conflict(format!("{CAPTURES_MAX} captures are running: end one of them first")));
        }
        let (capture, reader) =
            Capture::start(options).map_err(|error| Refused::Failed(format!("cannot capture: {error}")))?;
        self.last += 1;
        self.running.insert(self.last, Running { switch, port, capture });
        Ok((self.last, reader))
    }

    /// Ends a capture. Returns the name of its port.
    ///
    /// # Errors
    /// There is no capture of this number.
    pub(super) fn end(&mut self, id: u64) -> Result<Name, Refused> {
        let running = self.running.remove(&id).ok_or_else(|| Refused::Unknown(format!("there is no capture {id}")))?;
        running.capture.end();
        Ok(running.port)
    }

    /// Returns the captures of one switch's ports.
    pub(super) fn of(&self, switch: &Name) -> Vec<(Name, Arc<dyn Tap>)> {
        let own = self.running.values().filter(|running| running.switch == *switch);
        own.map(|running| (running.port.clone(), Arc::clone(&running.capture) as Arc<dyn Tap>)).collect()
    }

    /// Returns the status of every capture.
    pub(super) fn report(&self) -> Vec<CaptureStatus> {
        let status = |(&id, running): (&u64, &Running)| {
            let counts = running.capture.counts();
            CaptureStatus {
                id,
                switch: running.switch.to_string(),
                port: running.port.to_string(),
                captured: counts.captured,
                lost: counts.lost,
            }
        };
        self.running.iter().map(status).collect()
    }

    /// Ends the captures of ports that do not exist any more.
    pub(super) fn keep(&mut self, exists: impl Fn(&Name, &Name) -> bool) {
        self.running.retain(|_, running| {
            let stays = exists(&running.switch, &running.port);
            if !stays {
                running.capture.end();
            }
            stays
        });
    }
}
