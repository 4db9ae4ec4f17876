//! `ringway gen tx`: sends.

use std::path::PathBuf;
use std::time::Duration;

use ringway_traffic::{
    Ended, Endpoint, FrameSpec, Limits, Mac, Rate, Replay, ReplayOptions, Source, Timing, TxOptions, TxReport, transmit,
};

use super::address::Destination;
use super::attached::Attached;
use super::frames::{Mix, Sizes};
use super::once::Once;
use super::port::{self, PortArgs};
use super::report::{GenError, report};
use super::supervise::{Stop, supervised};
use super::{address, parse};
use crate::context::{Context, complain};

/// Send synthetic frames, or those of a capture file
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples, with \"ringway run\" in another terminal:
  ringway gen tx lan0:a --dst lan0:b --size 1514 --rate 100kpps --duration 5s
  ringway gen tx lan0:a --size imix --flows 16 --rate 1Gbit --count 1M
  ringway gen tx lan0:a --pcap traffic.pcap --rate max      # a file that tcpdump or \"gen rx --write\" made

To the vhost-user port of any switch, as the driver of a virtio-net device:
  ringway gen tx --vhost-user /run/ringway/vm1.sock --packed --rate 1Mpps

In a guest, as the driver of its NIC:
  ringway gen tx --pci 00:04.0 --rate 100kpps --json")]
pub struct Args {
    /// The port to send from; it is made if need be
    #[arg(value_name = "SWITCH:PORT", required_unless_present_any = ["vhost_user", "e1000", "pci"])]
    port: Option<String>,
    /// Bytes of a frame without FCS: 60, or several by turns as in 60,1514 and 60-128, or imix
    #[arg(long, value_name = "SIZE", default_value = "60", value_parser = Sizes::parse)]
    size: Sizes,
    /// Frames or bits a second, like 1.5Mpps, 10Gbit, max [default: max]
    #[arg(long, value_name = "RATE", value_parser = Rate::parse)]
    rate: Option<Rate>,
    /// Flows to each destination, by turns; they differ in the UDP source port
    #[arg(long, value_name = "N", default_value_t = 1)]
    flows: usize,
    /// Where to: an address, broadcast, or SWITCH:PORT for the address that gen uses there; several are used by turns
    #[arg(long, value_name = "MAC", default_value = "broadcast", value_parser = address::destination)]
    dst: Vec<Destination>,
    /// Where from [default: the address bound to the port, else one made from its name]
    #[arg(long, value_name = "MAC")]
    src: Option<Mac>,
    /// End after this many frames: 1000, 10k, 1M
    #[arg(long, value_name = "N", value_parser = parse::count)]
    count: Option<u64>,
    /// End after this time: 500ms, 10s, 1h
    #[arg(long, value_name = "TIME", value_parser = parse::positive)]
    duration: Option<Duration>,
    /// Most frames between two wake-ups of the switch
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch: u32,
    /// What is written
    #[arg(long, value_enum, default_value_t = Fill::Each)]
    fill: Fill,
    /// Send the frames of this pcap or pcapng file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["size", "flows", "dst", "src", "fill"])]
    pcap: Option<PathBuf>,
    /// When the frames of a file are sent [default: recorded, or as --rate says]
    #[arg(long, value_enum, requires = "pcap", conflicts_with = "rate")]
    timing: Option<When>,
    /// How often a file is sent; 0: until something else ends it
    #[arg(long, value_name = "N", default_value_t = 1, requires = "pcap")]
    loops: u64,
    #[command(flatten)]
    common: PortArgs,
}

/// When frames are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Fill {
    /// Every frame, with a sequence number of its own
    Each,
    /// Every buffer of the ring once; then the buffers are sent again as they are, and frames repeat
    Once,
}

/// When the frames of a file are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum When {
    /// As far apart as they were captured
    Recorded,
    /// As fast as they can be sent
    Max,
}

/// Runs the command.
pub fn run(args: Args, context: &Context, stop: &Stop) -> Result<(), GenError> {
    let target = args.common.target(args.port.as_deref())?;
    let replay = args.pcap.is_some().then(|| open(&args)).transpose()?;
    if replay.is_none() {
        args.common.holds(&[target], args.size.largest())?;
    }
    if args.fill == Fill::Once && args.size.single().is_none() {
        return Err(GenError::Usage("--fill once: needs one --size, as buffers are sent again as they are".to_owned()));
    }
    let mut endpoint = args.common.attach(target, context)?;
    let room = endpoint.tx_room();
    let options = TxOptions {
        limits: Limits { frames: args.count, duration: args.duration },
        batch: args.batch as usize,
        rate: args.rate.unwrap_or_default(),
        wait_mode: args.common.wait_mode(),
        ..TxOptions::default()
    };
    let sent = if let Some(mut replay) = replay {
        send(&mut endpoint, &mut replay, &options, stop)?
    } else {
        let source = address::source(args.src, &mut endpoint, &target.name(), context);
        let destinations = args.dst.iter().map(|dst| dst.resolve(context)).collect();
        let spec = FrameSpec { source, destinations, flows: args.flows, ..FrameSpec::default() };
        let mut frames = Mix::new(&spec, &args.size)?;
        match args.fill {
            Fill::Each => send(&mut endpoint, &mut frames, &options, stop)?,
            Fill::Once => {
                let connection = endpoint.connection()?;
                // One more than there is room for: every buffer is written.
                let mut once = Once::new(endpoint, room as u64 + 1);
                let sent = supervised(stop, &[connection], |watch| transmit(&mut once, &mut frames, &options, watch))?;
                endpoint = once.into_inner();
                sent
            }
        }
    };
    let settled = if sent.ended == Ended::Stalled { Ok(()) } else { port::settle(&mut endpoint, room) };
    report(&sent, endpoint.driver(), args.common.json);
    match sent.ended {
        Ended::Stalled => Err(GenError::Failed(sent.ended.to_string())),
        _ => settled,
    }
}

fn open(args: &Args) -> Result<Replay, GenError> {
    let path = args.pcap.as_deref().unwrap_or_else(|| std::path::Path::new(""));
    let timing = match (args.timing, args.rate) {
        (Some(When::Max), _) | (None, Some(_)) => Timing::Fast,
        _ => Timing::Recorded,
    };
    let loops = (args.loops > 0).then_some(args.loops);
    let options = ReplayOptions { timing, loops, ..ReplayOptions::default() };
    let replay = Replay::open(path, options).map_err(|error| GenError::Usage(error.to_string()))?;
    for (frames, what) in [
        (replay.skipped(), "cannot be sent (below 14 or above 65,535 bytes): left out"),
        (replay.cut(), "were cut when captured: sent as short as they are in the file"),
    ] {
        if frames > 0 {
            complain("gen tx", &format!("{}: {frames} frames {what}", path.display()));
        }
    }
    Ok(replay)
}

fn send(
    endpoint: &mut impl Attached,
    source: &mut impl Source,
    options: &TxOptions,
    stop: &Stop,
) -> Result<TxReport, GenError> {
    let connection = endpoint.connection()?;
    supervised(stop, &[connection], |watch| transmit(endpoint, source, options, watch))
}
