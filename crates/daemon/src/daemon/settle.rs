//! Changes of the daemon that wait, without its lock, until they are complete.

use std::pin::pin;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ringway_api::patience;
use ringway_port_device::unclosed_devices;

use super::background::BackgroundTasks;
use super::devices::{self, TriedDevices};
use super::programs::{Loading, ReadyProgram};
use super::refused::Refused;
use super::state::{Daemon, lock};

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
        let (done, tasks, kept) = {
            let mut daemon = lock(daemon);
            daemon.programs.set_ready(loaded);
            daemon.opened = opened;
            let done = change(&mut daemon);
            loaded = daemon.programs.take_ready();
            opened = std::mem::take(&mut daemon.opened);
            let kept = done.is_ok().then(|| daemon.keep_changes()).flatten();
            (done, daemon.take_tasks(), kept)
        };
        // Programs are compiled and started, and devices opened, without the lock. Then the change is tried again.
        match done {
            Err(Refused::Load(wanted)) => {
                loaded.retain(|ready| wanted.iter().all(|wanted| !ready.is_for(&wanted.switch)));
                loaded.append(&mut Loading::begin(wanted).all().await?);
            }
            // One change at a time opens devices: another one would find them busy. What is missing may be another thing after the wait.
            Err(Refused::Open(_)) if turn.is_none() => turn = Some(DEVICES.lock().await),
            Err(Refused::Open(wanted)) => opened.append(devices::open_all(wanted).await),
            mut done => {
                // Devices of a change that was refused are closed.
                drop(opened);
                settle(daemon, &tasks, unclosed).await;
                if let (Ok(steps), Some(kept)) = (&mut done, kept)
                    && let Some(why) = lock(daemon).unwritten_state(kept)
                {
                    steps.push(format!("warning: this is lost if the switch ends now: {why}"));
                }
                return done;
            }
        }
    }
    Err(Refused::Conflict(
        "ports or forwarding programs change faster than this change can be made: try again".to_owned(),
    ))
}

/// Configures the daemon. Returns the programs that take long to load: their switches forward nothing yet.
///
/// # Errors
/// Those of the change.
pub async fn start(daemon: &Mutex<Daemon>) -> Result<Loading, Refused> {
    let wanted = lock(daemon).wanted_at_start();
    let mut late: Vec<_> = wanted.iter().map(|wanted| (wanted.switch.clone(), wanted.keys.clone())).collect();
    let (mut loading, mut loaded) = (Loading::begin(wanted), Vec::new());
    let mut deadline = pin!(tokio::time::sleep(patience(LOADED_WITHIN)));
    loop {
        let next = tokio::select! {
            next = loading.next() => next,
            () = &mut deadline => None,
        };
        let Some(next) = next else { break };
        match next {
            Ok(ready) => {
                late.retain(|(switch, _)| switch != ready.switch());
                loaded.push(ready);
            }
            Err(why) => {
                late.retain(|(switch, _)| switch != why.switch());
                lock(daemon).note_missing_program(why);
            }
        }
    }
    for (switch, keys) in &late {
        tracing::warn!("switch {switch} forwards nothing yet: its program takes long to load");
        lock(daemon).programs.missing.begin(switch, keys);
    }
    let configured = change_with(daemon, loaded, Daemon::configure).await;
    if let Err(why) = configured {
        // What commands changed keeps the switch from starting in no case.
        if !lock(daemon).start_without_changes(&why.to_string()) {
            return Err(why);
        }
        change_with(daemon, Vec::new(), Daemon::configure).await?;
    }
    Ok(loading)
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
