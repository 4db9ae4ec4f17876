//! Changes of the daemon that wait, without its lock, until they are complete.

use std::pin::pin;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ringway_ports::unclosed_devices;

use super::background::BackgroundTasks;
use super::devices::{self, TriedDevices};
use super::programs::{CannotLoad, Loading, ReadyProgram, WantedProgram};
use super::refused::Refused;
use super::state::{Daemon, lock};
use crate::inject::patience;

/// Longest wait for pollers to release a removed device. They release it between two batches.
pub const SETTLE_WITHIN: Duration = Duration::from_millis(500);

/// Most attempts of a change that needs forwarding programs and devices: another change may come between loading and changing.
const ATTEMPTS: usize = 8;

/// Longest wait for programs at the start. Switches whose programs take longer get them later.
const LOADED_WITHIN: Duration = Duration::from_secs(10);

/// Held by the change that opens devices.
static DEVICES: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Longest wait for work whose length a client controls, for example the end of its connection.
const TASKS_WITHIN: Duration = Duration::from_secs(3);

/// Changes the daemon and waits until the change is complete: pollers use what was published, and what was closed is gone. The
/// daemon is not locked during the wait.
///
/// # Errors
/// Those of the change.
pub async fn change(
    daemon: &Mutex<Daemon>,
    change: impl FnMut(&mut Daemon) -> Result<Vec<String>, Refused>,
) -> Result<Vec<String>, Refused> {
    change_with(daemon, Vec::new(), change).await
}

/// The same with programs that were loaded before.
async fn change_with(
    daemon: &Mutex<Daemon>,
    mut loaded: Vec<ReadyProgram>,
    mut change: impl FnMut(&mut Daemon) -> Result<Vec<String>, Refused>,
) -> Result<Vec<String>, Refused> {
    let (mut opened, mut turn) = (TriedDevices::default(), None);
    for _ in 0..ATTEMPTS {
        let unclosed = unclosed_devices();
        let (done, tasks, tolerates) = {
            let mut daemon = lock(daemon);
            daemon.programs.set_ready(loaded);
            daemon.opened = opened;
            let done = change(&mut daemon);
            let tolerates = daemon.is_starting || daemon.programs.retries();
            loaded = daemon.programs.take_ready();
            opened = std::mem::take(&mut daemon.opened);
            (done, daemon.take_tasks(), tolerates)
        };
        // Programs are compiled and started, and devices opened, without the lock. Then the change is tried again.
        match done {
            Err(Refused::Load(wanted)) => {
                loaded.retain(|ready| wanted.iter().all(|wanted| !ready.is_for(&wanted.switch)));
                loaded.append(&mut load(daemon, wanted, tolerates).await?);
            }
            // One change at a time opens devices: another one would find them busy. What is missing may be another thing after the wait.
            Err(Refused::Open(_)) if turn.is_none() => turn = Some(DEVICES.lock().await),
            Err(Refused::Open(wanted)) => opened.append(devices::open_all(wanted).await),
            done => {
                // Devices of a change that was refused are closed.
                drop(opened);
                settle(daemon, &tasks, unclosed).await;
                return done;
            }
        }
    }
    Err(Refused::Conflict(
        "ports or forwarding programs change faster than this change can be made: try again".to_owned(),
    ))
}

/// Loads programs for a change. If the change `tolerates` that, those that cannot be loaded are missing from then on.
async fn load(
    daemon: &Mutex<Daemon>,
    wanted: Vec<WantedProgram>,
    tolerates: bool,
) -> Result<Vec<ReadyProgram>, CannotLoad> {
    if !tolerates {
        return Loading::begin(wanted)?.all().await;
    }
    let (mut loading, mut ready, mut missing) = (Loading::begin(wanted)?, Vec::new(), Vec::new());
    while let Some(loaded) = loading.next().await {
        match loaded {
            Ok(loaded) => ready.push(loaded),
            Err(why) => missing.push(why),
        }
    }
    lock(daemon).note_missing_programs(missing);
    Ok(ready)
}

/// Configures the daemon. Returns the programs that take long to load: their switches forward nothing yet.
///
/// # Errors
/// Those of the change.
pub async fn start(daemon: &Mutex<Daemon>) -> Result<Option<Loading>, Refused> {
    let wanted = lock(daemon).wanted_at_start();
    let (mut loaded, mut missing, mut late) = (Vec::new(), Vec::new(), None);
    if !wanted.is_empty() {
        let mut loading = Loading::begin(wanted)?;
        let mut deadline = pin!(tokio::time::sleep(patience(LOADED_WITHIN)));
        loop {
            tokio::select! {
                next = loading.next() => match next {
                    Some(Ok(ready)) => loaded.push(ready),
                    Some(Err(why)) => missing.push(why),
                    None => break,
                },
                () = &mut deadline => {
                    late = Some(loading);
                    break;
                }
            }
        }
    }
    if let Some(loading) = &late {
        for switch in loading.switches() {
            tracing::warn!("switch {switch} forwards nothing yet: its program takes long to load");
        }
        lock(daemon).programs.begin_without(loading);
    }
    lock(daemon).note_missing_programs(missing);
    change_with(daemon, loaded, Daemon::configure).await?;
    Ok(late)
}

/// A switch gets its program, which was loaded after the start, or could not be.
pub async fn bring_late(daemon: &Mutex<Daemon>, loaded: Result<ReadyProgram, CannotLoad>) {
    let (switch, brought) = match loaded {
        Ok(ready) => {
            let switch = ready.switch().clone();
            (switch, change_with(daemon, vec![ready.clone()], |daemon| daemon.bring_late(&ready)).await)
        }
        Err(why) => {
            let mut daemon = lock(daemon);
            daemon.programs.end_late(why.switch());
            return daemon.note_missing_programs(vec![why]);
        }
    };
    match brought {
        Ok(steps) if steps.is_empty() => {
            tracing::info!("switch {switch} has got another program, or none, while its first one was loaded");
        }
        Ok(_) => tracing::info!("switch {switch} forwards: its program is loaded"),
        Err(why) => tracing::error!("switch {switch} forwards nothing: {why}"),
    }
    lock(daemon).programs.end_late(&switch);
}

/// Waits, within bounds, until the old topology is released, its devices are closed but for those that were `unclosed` before, and these
/// tasks have ended.
pub async fn settle(daemon: &Mutex<Daemon>, tasks: &BackgroundTasks, unclosed: usize) {
    let begun = Instant::now();
    let waits = |most| begun.elapsed() < patience(most);
    let is_released = || lock(daemon).is_released() && unclosed_devices() <= unclosed;
    while (waits(SETTLE_WITHIN) && !is_released()) || (waits(TASKS_WITHIN) && !tasks.are_done()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
