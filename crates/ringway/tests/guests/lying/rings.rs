//! Frames in and out of the guest's descriptor rings, with the status block (`ringway_abi::csb`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use ringway_abi::csb::{self, Csb};
use ringway_port::guest::GuestMemory;
use ringway_port_e1000::vfio_user::Dma;

use super::chip::{CSBAL, Chip, RCTL, RDBAL, RDH, RDT, RXT0, TCTL, TDBAL, TDH, TDT, TXDW};
use super::station;

const ENABLED: u32 = 1 << 1;
/// RCTL.SECRC: frames come without their check sequence.
const STRIP: u32 = 1 << 26;
/// Bits of a transmit descriptor's third word: end of packet, report status, extended descriptor.
const EOP: u32 = 1 << 24;
const RS: u32 = 1 << 27;
const DEXT: u32 = 1 << 29;
/// Bits of the fourth word: done. Of a receive descriptor also: end of packet, checksums were not looked at.
pub const DD: u32 = 1;
pub const RX_EOP: u32 = 1 << 1;
const IXSM: u32 = 1 << 2;
/// Error in the data (RXE), in the bits of the fourth word.
pub const RXE: u32 = 1 << 15;
/// Longest frame that the NIC sends in one piece: an MTU of 9,000 bytes.
const LONGEST: usize = 9018;
/// Most frames that wait for receive descriptors.
const MOST_WAITING: usize = 1024;
/// Words of a descriptor.
pub const WORDS: usize = 4;

/// Changes the words that a receive descriptor is completed with.
pub type Complete = dyn FnMut(&mut [u32; WORDS]) + Send;

/// The frames of a NIC.
#[derive(Default)]
pub struct Frames {
    /// Frames that the guest sent.
    pub sent: u64,
    /// The frame whose descriptors are being read.
    partial: Vec<u8>,
    /// Frames that wait for receive descriptors.
    pub waiting: VecDeque<Vec<u8>>,
}

impl Frames {
    /// Drops all that is on its way.
    pub fn forget(&mut self) {
        self.partial.clear();
        self.waiting.clear();
    }
}

/// What guest and device share.
pub struct Shared<'m> {
    pub transmit: &'m [AtomicU32],
    pub receive: &'m [AtomicU32],
    pub block: &'m [AtomicU32],
    /// Index of the first receive descriptor that the guest has not given.
    pub receive_tail: usize,
    /// Index of the receive descriptor that is the next.
    pub receive_head: usize,
}

impl<'m> Shared<'m> {
    /// Returns the rings and the status block, empty where there are none.
    pub fn of(chip: &Chip, memory: &'m Dma) -> Shared<'m> {
        let words = |address, len: u32| words(&memory.writable, address, len).unwrap_or_default();
        let ring = |base: u32, control| if chip.get(control) & ENABLED != 0 { chip.get(base + 8) } else { 0 };
        let block = chip.address(CSBAL);
        let mut shared = Shared {
            transmit: words(chip.address(TDBAL), ring(TDBAL, TCTL)),
            receive: words(chip.address(RDBAL), ring(RDBAL, RCTL)),
            block: words(block, if block == 0 { 0 } else { csb::BYTES as u32 }),
            receive_tail: 0,
            receive_head: chip.get(RDH) as usize,
        };
        shared.receive_tail = shared.csb().map_or(chip.get(RDT), Csb::receive_tail) as usize;
        shared
    }

    /// Returns the status block while the driver uses it.
    pub fn csb(&self) -> Option<Csb<'m>> {
        Csb::new(self.block).filter(|csb| csb.is_on())
    }

    /// Writes to the block how far the rings are.
    pub fn begin(&self, chip: &Chip) {
        if let Some(csb) = Csb::new(self.block) {
            csb.begin(chip.get(TDH), chip.get(RDH));
        }
    }

    /// Returns true if there are descriptors to send.
    pub fn is_pending(&self, chip: &Chip) -> bool {
        let tail = self.csb().map_or(chip.get(TDT), Csb::transmit_tail);
        tail != chip.get(TDH) && (tail as usize) < self.transmit.len() / WORDS
    }
}

fn words(memory: &GuestMemory, address: u64, len: u32) -> Option<&[AtomicU32]> {
    memory.view(address, len as usize)?.words32()
}

/// Sends what the guest has given. Answers go to the frames that wait.
pub fn transmit(chip: &mut Chip, memory: &Dma, frames: &mut Frames) {
    let shared = Shared::of(chip, memory);
    if !shared.is_pending(chip) {
        return;
    }
    let (csb, count) = (shared.csb(), shared.transmit.len() / WORDS);
    let tail = csb.map_or(chip.get(TDT), Csb::transmit_tail) as usize;
    let before = chip.get(TDH);
    let (mut head, mut reported) = (before as usize % count, false);
    while head != tail {
        let words = &shared.transmit[head * WORDS..][..WORDS];
        let [low, high, command] = [0, 1, 2].map(|at| words[at].load(Ordering::Acquire));
        let is_context = command & DEXT != 0 && command >> 20 & 0xf == 0;
        if !is_context {
            let len = command & if command & DEXT != 0 { 0xf_ffff } else { 0xffff };
            let mut part = vec![0; len as usize];
            // What is nowhere is sent as zeroes.
            let _ = memory.readable.read(u64::from(low) | u64::from(high) << 32, &mut part);
            frames.partial.extend(part);
            frames.partial.truncate(LONGEST + 1);
            if command & EOP != 0 {
                let frame = std::mem::take(&mut frames.partial);
                let is_answered = frame.len() <= LONGEST && frames.waiting.len() < MOST_WAITING;
                frames.sent += 1;
                frames.waiting.extend(station::answer(&frame).filter(|_| is_answered));
            }
        }
        if command & RS != 0 {
            words[3].fetch_or(DD, Ordering::Release);
            reported = true;
        }
        head = (head + 1) % count;
    }
    chip.set(TDH, head as u32);
    let wanted = csb.map_or(reported, |csb| {
        csb.sent(head as u32);
        fence(Ordering::SeqCst);
        csb.wants_sent(before, head as u32, count as u32)
    });
    chip.raise(if wanted { TXDW } else { 0 });
}

/// Gives the guest the frames that wait, as far as there are descriptors. `complete` changes what is written to each.
pub fn receive(chip: &mut Chip, memory: &Dma, frames: &mut Frames, mut complete: Option<&mut Complete>) {
    let shared = Shared::of(chip, memory);
    let (csb, count) = (shared.csb(), shared.receive.len() / WORDS);
    let tail = shared.receive_tail;
    if tail >= count {
        return;
    }
    let control = chip.get(RCTL);
    let size = 2048 >> (control >> 16 & 3);
    let size = if control & 1 << 25 != 0 && size < 2048 { size << 4 } else { size };
    let mut head = chip.get(RDH) as usize % count;
    let before = head;
    let free = |head: usize| (tail + count - head) % count;
    while let Some(frame) = frames.waiting.front() {
        let mut frame = frame.clone();
        frame.resize(frame.len().max(60) + if control & STRIP == 0 { 4 } else { 0 }, 0);
        if frame.len().div_ceil(size) > free(head) {
            break;
        }
        frames.waiting.pop_front();
        for (part, is_last) in frame.chunks(size).enumerate().map(|(at, part)| (part, (at + 1) * size >= frame.len())) {
            let words = &shared.receive[head * WORDS..][..WORDS];
            let [low, high] = [0, 1].map(|at| words[at].load(Ordering::Acquire));
            let buffer = memory.writable.view(u64::from(low) | u64::from(high) << 32, part.len());
            let arrived = buffer.is_some_and(|buffer| buffer.write(part));
            let end = if is_last { RX_EOP | IXSM } else { 0 };
            let mut done = [low, high, part.len() as u32, DD | end | if arrived { 0 } else { RXE }];
            if let Some(complete) = &mut complete {
                complete(&mut done);
            }
            for (word, value) in words.iter().zip(done) {
                word.store(value, Ordering::Release);
            }
            head = (head + 1) % count;
        }
    }
    if head == before {
        return;
    }
    chip.set(RDH, head as u32);
    let wanted = csb.is_none_or(|csb| {
        csb.received(head as u32);
        fence(Ordering::SeqCst);
        csb.wants_received()
    });
    chip.raise(if wanted { RXT0 } else { 0 });
}
