//! The control side of ports whose peer connects: hypervisors and programs that connect to a port's socket, or to which the port
//! connects. A status shows a port whose locks a stuck thread holds as it was seen last.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ringway_api::types::PortStatus;
use ringway_config::kinds::{Link, Settings, State};
use ringway_port_vhost_user::Observer;
use ringway_switch::{Defect, Role};

use super::background::{BackgroundTask, log_failed_close};

/// The control side of a port whose peer connects. No method waits for the peer, nor for a thread that serves it, except
/// [`FrontEnd::close`].
pub struct FrontEnd {
    /// `SWITCH:PORT`.
    label: String,
    /// The number of its events.
    id: u64,
    observer: Arc<dyn Observer>,
    link: Mutex<Option<Box<dyn Link>>>,
    update: Arc<Mutex<Update>>,
}

/// The settings that a background task applies to a port. The guest can delay that task.
#[derive(Debug)]
struct Update {
    wanted: Settings,
    is_running: bool,
}

impl FrontEnd {
    /// The front end of `link`, which was opened with these settings. Its events have the number `id` and go to `observer`.
    pub fn new(label: String, id: u64, observer: Arc<dyn Observer>, link: Box<dyn Link>, settings: Settings) -> Self {
        let update = Arc::new(Mutex::new(Update { wanted: settings, is_running: false }));
        Self { label, id, observer, link: Mutex::new(Some(link)), update }
    }

    /// `SWITCH:PORT` of the port that it was made for.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The number of its events.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Reports what is known of the peer: its present state, or the state seen last if the present one is not known before `until`.
    /// Returns `None` if the front end is closed or was never seen.
    pub fn report(&self, until: Instant, status: &mut PortStatus) -> Option<State> {
        self.link().as_mut()?.report(until, status)
    }

    /// Applies these settings to the running port, by a background task that `begin` registers.
    pub fn set(&self, settings: &Settings, begin: impl FnOnce() -> BackgroundTask) {
        let link = self.link();
        let Some(setter) = link.as_ref().and_then(|link| link.setter()) else { return };
        let mut update = self.update.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut update.wanted, settings.clone());
        if before == *settings || update.is_running {
            return;
        }
        update.is_running = true;
        let (update, task, observer) = (Arc::clone(&self.update), begin(), Arc::clone(&self.observer));
        let set = move || {
            let mut done = None;
            loop {
                let wanted = {
                    let mut update = update.lock().unwrap_or_else(PoisonError::into_inner);
                    update.is_running = done.as_ref() != Some(&update.wanted);
                    update.is_running.then(|| update.wanted.clone())
                };
                let Some(wanted) = wanted else { return };
                setter(wanted.own());
                done = Some(wanted);
            }
        };
        // The settings may be applied in part: the port is closed and opened again.
        task.spawn("set-nic", set, move |place| observer.failed(Defect { role: Role::Thread, place }));
    }

    /// Ends the connection and removes the socket. The front end can delay this.
    pub fn close(&self) {
        let link = self.link().take();
        drop(link);
    }

    fn link(&self) -> MutexGuard<'_, Option<Box<dyn Link>>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FrontEnd {
    /// Closes a front end that was never closed because its port was never made. Does not wait.
    fn drop(&mut self) {
        if let Some(link) = self.link().take() {
            let label = self.label.clone();
            BackgroundTask::default().spawn("close", move || drop(link), move |place| log_failed_close(&label, place));
        }
    }
}

impl fmt::Debug for FrontEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrontEnd").field("id", &self.id).finish_non_exhaustive()
    }
}
