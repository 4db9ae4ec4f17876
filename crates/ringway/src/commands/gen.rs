//! `ringway gen`.

use std::process::ExitCode;

use super::{Context, complain};

/// Send, receive and check synthetic or recorded traffic
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ringway gen")]
pub struct Args {}

/// Runs the command.
pub fn run(_args: Args, _context: &Context) -> ExitCode {
    complain("gen", "not in this build yet");
    ExitCode::FAILURE
}
