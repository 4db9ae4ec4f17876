//! `ringway reload`: the daemon reads its configuration file again.

use std::process::ExitCode;
use std::time::Duration;

use ringway_commands::context::Context;

use super::words;

/// Read the configuration file again, and change only what differs
///
/// Prints the changes. A file with mistakes changes nothing: they are printed, and the exit status is 2. SIGHUP does the same, and leaves the
/// answer in the log.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  ringway reload")]
pub struct Args {}

/// Longest wait for the answer: forwarding programs may have to be compiled.
const RELOAD_WITHIN: Duration = Duration::from_secs(300);

/// Runs the command.
pub fn run(_: &Args, context: &Context) -> ExitCode {
    words::print_result("reload", Ok(context.client().patience(RELOAD_WITHIN).reload()))
}
