//! `ringway lwep bandwidth`: sends messages as fast as the server takes them.

use std::fmt;
use std::time::Duration;

use ringway_link::Link;
use ringway_lwep::{Nanos, SendError};
use serde::Serialize;

use super::client::{Client, ClientArgs, Seen};
use super::report::{Counted, Ended, Rate, report};
use super::services::{SINK, Tally};
use crate::context::Context;
use crate::r#gen::{GenError, Stop, parse};

/// Messages that are sent before the endpoint is polled.
const BATCH: u64 = 64;

/// Measure how many messages a "lwep serve" receives
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples, with \"ringway run\" and \"ringway lwep serve lan0:b\" in other terminals:
  ringway lwep bandwidth lan0:a --to lan0:b --size 64 --duration 5s
With \"ringway lwep serve lan0:b --address 10.99.0.2\":
  ringway lwep bandwidth lan0:a --to lan0:b --segmented --address 10.99.0.1 --duration 5s")]
pub struct Args {
    /// The port to send from; it is made if need be
    #[arg(value_name = "PORT")]
    port: String,
    /// Bytes of a message, up to what a frame holds
    #[arg(long, value_name = "BYTES", default_value_t = 1440, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    size: u32,
    /// End after this many messages: 1000, 10k, 1M
    #[arg(long, value_name = "N", value_parser = parse::count)]
    count: Option<u64>,
    /// End after this time: 500ms, 10s, 1h [default, without --count: 10s]
    #[arg(long, value_name = "TIME", value_parser = parse::positive)]
    duration: Option<Duration>,
    /// Send many messages in one buffer, which segmentation cuts. Both ends need --address
    #[arg(long, requires = "address")]
    segmented: bool,
    #[command(flatten)]
    common: ClientArgs,
}

#[derive(Debug, Serialize)]
struct Report {
    to: String,
    size: u32,
    segmented: bool,
    sent: Rate,
    received: Rate,
    #[serde(flatten)]
    counted: Counted,
    ended: Ended,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, received, counted, ended, .. } = self;
        write!(f, "sent {sent}; {ended}\nreceived {received}\n{counted}")
    }
}

/// Runs the command.
pub fn run(args: &Args, context: &Context, stop: &Stop) -> Result<(), GenError> {
    let to = args.common.server(context);
    let station = args.common.port.open(&args.port, context, stop, |options| args.common.adapt(options))?;
    let mut client = Client::connect(&args.common, to, SINK, station)?;
    check(&mut client, args)?;
    let began = client.station.now();
    let (sent, ended) = send(&mut client, args)?;
    client.finish();
    let tally = tally(&mut client)?;
    let time = client.station.now() - began;
    client.close();
    let counted = Counted::of(&mut client.station.endpoint);
    let (to, size, segmented) = (to.to_string(), args.size, args.segmented);
    let bytes = sent * u64::from(size);
    let received = Rate::new(tally.messages, tally.bytes, tally.time);
    let sent_rate = Rate::new(sent, bytes, time);
    report(&Report { to, size, segmented, sent: sent_rate, received, counted, ended }, args.common.port.json);
    if (tally.messages, tally.bytes) != (sent, bytes) {
        let what =
            format!("{sent} messages of {bytes} bytes were sent, {} of {} received", tally.messages, tally.bytes);
        return Err(GenError::Failed(what));
    }
    Ok(())
}

/// Refuses what the connection cannot carry.
fn check<L: Link>(client: &mut Client<'_, L>, args: &Args) -> Result<(), GenError> {
    let Some(status) = client.station.endpoint.status(client.connection) else { return Ok(()) };
    if args.segmented && client.station.endpoint.link().interface().segmented == 0 {
        let what = format!("--segmented: {} segments no frames: leave it out", args.port);
        return Err(GenError::Usage(what));
    }
    if args.segmented && !status.is_segmented {
        let what = "--segmented: the server takes no such messages: start \"lwep serve\" with --address";
        return Err(GenError::Usage(what.to_owned()));
    }
    if args.size as usize > status.message {
        let what = format!("--size {}: a frame to the server holds {} bytes", args.size, status.message);
        return Err(GenError::Usage(what));
    }
    Ok(())
}

/// Sends until it is time. Returns the number of messages.
fn send<L: Link>(client: &mut Client<'_, L>, args: &Args) -> Result<(u64, Ended), GenError> {
    let duration = args.duration.or(args.count.is_none().then_some(Duration::from_secs(10)));
    let began = client.station.now();
    client.expect(began);
    let mut sent = 0;
    loop {
        let now = client.station.now();
        if client.station.is_stopped() {
            return Ok((sent, Ended::Stopped));
        } else if args.count.is_some_and(|count| sent >= count) {
            return Ok((sent, Ended::Count));
        } else if duration.is_some_and(|duration| now - began >= duration.as_nanos() as Nanos) {
            return Ok((sent, Ended::Duration));
        }
        let most = args.count.map_or(BATCH, |count| BATCH.min(count - sent));
        let added = add(client, args, (sent, most), now)?;
        sent += added;
        // A server that sends without a pause does not keep this loop from its end.
        for _ in 0..BATCH {
            if client.poll(now, |_| ())?.is_none() {
                break;
            }
        }
        client.watch(now)?;
        client.station.check(now)?;
        let size = u64::from(args.size);
        client.station.tell(now, || format!("sent {}", Rate::new(sent, sent * size, now - began)));
        if added == 0 {
            client.station.pause(now, Duration::MAX)?;
        }
    }
}

/// Queues up to `most` messages, as many as there is room for. Returns their number.
fn add<L: Link>(
    client: &mut Client<'_, L>,
    args: &Args,
    (sent, most): (u64, u64),
    now: Nanos,
) -> Result<u64, GenError> {
    let (connection, size) = (client.connection, args.size as usize);
    let endpoint = &mut client.station.endpoint;
    let mut added = 0;
    while added < most {
        let reserved = if args.segmented { endpoint.reserve_many() } else { endpoint.reserve() };
        let Some(mut outgoing) = reserved else { break };
        let count = if args.segmented { (outgoing.len() / size).clamp(1, (most - added) as usize) } else { 1 };
        let len = count * size;
        outgoing[..len].fill((sent + added) as u8);
        let taken = if args.segmented {
            endpoint.commit_many(connection, outgoing, len, size, now)
        } else {
            endpoint.commit(connection, outgoing, len, now)
        };
        match taken {
            Ok(()) => added += count as u64,
            Err(refused) => {
                let error = refused.error;
                endpoint.discard(refused.outgoing);
                match error {
                    SendError::Full => break,
                    error => return Err(client.refused(error)),
                }
            }
        }
    }
    endpoint.flush();
    Ok(added)
}

/// Waits for what the server has received.
fn tally<L: Link>(client: &mut Client<'_, L>) -> Result<Tally, GenError> {
    client.expect(client.station.now());
    loop {
        let now = client.station.now();
        match client.poll(now, Tally::decode)? {
            Some(Seen::Message(Some(tally))) => return Ok(tally),
            Some(_) => return Err(GenError::Failed("the server has not said what it has received".to_owned())),
            None => {}
        }
        client.watch(now)?;
        client.station.pause(now, Duration::MAX)?;
    }
}
