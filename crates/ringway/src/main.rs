//! The `ringway` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use ringway::command::Command;

fn main() -> ExitCode {
    Command::of(std::env::args_os()).run()
}
