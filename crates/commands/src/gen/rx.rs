//! `ringway gen rx`: receives and checks.

use std::path::PathBuf;
use std::time::Duration;

use ringway_traffic::pcap::MAX_SNAP;
use ringway_traffic::{Ended, Endpoint, Limits, Mac, Origin, Recorder, RxOptions, RxReport, receive};

use super::attached::Attached;
use super::check::Check;
use super::frames;
use super::port::PortArgs;
use super::report::{GenError, report};
use super::supervise::{Stop, supervised};
use super::{address, parse};
use crate::context::Context;

/// Receive frames; check those of "gen tx" for loss, order, duplicates and corruption
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples, with \"ringway run\" in another terminal:
  ringway gen rx lan0:b --duration 10s
  ringway gen rx lan0:b --check full --count 1M --idle 2s --strict --json
  ringway gen rx lan0:b --write received.pcapng --duration 10s

At the vhost-user port of any switch, as the driver of a virtio-net device:
  ringway gen rx --vhost-user /run/ringway/vm1.sock --announce

In a guest, as the driver of its NIC:
  ringway gen rx --pci 00:04.0 --announce --json")]
pub struct Args {
    /// The port to receive at; it is made if need be
    #[arg(value_name = "SWITCH:PORT", required_unless_present_any = ["vhost_user", "e1000", "pci"])]
    port: Option<String>,
    /// What is checked
    #[arg(long, value_enum, default_value_t = Check::Sequence)]
    check: Check,
    /// Frames missing before the first that came count as lost: the sender starts after this receiver
    #[arg(long)]
    from_start: bool,
    /// Exit with status 1 when anything was lost, late, twice, corrupted or foreign, or fewer than --count frames came
    #[arg(long)]
    strict: bool,
    /// End after this many frames: 1000, 10k, 1M
    #[arg(long, value_name = "N", value_parser = parse::count)]
    count: Option<u64>,
    /// End after this time: 500ms, 10s, 1h
    #[arg(long, value_name = "TIME", value_parser = parse::positive)]
    duration: Option<Duration>,
    /// End when nothing has come for this time after the first frame
    #[arg(long, value_name = "TIME", value_parser = parse::positive)]
    idle: Option<Duration>,
    /// Write what comes to this file: pcapng, or pcap when its name ends so
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Send one frame to all first, so that the switch knows the port's address and need not flood
    #[arg(long)]
    announce: bool,
    /// Address to announce [default: the address bound to the port, else one made from its name]
    #[arg(long, value_name = "MAC", requires = "announce")]
    src: Option<Mac>,
    /// Most frames taken at once
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch: u32,
    #[command(flatten)]
    common: PortArgs,
}

/// Runs the command.
pub fn run(args: Args, context: &Context, stop: &Stop) -> Result<(), GenError> {
    let recorder = args.write.as_deref().map(|path| Recorder::create(path, MAX_SNAP));
    let mut recorder = recorder.transpose().map_err(|error| GenError::Failed(error.to_string()))?;
    let target = args.common.target(args.port.as_deref())?;
    let mut endpoint = args.common.attach(target, context)?;
    if args.announce {
        let source = address::source(args.src, &mut endpoint, &target.name(), context);
        let frame = frames::introduction(source, Mac::BROADCAST)?;
        endpoint.tx_push(frame.len(), |place| place.copy_from_slice(&frame));
        endpoint.tx_flush();
    }
    let mut checker = args.check.checker(if args.from_start { Origin::Zero } else { Origin::FirstSeen });
    let options = RxOptions {
        limits: Limits { frames: args.count, duration: args.duration },
        idle: args.idle,
        batch: args.batch as usize,
        wait_mode: args.common.wait_mode(),
    };
    let connection = endpoint.connection()?;
    let received = supervised(stop, &[connection], |watch| {
        receive(&mut endpoint, &mut checker, recorder.as_mut(), &options, watch)
    })?;
    report(&received, endpoint.driver(), args.common.json);
    if args.strict { judge(&received, args.count) } else { Ok(()) }
}

fn judge(received: &RxReport, wanted: Option<u64>) -> Result<(), GenError> {
    let frames = received.received.frames;
    match wanted {
        _ if !received.check.is_clean() => Err(GenError::Failed(format!("not as sent: {}", received.check))),
        Some(wanted) if received.ended != Ended::Frames => {
            Err(GenError::Failed(format!("{frames} frames came, --count asks for {wanted}")))
        }
        None if frames == 0 => Err(GenError::Failed("no frame came".to_owned())),
        _ => Ok(()),
    }
}
