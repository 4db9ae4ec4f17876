//! `ringway capture`: frames of a port, as pcapng, while they flow.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use ringway_api::PortRef;
use ringway_api::capture::CaptureQuery;
use ringway_api::client::ClientError;
use ringway_commands::context::{Context, USAGE, complain, fail, refuse};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Capture a port's frames as pcapng, for Wireshark, tshark and tcpdump
///
/// Each frame has its direction (inbound: from the port's client) and its time in nanoseconds. A reader that is too slow loses
/// frames, never the switch: the file says how many, and where. To select frames, pass them through tcpdump.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ringway capture vm1 -w - | wireshark -k -i -
  ringway capture vm1 -w vm1.pcapng -c 1000 --drops
  ringway capture lan0:vm1 --direction in --snaplen 96 --duration 10s -w heads.pcapng
  ringway capture vm1 -w - | tcpdump -n -r - 'arp or icmp'")]
pub struct Args {
    /// NAME, or SWITCH:NAME where several switches have one
    port: String,
    /// File to write; -: stdout
    #[arg(short, long, value_name = "FILE|-", default_value = "-")]
    write: PathBuf,
    /// Most frames
    #[arg(short, long, value_name = "N")]
    count: Option<u64>,
    /// Longest time, like 10s
    #[arg(short, long, value_name = "TIME")]
    duration: Option<String>,
    /// Which way: in, from the port's client; out, to it
    #[arg(long, value_enum, default_value_t = Direction::Both)]
    direction: Direction,
    /// Most bytes of each frame [default: all]
    #[arg(short, long, value_name = "BYTES")]
    snaplen: Option<u32>,
    /// Capture also frames that were lost, with the reason as a comment
    #[arg(long)]
    drops: bool,
    /// Memory for what is not written yet, 256KiB to 1GiB [default: 16MiB]
    #[arg(long, value_name = "SIZE")]
    buffer: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Direction {
    Both,
    In,
    Out,
}

/// Runs the command.
pub fn run(args: Args, context: &Context) -> ExitCode {
    let port: PortRef = match args.port.parse() {
        Ok(port) => port,
        Err(what) => return refuse("capture", &what),
    };
    let to_stdout = args.write == Path::new("-");
    if to_stdout && io::stdout().is_terminal() {
        return refuse(
            "capture",
            "stdout is a terminal: write to a file with -w FILE, or pipe it into tcpdump or Wireshark",
        );
    }
    let query = CaptureQuery {
        snaplen: args.snaplen,
        count: args.count,
        duration: args.duration,
        direction: Some(
            args.direction.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned()),
        ),
        drops: Some(args.drops),
        buffer: args.buffer,
    };
    if let Err(mistakes) = query.read() {
        for mistake in mistakes {
            complain("capture", &format!("--{}: {}", mistake.key, mistake.what));
        }
        return ExitCode::from(USAGE);
    }
    let stop = match stop_on_signals() {
        Ok(stop) => stop,
        Err(error) => {
            complain("capture", &format!("cannot catch signals: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let open = || -> Result<Box<dyn Write>, String> {
        eprintln!("ringway capture: capturing {port}");
        if to_stdout {
            return Ok(Box::new(io::stdout()));
        }
        let file = File::create(&args.write).map_err(|error| format!("{}: {error}", args.write.display()))?;
        Ok(Box::new(file))
    };
    match context.client().capture(&port, &query, open, || stop.load(Ordering::Relaxed)) {
        Err(error @ ClientError::Broken { .. }) => {
            complain("capture", &format!("{error}; what was captured before is in the file"));
            ExitCode::FAILURE
        }
        Err(error) => fail("capture", &error),
        Ok(captured) if captured.reader_gone => ExitCode::SUCCESS,
        Ok(captured) => {
            let lost = match captured.lost {
                0 => String::new(),
                lost => format!(", {lost} lost: they were not written fast enough"),
            };
            eprintln!("ringway capture: {} frames captured{lost}", captured.frames);
            ExitCode::SUCCESS
        }
    }
}

/// Returns a flag that SIGINT, SIGTERM and SIGHUP set. The second such signal ends the process, which may be blocked by a reader.
pub fn stop_on_signals() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // A signal that comes before all is registered must not be lost.
        let meanwhile = signal_hook::flag::register(signal, Arc::clone(&stop))?;
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
        signal_hook::low_level::unregister(meanwhile);
    }
    Ok(stop)
}
