//! A client that brings its memory: any message, any files, any request, and then any slots in a ring.
//!
//! Only the whole message with one sealed memfd that is long enough brings a memory. Whatever the slots name then, nothing panics,
//! and a frame that arrives in one slot is bytes of the memory, from a multiple of its unit on.
#![no_main]

use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use libfuzzer_sys::fuzz_target;
use ringway_abi::attach::{MEMORY, Request};
use ringway_abi::doorbell::{INDEX, PAIR_BYTES, RX_SWITCH, TX_CLIENT};
use ringway_abi::layout::netmap_ring::SLOTS;
use ringway_abi::slot::NS_MOREFRAG;
use ringway_abi::{External, Shape, Slot};
use ringway_port_process::fuzzing::Memories;
use ringway_port_process::{self as process, ClientHandles, ExternalMemory};
use ringway_switch::{FloodPolicy, Mac, MacMap, MacTable, Member, Owner, Port, Switch, Time, Workspace, pass};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

const RING: u32 = 16;
const SIZE: u32 = 192;
/// Bytes of the largest file.
const MOST: u64 = 64 << 10;
/// Byte `at` of a memory: a broadcast from the port begins at each multiple of 64.
fn written(at: usize) -> u8 {
    match at % 64 {
        0..6 => 0xff,
        6 => 2,
        7..12 => 0,
        _ => (at * 7 + (at >> 8)) as u8,
    }
}

/// Bytes of the input, zeroes after its end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, others)) = self.0.split_first() else { return 0 };
        self.0 = others;
        *first
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.next(), self.next(), self.next(), self.next()])
    }
}

/// A file, whether it can be a memory, and its size.
fn file(bytes: &mut Bytes<'_>) -> (OwnedFd, bool, u64) {
    let kind = bytes.next();
    if kind % 8 == 7 {
        return (rustix::pipe::pipe().expect("a pipe").0, false, 0);
    }
    let flags = if kind % 8 == 6 { MemfdFlags::CLOEXEC } else { MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING };
    let size = if kind & 8 == 0 { MOST } else { u64::from(bytes.word()) % MOST };
    let file = memfd_create("fuzz", flags).expect("memory");
    ftruncate(&file, size).expect("a size");
    let contents: Vec<u8> = (0..size as usize).map(written).collect();
    assert_eq!(rustix::io::pwrite(&file, &contents, 0), Ok(size as usize));
    let seals = match kind % 8 {
        6 => return (file, false, size),
        5 => SealFlags::GROW,
        4 => SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
        _ => SealFlags::SHRINK,
    };
    fcntl_add_seals(&file, seals).expect("sealed");
    (file, kind % 8 != 5, size)
}

/// Puts any slots into the ring of a port that has the memory, and lets the switch take them.
fn send(request: &Request, memory: &Arc<ExternalMemory>, bytes: &mut Bytes<'_>) {
    let (layout, receiver) = (request.layout(3).expect("checked"), Shape { extra_buffers: 0, ..request.shape });
    let (sender, ends) = process::open_with("fuzz", layout, Some(Arc::clone(memory))).expect("a port");
    let (receiving, receiver) = process::open("fuzz", receiver, 5).expect("a port");
    let mut input = sender.input;
    let port = |output, bell| Arc::new(Port::new("fuzz", output, bell));
    let mac = |last| Mac::new([2, 0, 0, 0, 0, last]);
    let members: Vec<Member> = [port(sender.output, sender.bell), port(receiving.output, receiving.bell)]
        .into_iter()
        .zip(0..)
        .map(|(port, at)| Member { macs: vec![mac(at as u8)], ..Member::new(Owner::new(at, 0), port) })
        .collect();
    let forward = Box::new(MacMap::new(&members));
    let flood = FloodPolicy::default();
    let switch = Switch::new("fuzz", members, Arc::new(MacTable::new(64, 8, [3, 5])), forward, flood);
    let word = |ends: &ClientHandles, at: usize, slot: u32| {
        let view = ends.memory.mapping().view(at + SLOTS + slot as usize * 16, 16).expect("inside");
        view.words64().expect("aligned")[0].load(Ordering::Relaxed)
    };
    let mut is_whole = true;
    for slot in 0..RING - 1 {
        let near = bytes.next() % 4 > 0;
        let buffer = if near { bytes.word() % (layout.buffer_count + 2) } else { bytes.word() };
        let len = if near { u16::from(bytes.next()) % (SIZE as u16 + 2) } else { bytes.word() as u16 };
        let flags = u16::from(bytes.next());
        is_whole &= flags & NS_MOREFRAG == 0;
        let view = ends.memory.mapping().view(layout.tx_ring(0) + SLOTS + slot as usize * 16, 16).expect("inside");
        view.words64().expect("aligned")[0].store(Slot { buffer, len, flags }.to_word(), Ordering::Relaxed);
    }
    let bell = |ends: &ClientHandles, at: usize| {
        let view = ends.memory.mapping().view(ends.layout.doorbell(0), PAIR_BYTES).expect("inside");
        (view.words32().expect("aligned")[at]).load(Ordering::Acquire)
    };
    let doorbell = ends.memory.mapping().view(layout.doorbell(0), PAIR_BYTES).expect("inside");
    doorbell.words32().expect("aligned")[TX_CLIENT + INDEX].store(RING - 1, Ordering::Release);
    let mut work = Workspace::new(1 + usize::from(bytes.next()) % 40);
    while input.pending() {
        let member = switch.member(0).expect("a port");
        if pass(&switch, member, &mut *input, &mut work, &Time::at_second(1)).fault.is_some() {
            break;
        }
    }
    if !is_whole {
        return;
    }
    let whole: Vec<u8> = (0..request.external.expect("brought").bytes as usize).map(written).collect();
    for slot in 0..bell(&receiver, RX_SWITCH + INDEX) {
        let got = Slot::from_word(word(&receiver, receiver.layout.rx_ring(0), slot));
        let mut frame = vec![0; got.len.into()];
        let at = receiver.layout.buffer(got.buffer);
        assert!(receiver.memory.mapping().view(at, frame.len()).expect("inside").read(&mut frame));
        let is_there = whole.windows(frame.len()).step_by(layout.unit as usize).any(|bytes| bytes == frame);
        assert!(is_there, "{} bytes that are nowhere in the memory", frame.len());
    }
}

fuzz_target!(|data: &[u8]| {
    let mut bytes = Bytes(data);
    let shape = Shape {
        tx_slots: RING,
        rx_slots: RING,
        buffer_size: SIZE,
        extra_buffers: u32::from(bytes.next()) % 4,
        ..Shape::default()
    };
    let near = bytes.next() % 8 > 0;
    let external = match near {
        true => External {
            bytes: MOST - u64::from(bytes.next()),
            unit: 1 << (bytes.next() % 7),
            first: 2 + u32::from(bytes.next()),
        },
        false => External { bytes: bytes.word().into(), unit: bytes.word(), first: bytes.word() },
    };
    let request = Request { switch: "lan0".into(), port: "a".into(), shape, external: Some(external) };
    // As the server reads it.
    let Ok(request) = Request::decode(&request.encode()) else { return };
    let (files, can_be): (Vec<OwnedFd>, Vec<(bool, u64)>) = match bytes.next() % 8 {
        0 => 0..usize::from(bytes.next()) % 4,
        _ => 0..1,
    }
    .map(|_| file(&mut bytes))
    .map(|(file, is_memory, size)| (file, (is_memory, size)))
    .unzip();
    let mut message = MEMORY.to_vec();
    if bytes.next() % 8 == 0 {
        let at = usize::from(bytes.next()) % message.len();
        message[at] ^= bytes.next();
        message.truncate(message.len() - usize::from(bytes.next()) % 3);
    }
    let process = NonZeroU32::new(u32::from(bytes.next()) % 3);
    let mut memories = Memories::default();
    let taken = memories.take(&message, &files, external.bytes, process);
    let is_right = message == MEMORY && matches!(can_be[..], [(true, size)] if size >= external.bytes);
    assert_eq!(taken.is_ok(), is_right, "{taken:?}");
    let Ok(memory) = taken else { return };
    // The same process has the same mapping, and another one has none.
    let same = memories.take(&MEMORY, &files, external.bytes, process);
    assert_eq!(same.is_ok_and(|same| Arc::ptr_eq(&same, &memory)), process.is_some());
    assert!(memories.take(&MEMORY, &files, external.bytes, NonZeroU32::new(9)).is_err());
    send(&request, &memory, &mut bytes);
});
