//! The work of `cost.c` by the Rust library: `cost SOCKET FRAMES WAY`, with "slots" (`TxRing::reserve`, `RxRing::peek`), "places"
//! (`TxRing::push_with`, `RxRing::drain`) or "copies" (`TxRing::push`, `RxRing::drain`). `cost.sh` compares the instructions and the rates
//! of both.

use std::time::{Duration, Instant};

use ringway_client::{Piece, Port, Shape};

const BATCH: usize = 256;
const LENGTH: usize = 60;

/// What a program does with a frame: here it reads one word.
#[inline(always)]
fn see(sum: &mut u64, bytes: &[u8]) {
    let word = bytes.get(16..24).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    *sum = sum.wrapping_add(word + bytes.len() as u64);
}

#[inline(never)]
#[unsafe(no_mangle)]
fn work_send_slots(port: &mut Port, frame: &[u8; LENGTH]) {
    let buffers = port.tx().reserve(BATCH);
    let count = buffers.len();
    buffers.for_each(|buffer| buffer[..LENGTH].copy_from_slice(frame));
    port.tx().commit((0..count).map(|_| Piece::whole(LENGTH)));
    port.flush();
}

#[inline(never)]
#[unsafe(no_mangle)]
fn work_receive_slots(port: &mut Port, sum: &mut u64) -> usize {
    let received = port.rx().peek(BATCH);
    let count = received.len();
    received.for_each(|slot| see(sum, slot.bytes));
    port.rx().release(count);
    count
}

#[inline(never)]
#[unsafe(no_mangle)]
fn work_send_places(port: &mut Port, frame: &[u8; LENGTH]) {
    for _ in 0..BATCH {
        port.tx().push_with(LENGTH, |buffer| buffer.copy_from_slice(frame));
    }
    port.flush();
}

#[inline(never)]
#[unsafe(no_mangle)]
fn work_send_copies(port: &mut Port, frame: &[u8]) {
    for _ in 0..BATCH {
        port.tx().push(frame);
    }
    port.flush();
}

#[inline(never)]
#[unsafe(no_mangle)]
fn work_receive_copies(port: &mut Port, sum: &mut u64) -> usize {
    port.rx().drain(BATCH, |bytes| see(sum, bytes))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, socket, frames, way] = &arguments[..] else { return Err("usage: cost SOCKET FRAMES WAY".into()) };
    let is_slots = way == "slots";
    let mut a = Port::attach(socket, "lan0:a", Shape::default())?;
    let mut b = Port::attach(socket, "lan0:b", Shape::default())?;
    let mut frame = [0; LENGTH];
    frame[..6].fill(0xff);
    frame[6] = 2;
    let mut sum = 0;
    let batches = frames.parse::<usize>()? / BATCH;
    let begun = Instant::now();
    for _ in 0..batches {
        while a.tx().room() < BATCH {
            a.wait_tx(Duration::MAX)?;
        }
        if way == "places" {
            work_send_places(&mut a, &frame);
        } else if is_slots {
            work_send_slots(&mut a, &frame);
        } else {
            work_send_copies(&mut a, std::hint::black_box(frame.as_slice()));
        }
        while b.rx().available() < BATCH {
            b.wait_rx(Duration::from_millis(1))?;
        }
        let got = if is_slots { work_receive_slots(&mut b, &mut sum) } else { work_receive_copies(&mut b, &mut sum) };
        assert_eq!(got, BATCH);
    }
    println!("{sum} {:.0}", (batches * BATCH) as f64 / begun.elapsed().as_secs_f64());
    Ok(())
}
