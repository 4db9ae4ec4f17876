//! `ringway port`: adds, changes, lists and removes ports while frames flow.

use std::cell::RefCell;
use std::process::ExitCode;

use clap::Subcommand;
use ringway_control::api::types::{Done, PortStatus};
use ringway_control::client::ClientError;
use ringway_control::config::keys::Keys;
use ringway_control::config::{Mistake, PortKeys};
use ringway_control::daemon::PortRef;

use super::{Context, USAGE, complain, fail, words};
use crate::out::{self, Table};

/// Add, change, remove, enable or list ports
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ringway port add tap0 switch=lan0 kind=tap
  ringway port add vm1 switch=lan0 kind=vhost-user mac=52:54:00:00:00:01 weight=4
  ringway port set vm1 isolated=true call_interval=20us
  ringway port set vm1 'ingress={rate=\"1Gbit\",burst=\"64KiB\"}' 'egress={}'
  ringway port del lan0:vm1
  ringway port enable vm1
  ringway port list --json")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Add a port, or keep one that a client made by attaching
    #[command(after_help = KEYS)]
    Add {
        /// NAME, or SWITCH:NAME
        name: String,
        /// The port's keys
        #[arg(value_name = "KEY=VALUE", required = true)]
        keys: Vec<String>,
    },
    /// Change a port while frames flow
    #[command(after_help = KEYS)]
    Set {
        /// NAME, or SWITCH:NAME where several switches have one
        name: String,
        /// The keys to change
        #[arg(value_name = "KEY=VALUE", required = true)]
        keys: Vec<String>,
    },
    /// Remove a port; its client is told
    #[command(after_help = "Example:\n  ringway port del vm1")]
    Del {
        /// NAME, or SWITCH:NAME where several switches have one
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

const KEYS: &str = "Keys, as in [port.NAME] of the configuration:
  switch=NAME            the switch it is on
  kind=process|tap|vhost-user|e1000|stream   what it connects
  mac=[\"ADDRESS\",...]    bound addresses; one may stand alone: mac=52:54:00:00:00:01
  isolated=true|false    isolated ports do not reach each other
  ip=[\"ADDRESS\",...]     bound IP addresses and prefixes, like ip=10.0.0.5
  guard=auto|all|off     what may not be claimed: others' addresses (auto: where mac or ip are set), with all neither
                         to be a DHCP server or router; or a list of mac, ip, dhcp, ra
  uplink=true|false      whether the port leads out: to the host, a physical network
  uplinks=[\"NAME\",...]  the uplinks it may use, by default all
  allow=[\"NAME\",...]    the other ports it may reach, by default all; both sides must allow it; [] is uplinks only
  vlan=1..4094           the VLAN it is in, without tags; none: VLAN 1, once another port of its switch has one
  trunk=[10,\"20-29\"]    the VLANs it is in, with tags, or trunk=all
  native=1..4094         the VLAN of a trunk's frames without tags; by default, and with none, they are dropped
  weight=1..64           share of a poller's attention, and of a port or bucket that several fill
  ingress={rate=\"RATE\",...}   how much it may send; {}: as much as it can. Keys of the limit:
    rate      bits of frames (without FCS) a second, 8kbit to 400Gbit
    burst     bytes that may pass at once, like 64KiB; by default what passes in 10 ms
    frames    frames a second, like 1.5Mpps; frames_burst: how many may pass at once
    bucket    the [bucket.NAME] it shares with others; rate is then guaranteed, ceiling the most with what is lent
    on_excess drop (default), or wait: in the sender's ring
  egress={...}           how much it may be given, the same; each sender has its share by weight
  storm={broadcast=\"1kpps\",multicast=\"10Mbit\",unknown_unicast=\"1kpps\"}   how much it may send to many;
                         burst and frames_burst as above, for each class whose rate is one of bits, or of frames
  call_interval=TIME     least time between two calls, up to 1s, like 50us; by default none
  call_above=RATE        the rate of frames up to which there is none all the same, like 10kpps
  poller=NUMBER|any      the poller that serves it
  mirror=[\"PORT\",...]     ports of the switch that it is given copies of the frames of: a mirror, and nothing else
  mirror_direction=both|in|out   which of their frames: from their clients (in), to them (out), both (default)
  device=NAME            for a TAP: the device, by default called like the port
  netns=NAME|PATH        for a TAP: the network namespace the device is in
  socket=PATH            for a vhost-user, e1000 or stream port: by default NAME.sock, in the runtime directory
  role=server|client     for a vhost-user or stream port: who listens on the socket; server: the daemon (default)
  memory={size=\"2TiB\",mappings=512,holes=\"4GiB\"}   for a vhost-user or e1000 port: how much memory its front end may
                         give, in how many pieces, and how much of it that was never touched is made within an hour for
                         frames to the guest (for frames from it 1/64 of that); these are the defaults
  queues=1..8            for a vhost-user port: most queue pairs, by default 8
  mtu=68..65513          for a vhost-user port: the MTU the guest is told, and held to
  offload=true|false     for a vhost-user port: whether checksums and segmentation are offered (default)
  model=e1000|e1000e     for an e1000 port: the NIC, an Intel 82540EM (default) or 82574L; its address is the lowest of mac,
                         or else one made of the port's name
  link=up|down           for an e1000 port: whether the NIC's cable is plugged in
  registers=mapped|trapped   for an e1000 port: how the guest gets at its rings' registers (e1000e: mapped, e1000: trapped)
  csb=true|false         for an e1000 port: whether a driver is offered to do without registers (by default not)
  completion_delay=TIME  for an e1000 port: longest time until the guest is told that frames were sent, unless half its ring
                         waits for that; by default 2ms, 0s: at once

Example:
  ringway port add tap0 switch=lan0 kind=tap weight=2";

/// Runs the command.
pub fn run(args: Args, context: &Context) -> ExitCode {
    let client = context.client();
    match args.what {
        What::Add { name, keys } => change("port add", &name, &keys, |port, keys| client.add_port(port, keys)),
        What::Set { name, keys } => change("port set", &name, &keys, |port, keys| client.set_port(port, keys)),
        What::Del { name } => change("port del", &name, &[], |port, _| client.delete_port(port)),
        What::Enable { name } => change("port enable", &name, &[], |port, _| client.enable_port(port)),
        What::List { json } => match client.ports() {
            Err(error) => fail("port list", &error),
            Ok(ports) if json => out::print_json(&ports),
            Ok(ports) => out::print(&list(&ports)),
        },
    }
}

fn change(
    command: &str,
    name: &str,
    words: &[String],
    ask: impl FnOnce(&PortRef, &PortKeys) -> Result<Done, ClientError>,
) -> ExitCode {
    let port: PortRef = match name.parse() {
        Ok(port) => port,
        Err(what) => {
            complain(command, &what);
            return ExitCode::from(USAGE);
        }
    };
    words::end(command, read(words).map(|keys| ask(&port, &keys)))
}

/// Reads `KEY=VALUE` words, as far as that can be done without the daemon.
fn read(words: &[String]) -> Result<PortKeys, Vec<Mistake>> {
    let mistakes = RefCell::default();
    let table = words::read(words, &mistakes);
    let keys = Keys::new("", &table, None, &mistakes);
    let read = PortKeys::read(&keys);
    keys.finish();
    let mistakes = mistakes.into_inner();
    if mistakes.is_empty() { Ok(read) } else { Err(mistakes) }
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
            or_dash(end(port)),
            or_dash(first_of(&port.mac)),
        ]);
    }
    table.text()
}

/// The first two, and how many more there are: a port can have thousands.
fn first_of(addresses: &[String]) -> String {
    let (shown, more) = addresses.split_at(addresses.len().min(2));
    let shown = shown.join(" ");
    if more.is_empty() { shown } else { format!("{shown} and {} more", more.len()) }
}

/// What a port that has a device or socket is connected to.
fn end(port: &PortStatus) -> String {
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
