//! Changes of the daemon that wait, without its lock, until they are complete.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::background::BackgroundTasks;
use super::programs;
use super::refused::Refused;
use super::state::{Daemon, lock};
use crate::inject::patience;

/// Longest wait for pollers to release a removed device. They release it between two batches.
pub const SETTLE_WITHIN: Duration = Duration::from_millis(500);

/// Most attempts of a change that needs forwarding programs: another change may come between loading and changing.
const LOADS: usize = 4;

/// Longest wait for work whose length a client controls, for example the end of its connection.
const TASKS_WITHIN: Duration = Duration::from_secs(3);

/// Changes the daemon and waits until the change is complete: pollers use what was published, and what was closed is gone. The
/// daemon is not locked during the wait.
///
/// # Errors
/// Those of the change.
pub async fn change(
    daemon: &Mutex<Daemon>,
    mut change: impl FnMut(&mut Daemon) -> Result<Vec<String>, Refused>,
) -> Result<Vec<String>, Refused> {
    let mut loaded = Vec::new();
    for _ in 0..LOADS {
        let (done, tasks) = {
            let mut daemon = lock(daemon);
            daemon.programs.set_ready(std::mem::take(&mut loaded));
            let done = change(&mut daemon);
            daemon.programs.forget_ready();
            (done, daemon.take_tasks())
        };
        // Programs are compiled and started without the lock. Then the change is tried again.
        match done {
            Err(Refused::Load(wanted)) => loaded = programs::load(wanted).await?,
            done => {
                settle(daemon, &tasks).await;
                return done;
            }
        }
    }
    Err(Refused::Conflict("forwarding programs change faster than they can be loaded: try again".to_owned()))
}

/// Waits, within bounds, until the old topology is released and these tasks have ended.
pub async fn settle(daemon: &Mutex<Daemon>, tasks: &BackgroundTasks) {
    let begun = Instant::now();
    let waits = |most| begun.elapsed() < patience(most);
    while (waits(SETTLE_WITHIN) && !lock(daemon).is_released()) || (waits(TASKS_WITHIN) && !tasks.are_done()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
