//! `ringway fdb`: the addresses that switches know.

use std::process::ExitCode;

use ringway_api::types::FdbEntry;
use ringway_commands::context::{Context, USAGE, complain, fail};
use ringway_commands::out::{self, Table};
use ringway_config::Name;

/// Show which addresses are behind which ports
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ringway fdb
  ringway fdb lan0 --json")]
pub struct Args {
    /// Only this switch
    switch: Option<String>,
    /// JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args, context: &Context) -> ExitCode {
    let switch: Option<Name> = match args.switch.map(|name| name.parse()).transpose() {
        Ok(switch) => switch,
        Err(what) => {
            complain("fdb", &what);
            return ExitCode::from(USAGE);
        }
    };
    match context.client().fdb(switch.as_ref()) {
        Err(error) => fail("fdb", &error),
        Ok(entries) if args.json => out::print_json(&entries),
        Ok(entries) => out::print(&text(&entries)),
    }
}

fn text(entries: &[FdbEntry]) -> String {
    let mut table = Table::new(&["SWITCH", "VLAN", "MAC", "PORT", "AGE"]);
    for entry in entries {
        let age = entry.age.map_or("bound".to_owned(), |age| format!("{age:.0} s"));
        let vlan = entry.vlan.map_or("-".to_owned(), |vlan| vlan.to_string());
        table.row(vec![entry.switch.clone(), vlan, entry.mac.clone(), entry.port.clone(), age]);
    }
    table.text()
}
