//! What a pass costs the switch, by the number of its frames: between two process ports, and between two vhost-user ports
//! with split and with packed rings; with these also where all frames are beyond the sender's limit, or the receiver's.
//!
//! `cargo run --release -p ringway-port-tests --example pass_cost` shows times; with the arguments `KIND FRAMES [PASSES]` under
//! `valgrind --tool=callgrind --toggle-collect='*pass_cost*turn*'` it gives instructions: divide by the passes shown. Limits let
//! a burst pass first: with two numbers of passes, both beyond it, divide the difference.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ringway_abi::doorbell::{INDEX, PAIR_BYTES, RX_CLIENT, RX_SWITCH, TX_CLIENT};
use ringway_abi::layout::netmap_ring::SLOTS;
use ringway_abi::slot::SLOT_BYTES;
use ringway_abi::{Layout, Shape, Slot};
use ringway_port_process::{self as process, ClientHandles};
use ringway_port_vhost_user::Role;
use ringway_switch::policy::{Bucket, Egress, Limit, Policy, Rates};
use ringway_switch::{
    FloodPolicy, Input, Learning, Mac, MacTable, Member, Owner, Passed, Port, Switch, Time, Workspace, pass,
};
use ringway_traffic::{Endpoint, Packed, Ring, Split, VirtioEndpoint, VirtioOptions};

use ringway_port_tests::vhost_user::{self, Lan};

const SHAPE: Shape = Shape {
    tx_rings: 1,
    rx_rings: 1,
    tx_slots: 512,
    rx_slots: 512,
    buffer_size: 2112,
    extra_buffers: 0,
    offload: false,
};
const BATCH: usize = 256;
const FRAME: usize = 60;
const KINDS: [&str; 7] =
    ["process", "split", "packed", "split-dropped-in", "split-dropped-out", "packed-dropped-in", "packed-dropped-out"];
const FRAMES: [u32; 4] = [1, 2, 16, MOST_FRAMES];
/// Half of a driver's ring: no batch has more.
const MOST_FRAMES: u32 = 128;

/// What a poller does for a port that has frames.
#[inline(never)]
fn turn(switch: &Switch, input: &mut dyn Input, work: &mut Workspace, now: &Time) -> Passed {
    assert!(input.pending());
    pass(switch, switch.member(0).expect("a port"), input, work, now)
}

fn at(number: u32) -> Time {
    Time { nanoseconds: 1_000_000_000 + u64::from(number) * 1_000, ..Time::at_second(1) }
}

fn doorbell(ends: &ClientHandles) -> &[AtomicU32] {
    let view = ends.memory.mapping().view(ends.layout.doorbell(0), PAIR_BYTES).expect("a doorbell");
    view.words32().expect("aligned")
}

/// Fills every buffer of the transmit ring.
fn fill(ends: &ClientHandles) {
    let layout = &ends.layout;
    for at in 0..SHAPE.tx_slots as usize {
        let word = ends.memory.mapping().view(layout.tx_ring(0) + SLOTS + at * SLOT_BYTES, 8).expect("a slot");
        let word = &word.words64().expect("aligned")[0];
        let slot = Slot::from_word(word.load(Ordering::Relaxed));
        let frame = vhost_user::frame(1, 0, FRAME, at as u32);
        let buffer = layout.buffers + slot.buffer as usize * SHAPE.buffer_size as usize;
        assert!(ends.memory.mapping().view(buffer, FRAME).is_some_and(|buffer| buffer.write(&frame)));
        word.store(Slot { len: FRAME as u16, flags: 0, ..slot }.to_word(), Ordering::Relaxed);
    }
}

/// Time spent in passes between process ports, such as those of a switch with a keeper.
fn process_ports(frames: u32, passes: u32) -> Duration {
    let (mut ends, mut inputs, mut members) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..2 {
        let layout = Layout::new(SHAPE, index).expect("a layout");
        let (sides, end) = process::open_lasting("p", layout).expect("a port");
        members.push(Member::new(Owner::new(index as u16, 0), Arc::new(Port::new("p", sides.output, sides.bell))));
        inputs.push(sides.input);
        ends.push(end);
    }
    fill(&ends[0]);
    let table = Arc::new(MacTable::new(1024, 64, [1, 2]));
    table.learn(Mac::new([2, 0, 0, 0, 0, 1]), Owner::new(1, 0), 1, |_| true);
    let switch = Switch::new("lan0", members, table, Box::new(Learning), FloodPolicy::default());
    let (mut work, mut spent) = (Workspace::new(BATCH), Duration::ZERO);
    for number in 0..passes {
        // A client that had more ready, and one that has taken what it was given.
        doorbell(&ends[0])[TX_CLIENT + INDEX].store((number + 1) * frames % SHAPE.tx_slots, Ordering::Release);
        let (now, began) = (at(number), Instant::now());
        let passed = turn(&switch, &mut *inputs[0], &mut work, &now);
        spent += began.elapsed();
        assert!(passed.fault.is_none() && !passed.receiver_fault && passed.frames == u64::from(frames));
        let given = doorbell(&ends[1])[RX_SWITCH + INDEX].load(Ordering::Acquire);
        doorbell(&ends[1])[RX_CLIENT + INDEX].store(given, Ordering::Release);
    }
    assert_eq!(switch.member(1).expect("a port").port.counters().read().out_frames, u64::from(passes * frames));
    spent
}

/// Of a port that may send so little, or be given so little, that all but the first 32 frames are dropped; as `drops` says.
fn policy(drops: Option<&str>, index: usize) -> Option<Policy> {
    let limit = || Limit::new(Rates { bits: None, frames: Some(Bucket::new(1, 32)) });
    match (drops?, index) {
        ("dropped-in", 0) => Some(Policy { ingress: Some(Arc::new(limit())), ..Policy::default() }),
        ("dropped-out", 1) => Some(Policy { egress: Some(Arc::new(Egress::new(limit()))), ..Policy::default() }),
        _ => None,
    }
}

/// Runs passes between two vhost-user ports with rings of kind `R`. Returns the time of their turns.
fn vhost_ports<R: Ring>(frames: u32, passes: u32, drops: Option<&str>) -> Duration {
    let mut lan = Lan::new(&[Role::Server, Role::Server]);
    let attach = |index| VirtioEndpoint::<R>::attach(&lan.socket(index), &VirtioOptions::default()).expect("attached");
    let [mut sender, mut receiver] = [0, 1].map(attach);
    let members = lan.switch.members().cloned().enumerate();
    let members: Vec<_> = members.map(|(index, member)| Member { policy: policy(drops, index), ..member }).collect();
    let table = Arc::new(MacTable::new(1024, 64, [1, 2]));
    table.learn(Mac::new([2, 0, 0, 0, 0, 1]), Owner::new(1, 0), 1, |_| true);
    let switch = Switch::new("lan0", members, table, Box::new(Learning), FloodPolicy::default());
    let (mut work, mut spent, mut received) = (Workspace::new(BATCH), Duration::ZERO, 0);
    let frame = vhost_user::frame(1, 0, FRAME, 0);
    for number in 0..passes {
        (0..frames).for_each(|_| assert!(sender.tx_push(FRAME, |place| place.copy_from_slice(&frame))));
        sender.tx_flush();
        let (now, began) = (at(number), Instant::now());
        let passed = turn(&switch, &mut *lan.inputs[0], &mut work, &now);
        spent += began.elapsed();
        assert!(passed.fault.is_none() && !passed.receiver_fault && passed.frames == u64::from(frames));
        received += receiver.rx_batch(BATCH, |_| ());
    }
    // Of what is dropped a burst came, and what its rate brings meanwhile.
    let sent = (passes * frames) as usize;
    assert!(if drops.is_some() { (32..64).contains(&received) } else { received == sent }, "{received} of {sent}");
    spent
}

fn measure(kind: &str, frames: u32, passes: u32) {
    assert!(frames <= MOST_FRAMES);
    let (rings, drops) = kind.split_once('-').map_or((kind, None), |(rings, drops)| (rings, Some(drops)));
    let spent = match rings {
        "process" => process_ports(frames, passes),
        "split" => vhost_ports::<Split>(frames, passes, drops),
        "packed" => vhost_ports::<Packed>(frames, passes, drops),
        _ => panic!("{kind}: no kind of {KINDS:?}"),
    };
    let each = spent.as_nanos() as f64 / f64::from(passes);
    println!("{kind:18} {frames:4} frames: {passes} passes, {each:.1} ns each");
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [kind, frames, passes @ ..] = arguments.as_slice() {
        let passes = passes.first().map_or(1000, |passes| passes.parse().expect("a number of passes"));
        measure(kind, frames.parse().expect("a number of frames"), passes);
        return;
    }
    for kind in KINDS {
        for frames in FRAMES {
            measure(kind, frames, 100_000 / frames);
        }
    }
}
