//! A server sends every message back, a client asks once: `cargo run -p ringway-lwep --example echo /run/ringway/attach.sock`, with
//! `ringway run` in another terminal. Two threads stand for two programs.

use std::error::Error;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ringway_link::{AnyLink, AnyOptions};
use ringway_lwep::{Endpoint, Event, Options};

const SERVICE: u32 = 1;
const SERVER: [u8; 6] = [2, 0, 0, 0, 1, 1];
const CLIENT: [u8; 6] = [2, 0, 0, 0, 1, 2];

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    run(std::env::args().nth(1).ok_or("usage: echo ATTACH_SOCKET")?.as_ref())
}

/// Runs both ends.
pub fn run(socket: &Path) -> Result<()> {
    let mut server = open(socket, "lan0:echo-server", SERVER)?;
    let server = thread::spawn(move || serve(&mut server));
    let answer = ask(&mut open(socket, "lan0:echo-client", CLIENT)?, b"hello")?;
    println!("the server sent back {:?}", String::from_utf8_lossy(&answer));
    server.join().expect("the server does not panic")
}

fn open(socket: &Path, port: &str, mac: [u8; 6]) -> Result<Endpoint<AnyLink>> {
    let options = AnyOptions { mac: Some(mac), ..AnyOptions::default() };
    Ok(Endpoint::new(AnyLink::open(port, socket, &options)?, Options::default()))
}

/// Sends messages back until the client has gone.
fn serve(endpoint: &mut Endpoint<AnyLink>) -> Result<()> {
    let clock = Instant::now();
    endpoint.listen(SERVICE);
    loop {
        let now = clock.elapsed().as_nanos() as u64;
        match endpoint.poll(now) {
            Some(Event::Message { connection, data }) => {
                let data = data.to_vec();
                endpoint.send(connection, &data, now)?;
            }
            // The client sends nothing more: neither does this end.
            Some(Event::Finished { connection }) => endpoint.close(connection, now)?,
            Some(Event::Ended { .. }) => return Ok(()),
            Some(_) => {}
            None => endpoint.sleep(now, Duration::from_secs(1))?,
        }
    }
}

/// Sends one message and returns the answer.
fn ask(endpoint: &mut Endpoint<AnyLink>, question: &[u8]) -> Result<Vec<u8>> {
    let clock = Instant::now();
    let connection = endpoint.connect(SERVER, SERVICE, 0)?;
    endpoint.send(connection, question, 0)?;
    let mut answer = Vec::new();
    loop {
        let now = clock.elapsed().as_nanos() as u64;
        match endpoint.poll(now) {
            Some(Event::Message { data, .. }) => {
                answer = data.to_vec();
                endpoint.close(connection, now)?;
            }
            Some(Event::Ended { reason: ringway_lwep::Reason::Closed, .. }) => {
                // What is owed goes out before the program ends: the acknowledgement of the server's end.
                endpoint.sleep(now, Duration::ZERO)?;
                return Ok(answer);
            }
            Some(Event::Ended { reason, .. }) => return Err(reason.into()),
            Some(_) => {}
            None => endpoint.sleep(now, Duration::from_secs(1))?,
        }
    }
}
