//! `ringway gen pong`: sends back every frame that it receives.

use std::time::Duration;

use ringway_traffic::{Limits, Mac, PongOptions, pong};

use super::attached::Attached;
use super::port::{self, PortArgs};
use super::report::{GenError, report};
use super::supervise::{Stop, supervised};
use super::{address, parse};
use crate::context::Context;

/// Send back every frame that comes, for "gen ping"
#[derive(Debug, clap::Args)]
#[command(after_help = "Example, with \"ringway run\" in another terminal:
  ringway gen pong lan0:b
  ringway gen pong --vhost-user /run/ringway/vm2.sock     # as the driver of a virtio-net device
  ringway gen pong --pci 00:04.0                          # in a guest, as the driver of its NIC")]
pub struct Args {
    /// The port to answer at; it is made if need be
    #[arg(value_name = "SWITCH:PORT", required_unless_present_any = ["vhost_user", "e1000", "pci"])]
    port: Option<String>,
    /// Address to answer from when a frame came to a group [default: the address bound to the port, else one made from its
    /// name]
    #[arg(long, value_name = "MAC")]
    src: Option<Mac>,
    /// End after this many frames: 1000, 10k, 1M
    #[arg(long, value_name = "N", value_parser = parse::count)]
    count: Option<u64>,
    /// End after this time: 500ms, 10s, 1h
    #[arg(long, value_name = "TIME", value_parser = parse::positive)]
    duration: Option<Duration>,
    /// Most frames sent back at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch: u32,
    #[command(flatten)]
    common: PortArgs,
}

/// Runs the command.
pub fn run(args: Args, context: &Context, stop: &Stop) -> Result<(), GenError> {
    let target = args.common.target(args.port.as_deref())?;
    let mut endpoint = args.common.attach(target, context)?;
    let room = ringway_traffic::Endpoint::tx_room(&mut endpoint);
    let options = PongOptions {
        limits: Limits { frames: args.count, duration: args.duration },
        batch: args.batch as usize,
        wait_mode: args.common.wait_mode(),
        mac: address::source(args.src, &mut endpoint, &target.name(), context),
    };
    let connection = endpoint.connection()?;
    let returned = supervised(stop, &[connection], |watch| pong(&mut endpoint, &options, watch))?;
    let settled = port::settle(&mut endpoint, room);
    report(&returned, endpoint.driver(), args.common.json);
    settled
}
