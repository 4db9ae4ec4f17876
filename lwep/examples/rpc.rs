//! Calls of a remote procedure with many requests under way: `cargo run -p ringway-lwep --example rpc /run/ringway/attach.sock`, with
//! `ringway run` in another terminal. A request is a number, eight bytes; the reply is its square. Replies come in the order of requests.

use std::collections::VecDeque;
use std::error::Error;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ringway_link::{AnyLink, AnyOptions};
use ringway_lwep::{Connection, Endpoint, Event, Options, Reason};

const SERVICE: u32 = 2;
const SERVER: [u8; 6] = [2, 0, 0, 0, 2, 1];
const CLIENT: [u8; 6] = [2, 0, 0, 0, 2, 2];
const REQUESTS: u64 = 100_000;
/// Most requests that wait for their replies. The server's queue for replies holds as many, so that it never has to wait for a client.
const PIPELINE: usize = 200;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    run(std::env::args().nth(1).ok_or("usage: rpc ATTACH_SOCKET")?.as_ref())
}

/// Runs both ends.
pub fn run(socket: &Path) -> Result<()> {
    let mut server = open(socket, "lan0:rpc-server", SERVER)?;
    let server = thread::spawn(move || serve(&mut server));
    let began = Instant::now();
    call(&mut open(socket, "lan0:rpc-client", CLIENT)?)?;
    println!("{REQUESTS} calls took {:?}", began.elapsed());
    server.join().expect("the server does not panic")
}

fn open(socket: &Path, port: &str, mac: [u8; 6]) -> Result<Endpoint<AnyLink>> {
    let options = AnyOptions { mac: Some(mac), ..AnyOptions::default() };
    Ok(Endpoint::new(AnyLink::open(port, socket, &options)?, Options::default()))
}

/// Answers requests until the client has gone.
fn serve(endpoint: &mut Endpoint<AnyLink>) -> Result<()> {
    let clock = Instant::now();
    endpoint.listen(SERVICE);
    loop {
        let now = clock.elapsed().as_nanos() as u64;
        match endpoint.poll(now) {
            Some(Event::Message { connection, data }) => {
                let number = u64::from_be_bytes(data.try_into()?);
                endpoint.send(connection, &number.wrapping_mul(number).to_be_bytes(), now)?;
            }
            Some(Event::Finished { connection }) => endpoint.close(connection, now)?,
            Some(Event::Ended { .. }) => return Ok(()),
            Some(_) => {}
            None => endpoint.sleep(now, Duration::from_secs(1))?,
        }
    }
}

/// Calls with all numbers.
fn call(endpoint: &mut Endpoint<AnyLink>) -> Result<()> {
    let clock = Instant::now();
    let connection = endpoint.connect(SERVER, SERVICE, 0)?;
    let (mut next, mut waiting) = (0, VecDeque::new());
    loop {
        let now = clock.elapsed().as_nanos() as u64;
        fill(endpoint, connection, &mut next, &mut waiting, now)?;
        match endpoint.poll(now) {
            Some(Event::Message { data, .. }) => {
                let number: u64 = waiting.pop_front().ok_or("a reply without a request")?;
                if data != number.wrapping_mul(number).to_be_bytes() {
                    return Err(format!("a wrong square of {number}").into());
                }
                if number + 1 == REQUESTS {
                    endpoint.close(connection, now)?;
                }
            }
            Some(Event::Ended { reason: Reason::Closed, .. }) => {
                // What is owed goes out before the program ends: the acknowledgement of the server's end.
                return Ok(endpoint.sleep(now, Duration::ZERO)?);
            }
            Some(Event::Ended { reason, .. }) => return Err(reason.into()),
            Some(_) => {}
            None => endpoint.sleep(now, Duration::from_secs(1))?,
        }
    }
}

/// Sends requests while the pipeline has room.
fn fill(
    endpoint: &mut Endpoint<AnyLink>,
    connection: Connection,
    next: &mut u64,
    waiting: &mut VecDeque<u64>,
    now: u64,
) -> Result<()> {
    while *next < REQUESTS && waiting.len() < PIPELINE {
        endpoint.send(connection, &next.to_be_bytes(), now)?;
        waiting.push_back(*next);
        *next += 1;
    }
    Ok(())
}
