//! `ringway switch`: changes and lists switches while frames flow.

use std::process::ExitCode;

use clap::Subcommand;

use ringway_control::api::types::SwitchStatus;

use super::{Context, fail, words};
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

#[derive(Debug, Subcommand)]
enum What {
    /// Change a switch while frames flow
    #[command(after_help = "Keys, as in [switch.NAME] of the configuration; what is left out stays as it is:
  local=allow|drop       frames between addresses that are bound to ports
  outbound=allow|drop    frames from a bound address to one that is not
  inbound=allow|drop     frames from an address that is not bound to one that is
  transit=allow|drop     frames between addresses that are not bound
  broadcast=flood|drop|port:NAME   where frames to everybody go; multicast: frames to groups;
  unknown_unicast=...    frames to a station whose port is not known
  ageing=TIME            addresses are forgotten when nothing came from them for so long, in whole seconds; 0s: never
  forwarding=learning|map   how destinations are found; with another, the switch learns anew, as with
  mac_entries=64..1048576   another size of the MAC table, a power of two
  mac_limit=NUMBER       most addresses learned behind one port

Example:
  ringway switch set lan0 unknown_unicast=drop")]
    Set {
        /// NAME
        name: String,
        /// The keys to change
        #[arg(value_name = "KEY=VALUE", required = true)]
        keys: Vec<String>,
    },
    /// List switches and their settings
    #[command(after_help = "Example:\n  ringway switch list")]
    List {
        /// JSON, for programs
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command.
pub fn run(args: Args, context: &Context) -> ExitCode {
    let client = context.client();
    match args.what {
        What::Set { name, keys } => {
            words::change("switch set", &name, &keys, |name, keys| client.set_switch(name, keys))
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
        let said = |key: &Option<String>| key.clone().unwrap_or_default();
        let rules = [
            ("local", &keys.local),
            ("outbound", &keys.outbound),
            ("inbound", &keys.inbound),
            ("transit", &keys.transit),
        ];
        let dropped: Vec<&str> =
            rules.iter().filter(|(_, rule)| rule.as_deref() == Some("drop")).map(|(name, _)| *name).collect();
        table.row(vec![
            switch.name.clone(),
            said(&keys.forwarding),
            switch.ports.to_string(),
            said(&keys.ageing),
            switch.moved.to_string(),
            said(&keys.broadcast),
            said(&keys.multicast),
            said(&keys.unknown_unicast),
            if dropped.is_empty() { "-".to_owned() } else { dropped.join(" ") },
        ]);
    }
    table.text()
}
