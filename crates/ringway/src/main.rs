//! The `ringway` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use ringway::command::Command;

fn main() -> ExitCode {
    ringway::closer::run_if_started().unwrap_or_else(|| Command::of(std::env::args_os()).run())
}
