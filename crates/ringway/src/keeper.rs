//! The keeper: the process of `ringway run`. It starts the switch as this program once more, and another one when that dies.
#![deny(clippy::print_stdout, clippy::disallowed_methods)]

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use ringway_api::patience;
use ringway_daemon::log;
use ringway_daemon::serve::FLUSH_WITHIN;
use ringway_keeper::{Ended, Event, Options, run};

use crate::commands::run::{on_stderr, service_manager};

/// The name by which the program knows that it is the switch. Users do not start it.
const NAME: &str = "ringway-switch";
/// Longest time that a switch takes to end: it ends itself before.
const END_WITHIN: Duration = Duration::from_secs(12);

/// Returns true if a keeper started this process as its switch.
#[must_use]
pub fn is_switch() -> bool {
    std::env::args_os().next().is_some_and(|name| name == NAME)
}

/// The command of the switch. The program's file may have been replaced since it was started.
fn command() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(NAME).args(std::env::args_os().skip(1));
    // The service manager hears the keeper only. A watchdog is one for the switch, whatever its number.
    command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_PID");
    if sd_notify::watchdog_enabled().is_none() {
        command.env_remove("WATCHDOG_USEC");
    }
    command
}

/// Keeps a switch until it ends as it was told to, or cannot start.
pub fn keep() -> ExitCode {
    let ended = run(Options { command, end_within: patience(END_WITHIN) }, |event| match event {
        Event::Is(state) => service_manager::tell(state),
        Event::Died { how, pause } if pause.is_zero() => {
            tracing::error!("the switch died ({how}): another one is started");
        }
        Event::Died { how, pause } => {
            tracing::error!("the switch died ({how}): another one is started in {} ms", pause.as_millis());
        }
        Event::Again(after) => {
            tracing::warn!("another switch serves, {} ms after the end of the last", after.as_millis())
        }
    });
    let code = match ended {
        Ok(Ended { status }) => ExitCode::from(status),
        Err(why) => {
            on_stderr(&format!("cannot start the switch: {why}"));
            ExitCode::FAILURE
        }
    };
    log::flush(patience(FLUSH_WITHIN));
    code
}
