//! The closer: this program, started by `ringway run` as a process that closes what clients can keep from being closed.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The name by which the program knows that it is the closer. Users do not start it.
const NAME: &str = "ringway-closer";

/// The command of the closer. The program's file may have been replaced since it was started.
#[must_use]
pub fn command() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(NAME).env_clear();
    command
}

/// Runs the closer if this process was started as one.
#[must_use]
pub fn run_if_started() -> Option<ExitCode> {
    (std::env::args_os().next()? == NAME).then(|| {
        ringway_daemon::serve::run_closer();
        ExitCode::SUCCESS
    })
}
