//! `ringway top`: rates of the ports, as they change.

mod order;
mod rates;
mod screen;
mod view;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use order::{Column, Order};
use rates::Rates;
use ringway_api::PortRef;
use ringway_api::types::Status;
use ringway_api::units;
use ringway_commands::context::{Context, USAGE, complain, fail};
use ringway_commands::out::{self, Table};
use screen::INTERVALS;

/// Show rates per port, drops by reason, the use of pollers and how full buckets are, as they change
#[derive(Debug, clap::Args)]
#[command(after_help = "Keys:
  left, right   sort by another column      r        reverse the order
  up, down      choose a port               space    stand still, and go on
  +, -          look less, more often       q        quit

Examples:
  ringway top
  ringway top --sort drops --interval 5s
  ringway top --batch -n 10 > rates.txt
  ringway top --once --json | jq '.ports[] | {name, drops}'")]
pub struct Args {
    /// Time between two readings, 50ms to 1h
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Column to sort by
    #[arg(short, long, value_enum, default_value_t = Column::In)]
    sort: Column,
    /// Only this port; may be given again. NAME, or SWITCH:NAME
    #[arg(short, long, value_name = "PORT", value_parser = |text: &str| text.parse::<PortRef>())]
    port: Vec<PortRef>,
    /// Tables of text one after the other, for files and pipes
    #[arg(short, long)]
    batch: bool,
    /// Tables or lines until it ends [default: no limit]
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    /// One table: --batch --count 1
    #[arg(long, conflicts_with = "count")]
    once: bool,
    /// A line of JSON for each table, for programs
    #[arg(long)]
    json: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let time = units::duration(text)?;
    let fits = (INTERVALS.0..=INTERVALS.1).contains(&time);
    fits.then_some(time).ok_or_else(|| format!("{text} is out of range; write 50ms to 1h"))
}

/// Runs the command.
pub fn run(args: Args, context: &Context) -> ExitCode {
    let before = match context.client().status() {
        Ok(status) => status,
        Err(error) => return fail("top", &error),
    };
    let order = Order::new(args.sort);
    if args.batch || args.once || args.json {
        return batch(&args, context, order, before);
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        complain("top", "there is no terminal: --batch, --once and --json write to a file or pipe");
        return ExitCode::from(USAGE);
    }
    if let Some(count) = args.count {
        complain("top", &format!("--count {count} is for --batch and --json"));
        return ExitCode::from(USAGE);
    }
    match screen::show(context.client(), args.interval, order, args.port, before) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain("top", &error);
            ExitCode::FAILURE
        }
    }
}

/// Writes tables or lines at equal intervals.
fn batch(args: &Args, context: &Context, order: Order, mut before: Status) -> ExitCode {
    let count = if args.once { Some(1) } else { args.count };
    let (client, mut next) = (context.client(), Instant::now());
    for number in 0.. {
        if count.is_some_and(|count| number >= count) {
            break;
        }
        next += args.interval;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let now = match client.status() {
            Ok(status) => status,
            Err(error) => return fail("top", &error),
        };
        let mut rates = Rates::between(&before, &now, &args.port);
        order.sort(&mut rates.ports);
        let gone = if args.json {
            out::write_json(&rates)
        } else {
            let space = if number > 0 { "\n" } else { "" };
            out::write(&format!("{space}{}", text(&rates, &args.port)))
        };
        match gone {
            Ok(true) => {}
            Ok(false) => return ExitCode::SUCCESS,
            Err(error) => {
                complain("top", &format!("cannot write to stdout: {error}"));
                return ExitCode::FAILURE;
            }
        }
        before = now;
    }
    ExitCode::SUCCESS
}

fn text(rates: &Rates, only: &[PortRef]) -> String {
    let mut text = format!("{}\n", view::summary(rates));
    for poller in &rates.pollers {
        text.push_str(&format!("{}\n", view::poller(poller)));
    }
    for bucket in &rates.buckets {
        text.push_str(&format!("{}\n", view::bucket(bucket)));
    }
    if rates.ports.is_empty() {
        let named: Vec<String> = only.iter().map(|port| format!(" \"{port}\"")).collect();
        return if named.is_empty() {
            text + "no ports\n"
        } else {
            text + "there is no port" + &named.join(",") + "\n"
        };
    }
    let mut table = Table::new(&Column::ALL.map(Column::heading));
    for port in &rates.ports {
        table.row(Column::ALL.map(|column| column.cell(port)).to_vec());
    }
    text + &table.text()
}
