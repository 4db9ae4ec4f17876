//! Messages, interrupts and register accesses of each way of driving the device, counted as in the papers.

use std::time::{Duration, Instant};

use ringway_port_e1000::{Accesses, Model};
use ringway_testing::until;
use ringway_traffic::e1000::Counters;
use ringway_traffic::{E1000Mode, E1000Options, Endpoint};

use crate::scene::{Lan, Lane, Way, exchange, mac};

/// Frames sent in each direction.
const COUNT: u64 = 5000;

/// Two drivers send [`COUNT`] frames each. Returns what the first one counted, and the time taken.
fn counted(way: Way, interval: Duration) -> (Counters, Duration) {
    let lan = Lan::of(way.model);
    let options = E1000Options { mode: way.mode, interval, ..E1000Options::default() };
    let mut lanes = [0, 1].map(|number| Lane::new(&lan, number, 60, &options));
    let (start, before) = (Instant::now(), lanes[0].endpoint.counters());
    exchange(&mut lanes, COUNT);
    let (after, taken) = (lanes[0].endpoint.counters(), start.elapsed());
    assert_eq!((before, after.frames), (Counters::default(), 2 * COUNT), "{way:?}");
    (after, taken)
}

#[test]
fn without_combining_every_frame_has_its_tail_write() {
    for way in Way::all()
        .into_iter()
        .filter(|way| matches!(way.mode, E1000Mode::Base | E1000Mode::Each | E1000Mode::Moderated))
    {
        let (counters, _) = counted(way, Duration::from_micros(250));
        assert_eq!(counters.tx_tail_writes, COUNT, "{way:?}");
        // The driver polls, without an interrupt, for frames that came before its first receive.
        let polled = counters.handled + 1;
        // One tail write for sixteen returned buffers, and one for the remaining buffers at each interrupt.
        assert!(counters.rx_tail_writes <= COUNT / 16 + polled, "{way:?}: {counters:?}");
        assert!(counters.interrupts > 0 && counters.handled <= counters.interrupts, "{way:?}: {counters:?}");
        assert_eq!(counters.posted, counters.register_writes, "{way:?}");
        // The driver reads the causes at each interrupt, and flushes the write of the mask by a read.
        let reads = if way.model == Model::E1000 { 3 } else { 2 };
        assert!(counters.register_reads <= reads * polled, "{way:?}: {counters:?}");
    }
}

#[test]
fn on_an_only_processor_each_frame_that_is_sent_has_its_interrupt() {
    for model in [Model::E1000, Model::E1000e] {
        let lan = Lan::of(model);
        let mut near = lan.driver(0, &E1000Options { mode: E1000Mode::Each, ..E1000Options::default() });
        // A driver unmasks interrupts when it has received as well as sent.
        assert_eq!(near.rx_batch(1, |_| ()), 0);
        let before = near.counters();
        for _ in 0..COUNT {
            assert!(near.tx_push(60, |frame| {
                frame.fill(0xff);
                frame[6..12].copy_from_slice(&mac(0).0);
            }));
        }
        let after = near.counters();
        assert_eq!((after.tx_tail_writes - before.tx_tail_writes, after.frames - before.frames), (COUNT, COUNT));
        assert_eq!(after.handled - before.handled, COUNT, "{model:?}");
        assert!(after.interrupts - before.interrupts >= COUNT, "{model:?}: {after:?}");
    }
}

#[test]
fn combined_frames_take_few_messages() {
    // With this interval, each interrupt finds many frames, also if a frame takes long.
    for way in Way::all().into_iter().filter(|way| way.mode == E1000Mode::Combining) {
        // One run of several must pass: a slow machine has an interrupt for every few frames.
        until("frames share their messages", || {
            let (counters, _) = counted(way, Duration::from_millis(4));
            // One at the start, at most one for each interrupt, and at most one after each interrupt.
            assert!(counters.tx_tail_writes <= 2 * counters.handled + 1, "{way:?}: {counters:?}");
            counters.messages() < COUNT
        });
    }
}

#[test]
fn with_a_status_block_tails_are_written_to_wake_the_device_only() {
    for way in Way::all().into_iter().filter(|way| way.mode == E1000Mode::Csb) {
        // One run of several must pass: the poller sleeps before each frame if the driver is not scheduled in between.
        until("few frames wake the device", || {
            let (counters, _) = counted(way, Duration::from_micros(250));
            // The device sees new buffers in memory. The driver writes the tail for frames only if the poller sleeps.
            assert_eq!(counters.rx_tail_writes, 0, "{way:?}: {counters:?}");
            assert!(counters.handled <= counters.interrupts, "{way:?}: {counters:?}");
            counters.tx_tail_writes < COUNT / 2
        });
    }
}

#[test]
fn interrupts_come_no_more_often_than_the_register_says() {
    // The device uses the machine's clock, so a driver that looks late cannot see more interrupts.
    for way in Way::all().into_iter().filter(|way| !matches!(way.mode, E1000Mode::Base | E1000Mode::Each)) {
        for interval in [Duration::from_micros(250), Duration::from_millis(4)] {
            let (counters, taken) = counted(way, interval);
            // In units of the register, and one more interrupt at each end.
            let units = interval.as_nanos() / 256 * 256;
            let most = taken.as_nanos() / units + 2;
            assert!(u128::from(counters.interrupts) <= most, "{way:?} {interval:?}: {} > {most}", counters.interrupts);
        }
    }
}

#[test]
fn a_port_counts_what_its_driver_does() {
    for way in Way::all() {
        let lan = Lan::of(way.model);
        let options = E1000Options { mode: way.mode, ..E1000Options::default() };
        let mut lanes = [0, 1].map(|number| Lane::new(&lan, number, 60, &options));
        let before = lan.accesses(0);
        exchange(&mut lanes, COUNT);
        let (driver, mut after) = (lanes[0].endpoint.counters(), lan.accesses(0));
        // The device may not have handled the last posted writes yet.
        let tails = driver.tx_tail_writes + driver.rx_tail_writes;
        let under_way = |after: &Accesses| {
            after.writes - before.writes < driver.register_writes || after.tails - before.tails < tails
        };
        until("the posted writes have arrived", || {
            after = lan.accesses(0);
            !under_way(&after)
        });
        assert_eq!(after.reads - before.reads, driver.register_reads, "{way:?}");
        assert_eq!(after.writes - before.writes, driver.register_writes, "{way:?}");
        assert_eq!(after.tails - before.tails, tails, "{way:?}");
        let answered = driver.answered - driver.register_reads;
        assert_eq!(after.unmasks - before.unmasks, answered, "{way:?}");
        // Since the device was made: what it raised while the driver began can be handled only now.
        assert!(after.interrupts >= driver.interrupts, "{way:?}: {after:?} {driver:?}");
    }
}

#[test]
fn mapped_tail_writes_take_no_message() {
    let way = Way { model: Model::E1000e, mode: E1000Mode::Mapped };
    let (counters, _) = counted(way, Duration::from_micros(250));
    assert_eq!((counters.tx_tail_writes, counters.rx_tail_writes), (0, 0), "{counters:?}");
    assert!(counters.mapped_accesses >= COUNT, "{counters:?}");
    // Each interrupt: causes, mask and its flush. Once more for the frames that came before the first receive.
    assert!(counters.messages() <= 3 * (counters.handled + 1), "{counters:?}");
}
