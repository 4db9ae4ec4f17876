//! `ringway gen`: makes, sends, receives and checks traffic on process ports and, as a driver, on virtual machines' ports.

mod address;
mod attached;
mod check;
mod e1000;
mod frames;
mod r#loop;
mod once;
pub mod parse;
mod pci;
mod ping;
mod pong;
mod port;
mod report;
mod rx;
mod supervise;
mod tx;
mod virtio;

use std::process::ExitCode;

use clap::Subcommand;

use crate::context::{Context, USAGE, complain};

pub use address::{Destination, address_of, destination};
#[cfg(feature = "demo")]
pub use check::Check;
#[cfg(feature = "demo")]
pub use r#loop::{Loop, LoopReport, Traffic};
pub use port::stay_on;
pub use report::GenError;
pub use supervise::{Stop, stop_on_signals};

/// Send, receive and check synthetic or recorded traffic
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Every form ends at --count, --duration or Ctrl-C, tells how it stands once a second when stderr is a terminal,
and reports on stdout.

Example, with \"ringway run\" in another terminal:
  ringway gen loop lan0:a lan0:b --duration 5s"
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Tx(tx::Args),
    Rx(rx::Args),
    Ping(ping::Args),
    Pong(pong::Args),
    Loop(r#loop::Args),
}

/// Runs the command.
pub fn run(args: Args, context: &Context) -> ExitCode {
    // Before any port is attached: a signal may come as soon as others see the port.
    let (command, result) = match (args.what, stop_on_signals()) {
        (_, Err(trouble)) => ("gen", Err(trouble)),
        (What::Tx(args), Ok(stop)) => ("gen tx", tx::run(args, context, &stop)),
        (What::Rx(args), Ok(stop)) => ("gen rx", rx::run(args, context, &stop)),
        (What::Ping(args), Ok(stop)) => ("gen ping", ping::run(args, context, &stop)),
        (What::Pong(args), Ok(stop)) => ("gen pong", pong::run(args, context, &stop)),
        (What::Loop(args), Ok(stop)) => ("gen loop", r#loop::run(args, context, &stop)),
    };
    let (message, code) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(GenError::Usage(message)) => (message, ExitCode::from(USAGE)),
        Err(GenError::Failed(message)) => (message, ExitCode::FAILURE),
    };
    complain(command, &message);
    code
}
