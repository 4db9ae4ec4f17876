//! `ringway port`: adds, changes, lists and removes ports while frames flow.

use std::process::ExitCode;

use clap::Subcommand;
use ringway_api::types::PortStatus;
use ringway_commands::context::{Context, fail};
use ringway_commands::out::{self, Table};
use ringway_config::KeyScope;

use super::grants::grant;
use super::keys::{KeyValue, Operation, help};
use super::words;

/// Add, change, remove, enable or list ports
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ringway port add tap0 switch=lan0 kind=tap
  ringway port add vm1 switch=lan0 kind=vhost-user mac=52:54:00:00:00:01 weight=4
  ringway port set vm1 isolated=true call_interval=20us
  ringway port set vm1 ingress.rate=1Gbit ingress.burst=64KiB
  ringway port set vm1 'ingress={rate=\"1Gbit\",burst=\"64KiB\"}' 'egress={}'
  ringway port del lan0:vm1
  ringway port enable vm1
  ringway port list --json")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

// The help of a command with keys is more than half of the work of a start: it is made for the command that is meant.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum What {
    /// Add a port, or keep one that a client made by attaching
    Add(Added),
    /// Change a port while frames flow
    Set(Changed),
    /// Remove a port; its client is told
    #[command(after_help = "Example:\n  ringway port del vm1")]
    Del {
        /// NAME, or SWITCH:NAME where several switches have one; NAME{ID or NAME}ID closes an end of a netmap pipe
        name: String,
    },
    /// Enable a port that is disabled, as Ringway failed twice within a minute when it served it, or end its pause
    #[command(after_help = "Example:\n  ringway port enable vm1")]
    Enable {
        /// NAME, or SWITCH:NAME where several switches have one
        name: String,
    },
    /// List ports
    #[command(after_help = "Example:\n  ringway port list")]
    List {
        /// JSON, for programs
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
#[command(after_help = help(KeyScope::Port, Operation::Create, "ringway port add tap0 switch=lan0 kind=tap weight=2"))]
struct Added {
    /// NAME, or SWITCH:NAME
    name: String,
    /// The port's keys
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = KeyValue(KeyScope::Port, Operation::Create), hide_possible_values = true)]
    keys: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help(KeyScope::Port, Operation::Update, "ringway port set vm1 ingress.rate=2Gbit weight=2"))]
struct Changed {
    /// NAME, or SWITCH:NAME where several switches have one
    name: String,
    /// The keys to change
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = KeyValue(KeyScope::Port, Operation::Update), hide_possible_values = true)]
    keys: Vec<String>,
}

/// Runs the command.
pub fn run(args: Args, context: &Context) -> ExitCode {
    let client = context.client();
    let scope = KeyScope::Port;
    match args.what {
        What::Add(Added { name, keys }) => words::change("port add", scope, &name, &keys, |port, keys| {
            let keys = keys.to_json();
            grant(context, "port", name.rsplit_once(':').map_or(&*name, |(_, name)| name), &keys);
            client.add_port(port, &keys)
        }),
        What::Set(Changed { name, keys }) => {
            words::change("port set", scope, &name, &keys, |port, keys| client.set_port(port, &keys.to_json()))
        }
        What::Del { name } => words::change_without_keys("port del", &name, |port| client.delete_port(port)),
        What::Enable { name } => words::change_without_keys("port enable", &name, |port| client.enable_port(port)),
        What::List { json } => match client.ports() {
            Err(error) => fail("port list", &error),
            Ok(ports) if json => out::print_json(&ports),
            Ok(ports) => out::print(&list(&ports)),
        },
    }
}

fn list(ports: &[PortStatus]) -> String {
    let mut table = Table::new(&["PORT", "SWITCH", "KIND", "STATE", "WEIGHT", "ISOLATED", "DEVICE/SOCKET", "MAC"]);
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    for port in ports {
        table.row(vec![
            port.name.clone(),
            port.switch.clone(),
            port.kind.clone(),
            port.state.clone(),
            port.weight.to_string(),
            if port.isolated { "yes" } else { "no" }.to_owned(),
            or_dash(device_or_socket(port)),
            or_dash(first_of(&port.mac)),
        ]);
    }
    table.text()
}

/// Returns the first two addresses and the number of others: a port can have thousands.
fn first_of(addresses: &[String]) -> String {
    let (shown, more) = addresses.split_at(addresses.len().min(2));
    let shown = shown.join(" ");
    if more.is_empty() { shown } else { format!("{shown} and {} more", more.len()) }
}

/// Returns the device or socket of a port.
fn device_or_socket(port: &PortStatus) -> String {
    let of_nic = port.e1000.as_ref().map(|nic| format!("{} ({})", nic.socket, nic.model));
    let of_vhost_user =
        port.vhost_user.as_ref().map(|vhost_user| format!("{} ({})", vhost_user.socket, vhost_user.role));
    let of_stream = port.stream.as_ref().map(|stream| format!("{} ({})", stream.socket, stream.role));
    port.device.clone().or(of_nic).or(of_vhost_user).or(of_stream).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_with_thousands_of_addresses_is_listed_by_the_first_two() {
        let mac = |number: u16| format!("02:00:00:00:{:02x}:{:02x}", number >> 8, number & 0xff);
        let port = |count| PortStatus { name: "p".into(), mac: (0..count).map(mac).collect(), ..PortStatus::default() };
        let text = list(&[port(0), port(2), port(4096)]);
        let [_, none, two, many] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        assert!(none.ends_with("  -") && two.ends_with("  02:00:00:00:00:00 02:00:00:00:00:01"), "{text}");
        assert!(many.ends_with("  02:00:00:00:00:00 02:00:00:00:00:01 and 4094 more"), "{text}");
    }
}
