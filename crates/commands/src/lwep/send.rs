//! `ringway lwep send`: sends a file.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use ringway_link::Link;
use ringway_lwep::SendError;
use serde::Serialize;

use super::client::{Client, ClientArgs, Seen};
use super::files::check_name;
use super::report::{Counted, Rate, report};
use super::services::{self, FILE};
use crate::context::Context;
use crate::r#gen::{GenError, Stop};

/// Send a file to a "lwep serve --save DIR"
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example, with \"ringway run\" and \"ringway lwep serve lan0:b --save /srv/incoming\" in other terminals:
  ringway lwep send lan0:a --to lan0:b report.pdf"
)]
pub struct Args {
    /// The port to send from; it is made if need be
    #[arg(value_name = "PORT")]
    port: String,
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The file's name there [default: its own]
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    common: ClientArgs,
}

#[derive(Debug, Serialize)]
struct Report {
    to: String,
    name: String,
    sent: Rate,
    #[serde(flatten)]
    counted: Counted,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { to, name, sent, counted } = self;
        write!(f, "{name} is at {to}: {sent}\n{counted}")
    }
}

/// Runs the command.
pub fn run(args: &Args, context: &Context, stop: &Stop) -> Result<(), GenError> {
    let own = args.file.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let name = args.name.clone().or(own).unwrap_or_default();
    check_name(&name).map_err(|why| GenError::Usage(format!("{name:?}: {why}: name it with --as")))?;
    let cannot = |error| GenError::Failed(format!("{}: {error}", args.file.display()));
    let mut file = File::open(&args.file).map_err(cannot)?;
    let status = file.metadata().map_err(cannot)?;
    if !status.is_file() {
        return Err(GenError::Usage(format!("{}: not a regular file", args.file.display())));
    }
    let to = args.common.server(context);
    let station = args.common.port.open(&args.port, context, stop, |options| args.common.adapt(options))?;
    let mut client = Client::connect(&args.common, to, FILE, station)?;
    let began = client.station.now();
    // An empty connection takes it.
    let offered = client.station.endpoint.send(client.connection, &services::offer(status.len(), &name), began);
    offered.map_err(|error| client.refused(error))?;
    verdict(&mut client)?;
    let (messages, bytes) = contents(&mut client, &mut file, args, status.len())?;
    client.finish();
    verdict(&mut client)?;
    let time = client.station.now() - began;
    client.close();
    let sent = Rate::new(messages, bytes, time);
    let counted = Counted::of(&mut client.station.endpoint);
    report(&Report { to: to.to_string(), name, sent, counted }, args.common.port.json);
    Ok(())
}

/// Waits for what the server says to the file.
fn verdict<L: Link>(client: &mut Client<'_, L>) -> Result<(), GenError> {
    client.expect(client.station.now());
    loop {
        let now = client.station.now();
        match client.poll(now, services::decode)? {
            Some(Seen::Message(Ok(()))) => return Ok(()),
            Some(Seen::Message(Err(why))) => {
                client.close();
                return Err(GenError::Failed(format!("the server: {why}")));
            }
            Some(Seen::Closed) => return Err(GenError::Failed("the server has closed the connection".to_owned())),
            None => {}
        }
        stopped(client)?;
        client.watch(now)?;
        client.station.pause(now, Duration::MAX)?;
    }
}

fn stopped<L: Link>(client: &mut Client<'_, L>) -> Result<(), GenError> {
    if !client.station.is_stopped() {
        return Ok(());
    }
    let now = client.station.now();
    client.station.endpoint.abort(client.connection, now);
    while client.station.endpoint.poll(now).is_some() {}
    client.station.settle();
    Err(GenError::Failed("stopped: the server keeps nothing of the file".to_owned()))
}

/// Sends the file's bytes, read into the buffers that are sent. Returns the number of messages and bytes.
fn contents<L: Link>(
    client: &mut Client<'_, L>,
    file: &mut File,
    args: &Args,
    size: u64,
) -> Result<(u64, u64), GenError> {
    let most = client.station.endpoint.status(client.connection).map_or(0, |status| status.message);
    let began = client.station.now();
    let (mut messages, mut bytes) = (0, 0);
    while bytes < size {
        let now = client.station.now();
        // The server speaks only if something is wrong.
        if let Some(Seen::Message(Err(why))) = client.poll(now, services::decode)? {
            return Err(GenError::Failed(format!("the server: {why}")));
        }
        stopped(client)?;
        client.watch(now)?;
        client.station.check(now)?;
        client.station.tell(now, || {
            let percent = bytes as f64 * 100.0 / size as f64;
            format!("{percent:.0} %, {}", Rate::new(messages, bytes, now - began))
        });
        let Some(mut outgoing) = client.station.endpoint.reserve() else {
            client.station.pause(now, Duration::MAX)?;
            continue;
        };
        let room = most.min(outgoing.len()).min(usize::try_from(size - bytes).unwrap_or(usize::MAX));
        let len = match file.read(&mut outgoing[..room]) {
            Ok(0) => return Err(GenError::Failed(format!("{}: shorter than it was", args.file.display()))),
            Ok(len) => len,
            Err(error) => return Err(GenError::Failed(format!("{}: {error}", args.file.display()))),
        };
        let mut waiting = Some(outgoing);
        while let Some(outgoing) = waiting.take() {
            let now = client.station.now();
            let Err(refused) = client.station.endpoint.commit(client.connection, outgoing, len, now) else { break };
            if refused.error != SendError::Full {
                return Err(client.refused(refused.error));
            }
            waiting = Some(refused.outgoing);
            if let Some(Seen::Message(Err(why))) = client.poll(now, services::decode)? {
                return Err(GenError::Failed(format!("the server: {why}")));
            }
            stopped(client)?;
            client.watch(now)?;
            client.station.pause(now, Duration::MAX)?;
        }
        messages += 1;
        bytes += len as u64;
    }
    Ok((messages, bytes))
}
