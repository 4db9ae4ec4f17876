//! The laboratory: `ringway bench` (feature `lab`) and `ringway demo` (feature `demo`), run by the program `ringway-lab`.
//!
//! `ringway` executes that program with its own command line. It is a program of its own, so that an installed switch has no part in
//! plotting, experiments and virtual machines.

#[cfg(feature = "lab")]
mod bench;
#[cfg(not(feature = "lab"))]
#[path = "no_bench.rs"]
mod bench;
mod demo;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::global::Global;

/// Experiments and a demonstration of Ringway; run them as "ringway bench" and "ringway demo".
#[derive(Debug, Parser)]
#[command(version, long_version = env!("RINGWAY_VERSION"), arg_required_else_help = true)]
pub struct Command {
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

impl Command {
    /// Runs the subcommand.
    #[must_use]
    pub fn run(self) -> ExitCode {
        self.global.log_to_stderr(false);
        match self.what {
            What::Bench(args) => bench::run(args),
            What::Demo(args) => demo::run(args),
        }
    }
}
