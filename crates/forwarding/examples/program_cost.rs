//! What a forwarding program costs a pass of frames of 60 bytes between two process ports, beside the learning bridge that is built in.
//!
//! `cargo run --release -p ringway-forwarding --example program_cost -- MODULE.wasm...` shows times, of turns with each module.
//! `program_cost --passes N [--frames N] [--flows N] [MODULE.wasm]` under `valgrind --tool=callgrind --toggle-collect='*program_cost*turn*'` gives
//! instructions: with two numbers of passes, divide the difference.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ringway_abi::doorbell::{INDEX, PAIR_BYTES, RX_CLIENT, RX_SWITCH, TX_CLIENT};
use ringway_abi::layout::netmap_ring::SLOTS;
use ringway_abi::slot::SLOT_BYTES;
use ringway_abi::{Shape, Slot};
use ringway_forwarding::{Compiler, Load, Program, Runtime};
use ringway_port_process::{self as process, ClientHandles};
use ringway_switch::policy::{Bound, Domain, Rules};
use ringway_switch::{
    FloodPolicy, Forward, Input, Learning, Mac, MacTable, Member, OnFault, Owner, Passed, Port, Programmed, Switch,
    Time, View, ViewPort, Workspace, pass,
};

const SHAPE: Shape = Shape {
    tx_rings: 1,
    rx_rings: 1,
    tx_slots: 1024,
    rx_slots: 1024,
    buffer_size: 2048,
    extra_buffers: 0,
    offload: false,
};
const BATCH: usize = 256;
const FRAME: usize = 60;
/// Passes of a contestant's turn, and turns of each.
const PASSES: u32 = 500;
const TURNS: usize = 200;

/// What a poller does for a port that has frames.
#[inline(never)]
fn turn(switch: &Switch, input: &mut dyn Input, work: &mut Workspace, now: &Time) -> Passed {
    assert!(input.pending());
    pass(switch, switch.member(0).expect("a port"), input, work, now)
}

fn doorbell(ends: &ClientHandles) -> &[AtomicU32] {
    let view = ends.memory.mapping().view(ends.layout.doorbell(0), PAIR_BYTES).expect("a doorbell");
    view.words32().expect("aligned")
}

fn station(index: u16) -> Mac {
    Mac::new([2, 0, 0, 0, 0, index as u8])
}

/// Fills every buffer of the transmit ring with frames of so many flows by turns: UDP over IPv4 from other ports.
fn fill(ends: &ClientHandles, flows: u32) {
    let layout = &ends.layout;
    for at in 0..SHAPE.tx_slots as usize {
        let word = ends.memory.mapping().view(layout.tx_ring(0) + SLOTS + at * SLOT_BYTES, 8).expect("a slot");
        let word = &word.words64().expect("aligned")[0];
        let slot = Slot::from_word(word.load(Ordering::Relaxed));
        let mut frame = [0; FRAME];
        frame[..6].copy_from_slice(&station(1).octets());
        frame[6..12].copy_from_slice(&station(0).octets());
        frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
        frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        frame[34..36].copy_from_slice(&((at as u32 % flows) as u16).to_be_bytes());
        let buffer = layout.buffers + slot.buffer as usize * SHAPE.buffer_size as usize;
        assert!(ends.memory.mapping().view(buffer, FRAME).is_some_and(|buffer| buffer.write(&frame)));
        word.store(Slot { len: FRAME as u16, flags: 0, ..slot }.to_word(), Ordering::Relaxed);
    }
}

/// Two process ports on a switch.
struct Contestant {
    name: String,
    ends: Vec<ClientHandles>,
    input: Box<dyn Input>,
    switch: Switch,
    work: Workspace,
    sent: u32,
    /// The time of the shortest turn.
    best: Duration,
}

impl Contestant {
    /// `module`: the program's file; otherwise the learning bridge forwards.
    fn new(runtime: &Arc<Runtime>, flows: u32, module: Option<&str>) -> Contestant {
        let (mut ends, mut inputs, mut members) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..2 {
            let (sides, end) = process::open("p", SHAPE, index).expect("a port");
            members.push(Member::new(Owner::new(index as u16, 0), Arc::new(Port::new("p", sides.output, sides.bell))));
            inputs.push(sides.input);
            ends.push(end);
        }
        fill(&ends[0], flows);
        let table = Arc::new(MacTable::new(1024, 64, [1, 2]));
        table.learn(station(1), Owner::new(1, 0), 1, |_| true);
        let forward: Box<dyn Forward> = match module {
            None => Box::new(Learning),
            Some(file) => {
                let ports = members.iter().map(|member| ViewPort {
                    owner: member.owner,
                    name: format!("p{}", member.owner.index()),
                    port: Arc::downgrade(&member.port),
                    is_mirror: false,
                });
                let domain = Domain { bound: Bound::default(), rules: Rules::ALLOW, vlans: false };
                let view = Arc::new(View::new(ports, 2, Arc::clone(&table), domain));
                let module = std::fs::read(file).unwrap_or_else(|why| panic!("{file}: {why}"));
                let load = Load {
                    module: &module,
                    switch: "lan0",
                    config: "allow udp",
                    pollers: 1,
                    view: &view,
                    before: None,
                    stop: &AtomicBool::new(false),
                };
                let program = Program::load(runtime, load).unwrap_or_else(|why| panic!("{file}: {why}"));
                Box::new(Programmed::new(program, view, OnFault::Drop))
            }
        };
        let switch = Switch::new("lan0", members, table, forward, FloodPolicy::default());
        Contestant {
            name: module.unwrap_or("built-in").to_owned(),
            ends,
            input: inputs.swap_remove(0),
            switch,
            work: Workspace::new(BATCH),
            sent: 0,
            best: Duration::MAX,
        }
    }

    /// Runs this many passes of this many frames. Returns the time of the passes.
    fn run(&mut self, passes: u32, frames: u32) -> Duration {
        let mut spent = Duration::ZERO;
        for number in 0..passes {
            self.sent = self.sent.wrapping_add(frames);
            // A client that had more ready, and one that has taken what it was given.
            doorbell(&self.ends[0])[TX_CLIENT + INDEX].store(self.sent % SHAPE.tx_slots, Ordering::Release);
            let now = Time { nanoseconds: 1_000_000_000 + u64::from(number) * 1_000, ..Time::at_second(1) };
            let began = Instant::now();
            let passed = turn(&self.switch, &mut *self.input, &mut self.work, &now);
            spent += began.elapsed();
            assert!(passed.fault.is_none() && !passed.receiver_fault && passed.frames == u64::from(frames));
            let given = doorbell(&self.ends[1])[RX_SWITCH + INDEX].load(Ordering::Acquire);
            doorbell(&self.ends[1])[RX_CLIENT + INDEX].store(given, Ordering::Release);
        }
        let given = self.switch.member(1).expect("a port").port.counters().read().out_frames;
        assert_eq!(given, u64::from(self.sent), "{}", self.name);
        spent
    }
}

fn main() {
    let (mut files, mut passes, mut frames, mut flows) = (Vec::new(), None, BATCH as u32, 1);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|number| number.parse().ok()).expect("a number");
        match argument.as_str() {
            "--passes" => passes = Some(number()),
            "--frames" => frames = number(),
            "--flows" => flows = number(),
            _ => files.push(argument),
        }
    }
    let runtime = Runtime::with(Compiler::Here).expect("a runtime");
    if let Some(passes) = passes {
        Contestant::new(&runtime, flows, files.first().map(String::as_str)).run(passes, frames);
        return;
    }
    let all = std::iter::once(None).chain(files.iter().map(|file| Some(file.as_str())));
    let mut all: Vec<Contestant> = all.map(|file| Contestant::new(&runtime, flows, file)).collect();
    for _ in 0..TURNS {
        for one in &mut all {
            one.best = one.best.min(one.run(PASSES, frames));
        }
    }
    let each = |one: &Contestant| one.best.as_nanos() as f64 / f64::from(PASSES * frames);
    let built_in = each(&all[0]);
    for one in &all {
        println!("{:6.2} ns a frame, {:.2} of the built-in rate: {}", each(one), built_in / each(one), one.name);
    }
}
