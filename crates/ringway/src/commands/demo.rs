//! `ringway demo`.

use std::process::ExitCode;

use super::{Context, complain};

/// Show a switch at work: namespaces, ping, iperf3 and process ports
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ringway demo")]
pub struct Args {}

/// Runs the command.
pub fn run(_args: Args, _context: &Context) -> ExitCode {
    complain("demo", "not in this build yet");
    ExitCode::FAILURE
}
