//! `ringway lwep`: reliable messages between ports (`ringway-lwep`): a server, and what measures and sends to it.

mod bandwidth;
mod client;
mod files;
mod ping;
mod port;
mod report;
mod send;
mod serve;
mod services;
mod station;
mod writer;

use std::process::ExitCode;

use clap::Subcommand;

use super::r#gen::{GenError, stop_on_signals};
use crate::context::{Context, USAGE, complain};

/// Send messages between ports reliably, over Ethernet alone (LWEP)
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Example, with \"ringway run\" and \"ringway lwep serve lan0:b\" in other terminals:
  ringway lwep ping lan0:a --to lan0:b --count 1000"
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Serve(serve::Args),
    Ping(ping::Args),
    Bandwidth(bandwidth::Args),
    Send(send::Args),
}

/// Runs the command.
pub fn run(args: Args, context: &Context) -> ExitCode {
    // Before any port is attached: a signal may come as soon as others see the port.
    let (command, result) = match (args.what, stop_on_signals()) {
        (_, Err(trouble)) => ("lwep", Err(trouble)),
        (What::Serve(args), Ok(stop)) => ("lwep serve", serve::run(&args, context, &stop)),
        (What::Ping(args), Ok(stop)) => ("lwep ping", ping::run(&args, context, &stop)),
        (What::Bandwidth(args), Ok(stop)) => ("lwep bandwidth", bandwidth::run(&args, context, &stop)),
        (What::Send(args), Ok(stop)) => ("lwep send", send::run(&args, context, &stop)),
    };
    let (message, code) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(GenError::Usage(message)) => (message, ExitCode::from(USAGE)),
        Err(GenError::Failed(message)) => (message, ExitCode::FAILURE),
    };
    complain(command, &message);
    code
}
