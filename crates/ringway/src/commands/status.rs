//! `ringway status`: the running switches, ports and pollers, and their counters.

use std::process::ExitCode;

use ringway_api::types::{Death, Fault, PollerStatus, PortStatus, Status, SwitchStatus};
use ringway_commands::context::{Context, fail};
use ringway_commands::out::{self, Table, time};

/// Show ports, their counters and what was dropped, pollers and faults
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ringway status
  ringway status --json | jq '.ports[] | {name, drops}'")]
pub struct Args {
    /// JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Most faults that are shown to people.
const FAULTS_SHOWN: usize = 32;

/// Runs the command.
pub fn run(args: Args, context: &Context) -> ExitCode {
    match context.client().status() {
        Err(error) => fail("status", &error),
        Ok(status) if args.json => out::print_json(&status),
        Ok(status) => out::print(&text(&status)),
    }
}

fn text(status: &Status) -> String {
    let mut parts = Vec::new();
    if status.ports.is_empty() {
        parts.push("no ports\n".to_owned());
    } else {
        parts.push(ports(&status.ports));
    }
    let details = status.ports.iter().filter_map(|port| Some(format!("{}: {}\n", port.name, port.detail.as_ref()?)));
    let details: String = details.collect();
    if !details.is_empty() {
        parts.push(details);
    }
    parts.push(pollers(&status.pollers));
    if status.switches.iter().any(|switch| !switch.moves.is_empty()) {
        parts.push(moves(&status.switches));
    }
    if !status.faults.is_empty() {
        parts.push(faults(&status.faults));
    }
    if !status.warnings.is_empty() {
        parts.push(status.warnings.iter().map(|warning| format!("warning: {warning}\n")).collect());
    }
    if let Some(last) = &status.deaths.last {
        parts.push(deaths(status.deaths.count, last));
    }
    if status.log_lines_lost > 0 {
        parts.push(format!("{} lines of the log were lost\n", status.log_lines_lost));
    }
    parts.push(format!("ringway {}, up {}\n", status.version, time(status.uptime)));
    parts.join("\n")
}

fn ports(ports: &[PortStatus]) -> String {
    let headings = [
        "PORT",
        "SWITCH",
        "KIND",
        "STATE",
        "IN FRAMES",
        "IN BYTES",
        "OUT FRAMES",
        "OUT BYTES",
        "KICKS",
        "CALLS",
        "DROPS",
    ];
    let mut table = Table::new(&headings);
    for port in ports {
        let mut cells = vec![port.name.clone(), port.switch.clone(), port.kind.clone(), port.state.clone()];
        let counters =
            [port.input.frames, port.input.bytes, port.output.frames, port.output.bytes, port.kicks, port.calls];
        cells.extend(counters.map(|count| count.to_string()));
        cells.push(drops(port));
        table.row(cells);
    }
    table.text()
}

/// `receiver_full 12, runt 1`, most frequent first.
fn drops(port: &PortStatus) -> String {
    let mut drops: Vec<(&String, &u64)> = port.drops.iter().collect();
    drops.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let drops: Vec<String> = drops.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    if drops.is_empty() { "-".to_owned() } else { drops.join(", ") }
}

fn pollers(pollers: &[PollerStatus]) -> String {
    let mut table = Table::new(&["POLLER", "CORE", "BUSY", "FREE", "UTILISATION"]);
    for (number, poller) in pollers.iter().enumerate() {
        let total = poller.busy + poller.free;
        let share = if total > 0.0 { poller.busy / total } else { 0.0 };
        table.row(vec![
            number.to_string(),
            poller.core.map_or("any".to_owned(), |core| core.to_string()),
            format!("{:.1} s", poller.busy),
            format!("{:.1} s", poller.free),
            format!("{:.1} %", share * 100.0),
        ]);
    }
    table.text()
}

fn moves(switches: &[SwitchStatus]) -> String {
    let mut table = Table::new(&["MOVED", "SWITCH", "VLAN", "FROM", "TO", "TIMES", "HELD", "AGE", ""]);
    for (switch, moved) in switches.iter().flat_map(|switch| switch.moves.iter().map(move |moved| (switch, moved))) {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        table.row(vec![
            moved.mac.clone(),
            switch.name.clone(),
            or_dash(moved.vlan.map(|vlan| vlan.to_string())),
            or_dash(moved.from.clone()),
            or_dash(moved.to.clone()),
            moved.count.to_string(),
            moved.held.to_string(),
            time(moved.age),
            if moved.duplicate { "used twice, or a loop" } else { "" }.to_owned(),
        ]);
    }
    table.text()
}

fn deaths(count: u64, last: &Death) -> String {
    let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
    let blamed = match (&last.ports[..], last.certain) {
        ([], _) => String::new(),
        ([port], true) => format!(", of port {port}"),
        (ports, _) => format!(", of port {}", ports.join(" or ")),
    };
    format!("the switch has died {times} and gone on, last {} ago ({}){blamed}\n", time(last.age), last.cause)
}

fn faults(faults: &[Fault]) -> String {
    let mut table = Table::new(&["FAULT", "SWITCH", "AGE", "REASON"]);
    for fault in faults.iter().take(FAULTS_SHOWN) {
        table.row(vec![fault.port.clone(), fault.switch.clone(), time(fault.age), fault.detail.clone()]);
    }
    match faults.len().saturating_sub(FAULTS_SHOWN) {
        0 => table.text(),
        more => format!("{}and {more} earlier ones: see \"ringway status --json\"\n", table.text()),
    }
}
