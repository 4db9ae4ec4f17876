//! The work of `lwep-cost.c` by the Rust library: `lwep_cost SOCKET MESSAGES SIZE WAY`, with "batch" (`Endpoint::send`,
//! `Endpoint::drain`), "single" (`Endpoint::send`, `Endpoint::poll`) or "place" (`Endpoint::reserve`, `Endpoint::commit`,
//! `Endpoint::poll`). `cost.sh PROFILE messages` compares the instructions of both.

use std::path::Path;
use std::time::Duration;

use ringway_link::{AnyLink, AnyOptions, LinkName};
use ringway_lwep::{Connection, Endpoint, Event, Options};

const BATCH: usize = 64;
const SERVICE: u32 = 7;
const LONG: Duration = Duration::from_millis(1);

type End = Endpoint<AnyLink>;

fn attach(socket: &str, name: &str, number: u8) -> Result<End, Box<dyn std::error::Error>> {
    let options = AnyOptions { mac: Some([2, 0, 0, 0, 0, number]), ..LinkName::parse(name)?.usual() };
    Ok(Endpoint::new(AnyLink::open(name, Path::new(socket), &options)?, Options::default()))
}

/// What a program does with a message: here it reads one word. Returns the number of messages.
#[inline(always)]
fn see(sum: &mut u64, event: Event<'_>) -> usize {
    let Event::Message { data, .. } = event else { return 0 };
    let word = data.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    *sum = sum.wrapping_add(word + data.len() as u64);
    1
}

#[inline(never)]
#[unsafe(no_mangle)]
fn work_send_single(end: &mut End, connection: Connection, message: &[u8], count: usize, now: u64) -> usize {
    let mut sent = 0;
    while sent < count && end.send(connection, message, now).is_ok() {
        sent += 1;
    }
    end.flush();
    sent
}

#[inline(never)]
#[unsafe(no_mangle)]
fn work_send_place(end: &mut End, connection: Connection, message: &[u8], count: usize, now: u64) -> usize {
    let mut sent = 0;
    while sent < count {
        let Some(mut outgoing) = end.reserve() else { break };
        outgoing[..message.len()].copy_from_slice(message);
        if let Err(refused) = end.commit(connection, outgoing, message.len(), now) {
            end.discard(refused.outgoing);
            break;
        }
        sent += 1;
    }
    end.flush();
    sent
}

#[inline(never)]
#[unsafe(no_mangle)]
fn work_receive_batch(end: &mut End, sum: &mut u64, now: u64) -> usize {
    let mut got = 0;
    end.drain(now, BATCH, |event| got += see(sum, event));
    got
}

#[inline(never)]
#[unsafe(no_mangle)]
fn work_receive_single(end: &mut End, sum: &mut u64, now: u64) -> usize {
    let mut got = 0;
    while got < BATCH
        && let Some(event) = end.poll(now)
    {
        got += see(sum, event);
    }
    got
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, socket, messages, size, way] = &arguments[..] else {
        return Err("usage: lwep_cost SOCKET MESSAGES SIZE WAY".into());
    };
    let message = vec![0; size.parse()?];
    let (mut a, mut b) = (attach(socket, "lan0:a", 1)?, attach(socket, "lan0:b", 2)?);
    b.listen(SERVICE);
    // A time that passes by itself makes each run the same.
    let (mut now, mut sum) = (0, 0);
    let connection = a.connect(b.mac(), SERVICE, now)?;
    let mut is_connected = false;
    while !is_connected {
        now += 1000;
        while let Some(event) = a.poll(now) {
            is_connected |= matches!(event, Event::Connected { .. });
        }
        while b.poll(now).is_some() {}
        b.sleep(now, LONG)?;
    }
    let receive = if way == "batch" { work_receive_batch } else { work_receive_single };
    let send = if way == "place" { work_send_place } else { work_send_single };
    for _ in 0..messages.parse::<usize>()? / BATCH {
        now += 1000;
        let (mut sent, mut got) = (0, 0);
        while got < BATCH {
            if sent < BATCH {
                sent += send(&mut a, connection, std::hint::black_box(&message), BATCH - sent, now);
            }
            b.sleep(now, LONG)?;
            got += receive(&mut b, &mut sum, now);
            a.sleep(now, LONG)?;
            receive(&mut a, &mut sum, now);
        }
    }
    println!("{sum}");
    Ok(())
}
