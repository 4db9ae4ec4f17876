//! Changes of the daemon that wait, without its lock, until they are complete.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::background::BackgroundTasks;
use super::refused::Refused;
use super::state::{Daemon, lock};

/// Longest wait for pollers to release a removed device. They release it between two batches.
pub const SETTLE_WITHIN: Duration = Duration::from_millis(500);

/// Longest wait for work whose length a client controls, for example the end of its connection.
const TASKS_WITHIN: Duration = Duration::from_secs(3);

/// Changes the daemon and waits until the change is complete: pollers use what was published, and what was closed is gone. The
/// daemon is not locked during the wait.
///
/// # Errors
/// Those of the change.
pub async fn change(
    daemon: &Mutex<Daemon>,
    change: impl FnOnce(&mut Daemon) -> Result<Vec<String>, Refused>,
) -> Result<Vec<String>, Refused> {
    let (done, tasks) = {
        let mut daemon = lock(daemon);
        let done = change(&mut daemon);
        (done, daemon.take_tasks())
    };
    settle(daemon, &tasks).await;
    done
}

/// Waits, within bounds, until the old topology is released and these tasks have ended.
pub async fn settle(daemon: &Mutex<Daemon>, tasks: &BackgroundTasks) {
    let begun = Instant::now();
    let waits = |most| begun.elapsed() < most;
    while (waits(SETTLE_WITHIN) && !lock(daemon).is_released()) || (waits(TASKS_WITHIN) && !tasks.are_done()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
