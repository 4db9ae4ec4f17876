//! `ringway switch`: changes and lists switches while frames flow.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use ringway_api::types::SwitchStatus;
use ringway_commands::context::{Context, USAGE, complain, fail};
use ringway_commands::out::{self, Table};
use ringway_config::keys::{Name, Node, Value};
use ringway_config::{KeyScope, ProgramKeys};

use super::grants::grant;
use super::keys::{KeyValue, Operation, help};
use super::words;

/// Longest wait for an answer: a forwarding program may have to be loaded, on a busy machine, after those of other requests. The daemon bounds
/// it.
const LOAD_WITHIN: Duration = Duration::from_secs(600);

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
    /// Give a switch's forwarding program a message
    #[command(after_help = "Example:\n  ringway switch tell lan0 close")]
    Tell {
        /// NAME
        name: String,
        /// The message; its meaning is the program's own
        text: String,
    },
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
    match args.what {
        What::Set(Changed { name, keys }) => {
            let client = context.client().patience(LOAD_WITHIN);
            let ask = |name: &Name, keys: &Node| {
                let keys = with_absolute_paths(keys.clone()).to_json();
                grant(context, "switch", name.as_str(), &keys);
                client.set_switch(name, &keys)
            };
            words::change("switch set", KeyScope::Switch, &name, &keys, ask)
        }
        What::Tell { name, text } => tell(context, &name, &text),
        What::List { json } => match context.client().status() {
            Err(error) => fail("switch list", &error),
            Ok(status) if json => out::print_json(&status.switches),
            Ok(status) => out::print(&list(&status.switches)),
        },
    }
}

/// The forwarding function: a word, or the name of the program's file and its state if it does not run.
fn forwarding(switch: &SwitchStatus) -> String {
    let keys = &switch.settings;
    let Some(path) = keys.0.get("forwarding").and_then(|table| table.get("program")?.as_str()) else {
        return keys.text("forwarding").to_owned();
    };
    let file = Path::new(path).file_name().map_or(path.into(), |file| file.to_string_lossy());
    match &switch.program {
        Some(program) if program.state != "running" => format!("{file} ({})", program.state),
        _ => file.into_owned(),
    }
}

/// Gives a switch's program a message.
fn tell(context: &Context, name: &str, text: &str) -> ExitCode {
    let name: Name = match name.parse() {
        Ok(name) => name,
        Err(what) => {
            complain("switch tell", &what);
            return ExitCode::from(USAGE);
        }
    };
    match context.client().tell_program(&name, text) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => fail("switch tell", &error),
    }
}

/// A program's paths are relative to this folder, which the daemon does not know.
fn with_absolute_paths(mut keys: Node) -> Node {
    for (_, forwarding) in entries(&mut keys).filter(|(key, _)| *key == "forwarding") {
        for (_, node) in entries(forwarding).filter(|(key, _)| ProgramKeys::PATHS.contains(key)) {
            let Value::Text(path) = &mut node.value else { continue };
            if let Ok(absolute) = std::path::absolute(&path) {
                *path = absolute.display().to_string();
            }
        }
    }
    keys
}

/// The keys of a table with their values.
fn entries(table: &mut Node) -> impl Iterator<Item = (&str, &mut Node)> {
    let entries = match &mut table.value {
        Value::Table(entries) | Value::Part(entries) => entries.as_mut_slice(),
        _ => &mut [],
    };
    entries.iter_mut().map(|entry| (entry.key.as_str(), &mut entry.node))
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
            forwarding(switch),
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
