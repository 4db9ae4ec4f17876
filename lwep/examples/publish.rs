//! One publisher, many subscribers: `cargo run -p ringway-lwep --example publish /run/ringway/attach.sock`, with `ringway run` in
//! another terminal. A subscriber that does not keep up misses news; the publisher and the other subscribers do not wait for it.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ringway_link::{AnyLink, AnyOptions};
use ringway_lwep::{Connection, Endpoint, Event, Options, SendError};

const SERVICE: u32 = 4;
const PUBLISHER: [u8; 6] = [2, 0, 0, 0, 4, 0];
const SUBSCRIBERS: u8 = 3;
const NEWS: u32 = 1000;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    run(std::env::args().nth(1).ok_or("usage: publish ATTACH_SOCKET")?.as_ref())
}

/// Runs all ends.
pub fn run(socket: &Path) -> Result<()> {
    let mut publisher = open(socket, "lan0:publisher", PUBLISHER)?;
    let publisher = thread::spawn(move || publish(&mut publisher));
    let subscriber = |number: u8| -> Result<_> {
        let mac = [2, 0, 0, 0, 4, number];
        let mut endpoint = open(socket, &format!("lan0:subscriber{number}"), mac)?;
        Ok(thread::spawn(move || subscribe(&mut endpoint)))
    };
    let subscribers = (1..=SUBSCRIBERS).map(subscriber).collect::<Result<Vec<_>>>()?;
    for (number, subscriber) in subscribers.into_iter().enumerate() {
        let heard = subscriber.join().expect("a subscriber does not panic")?;
        println!("subscriber {} has heard {heard} of {NEWS} news", number + 1);
    }
    let missed = publisher.join().expect("the publisher does not panic")?;
    println!("{missed} were not sent, as a subscriber did not keep up");
    Ok(())
}

fn open(socket: &Path, port: &str, mac: [u8; 6]) -> Result<Endpoint<AnyLink>> {
    let options = AnyOptions { mac: Some(mac), ..AnyOptions::default() };
    Ok(Endpoint::new(AnyLink::open(port, socket, &options)?, Options::default()))
}

/// Waits for all subscribers, then sends news to all of them. Returns how many were left out.
fn publish(endpoint: &mut Endpoint<AnyLink>) -> Result<u32> {
    let clock = Instant::now();
    endpoint.listen(SERVICE);
    let mut missed: BTreeMap<Connection, u32> = BTreeMap::new();
    let (mut sent, mut ended) = (0, 0);
    loop {
        let now = clock.elapsed().as_nanos() as u64;
        if missed.len() == usize::from(SUBSCRIBERS) && sent < NEWS {
            for (connection, missed) in &mut missed {
                match endpoint.send(*connection, format!("news {sent}").as_bytes(), now) {
                    Ok(()) | Err(SendError::Over) => {}
                    Err(SendError::Full) => *missed += 1,
                    Err(error) => return Err(error.into()),
                }
            }
            sent += 1;
            if sent == NEWS {
                for connection in missed.keys() {
                    // An error says that the subscriber has gone.
                    let _ = endpoint.close(*connection, now);
                }
            }
        }
        match endpoint.poll(now) {
            Some(Event::Accepted { connection, .. }) => drop(missed.insert(connection, 0)),
            Some(Event::Ended { .. }) => {
                ended += 1;
                if ended == SUBSCRIBERS {
                    // What is owed goes out before the program ends: the acknowledgement of the last subscriber's end.
                    endpoint.sleep(now, Duration::ZERO)?;
                    return Ok(missed.values().sum());
                }
            }
            Some(_) => {}
            None if (1..NEWS).contains(&sent) => {}
            None => endpoint.sleep(now, Duration::from_secs(1))?,
        }
    }
}

/// Counts news until the publisher ends.
fn subscribe(endpoint: &mut Endpoint<AnyLink>) -> Result<u32> {
    let clock = Instant::now();
    endpoint.connect(PUBLISHER, SERVICE, 0)?;
    let mut heard = 0;
    loop {
        let now = clock.elapsed().as_nanos() as u64;
        match endpoint.poll(now) {
            Some(Event::Message { .. }) => heard += 1,
            Some(Event::Finished { connection }) => endpoint.close(connection, now)?,
            Some(Event::Ended { .. }) => return Ok(heard),
            Some(_) => {}
            None => endpoint.sleep(now, Duration::from_secs(1))?,
        }
    }
}
