//! `ringway gen ping`: measures round trips to a `gen pong`.

use std::time::Duration;

use ringway_api::units;
use ringway_traffic::{FrameSpec, Limits, Mac, PingOptions, ping};

use super::address::Destination;
use super::attached::Attached;
use super::port::PortArgs;
use super::report::{GenError, report};
use super::supervise::{Stop, supervised};
use super::{address, parse};
use crate::context::Context;

/// Measure round trips to a "gen pong"
#[derive(Debug, clap::Args)]
#[command(after_help = "Example, with \"ringway run\" and \"ringway gen pong lan0:b\" in other terminals:
  ringway gen ping lan0:a --dst lan0:b --count 10k

Between vhost-user ports of any switch, with \"ringway gen pong --vhost-user /run/ringway/vm2.sock\":
  ringway gen ping --vhost-user /run/ringway/vm1.sock --dst /run/ringway/vm2.sock --count 10k

In a guest, as the driver of its NIC:
  ringway gen ping --pci 00:04.0 --dst 52:54:00:00:00:02 --count 10k")]
pub struct Args {
    /// The port to send from; it is made if need be
    #[arg(value_name = "SWITCH:PORT", required_unless_present_any = ["vhost_user", "e1000", "pci"])]
    port: Option<String>,
    /// Where to: an address, broadcast, or SWITCH:PORT for the address that gen uses there
    #[arg(long, value_name = "MAC", default_value = "broadcast", value_parser = address::destination)]
    dst: Destination,
    /// Where from [default: the address bound to the port, else one made from its name]
    #[arg(long, value_name = "MAC")]
    src: Option<Mac>,
    /// Bytes of a frame without FCS, at least 28
    #[arg(long, value_name = "BYTES", default_value_t = 60)]
    size: usize,
    /// End after this many round trips: 1000, 10k, 1M
    #[arg(long, value_name = "N", value_parser = parse::count)]
    count: Option<u64>,
    /// End after this time: 500ms, 10s, 1h
    #[arg(long, value_name = "TIME", value_parser = parse::positive)]
    duration: Option<Duration>,
    /// Time from one frame to the next; 0s: as soon as the reply is there
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = units::duration)]
    interval: Duration,
    /// Time after which a reply counts as lost
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse::positive)]
    timeout: Duration,
    #[command(flatten)]
    common: PortArgs,
}

/// Runs the command.
pub fn run(args: Args, context: &Context, stop: &Stop) -> Result<(), GenError> {
    if args.size < ringway_traffic::MIN_PING {
        let least = ringway_traffic::MIN_PING;
        return Err(GenError::Usage(format!("--size {}: a ping needs at least {least} bytes", args.size)));
    }
    let target = args.common.target(args.port.as_deref())?;
    args.common.holds(&[target], args.size)?;
    let mut endpoint = args.common.attach(target, context)?;
    let source = address::source(args.src, &mut endpoint, &target.name(), context);
    let dst = args.dst.resolve(context);
    let spec = FrameSpec { size: args.size, source, destinations: vec![dst], ..FrameSpec::default() };
    // The only errors ping could find in it later, found where they are the user's.
    ringway_traffic::Frames::new(&spec).map_err(|error| GenError::Usage(error.to_string()))?;
    let options = PingOptions {
        limits: Limits { frames: args.count, duration: args.duration },
        interval: args.interval,
        timeout: args.timeout,
        wait_mode: args.common.wait_mode(),
    };
    let connection = endpoint.connection()?;
    let times = supervised(stop, &[connection], |watch| ping(&mut endpoint, &spec, &options, watch))?;
    report(&times, endpoint.driver(), args.common.json);
    if times.sent > 0 && times.received == 0 {
        return Err(GenError::Failed(format!("nobody answers at {dst}: is \"ringway gen pong\" running?")));
    }
    Ok(())
}
