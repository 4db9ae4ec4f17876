//! Rings that a test fills and empties in place of the kernel.

use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use ringway_memory::{Mapping, View};
use ringway_netdevice::xdp::{Consumer, Entry, Producer, Transfer};
use ringway_switch::{BatchStorage, Bell, CallReason, CallResult, DropReason, PortFault};
use ringway_testing::skip;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::xdp::{XdpRingFlags, XdpRingOffset};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::input::Receiver;
use super::output::{Device, XdpOutput};
use super::queue::{RECEIVE, SendingSocket, TRANSMIT, TransmitRing};
use super::sending::{Sending, XdpBell};
use crate::positions::Positions;

/// Bytes of a chunk in copy mode.
const CHUNK: usize = 2048;
/// Where a ring has its indices, its flags and its entries.
const AT: XdpRingOffset = XdpRingOffset { producer: 0, consumer: 64, flags: Some(128), desc: 192 };
/// Bytes between the beginnings of two rings.
const APART: usize = 128 * 1024;

/// The rings of a queue, and the kernel's view of them.
struct Rings {
    file: OwnedFd,
    kernel: Mapping,
}

impl Rings {
    fn new() -> Rings {
        let file = memfd_create("rings", MemfdFlags::CLOEXEC).expect("a file");
        ftruncate(&file, 4 * APART as u64).expect("memory");
        let kernel = Mapping::shared(file.as_fd(), 4 * APART).expect("memory");
        Rings { file, kernel }
    }

    fn producer<const WORDS: usize>(&self, ring: usize, slots: u32) -> Producer<WORDS> {
        Producer::map(self.file.as_fd(), (ring * APART) as u64, &AT, slots).expect("a ring")
    }

    fn consumer<const WORDS: usize>(&self, ring: usize, slots: u32) -> Consumer<WORDS> {
        Consumer::map(self.file.as_fd(), (ring * APART) as u64, &AT, slots).expect("a ring")
    }

    fn set(&self, ring: usize, at: u64, value: u32) {
        let word = self.kernel.view(ring * APART + at as usize, 4).expect("a word");
        assert!(word.write(&value.to_ne_bytes()));
    }

    /// Puts entries into a receive ring.
    fn receive(&self, ring: usize, entries: &[Entry]) {
        for (index, entry) in entries.iter().enumerate() {
            let bytes = entry.words().map(u64::to_ne_bytes).concat();
            let at = ring * APART + AT.desc as usize + 16 * index;
            assert!(self.kernel.view(at, 16).expect("an entry").write(&bytes));
        }
        self.set(ring, AT.producer, entries.len() as u32);
    }
}

fn memory() -> Arc<Mapping> {
    Arc::new(Mapping::private((RECEIVE + TRANSMIT) as usize * CHUNK).expect("memory"))
}

/// Returns a socket to which empty messages can be sent, and the one that receives them.
fn socket() -> (OwnedFd, UdpSocket) {
    let [from, to] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    from.connect(to.local_addr().expect("an address")).expect("connected");
    to.set_nonblocking(true).expect("nonblocking");
    (from.into(), to)
}

fn sender(socket: OwnedFd, transmit: Producer<2>) -> SendingSocket {
    let ring = TransmitRing { queued: transmit.queued(&AT).expect("a ring"), filled: transmit };
    SendingSocket { socket, ring, transfer: Transfer::Copy, frames_of_a_call: 32 }
}

#[test]
fn an_entry_outside_of_the_memory_costs_its_frame_only() {
    let rings = Rings::new();
    let (fill, receive) = (rings.producer(0, 2 * RECEIVE), rings.consumer(1, RECEIVE));
    let position = Positions::new().and_then(|positions| positions.queue(0)).expect("positions");
    let mut receiver = Receiver::new(socket().0, memory(), (receive, fill), CHUNK, position);
    let end = u64::from(RECEIVE + TRANSMIT) * CHUNK as u64;
    let entry = |address, len, continues| Entry { address, len, continues, has_metadata: false };
    rings.receive(
        1,
        &[
            entry(0, 60, false),
            entry(end, 60, false),
            entry(end - 59, 60, false),
            entry(u64::MAX, u32::MAX, false),
            entry(CHUNK as u64, 2000, true),
            entry(u64::MAX - 10, 100, false),
            entry(2 * CHUNK as u64, 61, false),
        ],
    );
    let mut batch = BatchStorage::new(16).into_batch();
    receiver.collect(&mut batch, 1500);
    assert_eq!((0..batch.len()).map(|index| batch.frame(index).len()).collect::<Vec<_>>(), [60, 61]);
    drop(batch);
    receiver.release();
}

#[test]
fn a_full_transmit_ring_calls_the_kernel_once_in_a_batch_or_for_as_many_frames_as_it_takes() {
    for frames_of_a_call in [32, TRANSMIT] {
        let rings = Rings::new();
        rings.set(0, AT.flags.expect("flags"), XdpRingFlags::XDP_RING_NEED_WAKEUP.bits());
        let (from, to) = socket();
        let is_running = Arc::new(AtomicBool::new(true));
        let device = Device { longest: Arc::new(AtomicUsize::new(1518)), is_running, takes_pieces: true, before: 0 };
        let (sending, transmit) =
            Sending::new(SendingSocket { frames_of_a_call, ..sender(from, rings.producer(0, TRANSMIT)) });
        let chunks = Positions::new().and_then(|positions| positions.chunks()).expect("positions");
        let both = (transmit, rings.consumer(1, TRANSMIT));
        let mut output = XdpOutput::new(Arc::new(sending), memory(), both, chunks, device);
        let mut bytes = [0; 60];
        let mut batch = BatchStorage::new(1).into_batch();
        batch.push(View::private(&mut bytes), 60);
        let mut has_called = false;
        let results: Vec<_> =
            (0..TRANSMIT + 100).map(|_| output.queue(&batch.frame(0), 1518, &mut has_called)).collect();
        assert!(results[..TRANSMIT as usize].iter().all(Result::is_ok));
        assert!(results[TRANSMIT as usize..].iter().all(|result| *result == Err(DropReason::ReceiverFull)));
        let calls = (0..).take_while(|_| to.recv(&mut [0; 1]).is_ok()).count();
        assert_eq!(calls, (TRANSMIT / frames_of_a_call) as usize);
    }
}

/// A driver with zero copy goes on by itself once it was woken. Asked again and again, a device without a carrier would cost a processor.
#[test]
fn a_driver_with_zero_copy_is_woken_once_for_any_number_of_frames() {
    let rings = Rings::new();
    rings.set(0, AT.flags.expect("flags"), XdpRingFlags::XDP_RING_NEED_WAKEUP.bits());
    let (from, to) = socket();
    let with_zero_copy = SendingSocket { transfer: Transfer::ZeroCopy, ..sender(from, rings.producer(0, TRANSMIT)) };
    let (sending, mut transmit) = Sending::new(with_zero_copy);
    let bell = XdpBell(Arc::new(sending));
    (0..200)
        .for_each(|address| transmit.put(Entry { address, len: 60, continues: false, has_metadata: false }.words()));
    transmit.publish();
    assert_eq!(bell.ring(CallReason::Frames), CallResult::Called);
    assert_eq!((0..).take_while(|_| to.recv(&mut [0; 1]).is_ok()).count(), 1);
}

#[test]
fn a_socket_without_a_device_is_lost_with_what_waited() {
    let socket = match socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None) {
        Ok(socket) => socket,
        Err(error) => skip!("no XDP socket: {error}"),
    };
    let rings = Rings::new();
    rings.set(0, AT.flags.expect("flags"), XdpRingFlags::XDP_RING_NEED_WAKEUP.bits());
    let (sending, mut transmit) = Sending::new(sender(socket, rings.producer(0, TRANSMIT)));
    (0..3).for_each(|address| transmit.put(Entry { address, len: 60, continues: false, has_metadata: false }.words()));
    transmit.publish();
    assert_eq!(sending.is_down(|_| ()), Ok(false));
    assert!(!sending.send());
    let mut frames = 0;
    assert_eq!(sending.is_down(|cancelled| frames = cancelled.frames), Err(PortFault::DeviceLost));
    assert_eq!(frames, 3);
}

#[test]
fn entries_that_are_cancelled_are_skipped_by_the_kernel_and_reported_once() {
    let rings = Rings::new();
    let mut transmit = rings.producer::<2>(0, 8);
    let queued = transmit.queued(&AT).expect("a ring");
    // The indices wrap within the ring, and the kernel has taken the first two entries.
    for address in 0..6 {
        transmit.put(Entry { address, len: 60, continues: address == 3, has_metadata: false }.words());
    }
    transmit.publish();
    rings.set(0, AT.consumer, 2);
    let cancelled = || {
        let mut cancelled = Vec::new();
        queued.cancel(|words| cancelled.push((Entry::of(words).address, Entry::of(words).continues)));
        cancelled
    };
    assert_eq!(cancelled(), [(2, false), (3, true), (4, false), (5, false)]);
    assert_eq!(cancelled(), []);
    let all = rings.kernel.view(AT.desc as usize, 8 * 16).and_then(|view| view.words64()).expect("entries");
    let address = |entry: usize| AtomicU64::load(&all[2 * entry], Ordering::Relaxed);
    assert_eq!((0..6).map(address).collect::<Vec<_>>(), [0, 1, u64::MAX, u64::MAX, u64::MAX, u64::MAX]);
}

/// Words of a ring in which entries `released` to `end` are.
fn set_indices(rings: &Rings, ring: usize, released: u32, end: u32) {
    rings.set(ring, AT.consumer, released);
    rings.set(ring, AT.producer, end);
}

fn get(rings: &Rings, ring: usize, at: u64) -> u32 {
    let mut word = [0; 4];
    assert!(rings.kernel.view(ring * APART + at as usize, 4).expect("a word").read(&mut word));
    u32::from_ne_bytes(word)
}

/// The switch died after it had given back the chunks of the first `given` of `taken` entries, and had released the first `released` of these.
#[test]
fn a_successor_gives_back_each_chunk_that_was_taken_once_and_takes_the_other_frames() {
    for first in [0, 5, u32::MAX - 4] {
        for (released, given, taken) in [(0, 0, 0), (0, 0, 3), (0, 2, 3), (2, 2, 3), (0, 3, 3), (3, 3, 3), (1, 1, 9)] {
            let rings = Rings::new();
            for ahead in 0..9 {
                let address = u64::from(100 + ahead) * CHUNK as u64 + 256;
                let words = Entry { address, len: 60 + ahead, continues: false, has_metadata: false }.words();
                let at = APART + AT.desc as usize + 16 * (first.wrapping_add(ahead) % RECEIVE) as usize;
                let bytes = words.map(u64::to_ne_bytes).concat();
                assert!(rings.kernel.view(at, 16).expect("an entry").write(&bytes));
            }
            let filled = first.wrapping_add(RECEIVE + given);
            set_indices(&rings, 0, filled, filled);
            set_indices(&rings, 1, first.wrapping_add(released), first.wrapping_add(9));
            let positions = Positions::new().expect("positions");
            let position = || positions.queue(7).expect("positions");
            position().taken.store(first.wrapping_add(taken), Ordering::Relaxed);
            let both = (rings.consumer(1, RECEIVE), rings.producer(0, 2 * RECEIVE));
            let mut receiver = Receiver::new(socket().0, memory(), both, CHUNK, position());
            receiver.go_on().expect("such rings");
            let of = |index: u32| {
                let at = AT.desc as usize + 8 * (index % (2 * RECEIVE)) as usize;
                rings.kernel.view(at, 8).and_then(|view| view.first_word()).expect("an entry") / CHUNK as u64
            };
            let back: Vec<u64> = (given..taken).map(|entry| of(first.wrapping_add(RECEIVE + entry))).collect();
            assert_eq!(back, (given..taken).map(|entry| u64::from(100 + entry)).collect::<Vec<_>>());
            assert_eq!(get(&rings, 0, AT.producer), first.wrapping_add(RECEIVE + taken));
            assert_eq!(get(&rings, 1, AT.consumer), first.wrapping_add(taken));
            let mut batch = BatchStorage::new(16).into_batch();
            receiver.collect(&mut batch, 1500);
            let lens: Vec<usize> = (0..batch.len()).map(|index| batch.frame(index).len()).collect();
            assert_eq!(lens, (60 + taken as usize..69).collect::<Vec<_>>());
            drop(batch);
            assert_eq!(position().taken.load(Ordering::Relaxed), first.wrapping_add(9), "before any frame can arrive");
        }
    }
}

#[test]
fn positions_that_are_none_of_a_ring_are_refused() {
    for (given, taken) in [(1, 0), (0, 10), (u32::MAX, 0), (0, u32::MAX)] {
        let rings = Rings::new();
        let filled = RECEIVE.wrapping_add(given);
        set_indices(&rings, 0, filled, filled);
        set_indices(&rings, 1, 0, 9);
        let position = Positions::new().and_then(|positions| positions.queue(0)).expect("positions");
        position.taken.store(taken, Ordering::Relaxed);
        let both = (rings.consumer(1, RECEIVE), rings.producer(0, 2 * RECEIVE));
        assert!(Receiver::new(socket().0, memory(), both, CHUNK, position).go_on().is_err(), "{given} {taken}");
    }
}

#[test]
fn a_successor_has_all_chunks_of_sent_frames_but_those_that_the_kernel_has() {
    // Near the end of the indices, of which a chunk's place has one bit less.
    for first in [0, u32::MAX >> 1, u32::MAX - 2] {
        let rings = Rings::new();
        set_indices(&rings, 0, first, first);
        let positions = Positions::new().expect("positions");
        let open = || {
            let device = Device {
                longest: Arc::new(AtomicUsize::new(1518)),
                is_running: Arc::new(AtomicBool::new(true)),
                takes_pieces: true,
                before: 0,
            };
            let (sending, transmit) = Sending::new(sender(socket().0, rings.producer(0, TRANSMIT)));
            let sending = Arc::new(sending);
            let both = (transmit, rings.consumer(1, TRANSMIT));
            let chunks = positions.chunks().expect("positions");
            (XdpOutput::new(Arc::clone(&sending), memory(), both, chunks, device), sending)
        };
        let mut bytes = [0; 60];
        let mut batch = BatchStorage::new(1).into_batch();
        batch.push(View::private(&mut bytes), 60);
        let (mut output, _) = open();
        let queue = |output: &mut XdpOutput| {
            let chunk = output.next_chunk();
            assert_eq!(output.queue(&batch.frame(0), 1518, &mut false), Ok(()));
            chunk
        };
        let sent = queue(&mut output);
        (0..2).for_each(|_| _ = queue(&mut output));
        output.ring.publish();
        // Two more are in no ring when the switch dies. The kernel has taken the first frame.
        (0..2).for_each(|_| _ = queue(&mut output));
        rings.set(0, AT.consumer, first.wrapping_add(1));
        let all = TRANSMIT as usize;
        assert_eq!(open().0.free_chunks(), all - 3);
        // It has sent the frame.
        assert!(rings.kernel.view(APART + AT.desc as usize, 8).expect("an entry").write(&sent.to_ne_bytes()));
        rings.set(1, AT.producer, 1);
        let (mut output, sending) = open();
        assert_eq!(output.free_chunks(), all - 2);
        // The device went down, and the switch died before it had the chunks back.
        sending.queued.cancel(|_| ());
        assert_eq!(open().0.free_chunks(), all);
        // The kernel skips what was cancelled; a frame that is published is not free again, whatever the rings had before.
        rings.set(0, AT.consumer, first.wrapping_add(3));
        queue(&mut output);
        output.ring.publish();
        assert_eq!(open().0.free_chunks(), all - 1);
    }
}
