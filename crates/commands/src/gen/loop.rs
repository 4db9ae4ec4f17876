//! `ringway gen loop`: source and sink of two ports in one thread.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use ringway_api::patience;
use ringway_traffic::report::StationReport;
use ringway_traffic::{
    CheckReport, Ended, Fill as PumpFill, FrameSpec, Frames, Mac, Origin, ProcessEndpoint, Pump, PumpOptions, Station,
    Throughput, Watch,
};
use serde::Serialize;

use super::attached::{AnyPort, Attached};
use super::check::Check;
use super::frames;
#[cfg(feature = "demo")]
use super::port;
use super::port::PortArgs;
use super::report::{Driver, GenError, report};
use super::supervise::{Stop, supervised};
use super::tx::Fill;
use super::{address, parse};
use crate::context::Context;

/// Time within which a first frame must cross the switch, unless the caller is more patient.
const INTRODUCED: Duration = Duration::from_secs(2);
/// Interval at which the first frame is sent again.
const INTRODUCE_AGAIN: Duration = Duration::from_millis(200);
/// Time without a frame, after the last one was sent, after which no more are expected.
const QUIET: Duration = Duration::from_millis(100);
/// Time without a frame after which no more are expected while frames are missing, unless the caller is more patient.
const REALLY_QUIET: Duration = Duration::from_secs(1);

/// Send from one port and receive at another in one thread, as fast as can be
#[derive(Debug, clap::Args)]
#[command(after_help = "Exits with status 1 when a frame came late, twice or corrupted.

Examples, with \"ringway run\" in another terminal:
  ringway gen loop lan0:a lan0:b --duration 5s
  ringway gen loop lan0:a lan0:b --both --size 1514 --check full --duration 5s --json

Between vhost-user ports of any switch, as the driver of their virtio-net devices:
  ringway gen loop --vhost-user /run/ringway/vm1.sock --vhost-user /run/ringway/vm2.sock --fill once --duration 5s
  ringway gen loop lan0:a --vhost-user /run/ringway/vm1.sock --both --check full --duration 5s

Between the e1000s of a switch, as their driver:
  ringway gen loop --e1000 /run/ringway/vm1.sock --e1000 /run/ringway/vm2.sock --e1000-mode csb --duration 5s

In a guest with two NICs on one switch, as their driver:
  ringway gen loop --pci 00:04.0 --pci 00:05.0 --duration 5s")]
pub struct Args {
    /// The port to send from; it is made if need be
    #[arg(value_name = "SWITCH:PORT", required_unless_present_any = ["vhost_user", "e1000", "pci"])]
    from: Option<String>,
    /// The port to receive at; it is made if need be
    #[arg(value_name = "SWITCH:PORT", required_unless_present_any = ["vhost_user", "e1000", "pci"])]
    to: Option<String>,
    /// Send in both directions
    #[arg(long)]
    both: bool,
    /// Bytes of a frame without FCS
    #[arg(long, value_name = "BYTES", default_value_t = 60)]
    size: usize,
    /// Flows of each direction, by turns; they differ in the UDP source port
    #[arg(long, value_name = "N", default_value_t = 1)]
    flows: usize,
    /// End after so many frames of each direction: 1000, 10k, 1M
    #[arg(long, value_name = "N", value_parser = parse::count)]
    count: Option<u64>,
    /// End after this time: 500ms, 10s, 1h
    #[arg(long, value_name = "TIME", value_parser = parse::positive)]
    duration: Option<Duration>,
    /// Most frames sent by one port in its turn
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch: u32,
    /// What is written
    #[arg(long, value_enum, default_value_t = Fill::Each)]
    fill: Fill,
    /// What is checked [default: sequence; count with --fill once]
    #[arg(long, value_enum)]
    check: Option<Check>,
    /// Exit with status 1 also when a frame was lost: a full receiver loses frames when this thread has to wait for its CPU
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    common: PortArgs,
}

/// Runs the command.
pub fn run(args: Args, context: &Context, stop: &Stop) -> Result<(), GenError> {
    let targets = args.common.targets(args.from.iter().chain(&args.to).map(String::as_str));
    let &[from, to] = &targets[..] else {
        let what = "give two ports: each a SWITCH:PORT, a --vhost-user or --e1000 SOCKET, or a --pci ADDRESS";
        return Err(GenError::Usage(what.to_owned()));
    };
    args.common.holds(&targets, args.size)?;
    let check = match (args.fill, args.check) {
        (Fill::Each, check) => check.unwrap_or(Check::Sequence),
        (Fill::Once, None | Some(Check::Count)) => Check::Count,
        (Fill::Once, Some(_)) => {
            let what = "--fill once: sequence numbers repeat, so that only --check count is possible";
            return Err(GenError::Usage(what.to_owned()));
        }
    };
    let near = args.common.attach_lossless(from, to, context)?;
    let far = args.common.attach_lossless(to, from, context)?;
    let names = [from.name(), to.name()];
    // Compiled for each kind of port: this loop has to be faster than any switch.
    match (near, far) {
        (AnyPort::Process(near), AnyPort::Process(far)) => go(names, [near, far], check, (&args, context), stop),
        (AnyPort::Split(near), AnyPort::Split(far)) => go(names, [near, far], check, (&args, context), stop),
        (AnyPort::Packed(near), AnyPort::Packed(far)) => go(names, [near, far], check, (&args, context), stop),
        (AnyPort::PciVirtio(near), AnyPort::PciVirtio(far)) => go(names, [near, far], check, (&args, context), stop),
        (AnyPort::E1000(near), AnyPort::E1000(far)) => go(names, [near, far], check, (&args, context), stop),
        (near, far) => go(names, [near, far], check, (&args, context), stop),
    }
}

fn go<E: Attached>(
    names: [String; 2],
    ports: [E; 2],
    check: Check,
    (args, context): (&Args, &Context),
    stop: &Stop,
) -> Result<(), GenError> {
    let traffic = Traffic { size: args.size, flows: args.flows, both: args.both, check };
    let fill = if args.fill == Fill::Once { PumpFill::Once } else { PumpFill::Each };
    let options = PumpOptions { tx_batch: args.batch as usize, rx_batch: ALL, fill, frames: args.count };
    let waits = Waits { introduced: patience(INTRODUCED), missing: patience(REALLY_QUIET) };
    let mut looped = Loop::new(names, ports, &traffic, options, (waits, context))?;
    let connections = std::mem::take(&mut looped.connections);
    let duration = args.duration.unwrap_or(Duration::MAX);
    let result = supervised(stop, &connections, |watch| looped.run(duration, watch))?;
    report(&result, None, args.common.json);
    if result.is_altered() {
        Err(GenError::Failed("frames did not arrive as sent".to_owned()))
    } else if args.strict && result.lost > 0 {
        Err(GenError::Failed(format!("{} frames were lost", result.lost)))
    } else {
        Ok(())
    }
}

/// Receive batch: all frames that have come are taken before more are sent.
const ALL: usize = usize::MAX;

/// Traffic of a loop.
#[derive(Debug, Clone, Copy)]
pub struct Traffic {
    /// Bytes of a frame.
    pub size: usize,
    /// Flows of each direction.
    pub flows: usize,
    /// Whether the second port sends too.
    pub both: bool,
    /// What is checked.
    pub check: Check,
}

/// Longest waits of a loop.
#[derive(Debug, Clone, Copy)]
struct Waits {
    /// For the first frame that crosses the switch.
    introduced: Duration,
    /// For frames that are missing, while none comes.
    missing: Duration,
}

/// Two ports of one switch, served by one thread. The switch has learned their addresses.
pub struct Loop<E = ProcessEndpoint> {
    names: [String; 2],
    pump: Pump<E>,
    connections: Vec<OwnedFd>,
    waits: Waits,
}

#[cfg(feature = "demo")]
impl Loop<ProcessEndpoint> {
    /// Attaches two process ports and makes the switch learn where they are. Waits at most `longest` for a frame.
    pub fn attach(names: [&str; 2], traffic: &Traffic, longest: Duration, context: &Context) -> Result<Self, GenError> {
        let shape = port::lossless(ringway_client::Shape::default());
        let near = port::attach(names[0], context, shape)?;
        let far = port::attach(names[1], context, shape)?;
        let options = PumpOptions { rx_batch: ALL, ..PumpOptions::default() };
        let waits = Waits { introduced: longest, missing: longest };
        Loop::new(names.map(str::to_owned), [near, far], traffic, options, (waits, context))
    }
}

impl<E: Attached> Loop<E> {
    fn new(
        names: [String; 2],
        ports: [E; 2],
        traffic: &Traffic,
        options: PumpOptions,
        (waits, context): (Waits, &Context),
    ) -> Result<Self, GenError> {
        let [mut near, mut far] = ports;
        let [near_name, far_name] = &names;
        let connections = vec![near.connection()?, far.connection()?];
        let near_mac = address::source(None, &mut near, near_name, context);
        let far_mac = address::source(None, &mut far, far_name, context);
        introduce((far_name, &mut far, far_mac), (near_name, &mut near, near_mac), waits.introduced)?;
        introduce((near_name, &mut near, near_mac), (far_name, &mut far, far_mac), waits.introduced)?;

        let frames = |source, destination| {
            let (size, flows) = (traffic.size, traffic.flows);
            let spec = FrameSpec { size, flows, source, destinations: vec![destination], ..FrameSpec::default() };
            Frames::new(&spec).map_err(|error| GenError::Usage(error.to_string()))
        };
        let checker = || traffic.check.checker(Origin::Zero);
        let there = frames(near_mac, far_mac)?;
        let stations = if traffic.both {
            let back = frames(far_mac, near_mac)?;
            [Station::both(near, there, checker()), Station::both(far, back, checker())]
        } else {
            [Station::source(near, there), Station::sink(far, checker())]
        };
        let pump = Pump::new(stations, options);
        Ok(Loop { names, pump, connections, waits })
    }

    /// Sends and receives until `duration` has passed, and waits for the last frames.
    ///
    /// # Errors
    /// The switch ended a port.
    pub fn run(&mut self, duration: Duration, watch: &mut Watch<'_>) -> io::Result<LoopReport> {
        let window = self.pump.run(duration, watch)?;
        self.pump.drain(QUIET)?;
        let mut stations = self.stations();
        // Frames may still come: a switch that shares its CPU can pause for longer.
        let (mut last, mut is_over) = (Instant::now(), false);
        while lost(&stations) > 0 && !is_over {
            let is_late = last.elapsed() >= self.waits.missing;
            if self.pump.drain(QUIET)? > 0 {
                last = Instant::now();
            } else {
                is_over = is_late;
            }
            stations = self.stations();
        }
        let lost = lost(&stations);
        Ok(LoopReport { sent: window.sent, received: window.received, lost, stations, ended: window.ended })
    }

    /// Returns each port's counts up to now.
    fn stations(&self) -> Vec<LoopStation> {
        let totals = self.names.iter().zip(self.pump.totals()).zip(self.pump.endpoints());
        let station = |((name, total), endpoint): ((&String, StationReport), &E)| LoopStation {
            port: name.clone(),
            sent: total.sent.frames,
            received: total.received.frames,
            check: total.check,
            driver: endpoint.driver(),
        };
        totals.map(station).collect()
    }
}

/// Frames that were sent and have not come.
fn lost(stations: &[LoopStation]) -> u64 {
    let sent: u64 = stations.iter().map(|station| station.sent).sum();
    // Foreign frames were not sent by this loop. Corrupted frames have arrived.
    let arrived = |check: &CheckReport| check.frames - check.foreign - check.duplicated;
    let arrived: u64 = stations.iter().map(|station| arrived(&station.check)).sum();
    sent.saturating_sub(arrived)
}

/// Makes the switch learn the address of `from`, by a frame to `to` that must arrive. The frame is sent again at intervals: a switch
/// may take frames of a new port before it delivers frames to the other one.
fn introduce<E: Attached>(
    from: (&str, &mut E, Mac),
    to: (&str, &mut E, Mac),
    within: Duration,
) -> Result<(), GenError> {
    let failed = |error: io::Error| GenError::Failed(error.to_string());
    let frame = frames::introduction(from.2, to.2)?;
    let deadline = Instant::now() + within;
    let (mut sent, mut arrived) = (0, 0);
    while arrived == 0 {
        if Instant::now() >= deadline {
            return Err(GenError::Failed(format!(
                "a frame from {} did not arrive at {}: they must be on one switch, not both isolated, and bound to the \
                 addresses they use (see \"ringway status\")",
                from.0, to.0
            )));
        }
        if from.1.tx_push(frame.len(), |place| place.copy_from_slice(&frame)) {
            sent += 1;
        }
        from.1.tx_flush();
        let again = (Instant::now() + INTRODUCE_AGAIN).min(deadline);
        while arrived == 0 && Instant::now() < again {
            to.1.wait(true, again.saturating_duration_since(Instant::now())).map_err(failed)?;
            to.1.rx_batch(64, |received| arrived += u32::from(received == frame));
        }
    }
    // No copy of the frame may come later, among the frames that count.
    while arrived < sent {
        to.1.wait(true, QUIET).map_err(failed)?;
        if to.1.rx_batch(64, |received| arrived += u32::from(received == frame)) == 0 {
            break;
        }
    }
    Ok(())
}

/// Result of [`Loop::run`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoopReport {
    /// Sent within the time.
    pub sent: Throughput,
    /// Received within the time.
    pub received: Throughput,
    /// Frames sent that never arrived.
    pub lost: u64,
    /// Each port's counts, including the frames that arrived after the time.
    pub stations: Vec<LoopStation>,
    /// Why it ended.
    pub ended: Ended,
}

/// One port's counts in a [`LoopReport`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoopStation {
    /// `SWITCH:PORT`.
    pub port: String,
    /// Frames sent.
    pub sent: u64,
    /// Frames received.
    pub received: u64,
    /// Result of the checks.
    pub check: CheckReport,
    /// Counts of the driver's accesses, if the driver counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<Driver>,
}

impl LoopReport {
    /// Returns true if frames came late, twice or altered. Foreign frames do not count.
    pub fn is_altered(&self) -> bool {
        let faults = |check: &CheckReport| check.reordered + check.duplicated + check.stale + check.corrupted;
        self.stations.iter().any(|station| faults(&station.check) > 0)
    }
}

impl fmt::Display for LoopReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "received {}; {}", self.received, self.ended)?;
        let sent: u64 = self.stations.iter().map(|station| station.sent).sum();
        write!(f, "of {sent} frames sent, {} were lost", self.lost)?;
        for station in self.stations.iter().filter(|station| station.check.frames > 0) {
            write!(f, "\n{}: {} received; {}", station.port, station.received, station.check)?;
        }
        for station in &self.stations {
            if let Some(driver) = &station.driver {
                write!(f, "\n{}: {driver}", station.port)?;
            }
        }
        Ok(())
    }
}
