//! `ringway switch`: a switch changes while frames flow.

use std::process::ExitCode;

use clap::Subcommand;

use super::{Context, words};

/// Change switches
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ringway switch set lan0 local=drop transit=drop
  ringway switch set lan0 multicast=port:router
What is set: ringway status --json")]
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
  ageing=TIME            addresses are forgotten when nothing came from them for so long; 0s: never
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
}

/// Runs the command.
pub fn run(args: Args, context: &Context) -> ExitCode {
    let client = context.client();
    let What::Set { name, keys } = args.what;
    words::change("switch set", &name, &keys, |name, keys| client.set_switch(name, keys))
}
