//! `ringway bench`.

use std::process::ExitCode;

use super::{Context, complain};

/// Run the experiments of the papers and their peers
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ringway bench")]
pub struct Args {}

/// Runs the command.
pub fn run(_args: Args, _context: &Context) -> ExitCode {
    complain("bench", "not in this build yet");
    ExitCode::FAILURE
}
