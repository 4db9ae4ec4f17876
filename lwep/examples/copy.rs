//! Copies a file: `cargo run -p ringway-lwep --example copy /run/ringway/attach.sock FROM TO`, with `ringway run` in another terminal.
//! The file is read into the buffers that are sent, and written from the buffers where it was received.

use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ringway_link::{AnyLink, AnyOptions};
use ringway_lwep::{Endpoint, Event, Options, Reason};

const SERVICE: u32 = 3;
const RECEIVER: [u8; 6] = [2, 0, 0, 0, 3, 1];
const SENDER: [u8; 6] = [2, 0, 0, 0, 3, 2];
/// Messages that wait for their acknowledgements. They have to fit into the endpoint's buffers.
const QUEUE: usize = 256;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    match &arguments[..] {
        [_, socket, from, to] => run(socket.as_ref(), from.as_ref(), to.as_ref()),
        _ => Err("usage: copy ATTACH_SOCKET FROM TO".into()),
    }
}

/// Runs both ends.
pub fn run(socket: &Path, from: &Path, to: &Path) -> Result<()> {
    let mut receiver = open(socket, "lan0:copy-receiver", RECEIVER)?;
    let file = File::create_new(to)?;
    let receiver = thread::spawn(move || receive(&mut receiver, file));
    send(&mut open(socket, "lan0:copy-sender", SENDER)?, File::open(from)?)?;
    receiver.join().expect("the receiver does not panic")
}

fn open(socket: &Path, port: &str, mac: [u8; 6]) -> Result<Endpoint<AnyLink>> {
    let options = AnyOptions { mac: Some(mac), ..AnyOptions::default() };
    Ok(Endpoint::new(AnyLink::open(port, socket, &options)?, Options { queue: QUEUE, ..Options::default() }))
}

/// Writes what arrives. The sender's end of the connection is the file's end.
fn receive(endpoint: &mut Endpoint<AnyLink>, mut file: File) -> Result<()> {
    let clock = Instant::now();
    endpoint.listen(SERVICE);
    loop {
        let now = clock.elapsed().as_nanos() as u64;
        match endpoint.poll(now) {
            Some(Event::Message { data, .. }) => file.write_all(data)?,
            Some(Event::Finished { connection }) => endpoint.close(connection, now)?,
            Some(Event::Ended { reason: Reason::Closed, .. }) => return Ok(()),
            Some(Event::Ended { reason, .. }) => return Err(reason.into()),
            Some(_) => {}
            None => endpoint.sleep(now, Duration::from_secs(1))?,
        }
    }
}

/// Sends the file. That the connection has ended in good order says that all has arrived.
fn send(endpoint: &mut Endpoint<AnyLink>, mut file: File) -> Result<()> {
    let clock = Instant::now();
    let connection = endpoint.connect(RECEIVER, SERVICE, 0)?;
    let mut is_read = false;
    loop {
        let now = clock.elapsed().as_nanos() as u64;
        // Before the peer has accepted, how much its frames hold is not known.
        while let Some(status) = endpoint.status(connection).filter(|status| status.is_open && status.queued < QUEUE) {
            let Some(mut outgoing) = endpoint.reserve().filter(|_| !is_read) else { break };
            let len = file.read(&mut outgoing[..status.message])?;
            if len == 0 {
                is_read = true;
                endpoint.discard(outgoing);
                endpoint.close(connection, now)?;
            } else {
                endpoint.commit(connection, outgoing, len, now).map_err(|refused| refused.error)?;
            }
        }
        match endpoint.poll(now) {
            Some(Event::Ended { reason: Reason::Closed, .. }) => return Ok(endpoint.sleep(now, Duration::ZERO)?),
            Some(Event::Ended { reason, .. }) => return Err(reason.into()),
            Some(_) => {}
            None => endpoint.sleep(now, Duration::from_secs(1))?,
        }
    }
}
