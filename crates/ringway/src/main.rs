//! The `ringway` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use ringway::command::Command;

fn main() -> ExitCode {
    Command::parse().run()
}
