//! The device's side of a virtqueue on memory with anything in it, for both formats.
//!
//! The first bytes of the input choose size, features and where things are, the next ones what changes between two rounds,
//! and the others are the memory: the ring's parts first, then what a guest has besides. Whatever it is: nothing panics,
//! every frame is given or counted, nothing but the ring is written by sending, and every page that is written is in the
//! dirty log. Around the guest's region nothing changes.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ringway_memory::Mapping;
use ringway_port::guest::{DirtyLog, GuestMemory, Region};
use ringway_port_vhost_user::InflightRange;
use ringway_port_vhost_user::virtqueue::{
    Addresses, Bounce, F_EVENT_IDX, F_IN_ORDER, F_INDIRECT_DESC, Receive, Ring, RingFault, Tally, Transmit,
};
use ringway_switch::{Accepts, BatchStorage, Gso, Offload};

const PAGE: usize = 4096;
/// Bytes of the region, in a file with more before and after.
const BYTES: usize = 4 * PAGE;
const LEAD: usize = PAGE + 64;
const FILE: usize = BYTES + 3 * PAGE;
/// Where the guest has it.
const BASE: u64 = 0x1_0000 + 64;
const GUARD: u8 = 0x5a;
const ROUNDS: usize = 3;
/// Bytes of the input before the memory.
const CHOICES: usize = 8 + ROUNDS * 8;

/// What the input chooses of a ring.
pub struct Choice {
    pub addresses: Addresses,
    pub size: u16,
    pub features: u64,
    pub base: u32,
}

struct Guest {
    memory: GuestMemory,
    whole: Mapping,
    log: Arc<DirtyLog>,
    marks: Mapping,
}

fn memfd(bytes: usize) -> (OwnedFd, Mapping) {
    let file = rustix::fs::memfd_create("fuzz", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
    rustix::fs::ftruncate(&file, bytes as u64).expect("memory");
    let mapping = Mapping::shared(file.as_fd(), bytes).expect("memory");
    (file, mapping)
}

impl Guest {
    fn new() -> Guest {
        let (file, whole) = memfd(FILE);
        assert!(whole.whole().write(&vec![GUARD; FILE]));
        let region = Region::map(&file, BASE, BYTES as u64, BASE, LEAD as u64).expect("a region");
        let (log, marks) = memfd(PAGE);
        let log = Arc::new(DirtyLog::map(&log, 4, 0).expect("a log"));
        Guest { memory: GuestMemory::new(vec![Arc::new(region)]), whole, log, marks }
    }

    fn fill(&self, bytes: &[u8]) {
        let mut all = vec![0; BYTES];
        let len = bytes.len().min(BYTES);
        all[..len].copy_from_slice(&bytes[..len]);
        assert!(self.whole.view(LEAD, BYTES).expect("inside").write(&all));
        assert!(self.marks.whole().write(&[0; 8]));
    }

    fn content(&self) -> Vec<u8> {
        let mut bytes = vec![0; FILE];
        assert!(self.whole.whole().read(&mut bytes));
        let (before, others) = bytes.split_at(LEAD);
        let (inside, after) = others.split_at(BYTES);
        let is_guard = |bytes: &[u8]| bytes == &[GUARD; FILE][..bytes.len()];
        assert!(is_guard(before) && is_guard(after), "a byte outside the region was written");
        inside.to_vec()
    }

    fn marks(&self) -> u64 {
        let mut marks = [0; 8];
        assert!(self.marks.whole().read(&mut marks));
        u64::from_le_bytes(marks)
    }
}

/// Offsets in the region whose bytes are not the same.
fn changed<'a>(before: &'a [u8], after: &'a [u8]) -> impl Iterator<Item = u64> + 'a {
    // Most lines are the same, and whole lines are compared faster.
    let lines = before.chunks(64).zip(after.chunks(64)).enumerate().filter(|(_, (old, new))| old != new);
    lines.flat_map(|(line, (old, new))| {
        let bytes = old.iter().zip(new).enumerate().filter(|(_, (old, new))| old != new);
        bytes.map(move |(at, _)| (64 * line + at) as u64)
    })
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Runs rings of one format, as `make` makes them, on the input. `size` turns a byte into a number of descriptors.
pub fn run<R: Ring>(data: &[u8], size: fn(u8) -> u16, make: impl Fn(&GuestMemory, &Choice) -> Option<R>) {
    thread_local!(static GUEST: Guest = Guest::new());
    if data.len() < CHOICES {
        return;
    }
    let (choices, memory) = data.split_at(CHOICES);
    let count = size(choices[0]);
    let parts = [16 * u64::from(count), 8 + 2 * u64::from(count), 8 + 8 * u64::from(count)];
    // One part after the other, or all over each other.
    let driver = if choices[1] & 1 == 0 { parts[0] } else { u64::from(choices[2]) };
    let device = if choices[1] & 2 == 0 { (parts[0] + parts[1]).next_multiple_of(4) } else { u64::from(choices[3]) };
    let chosen = |bit: u8, feature: u64| if choices[1] & bit != 0 { feature } else { 0 };
    let choice = Choice {
        addresses: Addresses { descriptors: BASE, driver: BASE + driver, device: BASE + device },
        size: count,
        features: chosen(4, F_INDIRECT_DESC) | chosen(8, F_EVENT_IDX) | chosen(16, F_IN_ORDER),
        base: word(&choices[4..]),
    };
    GUEST.with(|guest| {
        guest.fill(memory);
        let rings = [(); 4].map(|()| make(&guest.memory, &choice));
        let [Some(first), Some(second), Some(third), Some(fourth)] = rings else { return };
        let mergeable = choices[1] & 32 != 0;
        let header = if choices[1] & 64 != 0 { 10 } else { 12 };
        send(guest, Transmit::new(first, header, usize::MAX, Accepts::EVERYTHING), third, &choices[8..]);
        guest.fill(memory);
        receive(guest, Receive::new(second, header, mergeable), &choices[8..]);
        guest.fill(memory);
        take_over(guest, fourth, &choices[8..]);
        assert!(!guest.memory.is_lost());
    });
}

/// What the driver changes before the next round: a word anywhere.
fn disturb(guest: &Guest, choice: &[u8]) {
    let at = word(choice) as usize % (BYTES - 4);
    assert!(guest.whole.view(LEAD + at, 4).expect("inside").write(&choice[4..8]));
}

fn send<R: Ring>(guest: &Guest, mut queue: Transmit<R>, mut ring: R, choices: &[u8]) {
    queue.set_log(Some(Arc::clone(&guest.log)));
    let written = ring.written();
    let (mut bounce, mut fault) = (Bounce::default(), None);
    for choice in choices.chunks_exact(8) {
        bounce.begin().expect("memory");
        let before = guest.content();
        let limit = 1 + usize::from(choice[7]) % 64;
        let mut batch = BatchStorage::new(limit).into_batch();
        fault = fault.or(queue.collect(&guest.memory, &bounce, &mut batch).err());
        assert!(batch.len() <= limit);
        for index in 0..batch.len() {
            let frame = batch.frame(index);
            assert!((14..=65_597).contains(&frame.len()), "a frame of {} bytes", frame.len());
            let rest: usize = frame.rest().iter().map(|view| view.len()).sum();
            assert_eq!(frame.head_len() + rest, frame.len());
        }
        drop(batch);
        fault = fault.or(queue.release(&guest.memory).err());
        check(guest, &before, fault, |at| {
            written.iter().any(|&(start, len)| (start..start + len).contains(&(BASE + at)))
        });
        if fault.is_some() {
            return;
        }
        // The rest of the device's side, with a ring of its own on the same memory.
        ring.arm();
        let _ = (ring.pending(), ring.call_wanted(), ring.base());
        ring.disarm();
        queue.note_ring();
        disturb(guest, choice);
    }
}

fn receive<R: Ring>(guest: &Guest, mut queue: Receive<R>, choices: &[u8]) {
    // Without a log, frames take the short way where they can.
    let is_logged = choices.first().is_some_and(|choice| choice & 1 == 0);
    queue.set_log(is_logged.then(|| Arc::clone(&guest.log)));
    let source = Mapping::private(9000).expect("memory");
    assert!(source.whole().write(&[0xc3; 9000]));
    let tso = Offload { needs_csum: true, gso: Gso::Tcp4, gso_size: 1460, ..Offload::default() };
    for choice in choices.chunks_exact(8) {
        let before = guest.content();
        let len = 14 + word(choice) as usize % 8900;
        let first = len.min(128);
        let rests = [source.view(0, (len - first) / 2), source.view(1, (len - first).div_ceil(2))]
            .map(|rest| rest.expect("inside"));
        let mut batch = BatchStorage::new(2).into_batch();
        batch.draft().0.0 = [0xc3; 128];
        batch.seal(60, None);
        let (head, views) = batch.draft();
        head.0 = [0xc3; 128];
        views.extend(if len > first { &rests[..] } else { &[] });
        batch.seal(first, (choice[6] & 1 == 1).then_some(tso));
        let mut tally = Tally::default();
        let frames = (0..24).map(|number| batch.frame(number % 2));
        let fault = queue.deliver(&guest.memory, frames, &mut tally).err();
        assert_eq!(tally.frames + tally.full + tally.small + tally.long, 24, "each frame is given or counted");
        if is_logged {
            check(guest, &before, fault, |_| true);
        }
        if fault.is_some() {
            return;
        }
        disturb(guest, choice);
    }
}

/// Goes on where a predecessor says to have been, of whom a guest may have kept what is not true.
fn take_over<R: Ring>(guest: &Guest, mut ring: R, choices: &[u8]) {
    let size = u32::from(ring.size());
    for choice in choices.chunks_exact(8) {
        let held = if choice[3] & 1 == 0 { 0 } else { u64::from(word(&choice[4..])) << 32 | 7 };
        // Halves alike, as a ring's own place is stated.
        let place = |low: u8, high: u8| u32::from(u16::from_le_bytes([low, high])) * 0x1_0001;
        let noted =
            InflightRange { from: place(choice[0], choice[1] & 0x80), until: place(choice[2], choice[3] & 0x80), held };
        let before = guest.content();
        let chains = ring.take_over(&mut guest.memory.space(), noted);
        assert!(chains.len() <= size as usize, "more than the ring has");
        let descriptors = 16 * u64::from(size);
        assert!(changed(&before, &guest.content()).all(|at| at < descriptors), "written beside the ring");
        let _ = (ring.refresh(), ring.pending(), ring.room(), ring.base());
        disturb(guest, choice);
    }
}

/// What was written is in the log, and where it may be.
fn check(guest: &Guest, before: &[u8], fault: Option<RingFault>, may: impl Fn(u64) -> bool) {
    assert!(fault.is_none_or(|fault| !fault.name().is_empty() && fault != RingFault::MemoryLost));
    let (after, marks) = (guest.content(), guest.marks());
    for at in changed(before, &after) {
        assert!(may(at), "the byte at {at:#x} was written");
        assert!(marks >> ((BASE + at) / PAGE as u64) & 1 == 1, "the byte at {at:#x} is not in the log");
    }
}
