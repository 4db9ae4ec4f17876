//! Two programs and their pipe.
//!
//! - `moving`: visits of pollers. `closing`: ends that are closed, in steps.
//! - `order`: ends that are opened and closed in any order. `hostile`: a program that writes anything into its memory.

mod closing;
mod hostile;
mod moving;
mod order;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ringway_abi::doorbell::{INDEX, PAIR_BYTES, RX_CLIENT, RX_SWITCH, TX_CLIENT, TX_SWITCH};
use ringway_abi::layout::netmap_ring;
use ringway_abi::netmap::{PipeRole, Wish};
use ringway_abi::slot::{NS_MOREFRAG, SLOT_BYTES};
use ringway_abi::{Layout, Slot};
use ringway_runtime::Moved;
use ringway_switch::PortFault;
use ringway_testing::until;

use super::super::region::{Region, RegionPort};
use super::{Pipe, PipeIo};

const SLOTS: u32 = 16;

fn region(id: u16) -> Arc<Region> {
    let wish = Wish { tx_slots: SLOTS, rx_slots: SLOTS, ..Wish::default() };
    Region::new(id, &wish, 256 << 20).expect("a region")
}

/// An open end, and its client.
struct End {
    io: PipeIo,
    shared: Arc<RegionPort>,
    pipe: Arc<Pipe>,
    role: PipeRole,
    number: u32,
    /// The other end, as of the topology of its poller.
    adopted: Option<u32>,
}

impl End {
    fn open(pipe: &Arc<Pipe>, role: PipeRole, region: &Arc<Region>) -> End {
        End::open_by(pipe, role, region, 0)
    }

    /// Opens an end for a program with this number.
    fn open_by(pipe: &Arc<Pipe>, role: PipeRole, region: &Arc<Region>, process: u32) -> End {
        let (io, shared) = pipe.open(role, region, 0, NonZeroU32::new(process)).expect("an end");
        let number = pipe.numbers[role as usize].load(Ordering::SeqCst);
        End { io, shared, pipe: Arc::clone(pipe), role, number, adopted: None }
    }

    /// Its poller takes over the newest topology.
    fn adopt(&mut self) {
        let peer = Some(self.pipe.peer(self.role, self.number));
        if std::mem::replace(&mut self.adopted, peer) != peer {
            self.io.mover.adopt();
        }
    }

    fn pending(&mut self) -> bool {
        self.adopt();
        self.io.mover.pending()
    }

    fn layout(&self) -> &Layout {
        self.shared.layout()
    }

    /// The words of a ring pair's doorbell.
    fn words<T>(&self, pair: u16, take: impl Fn(&[AtomicU32]) -> T) -> T {
        let bell = self.shared.region().mapping().view(self.layout().doorbell(pair), PAIR_BYTES).expect("the doorbell");
        take(bell.words32().expect("words"))
    }

    fn word(&self, word: usize) -> u32 {
        self.words(0, |words| words[word].load(Ordering::SeqCst))
    }

    fn set_word(&self, word: usize, value: u32) {
        self.words(0, |words| words[word].store(value, Ordering::SeqCst));
    }

    fn slot(&self, ring: usize, at: u32) -> Slot {
        let at = ring + netmap_ring::SLOTS + at as usize * SLOT_BYTES;
        let view = self.shared.region().mapping().view(at, 8).expect("a slot");
        Slot::from_word(view.words64().expect("a word")[0].load(Ordering::SeqCst))
    }

    fn set_slot(&self, ring: usize, at: u32, slot: Slot) {
        let at = ring + netmap_ring::SLOTS + at as usize * SLOT_BYTES;
        let view = self.shared.region().mapping().view(at, 8).expect("a slot");
        view.words64().expect("a word")[0].store(slot.to_word(), Ordering::SeqCst);
    }

    /// Sends a frame of one byte; the sender has a free slot.
    fn send(&self, byte: u8, flags: u16) {
        let head = self.word(TX_CLIENT + INDEX);
        assert_ne!(head, self.word(TX_SWITCH + INDEX), "a slot is free");
        let ring = self.layout().tx_ring(0);
        let slot = self.slot(ring, head);
        self.shared.region().write(self.layout().buffer(slot.buffer), &[byte]);
        self.set_slot(ring, head, Slot { len: 1, flags, ..slot });
        self.set_word(TX_CLIENT + INDEX, (head + 1) % self.layout().shape.tx_slots);
    }

    /// Returns the frames that have come and were not returned, and returns them if `release` is set.
    fn received(&self, release: bool) -> Vec<u8> {
        let (mut at, tail, mut all) = (self.word(RX_CLIENT + INDEX), self.word(RX_SWITCH + INDEX), Vec::new());
        while at != tail {
            let slot = self.slot(self.layout().rx_ring(0), at);
            let mut byte = [0];
            let buffer = self.shared.region().mapping().view(self.layout().buffer(slot.buffer), 1).expect("a buffer");
            assert!(slot.len == 1 && buffer.read(&mut byte));
            all.push(byte[0]);
            at = (at + 1) % self.layout().shape.rx_slots;
        }
        if release {
            self.set_word(RX_CLIENT + INDEX, at);
        }
        all
    }

    /// Publishes frames of this many slots, with `len` bytes in each slot, in all free slots of a transmit ring. Returns their number.
    fn fill(&self, ring: u16, slots: u32, len: u16) -> u64 {
        let at = self.layout().tx_ring(ring);
        let frames = (self.layout().shape.tx_slots - 1) / slots;
        for number in 0..frames * slots {
            let flags = if number % slots == slots - 1 { 0 } else { NS_MOREFRAG };
            self.set_slot(at, number, Slot { len, flags, ..self.slot(at, number) });
        }
        self.words(ring, |words| words[TX_CLIENT + INDEX].store(frames * slots, Ordering::SeqCst));
        frames.into()
    }

    /// Visits the end once, in the topology that its poller has.
    fn collect(&mut self, batch: usize) -> (Result<(), PortFault>, Moved) {
        let mut moved = Moved::default();
        let result = self.io.mover.move_frames(batch, &mut moved);
        (result, moved)
    }

    /// Visits the end once, in the newest topology.
    fn visit(&mut self, batch: usize) -> Result<Moved, PortFault> {
        self.adopt();
        let (result, moved) = self.collect(batch);
        result.map(|()| moved)
    }

    /// Serves the end as a poller does.
    fn serve(&mut self) -> Result<(), PortFault> {
        while self.pending() && self.visit(4)?.more {}
        Ok(())
    }

    /// Closes the end, and waits until it has left.
    fn close(self) {
        close(&self.pipe, self.role);
    }
}

fn close(pipe: &Arc<Pipe>, role: PipeRole) {
    pipe.close(role);
    until("the end leaves", || pipe.is_closed(role));
}

fn pipe() -> Arc<Pipe> {
    Pipe::new(PipeRole::Master, &Wish { tx_slots: SLOTS, rx_slots: SLOTS, ..Wish::default() })
}

fn both(regions: &[Arc<Region>; 2], check: impl Fn(&Arc<Region>, &Arc<Region>)) {
    check(&regions[0], &regions[0]);
    check(&regions[0], &regions[1]);
}
