//! `ringway bucket`: limits that ports have together come, change and go while frames flow.

use std::process::ExitCode;

use clap::Subcommand;

use super::{Context, words};

/// Set or remove limits that ports have together
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ringway bucket set tenant rate=2Gbit
  ringway port set vm1 'ingress={bucket=\"tenant\",rate=\"500Mbit\"}'
  ringway bucket del tenant
What there is, and how full: ringway top, ringway status --json")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make a bucket, or give it other settings while its ports send
    #[command(after_help = "Keys, as in [bucket.NAME] of the configuration; what is left out is the default again:
  rate=RATE              bits of frames (without FCS) a second that its ports have together, 8kbit to 400Gbit
  burst=SIZE             bytes that may pass at once, like 64KiB; by default what passes in 10 ms
  frames=RATE            frames a second, like 1.5Mpps; by default as many as there are
  frames_burst=NUMBER    how many frames may pass at once

Example:
  ringway bucket set tenant rate=2Gbit burst=1MiB")]
    Set {
        /// NAME
        name: String,
        /// All of the bucket's keys
        #[arg(value_name = "KEY=VALUE", required = true)]
        keys: Vec<String>,
    },
    /// Remove a bucket that no port has
    #[command(after_help = "Example:\n  ringway bucket del tenant")]
    Del {
        /// NAME
        name: String,
    },
}

/// Runs the command.
pub fn run(args: Args, context: &Context) -> ExitCode {
    let client = context.client();
    match args.what {
        What::Set { name, keys } => {
            words::change("bucket set", &name, &keys, |name, keys| client.set_bucket(name, keys))
        }
        What::Del { name } => words::change("bucket del", &name, &[], |name, _| client.delete_bucket(name)),
    }
}
