//! `ringway bucket`: adds, changes and removes shared limits while frames flow.

use std::process::ExitCode;

use clap::Subcommand;
use ringway_api::limits::BucketStatus;
use ringway_commands::context::{Context, fail};
use ringway_commands::out::{self, Table};
use ringway_config::KeyScope;

use super::keys::{KeyValue, Operation, help};
use super::words;

/// Set, remove or list limits that ports have together
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ringway bucket set tenant rate=2Gbit
  ringway port set vm1 ingress.bucket=tenant ingress.rate=500Mbit
  ringway bucket del tenant
  ringway bucket list")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

// The help of a command with keys is more than half of the work of a start: it is made for the command that is meant.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum What {
    /// Make a bucket, or give it other settings while its ports send
    Set(Changed),
    /// Remove a bucket that no port has
    #[command(after_help = "Example:\n  ringway bucket del tenant")]
    Del {
        /// NAME
        name: String,
    },
    /// List buckets: what they give, how full they are, and what came of them
    #[command(after_help = "Example:\n  ringway bucket list")]
    List {
        /// JSON, for programs
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
#[command(after_help = help(KeyScope::Bucket, Operation::Create, "ringway bucket set tenant rate=2Gbit burst=1MiB"))]
struct Changed {
    /// NAME
    name: String,
    /// All of the bucket's keys
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = KeyValue(KeyScope::Bucket, Operation::Create), hide_possible_values = true)]
    keys: Vec<String>,
}

/// Runs the command.
pub fn run(args: Args, context: &Context) -> ExitCode {
    let client = context.client();
    match args.what {
        What::Set(Changed { name, keys }) => {
            words::change("bucket set", KeyScope::Bucket, &name, &keys, |name, keys| {
                client.set_bucket(name, &keys.to_json())
            })
        }
        What::Del { name } => words::change_without_keys("bucket del", &name, |name| client.delete_bucket(name)),
        What::List { json } => match client.status() {
            Err(error) => fail("bucket list", &error),
            Ok(status) if json => out::print_json(&status.buckets),
            Ok(status) => out::print(&list(&status.buckets)),
        },
    }
}

fn list(buckets: &[BucketStatus]) -> String {
    let mut table = Table::new(&["BUCKET", "RATE", "BURST", "FRAMES", "PORTS", "FILL", "PASSED", "REFUSED"]);
    for bucket in buckets {
        // The emptier of both limits decides.
        let fill = bucket.fill.into_iter().chain(bucket.frames_fill).reduce(f64::min);
        table.row(vec![
            bucket.name.clone(),
            bucket.rate.clone(),
            bucket.burst.clone(),
            bucket.frames.clone().unwrap_or_else(|| "-".to_owned()),
            bucket.ports.to_string(),
            fill.map_or_else(|| "-".to_owned(), |fill| format!("{:.0}%", fill * 100.0)),
            bucket.tally.passed.frames.to_string(),
            bucket.tally.refused.all().to_string(),
        ]);
    }
    table.text()
}
