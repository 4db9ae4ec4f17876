//! What receive coalescing costs and gains, on a switch with in-memory ports whose receiver copies what it is given.
//!
//! `cargo run --release -p ringway-switch --example coalesce_cost` shows for each case the frames per second without coalescing and
//! the median ratio with it, by turns. `coalesce_cost CASE on|off BATCHES` runs one case, for callgrind.

use std::sync::Arc;
use std::time::Instant;

use ringway_memory::Mapping;
use ringway_switch::{
    Accepts, Counters, FloodPolicy, Frames, Learning, Mac, MacTable, Member, Output, OutputCapabilities, Owner, Port,
    PortFault, Switch, Time, Workspace, pass,
};

mod memory_ports;

use memory_ports::{FRAMES, Offer, Silent};

const STRIDE: usize = 1600;
const TURNS: usize = 15;

/// Bytes of a frame, TCP or UDP, flows, and what is wrong with the segments.
const CASES: [(&str, usize, u8, usize, bool); 7] = [
    ("udp-60", 60, 17, 1, true),
    ("udp-1514", 1514, 17, 1, true),
    ("tcp-60", 60, 6, 1, true),
    ("tcp-1514", 1514, 6, 1, true),
    ("tcp-1514-16-flows", 1514, 6, 16, true),
    ("tcp-1514-64-flows", 1514, 6, 64, true),
    ("tcp-1514-gaps", 1514, 6, 1, false),
];

/// An output that copies frames one behind the other.
struct Sink(Mapping);

impl Output for Sink {
    fn capabilities(&self) -> OutputCapabilities {
        OutputCapabilities { accepts: Accepts::EVERYTHING, ..OutputCapabilities::default() }
    }

    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        let (mut at, mut count, mut bytes) = (0, 0, 0);
        for frame in frames {
            let Some(view) = self.0.view(at, frame.len()) else { break };
            let _ = view.write(frame.first_bytes());
            let mut place = frame.head_len();
            for rest in frame.rest() {
                if let Some(to) = view.sub(place, rest.len()) {
                    let _ = to.copy_from(*rest);
                }
                place += rest.len();
            }
            at = (at + frame.len()).next_multiple_of(64);
            count += 1;
            bytes += frame.len() as u64;
        }
        counters.add_out(count, bytes);
        Ok(())
    }
}

fn sum(bytes: &[u8]) -> u32 {
    let total = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])));
    total.fold(0, |sum, word| ((sum + word) & 0xffff) + ((sum + word) >> 16))
}

/// The segment of this number, of one of several flows.
fn frame(number: usize, (_, len, protocol, flows, right): (&str, usize, u8, usize, bool)) -> Vec<u8> {
    let (flow, number) = (number % flows, number / flows);
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 8, 0, 0x45, 0];
    frame.extend(((len - 14) as u16).to_be_bytes());
    frame.extend((number as u16).to_be_bytes());
    frame.extend([0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let header = !(sum(&frame[14..]) as u16);
    frame[24..26].copy_from_slice(&header.to_be_bytes());
    frame.extend([flow as u8, 1, 0, 80]);
    if protocol == 6 {
        let step = if right { len - 54 } else { len };
        frame.extend(((number * step) as u32).to_be_bytes());
        frame.extend([0, 0, 0, 9, 0x50, 0x10, 2, 0, 0, 0, 0, 0]);
    }
    frame.resize(len, 7);
    if protocol == 6 {
        let pseudo = sum(&frame[26..34]) + 6 + (len - 34) as u32;
        let total = pseudo + sum(&frame[34..]);
        let field = !((total & 0xffff) + (total >> 16)) as u16;
        frame[50..52].copy_from_slice(&field.to_be_bytes());
    }
    frame
}

struct Scene {
    switch: Switch,
    input: Offer,
    work: Workspace,
}

impl Scene {
    fn new(case: (&str, usize, u8, usize, bool), coalesces: bool) -> Scene {
        let input = Offer::new(STRIDE, |number| frame(number, case));
        let member = |index: u16| {
            let sink = Sink(Mapping::private(FRAMES * STRIDE).expect("memory"));
            let port = Port::new(format!("p{index}"), Box::new(sink), Box::new(Silent));
            Member { coalesces, ..Member::new(Owner::new(index, 0), Arc::new(port)) }
        };
        let table = Arc::new(MacTable::new(1024, 1024, [3, 4]));
        table.learn_in(0, Mac::new([2, 0, 0, 0, 0, 1]), Owner::new(1, 0), 1, |_| true);
        let switch = Switch::new("lan0", [member(0), member(1)], table, Box::new(Learning), FloodPolicy::default());
        Scene { switch, input, work: Workspace::new(FRAMES) }
    }

    /// Frames per second.
    fn run(&mut self, batches: usize) -> f64 {
        let from = self.switch.member(0).expect("a port");
        let began = Instant::now();
        for _ in 0..batches {
            pass(&self.switch, from, &mut self.input, &mut self.work, &Time::at_second(1));
        }
        (batches * FRAMES) as f64 / began.elapsed().as_secs_f64()
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [case, on, batches] = arguments.as_slice() {
        let case = *CASES.iter().find(|(name, ..)| name == case).expect("a case");
        Scene::new(case, on == "on").run(batches.parse().expect("a number of batches"));
        return;
    }
    println!("{:20} {:>10} {:>8} {:>18}", "case", "Mframe/s", "ratio", "frames given / sent");
    for case in CASES {
        let mut scenes = [false, true].map(|coalesces| Scene::new(case, coalesces));
        let (mut rates, mut ratios) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            let [without, with] = &mut scenes;
            let (without, with) = (without.run(400), with.run(400));
            rates.push(without / 1e6);
            ratios.push(with / without);
        }
        let [without, with] = scenes.map(|scene| scene.switch.member(1).expect("a port").port.counters().read());
        let given = with.out_frames as f64 / without.out_frames as f64;
        println!("{:20} {:>10.2} {:>8.3} {:>18.3}", case.0, median(&mut rates), median(&mut ratios), given);
    }
}
