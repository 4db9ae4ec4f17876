//! What a program pays to send a frame that it has in its memory: without a copy, from memory that it has brought (`own`), or by
//! a copy into the switch's memory (`copy`).
//!
//! `send_cost SOCKET LENGTH own|copy BATCHES` under `valgrind --tool=callgrind --toggle-collect='*send_cost*work*'` gives the
//! instructions of so many batches of 256 frames.

use std::time::Duration;

use ringway_client::{Area, ExternalMemory, Port, Shape};

const BATCH: usize = 256;
/// Distance of the frames in the program's memory: what a program with a queue of packets has.
const EACH: usize = 2048;

/// Sends the frames of a batch from where they are.
#[inline(never)]
fn work_own(port: &mut Port, frames: &Area, length: usize) {
    for number in 0..BATCH {
        port.tx().push_from(frames, number * EACH..number * EACH + length);
    }
    port.flush();
}

/// Copies the frames of a batch into the ring's buffers.
#[inline(never)]
fn work_copy(port: &mut Port, frames: &[u8], length: usize) {
    for number in 0..BATCH {
        port.tx().push(&frames[number * EACH..number * EACH + length]);
    }
    port.flush();
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, length, way, batches] = arguments.as_slice() else {
        return Err("usage: send_cost SOCKET LENGTH own|copy BATCHES".into());
    };
    let length: usize = length.parse()?;
    let mut memory = ExternalMemory::new(8 << 20, 64)?;
    let shape = Shape { tx_slots: 512, ..Shape::default() };
    let mut port = match way.as_str() {
        "own" => Port::attach_with_memory(socket, "lan0:cost", shape, &mut memory)?.0,
        _ => Port::attach(socket, "lan0:cost", shape)?,
    };
    let mut frames = memory.take(BATCH * EACH).ok_or("the memory is too small")?;
    for frame in frames.chunks_exact_mut(EACH) {
        frame[..6].fill(0xff);
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    }
    for _ in 0..batches.parse::<u32>()? {
        while port.tx().room() < BATCH {
            port.wait_tx(Duration::from_secs(1))?;
            std::thread::yield_now();
        }
        match way.as_str() {
            "own" => work_own(&mut port, &frames, length),
            _ => work_copy(&mut port, &frames, length),
        }
    }
    Ok(())
}
