//! Ends that are opened and closed in any order, in one region and in two.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use ringway_abi::doorbell::{INDEX, PAIR_BYTES, RX_CLIENT, RX_SWITCH, TX_CLIENT, TX_SWITCH};
use ringway_abi::layout::netmap_ring;
use ringway_abi::netmap::{Monitor, PipeRole, Polling, Register, Rings, Wish};
use ringway_abi::slot::{NS_MOREFRAG, SLOT_BYTES};
use ringway_abi::{Layout, Slot};
use ringway_switch::contain;
use ringway_switch::{Moved, PortFault};
use ringway_testing::file::take_count;
use ringway_testing::until;

use super::super::region::{Region, RegionError, RegionPort, Registration};
use super::Pipe;
use super::lane::Allowance;
use super::state::State;
use crate::PortIo;

const SLOTS: u32 = 16;

fn region(id: u16) -> Arc<Region> {
    let wish = Wish { tx_slots: SLOTS, rx_slots: SLOTS, ..Wish::default() };
    Region::new(id, &wish, 256 << 20).expect("a region")
}

/// An open end, and its client.
struct End {
    sides: PortIo,
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
        let (sides, shared) = pipe.open(role, region, 0, NonZeroU32::new(process)).expect("an end");
        let number = pipe.numbers[role as usize].load(Ordering::SeqCst);
        End { sides, shared, pipe: Arc::clone(pipe), role, number, adopted: None }
    }

    /// Its poller takes over the newest topology.
    fn adopt(&mut self) {
        let peer = Some(self.pipe.peer(self.role, self.number));
        if std::mem::replace(&mut self.adopted, peer) != peer {
            assert!(self.sides.input.adopted(), "the poller visits it");
        }
    }

    fn pending(&mut self) -> bool {
        self.adopt();
        self.sides.input.pending()
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
        let mut batch = ringway_switch::BatchStorage::new(batch).into_batch();
        let result = self.sides.input.collect(&mut batch);
        drop(batch);
        self.sides.input.release();
        (result, self.sides.input.take_moved())
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

#[test]
fn frames_go_through_in_order_as_long_as_the_receiver_returns_slots() {
    both(&[region(1), region(2)], |first, second| {
        let pipe = pipe();
        let (mut a, mut b) = (End::open(&pipe, PipeRole::Master, first), End::open(&pipe, PipeRole::Slave, second));
        for round in 0..5u8 {
            (0..15).for_each(|number| a.send(round * 16 + number, 0));
            a.serve().expect("no fault");
            assert_eq!(a.word(TX_CLIENT + INDEX), a.word(TX_SWITCH + INDEX), "no slot is free");
            assert_eq!(b.received(true), (0..15).map(|number| round * 16 + number).collect::<Vec<_>>());
            assert!(b.pending());
            b.serve().expect("no fault");
            b.send(round, 0);
            b.serve().expect("no fault");
            assert_eq!(a.received(true), [round]);
            a.serve().expect("no fault");
        }
    });
}

#[test]
fn frames_wait_for_an_end_that_is_not_open_and_for_one_that_comes_again() {
    both(&[region(1), region(2)], |first, second| {
        let pipe = pipe();
        let mut a = End::open(&pipe, PipeRole::Master, first);
        (0..3).for_each(|number| a.send(number, 0));
        a.serve().expect("no fault");
        assert!(!a.pending(), "nobody receives");
        for round in 0..4 {
            let mut b = End::open(&pipe, PipeRole::Slave, if round % 2 == 0 { second } else { first });
            a.serve().expect("no fault");
            assert_eq!(b.received(false), [0, 1, 2], "round {round}");
            b.send(9, 0);
            b.serve().expect("no fault");
            assert_eq!(a.received(true), [9]);
            a.serve().expect("no fault");
            // Closed before a poller has seen what it sent.
            b.send(7, 0);
            b.close();
            assert_eq!(a.received(true), [7]);
            assert!(!a.pending() || a.serve().is_ok());
        }
    });
}

#[test]
fn a_receiver_that_closes_takes_frames_of_an_earlier_sender_along_and_the_senders_own_arrive_again() {
    let regions = [region(1), region(2), region(3)];
    for returned in 0..4 {
        let pipe = pipe();
        let mut b = End::open(&pipe, PipeRole::Slave, &regions[0]);
        for (byte, region) in [(0, &regions[1]), (2, &regions[2])] {
            let mut earlier = End::open(&pipe, PipeRole::Master, region);
            (byte..byte + 2).for_each(|byte| earlier.send(byte, 0));
            earlier.serve().expect("no fault");
            earlier.close();
        }
        let mut a = End::open(&pipe, PipeRole::Master, &regions[1]);
        (4..6).for_each(|byte| a.send(byte, 0));
        a.serve().expect("no fault");
        assert_eq!(b.received(false), [0, 1, 2, 3, 4, 5]);
        b.set_word(RX_CLIENT + INDEX, returned);
        b.serve().expect("no fault");
        b.close();
        let mut b = End::open(&pipe, PipeRole::Slave, &regions[0]);
        a.serve().expect("no fault");
        assert_eq!(b.received(true), [4, 5], "{returned} were returned");
        b.serve().expect("no fault");
        // Each of the sender's slots is free again.
        (0..15).for_each(|byte| a.send(byte, 0));
        a.serve().expect("no fault");
        assert_eq!(b.received(true), (0..15).collect::<Vec<_>>());
    }
}

#[test]
fn a_frame_that_a_closed_receiver_had_begun_to_return_does_not_arrive_in_part() {
    both(&[region(1), region(2)], |first, second| {
        for returned in 0..5 {
            let pipe = pipe();
            let (mut a, b) = (End::open(&pipe, PipeRole::Master, first), End::open(&pipe, PipeRole::Slave, second));
            (0..2).for_each(|byte| a.send(byte, NS_MOREFRAG));
            (2..4).for_each(|byte| a.send(byte, 0));
            a.serve().expect("no fault");
            b.set_word(RX_CLIENT + INDEX, returned);
            b.close();
            let mut b = End::open(&pipe, PipeRole::Slave, second);
            a.serve().expect("no fault");
            let whole: &[u8] = match returned {
                0 => &[0, 1, 2, 3],
                4 => &[],
                _ => &[3],
            };
            assert_eq!(b.received(true), whole, "{returned} slots were returned");
            b.serve().expect("no fault");
            (0..15).for_each(|byte| a.send(byte, 0));
            a.serve().expect("no fault");
            assert_eq!(b.received(true), (0..15).collect::<Vec<_>>());
        }
    });
}

#[test]
fn a_frame_of_several_slots_is_published_whole() {
    both(&[region(1), region(2)], |first, second| {
        let pipe = pipe();
        let (mut a, b) = (End::open(&pipe, PipeRole::Master, first), End::open(&pipe, PipeRole::Slave, second));
        (0..6).for_each(|number| a.send(number, NS_MOREFRAG));
        a.serve().expect("no fault");
        assert!(b.received(false).is_empty() && !a.pending(), "its end is not published");
        a.send(6, 0);
        a.serve().expect("no fault");
        assert_eq!(b.received(false), [0, 1, 2, 3, 4, 5, 6]);
    });
}

#[test]
fn a_frame_of_more_than_64_slots_is_a_fault_and_those_before_it_arrive() {
    let wish = Wish { tx_slots: 128, rx_slots: 128, ..Wish::default() };
    let regions = [1, 2].map(|id| Region::new(id, &wish, 256 << 20).expect("a region"));
    both(&regions, |first, second| {
        let pipe = Pipe::new(PipeRole::Master, &wish);
        let (mut a, mut b) = (End::open(&pipe, PipeRole::Master, first), End::open(&pipe, PipeRole::Slave, second));
        (0..63).for_each(|number| a.send(number, NS_MOREFRAG));
        a.send(63, 0);
        a.serve().expect("64 slots are a frame");
        assert_eq!(b.received(true), (0..64).collect::<Vec<_>>());
        b.serve().expect("no fault");
        a.send(0, 0);
        (1..66).for_each(|number| a.send(number, NS_MOREFRAG));
        assert_eq!(a.serve(), Err(PortFault::EndlessFrame));
        assert_eq!(b.received(false), [0]);
    });
}

#[test]
fn a_frame_that_fills_a_small_ring_and_has_no_end_is_a_fault() {
    both(&[region(1), region(2)], |first, second| {
        let pipe = pipe();
        let (mut a, b) = (End::open(&pipe, PipeRole::Master, first), End::open(&pipe, PipeRole::Slave, second));
        (0..14).for_each(|byte| a.send(byte, NS_MOREFRAG));
        a.serve().expect("a slot is free");
        a.send(14, NS_MOREFRAG);
        assert_eq!(a.serve(), Err(PortFault::EndlessFrame));
        assert!(b.received(false).is_empty());
    });
}

#[test]
fn every_buffer_goes_back_once_whichever_end_closes_first() {
    for roles in [[PipeRole::Master, PipeRole::Slave], [PipeRole::Slave, PipeRole::Master]] {
        let region = region(1);
        let free = region.free_buffers();
        let pipe = pipe();
        let [mut a, mut b] = roles.map(|role| End::open(&pipe, role, &region));
        assert_eq!(region.free_buffers(), free - 2 * SLOTS, "both ends have the same buffers");
        (0..9).for_each(|number| a.send(number, 0));
        (0..5).for_each(|number| b.send(number, 0));
        a.serve().and(b.serve()).expect("no fault");
        // The sender puts a buffer of another port into a free slot: its own goes there, and is in use.
        let (ring, head) = (a.layout().tx_ring(0), a.word(TX_CLIENT + INDEX));
        let (own, strange) = (a.slot(ring, head), 60_000);
        a.set_slot(ring, head, Slot { buffer: strange, ..own });
        a.close();
        assert_eq!(region.free_buffers(), free - 2 * SLOTS, "the end that stays has all of them");
        drop(b);
        close(&pipe, roles[1]);
        assert_eq!(region.free_buffers(), free - 1, "all but the one that another port has");
    }
}

#[test]
fn every_buffer_goes_back_once_if_both_ends_close_together() {
    let region = region(1);
    let free = region.free_buffers();
    let pipe = pipe();
    let [mut a, mut b] = [PipeRole::Master, PipeRole::Slave].map(|role| End::open(&pipe, role, &region));
    (0..5).for_each(|number| a.send(number, 0));
    a.serve().and(b.serve()).expect("no fault");
    (0..4).for_each(|number| a.send(number, 0));
    let mut leaving = [PipeRole::Master, PipeRole::Slave].map(|role| pipe.begin_close(role));
    drop((a, b));
    for leaving in &mut leaving {
        while leaving.step().is_some() {}
    }
    assert_eq!(region.free_buffers(), free);
}

#[test]
fn a_head_that_is_none_of_its_slots_is_a_fault() {
    let region = region(1);
    let pipe = pipe();
    let (mut a, mut b) = (End::open(&pipe, PipeRole::Master, &region), End::open(&pipe, PipeRole::Slave, &region));
    a.send(1, 0);
    a.serve().expect("no fault");
    b.set_word(RX_CLIENT + INDEX, 2);
    assert_eq!(b.serve(), Err(PortFault::RxHeadOutOfRange(2)));
    (1..15).for_each(|number| a.send(number, 0));
    // One more than is free would overwrite what the receiver has.
    a.set_word(TX_CLIENT + INDEX, 0);
    assert_eq!(a.serve(), Err(PortFault::TxHeadOutOfRange(0)));
    a.set_word(TX_CLIENT + INDEX, SLOTS);
    assert_eq!(a.serve(), Err(PortFault::TxHeadOutOfRange(SLOTS)));
}

/// The visits that move all frames of this kind in these rings. Each is as large as `check` allows.
fn visits(rings: u16, slots_of_frame: u32, len: u16, check: impl Fn(&Moved)) -> u64 {
    let wish = Wish {
        tx_rings: rings,
        rx_rings: rings,
        tx_slots: 128,
        rx_slots: 128,
        buffer_size: u32::from(len).max(2112),
        ..Wish::default()
    };
    let regions = [1, 2].map(|id| Region::new(id, &wish, 1 << 30).expect("a region"));
    let pipe = Pipe::new(PipeRole::Master, &wish);
    let mut a = End::open(&pipe, PipeRole::Master, &regions[0]);
    let _b = End::open(&pipe, PipeRole::Slave, &regions[1]);
    let mut left: u64 = (0..rings).map(|ring| a.fill(ring, slots_of_frame, len)).sum();
    for visit in 1.. {
        assert!(a.pending(), "a visit that leaves frames finds them the next time");
        let moved = a.visit(256).expect("no fault");
        assert!(moved.frames > 0, "each visit moves frames");
        check(&moved);
        left -= moved.frames;
        assert_eq!(moved.more, left > 0, "an unfinished visit says so");
        if left == 0 {
            return visit;
        }
    }
    unreachable!("visits have an end")
}

#[test]
fn a_visit_copies_2_mib_at_most_or_one_frame() {
    let check = |moved: &Moved| assert!(moved.bytes <= 2 << 20, "{} bytes in one visit", moved.bytes);
    // 15 frames of 523,776 bytes in each ring.
    assert_eq!(visits(3, 8, 65_472, check), 12, "four frames a visit");
    assert_eq!(visits(2, 64, 65_472, |moved| assert_eq!(moved.frames, 1)), 2);
}

#[test]
fn a_visit_counts_slots_not_frames() {
    assert_eq!(visits(16, 32, 64, |moved| assert!(moved.frames <= 256 / 32, "{} frames of 32 slots", moved.frames)), 6);
}

#[test]
fn a_visit_that_leaves_frames_finds_them_when_the_head_comes_round_to_where_it_was() {
    both(&[region(1), region(2)], |first, second| {
        let pipe = pipe();
        let (mut a, mut b) = (End::open(&pipe, PipeRole::Master, first), End::open(&pipe, PipeRole::Slave, second));
        a.send(0, 0);
        a.serve().expect("no fault");
        assert_eq!(b.received(true), [0]);
        b.serve().expect("no fault");
        (1..16).for_each(|number| a.send(number, 0));
        assert!(a.visit(4).expect("no fault").more);
        // The head is 0. One slot more comes back, and the head is 1 again: as it was when everything had been seen.
        assert_eq!(b.received(true), [1, 2, 3, 4]);
        b.serve().expect("no fault");
        a.send(16, 0);
        assert!(a.pending());
        a.serve().expect("no fault");
        assert_eq!(b.received(false), (5..17).collect::<Vec<_>>());
    });
}

#[test]
fn a_visit_gives_a_bounded_number_of_slots_back() {
    let wish = Wish { tx_slots: 128, rx_slots: 128, ..Wish::default() };
    let regions = [1, 2].map(|id| Region::new(id, &wish, 256 << 20).expect("a region"));
    both(&regions, |first, second| {
        let pipe = Pipe::new(PipeRole::Master, &wish);
        let (mut a, mut b) = (End::open(&pipe, PipeRole::Master, first), End::open(&pipe, PipeRole::Slave, second));
        a.fill(0, 1, 1);
        a.serve().expect("no fault");
        b.set_word(RX_CLIENT + INDEX, b.word(RX_SWITCH + INDEX));
        for returned in [49, 99] {
            assert!(b.pending() && b.visit(50).expect("no fault").more);
            assert_eq!(a.word(TX_SWITCH + INDEX), returned);
        }
        b.serve().expect("no fault");
        assert!(!b.pending());
        assert_eq!(a.word(TX_SWITCH + INDEX), 126);
    });
}

#[test]
fn an_end_that_closes_copies_nothing_on_the_callers_thread_and_all_its_frames_arrive() {
    let wish = Wish { tx_rings: 3, rx_rings: 3, tx_slots: 128, rx_slots: 128, buffer_size: 65_472, ..Wish::default() };
    let regions = [1, 2].map(|id| Region::new(id, &wish, 1 << 30).expect("a region"));
    let pipe = Pipe::new(PipeRole::Master, &wish);
    let a = End::open(&pipe, PipeRole::Master, &regions[0]);
    let mut b = End::open(&pipe, PipeRole::Slave, &regions[1]);
    b.serve().expect("no fault");
    (0..3).for_each(|ring| _ = a.fill(ring, 8, 65_472));
    let held = pipe.hold();
    // Returns although the pipe is in use.
    pipe.close(PipeRole::Master);
    assert!(!pipe.is_closed(PipeRole::Master));
    assert!(!b.sides.input.pending(), "the other end waits for the next program");
    drop(held);
    until("the end leaves", || pipe.is_closed(PipeRole::Master));
    for ring in 0..3 {
        assert_eq!(b.words(ring, |words| words[RX_SWITCH + INDEX].load(Ordering::SeqCst)), 15 * 8, "ring {ring}");
    }
    b.serve().expect("no fault");
}

#[test]
fn an_end_that_was_closed_is_refused_until_it_has_left_and_each_step_moves_2_mib_at_most() {
    let wish = Wish { tx_slots: 128, rx_slots: 128, buffer_size: 65_472, ..Wish::default() };
    let regions = [1, 2].map(|id| Region::new(id, &wish, 1 << 30).expect("a region"));
    let pipe = Pipe::new(PipeRole::Master, &wish);
    let a = End::open(&pipe, PipeRole::Master, &regions[0]);
    let b = End::open(&pipe, PipeRole::Slave, &regions[1]);
    a.fill(0, 8, 65_472);
    let mut leaving = pipe.begin_close(PipeRole::Master);
    for step in 1..=4 {
        assert!(is_closing(&pipe, PipeRole::Master, &regions[0]), "step {step}");
        assert_eq!(
            b.word(RX_SWITCH + INDEX),
            (step - 1) * 32,
            "who opens moves nothing; 2 MiB are four frames of 8 slots"
        );
        assert_eq!(leaving.step().is_none(), step == 4);
    }
    assert_eq!(b.word(RX_SWITCH + INDEX), 15 * 8);
    End::open(&pipe, PipeRole::Master, &regions[0]);
}

/// Says whether an open is refused because the end has not left, or the pipe is in use.
fn is_closing(pipe: &Arc<Pipe>, role: PipeRole, region: &Arc<Region>) -> bool {
    matches!(pipe.open(role, region, 0, None).map(|_| ()), Err(RegionError::Closing))
}

/// A registration of all rings.
fn all() -> Register {
    Register {
        name: "lan0:a}1".parse().expect("a name"),
        tx: Rings::All,
        rx: Rings::All,
        exclusive: false,
        wish: Wish::default(),
        extra_buffers: 0,
        region: 0,
        monitor: Monitor::default(),
        polling: Polling::default(),
    }
}

#[test]
fn each_step_of_a_close_moves_256_slots_at_most_and_calls_the_other_end() {
    let wish = Wish { tx_rings: 3, rx_rings: 3, tx_slots: 512, rx_slots: 512, ..Wish::default() };
    let regions = [1, 2].map(|id| Region::new(id, &wish, 1 << 30).expect("a region"));
    both(&regions, |first, second| {
        let pipe = Pipe::new(PipeRole::Master, &wish);
        let a = End::open(&pipe, PipeRole::Master, first);
        let b = End::open(&pipe, PipeRole::Slave, second);
        let called = Registration::new(&b.shared, &all(), [0; 6]).expect("a registration");
        (0..3).for_each(|ring| _ = a.fill(ring, 1, 1));
        let mut leaving = pipe.begin_close(PipeRole::Master);
        let received =
            || (0..3).map(|ring| b.words(ring, |words| words[RX_SWITCH + INDEX].load(Ordering::SeqCst))).sum();
        let mut before: u32 = 0;
        for step in 1.. {
            let has_left = leaving.step().is_none();
            assert!(received() - before <= 256, "step {step} moves {}", received() - before);
            before = received();
            assert_eq!(take_count(called.descriptors()[2]), 1, "step {step}");
            if has_left {
                break;
            }
        }
        assert_eq!(before, 3 * 511);
    });
}

#[test]
fn a_client_that_goes_on_publishing_after_its_end_was_closed_ends_with_the_slots_of_its_rings() {
    let wish = Wish { tx_slots: 512, rx_slots: 512, ..Wish::default() };
    let regions = [1, 2].map(|id| Region::new(id, &wish, 256 << 20).expect("a region"));
    let pipe = Pipe::new(PipeRole::Master, &wish);
    let a = End::open(&pipe, PipeRole::Master, &regions[0]);
    let mut b = End::open(&pipe, PipeRole::Slave, &regions[1]);
    a.fill(0, 1, 1);
    let mut leaving = pipe.begin_close(PipeRole::Master);
    for step in 1..=2 {
        assert_eq!(leaving.step().is_none(), step == 2, "512 slots are two steps");
        // The receiver returns everything, and the sender fills its ring again.
        b.set_word(RX_CLIENT + INDEX, b.word(RX_SWITCH + INDEX));
        b.serve().expect("no fault");
        a.set_word(TX_CLIENT + INDEX, (b.word(RX_SWITCH + INDEX) + 511) % 512);
    }
    assert!(pipe.is_closed(PipeRole::Master));
}

#[test]
fn who_opens_an_end_does_not_wait_for_a_thread_that_has_the_pipe() {
    let region = region(1);
    let pipe = pipe();
    let mut a = End::open(&pipe, PipeRole::Master, &region);
    let held = pipe.hold();
    assert!(is_closing(&pipe, PipeRole::Slave, &region));
    drop(held);
    let mut b = End::open(&pipe, PipeRole::Slave, &region);
    a.send(1, 0);
    a.serve().expect("no fault");
    assert_eq!(b.received(true), [1]);
    b.serve().expect("no fault");
}

#[test]
fn an_end_gets_no_frames_by_a_topology_without_it_and_its_clients_are_called_by_the_first_one_with_it() {
    both(&[region(1), region(2)], |first, second| {
        let pipe = pipe();
        let mut a = End::open(&pipe, PipeRole::Master, first);
        a.send(1, 0);
        a.serve().expect("no fault");
        for round in 0..3 {
            let b = End::open(&pipe, PipeRole::Slave, second);
            assert!(!a.sides.input.pending(), "its poller has another topology");
            assert_eq!(a.collect(4), (Ok(()), Moved::default()));
            assert!(b.received(false).is_empty(), "round {round}");
            let moved = a.visit(4).expect("no fault");
            assert!(moved.frames == 1 && moved.calls_again, "{moved:?}");
            assert_eq!(b.received(false), [1]);
            assert!(!a.visit(4).expect("no fault").calls_again, "once");
            b.close();
        }
    });
}

#[test]
fn the_input_of_an_end_that_has_left_moves_nothing_for_the_next_one() {
    both(&[region(1), region(2)], |first, second| {
        let pipe = pipe();
        let [mut old, b] =
            [(PipeRole::Master, first), (PipeRole::Slave, second)].map(|(role, region)| End::open(&pipe, role, region));
        old.serve().expect("no fault");
        close(&pipe, PipeRole::Master);
        let mut a = End::open(&pipe, PipeRole::Master, first);
        a.send(1, 0);
        // The topology of the poller still has the old end.
        // Its client has still returned and published something.
        old.set_word(RX_CLIENT + INDEX, 1);
        old.set_word(TX_CLIENT + INDEX, 1);
        assert!(!old.sides.input.pending(), "there is nothing to do for it");
        assert_eq!(old.collect(4), (Ok(()), Moved::default()));
        assert!(b.received(false).is_empty());
        a.serve().expect("no fault");
        assert_eq!(b.received(false), [1]);
        a.set_word(RX_CLIENT + INDEX, 9);
        assert_eq!(old.collect(4), (Ok(()), Moved::default()), "the fault is the new one's");
        assert_eq!(a.serve(), Err(PortFault::RxHeadOutOfRange(9)));
    });
}

#[test]
fn a_visit_that_ends_in_a_fault_says_what_it_has_moved() {
    let wish = Wish { tx_rings: 2, rx_rings: 2, tx_slots: SLOTS, rx_slots: SLOTS, ..Wish::default() };
    let regions = [1, 2].map(|id| Region::new(id, &wish, 256 << 20).expect("a region"));
    both(&regions, |first, second| {
        let mut moves = Vec::new();
        for bad in [0, 1] {
            let pipe = Pipe::new(PipeRole::Master, &wish);
            let (mut a, mut b) = (End::open(&pipe, PipeRole::Master, first), End::open(&pipe, PipeRole::Slave, second));
            a.visit(256).expect("no fault");
            b.fill(0, 1, 1);
            b.fill(1, 1, 1);
            b.visit(256).expect("no fault");
            a.words(0, |words| words[RX_CLIENT + INDEX].store(3, Ordering::SeqCst));
            a.fill(1 - bad, 1, 1);
            a.words(bad, |words| words[TX_CLIENT + INDEX].store(SLOTS, Ordering::SeqCst));
            let (result, moved) = a.collect(256);
            assert_eq!(result, Err(PortFault::TxHeadOutOfRange(SLOTS)));
            let came = b.words(1 - bad, |words| words[RX_SWITCH + INDEX].load(Ordering::SeqCst)).into();
            assert_eq!((moved.frames, moved.bytes, moved.returned), (came, came, 3));
            moves.push(came);
        }
        moves.sort_unstable();
        assert_eq!(moves, [0, 15], "one visit begins with the ring without the fault");
    });
}

#[test]
fn a_step_waits_for_no_thread_that_has_the_pipe_and_other_ends_of_the_process_leave() {
    let region = region(1);
    let ends = || {
        let pipe = pipe();
        let (sides, shared) = pipe.open(PipeRole::Master, &region, 0, NonZeroU32::new(1 << 30)).expect("an end");
        (pipe, sides, shared)
    };
    let in_use = [ends(), ends(), ends()];
    let held = in_use.each_ref().map(|(pipe, ..)| pipe.hold());
    in_use.iter().for_each(|(pipe, ..)| pipe.close(PipeRole::Master));
    let (free, ..) = ends();
    close(&free, PipeRole::Master);
    assert!(in_use.iter().all(|(pipe, ..)| !pipe.is_closed(PipeRole::Master)));
    drop(held);
    until("they leave", || in_use.iter().all(|(pipe, ..)| pipe.is_closed(PipeRole::Master)));
}

#[test]
fn a_step_counts_against_the_processes_of_both_ends_that_there_are() {
    let region = region(1);
    let pipe = pipe();
    let process = NonZeroU32::new;
    let open = |role, number| pipe.open(role, &region, 0, process(number)).expect("an end");
    let (_a, b) = (open(PipeRole::Master, 5), open(PipeRole::Slave, 6));
    let mut leaving = pipe.begin_close(PipeRole::Master);
    let held = pipe.hold();
    assert_eq!(leaving.step(), Some([process(5), process(6)]));
    drop(held);
    // Another program opens the other end meanwhile.
    close(&pipe, PipeRole::Slave);
    drop(b);
    let held = pipe.hold();
    assert_eq!(leaving.step(), Some([process(5), process(5)]));
    drop(held);
    let _b = open(PipeRole::Slave, 7);
    let held = pipe.hold();
    assert_eq!(leaving.step(), Some([process(5), process(7)]));
    drop(held);
    while leaving.step().is_some() {}
}

#[test]
fn a_step_works_only_under_the_processes_that_it_counts_against() {
    let regions = [region(1), region(2)];
    let pipe = pipe();
    let process = NonZeroU32::new;
    let a = End::open_by(&pipe, PipeRole::Master, &regions[0], 5);
    a.send(1, 0);
    let mut leaving = pipe.begin_close(PipeRole::Master);
    // Another program opens the other end after the step has got a thread.
    let b = End::open_by(&pipe, PipeRole::Slave, &regions[1], 7);
    assert_eq!(leaving.step(), Some([process(5), process(7)]));
    assert!(b.received(false).is_empty(), "the step was counted against process 5 only");
    assert_eq!(leaving.step(), None);
    assert_eq!(b.received(false), [1]);
}

#[test]
fn last_frames_whose_time_is_over_are_lost_and_the_end_leaves() {
    let wish = Wish { tx_slots: 512, rx_slots: 512, ..Wish::default() };
    let regions = [1, 2].map(|id| Region::new(id, &wish, 256 << 20).expect("a region"));
    both(&regions, |first, second| {
        let pipe = Pipe::new(PipeRole::Master, &wish);
        let a = End::open(&pipe, PipeRole::Master, first);
        let b = End::open(&pipe, PipeRole::Slave, second);
        a.fill(0, 1, 1);
        let mut leaving = pipe.begin_close(PipeRole::Master);
        pipe.end_patience(PipeRole::Master);
        assert_eq!(leaving.step(), None, "511 slots are two steps");
        assert!(pipe.is_closed(PipeRole::Master));
        assert!(b.word(RX_SWITCH + INDEX) <= 256);
        // The next program's frames get through.
        let mut next = End::open(&pipe, PipeRole::Master, first);
        b.set_word(RX_CLIENT + INDEX, b.word(RX_SWITCH + INDEX));
        next.send(7, 0);
        next.serve().expect("no fault");
        assert_eq!(b.received(false), [7]);
    });
}

#[test]
fn a_visit_whose_time_is_over_moves_no_part_of_a_frame() {
    both(&[region(1), region(2)], |first, second| {
        let pipe = pipe();
        let (mut a, b) = (End::open(&pipe, PipeRole::Master, first), End::open(&pipe, PipeRole::Slave, second));
        (0..2).for_each(|number| a.send(number, NS_MOREFRAG));
        a.send(2, 0);
        {
            let mut state = pipe.state.lock();
            let State { ends, lanes, .. } = &mut *state;
            let [from, to] = ends.each_ref().map(|end| end.as_ref().expect("an end"));
            let mut allowance = Allowance::new(256, u32::MAX).until(Instant::now());
            let taken = lanes[0][0].take(&from.tx[0], &to.rx[0], from.transfer(to), &mut allowance).expect("no fault");
            assert_eq!((taken.frames, taken.bytes, taken.head, lanes[0][0].published(&from.tx[0])), (0, 0, None, 3));
        }
        assert!(b.received(false).is_empty());
        a.serve().expect("no fault");
        assert_eq!(b.received(false), [0, 1, 2]);
    });
}

#[test]
fn an_end_hands_its_slots_over_a_ring_pair_at_a_time_whatever_the_other_end_does_meanwhile() {
    let wish = Wish { tx_rings: 3, rx_rings: 2, tx_slots: SLOTS, rx_slots: SLOTS, ..Wish::default() };
    let region = Region::new(1, &wish, 256 << 20).expect("a region");
    let free = region.free_buffers();
    for other_steps in [0, 1, 2, 3, 4] {
        let pipe = Pipe::new(PipeRole::Master, &wish);
        let mut a = End::open(&pipe, PipeRole::Master, &region);
        let mut b = End::open(&pipe, PipeRole::Slave, &region);
        a.fill(0, 1, 1);
        a.serve().expect("no fault");
        (0..5).for_each(|number| b.send(number, 0));
        b.serve().expect("no fault");
        let mut leaving = pipe.begin_close(PipeRole::Master);
        assert!(leaving.step().is_some(), "one of three ring pairs");
        if other_steps > 0 {
            drop((a, b));
            let mut other = pipe.begin_close(PipeRole::Slave);
            assert_eq!((0..other_steps).map_while(|_| other.step()).count(), other_steps.min(2));
            while leaving.step().is_some() || other.step().is_some() {}
        } else {
            b.set_word(RX_CLIENT + INDEX, 9);
            b.serve().expect("no fault");
            assert!(leaving.step().is_some() && leaving.step().is_none());
            b.set_word(RX_CLIENT + INDEX, b.word(RX_SWITCH + INDEX));
            b.serve().expect("no fault");
            drop(a);
            assert_eq!(region.free_buffers(), free - 5 * SLOTS, "the end that stays has all buffers");
            b.close();
        }
        assert_eq!(region.free_buffers(), free, "{other_steps} steps of the other end");
    }
}

#[test]
fn a_call_that_the_kernel_has_no_means_for_is_made_later_and_the_end_leaves_meanwhile() {
    let region = region(1);
    let pipe = pipe();
    let (a, b) = (End::open(&pipe, PipeRole::Master, &region), End::open(&pipe, PipeRole::Slave, &region));
    let called = Registration::new(&b.shared, &all(), [0; 6]).expect("a registration");
    b.shared.fail_calls(true);
    a.send(1, 0);
    let mut leaving = pipe.begin_close(PipeRole::Master);
    assert!(leaving.step().is_some(), "the call is left to do");
    assert!(pipe.is_closed(PipeRole::Master));
    // Another program has the end then, which the steps leave alone.
    let _next = End::open(&pipe, PipeRole::Master, &region);
    assert!(leaving.step().is_some());
    assert_eq!(take_count(called.descriptors()[2]), 0);
    b.shared.fail_calls(false);
    assert_eq!((leaving.step(), take_count(called.descriptors()[2])), (None, 1));
    assert!(!pipe.is_closed(PipeRole::Master));
}

#[test]
fn a_failure_of_the_thread_that_closes_an_end_ends_that_pipe_and_no_other() {
    let region = region(1);
    let (broken, whole) = (pipe(), pipe());
    let [a, mut b] = [PipeRole::Master, PipeRole::Slave].map(|role| End::open(&broken, role, &region));
    let [c, d] = [PipeRole::Master, PipeRole::Slave].map(|role| End::open(&whole, role, &region));
    a.send(1, 0);
    broken.break_lanes(PipeRole::Master);
    a.close();
    assert!(b.pending(), "its poller notices");
    let place = contain(|| b.visit(4)).expect_err("it fails as the thread did");
    assert_eq!(Some(&place), broken.failure.get());
    assert!(ringway_switch::take_receiving(), "its own client is not the cause");
    assert!(is_closing(&broken, PipeRole::Master, &region), "nobody else opens the broken pipe");
    b.close();
    c.send(2, 0);
    c.close();
    assert_eq!(d.received(false), [2]);
}
