//! What a frame costs the switch between two e1000s, and between two packed virtqueues, without doorbells: descriptor rings,
//! copies and forwarding.
//!
//! `cargo run --release -p ringway-port-tests --example e1000_cost` shows times; with the arguments `KIND SIZE` under
//! `valgrind --tool=callgrind --toggle-collect='*e1000_cost*turn*'` it gives instructions: divide by the frames shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use ringway_memory::{Mapping, View};
use ringway_port::guest::{GuestMemory, Region};
use ringway_port_e1000::rings::{self, Destination, Format, ReceiveSettings, Received, TransmitSettings};
use ringway_port_vhost_user::virtqueue::{self, Addresses, Bounce, F_EVENT_IDX, Packed, Tally};
use ringway_switch::{
    Accepts, Armed, Batch, Bell, CallReason, CallResult, Counters, Discarded, FloodPolicy, Frames, Input, Learning,
    Mac, MacTable, Member, Output, Owner, Port, PortFault, Switch, Time, WakeOn, Workspace, pass,
};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

const BATCH: u32 = 256;
const RING: u32 = 1024;
const STRIDE: u64 = 2048 + 320;
const BUFFERS: u64 = 1 << 16;
const BYTES: u64 = BUFFERS + RING as u64 * STRIDE;
const KINDS: [&str; 3] = ["e1000", "e1000e", "packed"];

/// A guest with one ring at address 0 and buffers behind it.
struct Guest {
    memory: Arc<GuestMemory>,
    own: Mapping,
}

impl Guest {
    fn new() -> Guest {
        use std::os::fd::AsFd;
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&file, BYTES).expect("memory");
        let region = Region::map(&file, 0, BYTES, 0, 0).expect("a region");
        Guest {
            memory: Arc::new(GuestMemory::new(vec![Arc::new(region)])),
            own: Mapping::shared(file.as_fd(), BYTES as usize).expect("memory"),
        }
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        &self.view(at, 8).words64().expect("aligned")[0]
    }

    fn view(&self, at: u64, len: usize) -> View<'_> {
        self.own.view(at as usize, len).expect("inside")
    }

    fn set(&self, slot: u32, words: [u64; 2]) {
        self.word(u64::from(slot) * 16).store(words[0].to_le(), Ordering::Relaxed);
        self.word(u64::from(slot) * 16 + 8).store(words[1].to_le(), Ordering::Release);
    }
}

fn buffer(slot: u32) -> u64 {
    BUFFERS + u64::from(slot) * STRIDE
}

enum Sender {
    E1000(rings::Transmit, TransmitSettings),
    Packed(Box<virtqueue::Transmit<Packed>>),
}

struct In {
    guest: Arc<Guest>,
    sender: Sender,
    bounce: Bounce,
    tail: Arc<AtomicU32>,
}

impl Input for In {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        let memory = &self.guest.memory;
        match &mut self.sender {
            Sender::E1000(ring, settings) => {
                let tail = self.tail.load(Ordering::Acquire);
                ring.collect(memory, &self.bounce, tail, settings, batch).expect("a good driver");
            }
            Sender::Packed(ring) => ring.collect(memory, &self.bounce, batch).expect("a good driver"),
        }
        Ok(())
    }
    fn release(&mut self) {
        match &mut self.sender {
            Sender::E1000(ring, _) => drop(ring.release(&self.guest.memory).expect("a good driver")),
            Sender::Packed(ring) => ring.release(&self.guest.memory).expect("a good driver"),
        }
    }
    fn discard(&mut self, _: usize) -> Result<Discarded, PortFault> {
        Ok(Discarded::default())
    }
    fn pending(&mut self) -> bool {
        true
    }
    fn arm(&mut self, _: WakeOn) -> Armed {
        Armed::Pending
    }
    fn disarm(&mut self) {}
}

enum Receiver {
    E1000(rings::Receive, Box<ReceiveSettings>),
    Packed(Box<virtqueue::Receive<Packed>>),
    Nobody,
}

struct Out {
    guest: Arc<Guest>,
    receiver: Receiver,
    tail: Arc<AtomicU32>,
}

impl Output for Out {
    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        let memory = &self.guest.memory;
        match &mut self.receiver {
            Receiver::E1000(ring, settings) => {
                let (mut received, tail) = (Received::default(), self.tail.load(Ordering::Acquire));
                let to = Destination { writable: memory, settings, tail };
                match frames.as_contiguous() {
                    Some(frames) => ring.deliver(&to, frames, &mut received, |_, _| ()),
                    None => ring.deliver(&to, frames, &mut received, |_, _| ()),
                }
                .expect("a good driver");
                counters.add_out(received.traffic.frames, received.bytes);
            }
            Receiver::Packed(ring) => {
                let mut tally = Tally::default();
                match frames.as_contiguous() {
                    Some(frames) => ring.deliver(memory, frames, &mut tally),
                    None => ring.deliver(memory, frames, &mut tally),
                }
                .expect("a good driver");
                counters.add_out(tally.frames, tally.bytes);
            }
            Receiver::Nobody => {}
        }
        Ok(())
    }
}

struct Silent;

impl Bell for Silent {
    fn ring(&self, _: CallReason) -> CallResult {
        CallResult::Unwanted
    }
}

/// The flags of an available descriptor in a lap, and what else is in its second word.
fn available(slot: u32, position: u32, len: u64, flags: u64) -> [u64; 2] {
    let wrap = (position / RING).is_multiple_of(2);
    let lap = if wrap { 1 << 7 } else { 1 << 15 };
    [buffer(slot), len | u64::from(slot) << 32 | (lap | flags) << 48]
}

#[inline(never)]
fn turn(switch: &Switch, input: &mut dyn Input, work: &mut Workspace, now: &Time) {
    let passed = pass(switch, switch.member(0).expect("a port"), input, work, now);
    assert!(passed.fault.is_none());
}

fn packed(guest: &Guest) -> Packed {
    // Nobody wants calls, or kicks.
    let events = u64::from(RING) * 16;
    let addresses = Addresses { descriptors: 0, driver: events, device: events + 64 };
    Packed::new(&guest.memory, addresses, RING as u16, 0x8000_8000, F_EVENT_IDX).expect("a ring")
}

/// Nanoseconds per frame.
fn measure(kind: &str, len: usize, turns: u32) -> f64 {
    let (from, to) = (Arc::new(Guest::new()), Arc::new(Guest::new()));
    let (sent, given) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(RING - 1)));
    let header = if kind == "packed" { 12 } else { 0 };
    for slot in 0..RING {
        let mut frame = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 0]].concat();
        frame.extend([0x88, 0xb5]);
        frame.resize(len, slot as u8);
        assert!(from.view(buffer(slot) + header, len).write(&frame));
        from.set(slot, [buffer(slot), len as u64 | 0xb << 24]);
        to.set(slot, [buffer(slot), 0]);
    }
    let mut settings = ReceiveSettings { strip_fcs: true, longest: 1518, ..ReceiveSettings::default() };
    settings.filters.set_address(0, 2, 0x8000_0100);
    let (sender, receiver) = match kind {
        "packed" => (
            Sender::Packed(virtqueue::Transmit::new(packed(&from), 12, usize::MAX, Accepts::NOTHING).into()),
            Receiver::Packed(virtqueue::Receive::new(packed(&to), 12, true).into()),
        ),
        _ => {
            let transmit = rings::Transmit::start(0, RING, 0).expect("a ring");
            let format = match kind {
                "e1000" => Format::Legacy { buffer: 2048 },
                _ => Format::Extended { buffer: 2048 },
            };
            let receive = rings::Receive::start(0, RING, 0, format).expect("a ring");
            let settings = Box::new(settings);
            (
                Sender::E1000(transmit, TransmitSettings { vlan: None, pad: true, longest: 16_288 }),
                Receiver::E1000(receive, settings),
            )
        }
    };
    let mut input = In { guest: Arc::clone(&from), sender, bounce: Bounce::default(), tail: Arc::clone(&sent) };
    let nobody = Out { guest: Arc::clone(&from), receiver: Receiver::Nobody, tail: Arc::clone(&given) };
    let output = Out { guest: Arc::clone(&to), receiver, tail: Arc::clone(&given) };
    let member =
        |index, output| Member::new(Owner::new(index, 0), Arc::new(Port::new("p", Box::new(output), Box::new(Silent))));
    let table = Arc::new(MacTable::new(1024, 64, [1, 2]));
    table.learn(Mac::new([2, 0, 0, 0, 0, 1]), Owner::new(1, 0), 1, |_| true);
    let members = vec![member(0, nobody), member(1, output)];
    let switch = Switch::new("lan0", members, table, Box::new(Learning), FloodPolicy::default());
    let mut work = Workspace::new(BATCH as usize);
    let mut position = 0;
    let began = Instant::now();
    for number in 0..turns {
        // A driver that had 256 more ready, and one that has taken what it was given.
        for _ in 0..BATCH {
            let slot = position % RING;
            if kind == "packed" {
                from.set(slot, available(slot, position, len as u64 + 12, 0));
                to.set(slot, available(slot, position, 2048, 2));
            } else {
                from.set(slot, [buffer(slot), len as u64 | 0xb << 24]);
                to.set(slot, [buffer(slot), 0]);
            }
            position += 1;
        }
        sent.store(position % RING, Ordering::Release);
        given.store((position + BATCH) % RING, Ordering::Release);
        let now = Time { nanoseconds: 1_000_000_000 + u64::from(number) * 10_000, ..Time::at_second(1) };
        turn(&switch, &mut input, &mut work, &now);
    }
    let each = began.elapsed().as_nanos() as f64 / f64::from(turns * BATCH);
    let counters = switch.member(1).expect("a port").port.counters().read();
    assert_eq!(counters.out_frames, u64::from(turns * BATCH), "all frames arrive");
    println!("{kind:8} {len:5} bytes: {} frames, {each:.2} ns each with the drivers", counters.out_frames);
    each
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [kind, len] = arguments.as_slice() {
        measure(kind, len.parse().expect("a frame's length"), 400);
        return;
    }
    for len in [60, 1514] {
        for _ in 0..3 {
            let each = KINDS.map(|kind| measure(kind, len, 20_000));
            println!("  of packed: {:.3} {:.3}", each[0] / each[2], each[1] / each[2]);
        }
    }
}
