//! Ends that are closed: their last frames, their slots, and who waits for what.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use ringway_abi::Slot;
use ringway_abi::doorbell::{INDEX, RX_CLIENT, RX_SWITCH, TX_CLIENT};
use ringway_abi::netmap::{Monitor, PipeRole, Polling, Register, Rings, Wish};
use ringway_abi::slot::NS_MOREFRAG;
use ringway_switch::contain;
use ringway_testing::file::take_count;
use ringway_testing::until;

use super::super::super::region::{Region, RegionError, Registration};
use super::super::Pipe;
use super::super::lane::Allowance;
use super::super::state::State;
use super::{End, SLOTS, both, close, pipe, region};

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
    assert!(!b.io.mover.pending(), "the other end waits for the next program");
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
fn a_step_waits_for_no_thread_that_has_the_pipe_and_other_ends_of_the_process_leave() {
    let region = region(1);
    let ends = || {
        let pipe = pipe();
        let (io, shared) = pipe.open(PipeRole::Master, &region, 0, NonZeroU32::new(1 << 30)).expect("an end");
        (pipe, io, shared)
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
