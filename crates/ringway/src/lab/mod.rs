//! The `ringway-lab` command: `ringway bench` and `ringway demo`.
//!
//! `ringway` executes this program with its own command line. It is a program of its own, so that an installed switch has
//! no part in plotting, experiments and virtual machines.
#![forbid(unsafe_code)]

mod bench;
mod demo;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ringway::global::Global;

/// Experiments and a demonstration of Ringway; run them as "ringway bench" and "ringway demo".
#[derive(Debug, Parser)]
#[command(version, long_version = env!("RINGWAY_VERSION"), arg_required_else_help = true)]
struct Command {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Bench(bench::Args),
    Demo(demo::Args),
}

fn main() -> ExitCode {
    let Command { global, what } = Command::parse();
    global.log_to_stderr();
    match what {
        What::Bench(args) => bench::run(args),
        What::Demo(args) => demo::run(args),
    }
}
