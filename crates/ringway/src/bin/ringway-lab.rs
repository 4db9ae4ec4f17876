//! The `ringway-lab` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use ringway::lab::Command;

fn main() -> ExitCode {
    Command::parse().run()
}
