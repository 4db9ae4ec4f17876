//! `ringway lwep ping`: measures round trips of messages.

use std::fmt;
use std::time::Duration;

use ringway_api::units;
use ringway_link::Link;
use ringway_lwep::Nanos;
use serde::Serialize;

use super::client::{Client, ClientArgs, Seen};
use super::report::{Counted, Ended, RoundTrips, Times, report};
use super::services::{ECHO, LONG};
use crate::context::Context;
use crate::r#gen::{GenError, Stop, parse};

/// Measure round trips of messages to a "lwep serve"
#[derive(Debug, clap::Args)]
#[command(after_help = "Example, with \"ringway run\" and \"ringway lwep serve lan0:b\" in other terminals:
  ringway lwep ping lan0:a --to lan0:b --count 10k")]
pub struct Args {
    /// The port to send from; it is made if need be
    #[arg(value_name = "PORT")]
    port: String,
    /// Bytes of a message; one that is longer than a frame is sent in fragments
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(..=i64::from(LONG)))]
    size: u32,
    /// End after this many round trips: 1000, 10k, 1M
    #[arg(long, value_name = "N", value_parser = parse::count)]
    count: Option<u64>,
    /// End after this time: 500ms, 10s, 1h
    #[arg(long, value_name = "TIME", value_parser = parse::positive)]
    duration: Option<Duration>,
    /// Time from one message to the next; 0s: as soon as the reply is there
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = units::duration)]
    interval: Duration,
    #[command(flatten)]
    common: ClientArgs,
}

#[derive(Debug, Serialize)]
struct Report {
    to: String,
    size: u32,
    sent: u64,
    received: u64,
    corrupted: u64,
    round_trip_ns: RoundTrips,
    #[serde(flatten)]
    counted: Counted,
    ended: Ended,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size, sent, received, corrupted, round_trip_ns, counted, ended, .. } = self;
        writeln!(f, "{sent} messages of {size} bytes sent, {received} received, {corrupted} corrupted; {ended}")?;
        write!(f, "{round_trip_ns}\n{counted}")
    }
}

/// Runs the command.
pub fn run(args: &Args, context: &Context, stop: &Stop) -> Result<(), GenError> {
    let to = args.common.server(context);
    let station = args.common.port.open(&args.port, context, stop, |options| args.common.adapt(options))?;
    let mut client = Client::connect(&args.common, to, ECHO, station)?;
    let (sent, corrupted, times, ended) = ping(&mut client, args)?;
    client.close();
    let counted = Counted::of(&mut client.station.endpoint);
    let (received, round_trip_ns) = (times.len(), times.summary());
    let (to, size) = (to.to_string(), args.size);
    report(&Report { to, size, sent, received, corrupted, round_trip_ns, counted, ended }, args.common.port.json);
    if corrupted > 0 {
        return Err(GenError::Failed(format!("{corrupted} replies differ from what was sent")));
    }
    Ok(())
}

/// Sends one message after the other.
fn ping<L: Link>(client: &mut Client<'_, L>, args: &Args) -> Result<(u64, u64, Times, Ended), GenError> {
    let (mut sent, mut corrupted, mut times) = (0, 0, Times::new());
    let mut message = vec![0; args.size as usize];
    let nanos = |time: Duration| time.as_nanos() as Nanos;
    let began = client.station.now();
    let mut next = began;
    let ended = loop {
        let mut now = client.station.now();
        if client.station.is_stopped() {
            break Ended::Stopped;
        } else if args.count.is_some_and(|count| sent >= count) {
            break Ended::Count;
        } else if args.duration.is_some_and(|duration| now - began >= nanos(duration)) {
            break Ended::Duration;
        }
        client.station.tell(now, || format!("{} of {sent} are back", times.len()));
        if now < next {
            if client.poll(now, |_| ())?.is_none() {
                client.station.pause(now, Duration::from_nanos(next - now))?;
            }
            continue;
        }
        next = now + nanos(args.interval);
        message.fill(sent as u8);
        now = client.station.now();
        client.expect(now);
        if !client.send_long(&message)? {
            break Ended::Stopped;
        }
        sent += 1;
        match reply(client, &message)? {
            Some((_, is_same)) if !is_same => corrupted += 1,
            Some((at, _)) => times.record(at - now),
            None => break Ended::Stopped,
        }
    };
    Ok((sent, corrupted, times, ended))
}

/// Waits for the reply. Returns when it came, and whether it is the message; `None` if a signal came first.
fn reply<L: Link>(client: &mut Client<'_, L>, message: &[u8]) -> Result<Option<(Nanos, bool)>, GenError> {
    loop {
        let now = client.station.now();
        match client.poll(now, |data| data == message)? {
            Some(Seen::Message(is_same)) => return Ok(Some((client.station.now(), is_same))),
            Some(Seen::Closed) => return Err(GenError::Failed("the server has closed the connection".to_owned())),
            None if client.station.is_stopped() => return Ok(None),
            None => {}
        }
        client.watch(now)?;
        client.station.pause(now, Duration::MAX)?;
    }
}
