//! A driver, written from the manual and not from the device's side.

use std::sync::atomic::Ordering;

use ringway_port::testing::{Guest, bytes_of, fill_batch, memory_for};
use ringway_switch::BatchStorage;

use super::{
    Bounce, Completed, Destination, Filters, Receive, ReceiveSettings, Received, RingFault, Transmit, TransmitSettings,
};

pub type OffloadedFrame = (Vec<u8>, Option<ringway_switch::Offload>);

pub const TX: TransmitSettings = TransmitSettings { vlan: None, pad: false, longest: 16_288 };

/// Settings that accept every frame and leave out the frame check sequence.
pub fn open() -> ReceiveSettings {
    let mut filters = Filters::default();
    filters.set_control(1 << 3 | 1 << 4);
    ReceiveSettings { filters, strip_fcs: true, longest: 1518, ..ReceiveSettings::default() }
}

/// Command bits.
pub const EOP: u64 = 1 << 24;
pub const IFCS: u64 = 1 << 25;
pub const RS: u64 = 1 << 27;
pub const VLE: u64 = 1 << 30;
pub const IDE: u64 = 1 << 31;
/// An extended data descriptor.
pub const DATA: u64 = 1 << 29 | 1 << 20;
/// Descriptor done.
pub const DONE: u64 = 1 << 32;
/// The command bits with which Linux ends a frame.
pub const LAST: u64 = EOP | IFCS | RS;

/// Computes a frame check sequence bit by bit (IEEE 802.3, 3.2.9), with the lowest bit first.
pub fn fcs(frame: &[u8]) -> [u8; 4] {
    let shift = |sum: u32| sum >> 1 ^ if sum & 1 != 0 { 0xedb8_8320 } else { 0 };
    let sum = frame.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| shift(sum)));
    (!sum).to_le_bytes()
}

pub fn frame(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + seed * 31 + (at >> 8)) as u8 & !u8::from(at == 0)).collect()
}

/// A ring, as the driver sees it.
pub struct Ring {
    pub base: u64,
    pub count: u32,
    pub tail: u32,
}

impl Ring {
    pub fn new(guest: &Guest, count: u32) -> Ring {
        Ring { base: guest.alloc(count as usize * 16, 16), count, tail: 0 }
    }

    pub fn set(&self, guest: &Guest, at: u32, words: [u64; 2]) {
        for (place, word) in (0..).zip(words) {
            guest.word64(self.base + u64::from(at) * 16 + place * 8).store(word.to_le(), Ordering::Relaxed);
        }
    }

    pub fn get(&self, guest: &Guest, at: u32) -> [u64; 2] {
        [0, 8].map(|place| u64::from_le(guest.word64(self.base + u64::from(at) * 16 + place).load(Ordering::Relaxed)))
    }

    /// Adds a descriptor. Returns its index.
    pub fn put(&mut self, guest: &Guest, address: u64, word: u64) -> u32 {
        let at = self.tail;
        self.set(guest, at, [address, word]);
        self.tail = (at + 1) % self.count;
        at
    }

    /// Adds a frame in one descriptor. Returns its index.
    pub fn send(&mut self, guest: &Guest, frame: &[u8], flags: u64) -> u32 {
        let address = guest.place(frame);
        self.put(guest, address, frame.len() as u64 | flags)
    }
}

/// The result of a collect.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sent {
    pub frames: Vec<OffloadedFrame>,
    pub refused: usize,
    pub completed: Completed,
}

/// Collects up to `limit` frames once, and releases them.
pub fn collect_some(
    transmit: &mut Transmit,
    guest: &Guest,
    tail: u32,
    settings: &TransmitSettings,
    limit: usize,
) -> Result<Sent, RingFault> {
    thread_local!(static BOUNCE: std::cell::RefCell<Bounce> = std::cell::RefCell::default());
    BOUNCE.with_borrow_mut(|bounce| {
        bounce.begin().expect("memory");
        let mut batch = BatchStorage::new(limit).into_batch();
        let result = transmit.collect(&guest.memory, bounce, tail, settings, &mut batch);
        let frames: Vec<_> =
            (0..batch.len()).map(|index| (bytes_of(&batch, index), batch.frame(index).offload().copied())).collect();
        let refused = limit - frames.len() - batch.room();
        drop(batch);
        let released = transmit.release(&guest.memory);
        result.and(released).map(|completed| Sent { frames, refused, completed })
    })
}

/// Collects and releases as many frames as a batch holds.
pub fn collect(transmit: &mut Transmit, guest: &Guest, tail: u32) -> Result<Sent, RingFault> {
    collect_some(transmit, guest, tail, &TX, 256)
}

/// Delivers frames. The bytes after the head of each are in pieces of `piece` bytes.
pub fn deliver(
    receive: &mut Receive,
    guest: &Guest,
    frames: &[OffloadedFrame],
    piece: usize,
    settings: &ReceiveSettings,
    tail: u32,
) -> (Result<(), RingFault>, Received) {
    let source = memory_for(frames);
    let batch = fill_batch(&source, frames, piece);
    let mut received = Received::default();
    let all = (0..frames.len()).map(|index| batch.frame(index));
    let result = receive.deliver(
        &Destination { writable: &guest.memory, settings, tail },
        all,
        &mut received,
        |frame, received| {
            received.full += u64::from(received.judge(frame, settings));
        },
    );
    (result, received)
}
