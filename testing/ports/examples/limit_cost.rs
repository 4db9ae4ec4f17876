//! What a frame costs the switch between two process ports: forwarded without limits, forwarded within limits both ways,
//! with a source guard, and with both; captured at its sender or at its receiver; refused at either, with a guard, too; and
//! refused by the guard, with and without a limit.
//!
//! `cargo run --release -p ringway-port-tests --example limit_cost` shows times; with the arguments `MODE SIZE BATCHES [TRAFFIC]` under
//! `valgrind --tool=callgrind --toggle-collect='*limit_cost*turn*'` it gives instructions: with two numbers of batches, both
//! beyond what the burst lets pass, divide the difference by that of the frames shown. TRAFFIC is one of [`TRAFFIC`], for
//! what a guard costs by the kind of frame; ipv4 without it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ringway_abi::doorbell::{INDEX, PAIR_BYTES, RX_CLIENT, TX_CLIENT};
use ringway_abi::layout::netmap_ring::SLOTS;
use ringway_abi::slot::SLOT_BYTES;
use ringway_abi::{Shape, Slot};
use ringway_capture::{Capture, Options, Reader, Selection};
use ringway_port_process::{self as process, ClientHandles};
use ringway_switch::policy::{Bound, Bucket, Checks, Domain, Egress, Guard, Limit, Policy, Prefix, Rates, Rules};
use ringway_switch::{
    FloodPolicy, Input, Mac, MacTable, Member, Owner, Passed, Port, Switch, Tap, Time, Watch, Workspace, pass,
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
const MODES: [&str; 13] = [
    "forward",
    "limited",
    "guarded",
    "guarded-mac",
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

/// Kinds of frames. `-64` and `-512` are numbers of flows, which differ in their UDP source ports.
const TRAFFIC: [&str; 14] = [
    "ipv4",
    "ipv4-64",
    "ipv4-512",
    "ipv4-tcp-udp",
    "ipv4-sources",
    "ipv4-tagged",
    "ipv6",
    "ipv6-64",
    "ipv6-512",
    "ipv6-hop-by-hop",
    "arp",
    "88b5",
    "88b5-tagged",
    "ipv4-ipv6",
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
    let any =
        [Prefix { address: IpAddr::from([0; 4]), length: 0 }, Prefix { address: IpAddr::from([0; 16]), length: 0 }];
    let own = Mac::new(if mode.starts_with("spoofed") { [2, 0, 0, 0, 0, 9] } else { SENDER });
    let checks = if mode == "guarded-mac" { Checks { mac: true, ..Checks::NONE } } else { CHECKS };
    let guard = Some(Arc::new(Guard::new(checks, &[own], &any)));
    match mode {
        "limited" => [Some(input(400_000_000_000)), Some(output(400_000_000_000))],
        "guarded" | "guarded-mac" | "spoofed" => [Some(Policy { guard, ..Policy::default() }), None],
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

fn doorbell(ends: &ClientHandles) -> &[AtomicU32] {
    let view = ends.memory.mapping().view(ends.layout.doorbell(0), PAIR_BYTES).expect("a doorbell");
    view.words32().expect("aligned")
}

/// Frame number `at`; the sums do not matter.
fn frame(traffic: &str, len: usize, at: usize) -> Vec<u8> {
    let flow = match traffic.rsplit_once('-') {
        Some((_, flows)) => at % flows.parse().unwrap_or(1),
        None => 0,
    };
    let port = (1024 + flow as u16).to_be_bytes();
    let source = if traffic == "ipv4-sources" { [10, 1, (at >> 8) as u8, at as u8] } else { [10, 0, 0, 1] };
    let transport = if traffic == "ipv4-tcp-udp" && at.is_multiple_of(3) { 6 } else { 17 };
    let v4 = [&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, transport, 0, 0], &source[..], &[10, 0, 0, 2], &port, &[0, 9]].concat();
    let v6 = |next: u8| [&[0x60, 0, 0, 0, 0, 14, next, 64][..], &[0xfd; 16], &[0xfc; 16]].concat();
    let udp = [&port[..], &[0, 9, 0, 14, 0, 0]].concat();
    let (kinds, rest): (&[u8], Vec<u8>) = match traffic {
        "ipv4-tagged" => (&[0x81, 0, 0, 5, 8, 0], v4),
        "ipv6-hop-by-hop" => (&[0x86, 0xdd], [v6(0), vec![17, 0, 5, 2, 0, 0, 1, 0], udp].concat()),
        "ipv4-ipv6" if at % 2 == 1 => (&[0x86, 0xdd], [v6(17), udp].concat()),
        other if other.starts_with("ipv6") => (&[0x86, 0xdd], [v6(17), udp].concat()),
        "arp" => (&[8, 6], [&[0, 1, 8, 0, 6, 4, 0, 2][..], &SENDER, &[10, 0, 0, 1]].concat()),
        "88b5" => (&[0x88, 0xb5], vec![0x45]),
        "88b5-tagged" => (&[0x81, 0, 0, 5, 0x88, 0xb5], vec![0x45]),
        _ => (&[8, 0], v4),
    };
    let mut frame = [&[2, 0, 0, 0, 0, 1][..], &SENDER, kinds, &rest].concat();
    frame.resize(len.max(frame.len()), at as u8);
    frame
}

/// Fills every buffer of the transmit ring.
fn fill(ends: &ClientHandles, len: usize, traffic: &str) {
    let layout = &ends.layout;
    for at in 0..SHAPE.tx_slots as usize {
        let word = ends.memory.mapping().view(layout.tx_ring(0) + SLOTS + at * SLOT_BYTES, 8).expect("a slot");
        let word = &word.words64().expect("aligned")[0];
        let slot = Slot::from_word(word.load(Ordering::Relaxed));
        let frame = frame(traffic, len, at);
        let buffer = layout.buffers + slot.buffer as usize * SHAPE.buffer_size as usize;
        assert!(ends.memory.mapping().view(buffer, frame.len()).is_some_and(|buffer| buffer.write(&frame)));
        word.store(Slot { len: frame.len() as u16, flags: 0, ..slot }.to_word(), Ordering::Relaxed);
    }
}

#[inline(never)]
fn turn(switch: &Switch, input: &mut dyn Input, work: &mut Workspace, now: &Time) -> Passed {
    pass(switch, switch.member(0).expect("a port"), input, work, now)
}

/// Nanoseconds per frame.
fn measure(mode: &str, traffic: &str, len: usize, turns: u32) -> f64 {
    let (mut ends, mut inputs, mut members) = (Vec::new(), Vec::new(), Vec::new());
    for (index, policy) in (0..).zip(policies(mode)) {
        let (sides, end) = process::open("p", SHAPE, index).expect("a port");
        let port = Arc::new(Port::new("p", sides.output, sides.bell));
        let macs = if policy.as_ref().is_some_and(|policy| policy.guard.is_some()) {
            vec![Mac::new(SENDER)]
        } else {
            Vec::new()
        };
        members.push(Member { policy, macs, ..Member::new(Owner::new(index as u16, 0), port) });
        inputs.push(sides.input);
        ends.push(end);
    }
    fill(&ends[0], len, traffic);
    let table = Arc::new(MacTable::new(1024, 64, [1, 2]));
    table.learn(Mac::new([2, 0, 0, 0, 0, 1]), Owner::new(1, 0), 1, |_| true);
    let domain = Domain { bound: Bound::new(&members), rules: Rules::ALLOW, vlans: false };
    let mut captured = capture(mode);
    let watches = captured.iter().map(|(port, capture, _)| {
        let taps = vec![Arc::clone(capture) as Arc<dyn Tap>];
        (*port, Watch { taps, ..Watch::default() })
    });
    let switch = Switch::new("lan0", members, table, Box::new(ringway_switch::Learning), FloodPolicy::default())
        .within(domain)
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
    println!(
        "{mode:12} {traffic:12} {len:5} bytes: {frames} frames, {} delivered, {each:.2} ns each",
        counters.out_frames
    );
    each
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, len, batches, traffic @ ..] = arguments.as_slice() {
        let traffic = traffic.first().map_or("ipv4", |traffic| traffic);
        assert!(TRAFFIC.contains(&traffic), "{traffic}: no kind of {TRAFFIC:?}");
        measure(mode, traffic, len.parse().expect("a frame's length"), batches.parse().expect("a number of batches"));
        return;
    }
    for len in [60, 1514] {
        for _ in 0..3 {
            let each = MODES.map(|mode| measure(mode, "ipv4", len, 20_000));
            for (mode, cost) in MODES.iter().zip(each) {
                println!("  {mode}: {:.3} of forwarding", cost / each[0]);
            }
        }
    }
}
