//! What a frame costs the switch between two process ports: forwarded without limits, forwarded within limits both ways,
//! with a source guard, and with both; captured at its sender or at its receiver; refused at either, with a guard, too; and
//! refused by the guard, with and without a limit.
//!
//! `cargo run --release -p ringway-ports --example limit_cost` shows times; with the arguments `MODE SIZE BATCHES` under
//! `valgrind --tool=callgrind --toggle-collect='*limit_cost*turn*'` it gives instructions: with two numbers of batches, both
//! beyond what the burst lets pass, divide the difference by that of the frames shown.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ringway_abi::doorbell::{INDEX, PAIR_BYTES, RX_CLIENT, TX_CLIENT};
use ringway_abi::layout::netmap_ring::SLOTS;
use ringway_abi::slot::SLOT_BYTES;
use ringway_abi::{Shape, Slot};
use ringway_capture::{Capture, Options, Reader, Selection};
use ringway_ports::process::{self, ClientEnds};
use ringway_switch::policy::{Bucket, Checks, Egress, Guard, Limit, Policy, Prefix, Rates};
use ringway_switch::{
    Input, Mac, MacTable, Member, Owner, Passed, Port, Spreads, Switch, Tap, Time, Watch, Workspace, pass,
};

const SHAPE: Shape = Shape {
    tx_rings: 1,
    rx_rings: 1,
    tx_slots: 512,
    rx_slots: 512,
    buffer_size: 2112,
    extra_buffers: 0,
    offload: false,
};
const BATCH: u32 = 256;
const SENDER: [u8; 6] = [2, 0, 0, 0, 0, 0];
const CHECKS: Checks = Checks { mac: true, ip: true, dhcp: true, ra: true };
const MODES: [&str; 12] = [
    "forward",
    "limited",
    "guarded",
    "guarded-limited",
    "captured-in",
    "captured-out",
    "dropped-in",
    "dropped-out",
    "guarded-dropped-in",
    "guarded-dropped-out",
    "spoofed",
    "spoofed-dropped-in",
];

fn limit(rate: u64) -> Limit {
    Limit::new(Rates {
        bits: Some(Bucket::new(rate, 10_000_000)),
        frames: Some(Bucket::new(1_000_000_000, 10_000_000)),
    })
}

fn policies(mode: &str) -> [Option<Policy>; 2] {
    let input = |rate| Policy { ingress: Some(Arc::new(limit(rate))), ..Policy::default() };
    let output = |rate| Policy { egress: Some(Arc::new(Egress::new(limit(rate)))), ..Policy::default() };
    let any = Prefix { address: IpAddr::from([0; 4]), length: 0 };
    let own = Mac::new(if mode.starts_with("spoofed") { [2, 0, 0, 0, 0, 9] } else { SENDER });
    let guard = Some(Arc::new(Guard::new(CHECKS, &[own], &[any])));
    match mode {
        "limited" => [Some(input(400_000_000_000)), Some(output(400_000_000_000))],
        "guarded" | "spoofed" => [Some(Policy { guard, ..Policy::default() }), None],
        "guarded-limited" => [Some(Policy { guard, ..input(400_000_000_000) }), Some(output(400_000_000_000))],
        "dropped-in" => [Some(input(8_000)), None],
        "dropped-out" => [None, Some(output(8_000))],
        "guarded-dropped-in" | "spoofed-dropped-in" => [Some(Policy { guard, ..input(8_000) }), None],
        "guarded-dropped-out" => [Some(Policy { guard, ..Policy::default() }), Some(output(8_000))],
        _ => [None, None],
    }
}

/// A capture of the port that `mode` names, and what reads it.
fn capture(mode: &str) -> Option<(u16, Arc<Capture>, Reader)> {
    let port = match mode {
        "captured-in" => 0,
        "captured-out" => 1,
        _ => return None,
    };
    let (program, interface) = (String::from("limit_cost"), String::from("p"));
    let (selection, drops, snaplen) = (Selection::Both, true, 1 << 16);
    let options = Options { program, interface, selection, drops, snaplen, count: None, buffer: 4 << 20 };
    let (capture, reader) = Capture::start(&options).expect("a capture");
    Some((port, capture, reader))
}

fn doorbell(ends: &ClientEnds) -> &[AtomicU32] {
    let view = ends.memory.mapping().view(ends.layout.doorbell(0), PAIR_BYTES).expect("a doorbell");
    view.words32().expect("aligned")
}

/// Fills every buffer of the transmit ring.
fn fill(ends: &ClientEnds, len: usize) {
    let layout = &ends.layout;
    for at in 0..SHAPE.tx_slots as usize {
        let word = ends.memory.mapping().view(layout.tx_ring(0) + SLOTS + at * SLOT_BYTES, 8).expect("a slot");
        let word = &word.words64().expect("aligned")[0];
        let slot = Slot::from_word(word.load(Ordering::Relaxed));
        let mut frame = [[2, 0, 0, 0, 0, 1], SENDER].concat();
        // UDP over IPv4, as the guard looks at it; the sums do not matter.
        frame.extend([0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 9, 0, 9]);
        frame.resize(len, at as u8);
        let buffer = layout.buffers + slot.buffer as usize * SHAPE.buffer_size as usize;
        assert!(ends.memory.mapping().view(buffer, len).is_some_and(|buffer| buffer.write(&frame)));
        word.store(Slot { len: len as u16, flags: 0, ..slot }.to_word(), Ordering::Relaxed);
    }
}

#[inline(never)]
fn turn(switch: &Switch, input: &mut dyn Input, work: &mut Workspace, now: &Time) -> Passed {
    pass(switch, switch.member(0).expect("a port"), input, work, now)
}

/// Nanoseconds per frame.
fn measure(mode: &str, len: usize, turns: u32) -> f64 {
    let (mut ends, mut inputs, mut members) = (Vec::new(), Vec::new(), Vec::new());
    for (index, policy) in (0..).zip(policies(mode)) {
        let (sides, end) = process::open("p", SHAPE, index).expect("a port");
        let port = Arc::new(Port::new("p", sides.output, sides.bell));
        members.push(Member { policy, ..Member::new(Owner::new(index as u16, 0), port) });
        inputs.push(sides.input);
        ends.push(end);
    }
    fill(&ends[0], len);
    let table = Arc::new(MacTable::new(1024, 64, [1, 2]));
    table.learn(Mac::new([2, 0, 0, 0, 0, 1]), Owner::new(1, 0), 1, |_| true);
    let mut captured = capture(mode);
    let watches = captured.iter().map(|(port, capture, _)| {
        let taps = vec![Arc::clone(capture) as Arc<dyn Tap>];
        (*port, Watch { taps, ..Watch::default() })
    });
    let switch = Switch::new("lan0", members, table, Box::new(ringway_switch::Learning), Spreads::default())
        .with_watches(watches);
    let (mut file, mut seen) = (Vec::new(), 0);
    let mut work = Workspace::new(BATCH as usize);
    let (mut spent, mut frames) = (Duration::ZERO, 0);
    for number in 0..turns {
        // A client that had 256 more ready, and one that has taken what it was given.
        doorbell(&ends[0])[TX_CLIENT + INDEX].store((number + 1) * BATCH % SHAPE.tx_slots, Ordering::Release);
        let nanoseconds = 1_000_000_000 + u64::from(number) * 200_000;
        let now = Time { nanoseconds, ..Time::at_second(1) };
        let (mut left, began) = (u64::from(BATCH), Instant::now());
        while left > 0 {
            let passed = turn(&switch, &mut *inputs[0], &mut work, &now);
            assert!(passed.fault.is_none() && !passed.receiver_fault && passed.frames > 0);
            left -= passed.frames;
            frames += passed.frames;
        }
        spent += began.elapsed();
        if let Some((_, _, reader)) = &mut captured {
            file.clear();
            assert!(reader.read(&mut file, usize::MAX));
            seen = reader.counts().captured;
        }
        let given = doorbell(&ends[1])[ringway_abi::doorbell::RX_SWITCH + INDEX].load(Ordering::Acquire);
        doorbell(&ends[1])[RX_CLIENT + INDEX].store(given, Ordering::Release);
    }
    let each = spent.as_nanos() as f64 / frames as f64;
    assert!(captured.is_none() || seen == frames, "{mode}: {seen} of {frames} frames seen");
    let counters = switch.member(1).expect("a port").port.counters().read();
    println!("{mode:12} {len:5} bytes: {frames} frames, {} delivered, {each:.2} ns each", counters.out_frames);
    each
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, len, batches] = arguments.as_slice() {
        measure(mode, len.parse().expect("a frame's length"), batches.parse().expect("a number of batches"));
        return;
    }
    for len in [60, 1514] {
        for _ in 0..3 {
            let each = MODES.map(|mode| measure(mode, len, 20_000));
            for (mode, cost) in MODES.iter().zip(each) {
                println!("  {mode}: {:.3} of forwarding", cost / each[0]);
            }
        }
    }
}
