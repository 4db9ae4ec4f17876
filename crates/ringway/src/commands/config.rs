//! `ringway config`: the running configuration, and what commands changed of the file.

use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use ringway_commands::context::{Context, fail};
use ringway_commands::out;

use super::words;

/// Print the running configuration as TOML, with marks where commands changed it
///
/// What commands change (port add, set and del, bucket, switch set) stays when the switch ends or is killed, and is there again
/// after the next start, unless the configuration file was edited at the same place. A file that is replaced by this output says what
/// runs now. The section [state] of the file says where the changes are kept, and what holds where the file contradicts them.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  ringway config
  ringway config --changes                 # only the sections that commands changed
  ringway config > new.toml && mv new.toml ringway.toml   # the file then has what commands changed
  ringway config reset                     # the running configuration is that of the file again"
)]
pub struct Args {
    /// Only the sections that commands changed, each whole
    #[arg(long)]
    changes: bool,
    /// JSON, for programs: the texts, and each change
    #[arg(long, conflicts_with = "changes")]
    json: bool,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Drop what commands changed, so that the file alone holds
    ///
    /// The file counts as it was read last. Ports that the file has as they are go on without a pause.
    #[command(after_help = "Example:\n  ringway config reset")]
    Reset,
}

/// Longest wait for the answer of a reset: forwarding programs may have to be compiled.
const RESET_WITHIN: Duration = Duration::from_secs(300);

/// Runs the command.
pub fn run(args: &Args, context: &Context) -> ExitCode {
    let client = context.client();
    match args.what {
        Some(What::Reset) => words::print_result("config reset", Ok(client.patience(RESET_WITHIN).reset_config())),
        None => match client.config() {
            Err(error) => fail("config", &error),
            Ok(config) if args.json => out::print_json(&config),
            Ok(config) if args.changes => out::print(&config.changed),
            Ok(config) => out::print(&config.running),
        },
    }
}
