//! `ringway switch`: changes and lists switches while frames flow.

use std::process::ExitCode;

use clap::Subcommand;
use ringway_control::api::types::SwitchStatus;
use ringway_control::config::KeyScope;

use super::keys::{KeyValue, Operation, help};
use super::words;
use crate::context::{Context, fail};
use crate::out::{self, Table};

/// Change or list switches
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ringway switch set lan0 local=drop transit=drop
  ringway switch set lan0 multicast=port:router
  ringway switch list")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

// The help of a command with keys is more than half of the work of a start: it is made for the command that is meant.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum What {
    /// Change a switch while frames flow
    Set(Changed),
    /// List switches and their settings
    #[command(after_help = "Example:\n  ringway switch list")]
    List {
        /// JSON, for programs
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
#[command(after_help = help(KeyScope::Switch, Operation::Update, "ringway switch set lan0 unknown_unicast=drop"))]
struct Changed {
    /// NAME
    name: String,
    /// The keys to change
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = KeyValue(KeyScope::Switch, Operation::Update), hide_possible_values = true)]
    keys: Vec<String>,
}

/// Runs the command.
pub fn run(args: Args, context: &Context) -> ExitCode {
    let client = context.client();
    match args.what {
        What::Set(Changed { name, keys }) => {
            words::change("switch set", KeyScope::Switch, &name, &keys, |name, keys| client.set_switch(name, keys))
        }
        What::List { json } => match client.status() {
            Err(error) => fail("switch list", &error),
            Ok(status) if json => out::print_json(&status.switches),
            Ok(status) => out::print(&list(&status.switches)),
        },
    }
}

fn list(switches: &[SwitchStatus]) -> String {
    let headings =
        ["SWITCH", "FORWARDING", "PORTS", "AGEING", "MOVED", "BROADCAST", "MULTICAST", "UNKNOWN UNICAST", "DROPPED"];
    let mut table = Table::new(&headings);
    for switch in switches {
        let keys = &switch.settings;
        let said = |key: &str| keys.text(key).to_owned();
        let rules = ["local", "outbound", "inbound", "transit"];
        let dropped: Vec<&str> = rules.into_iter().filter(|rule| keys.text(rule) == "drop").collect();
        table.row(vec![
            switch.name.clone(),
            said("forwarding"),
            switch.ports.to_string(),
            said("ageing"),
            switch.moved.to_string(),
            said("broadcast"),
            said("multicast"),
            said("unknown_unicast"),
            if dropped.is_empty() { "-".to_owned() } else { dropped.join(" ") },
        ]);
    }
    table.text()
}
