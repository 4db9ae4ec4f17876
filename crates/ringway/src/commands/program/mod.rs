//! `ringway program`: makes forwarding programs, checks them, and shows what they do with the frames of a capture.

#[cfg(feature = "programs")]
mod check;
mod new;
#[cfg(feature = "programs")]
mod report;
#[cfg(feature = "programs")]
mod run;

use std::process::ExitCode;

use clap::Subcommand;

/// Make and try forwarding programs
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Example:
  ringway program new acl"
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    New(new::Args),
    #[cfg(feature = "programs")]
    Check(check::Args),
    #[cfg(feature = "programs")]
    Run(run::Args),
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    match args.what {
        What::New(args) => new::run(&args),
        #[cfg(feature = "programs")]
        What::Check(args) => check::run(&args),
        #[cfg(feature = "programs")]
        What::Run(args) => run::run(&args),
    }
}
