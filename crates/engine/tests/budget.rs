//! A poller's time: a port that takes too much is charged, and the others get their shares.

#![cfg(not(loom))]

mod support;

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringway_engine::{Engine, EngineSettings, Idle};
use ringway_memory::can_limit_holes;
use ringway_switch::{DropReason, PortFault, Role};
use ringway_testing::skip;
use support::{Cost, DEADLINE, Lan, Station, Step, lock};

const STALL: u64 = 5_000_000;
/// Frames that bystanders exchange while another port misbehaves.
const FRAMES: u64 = 200;

/// Two bystanders exchange frames, one at a time. Checks that each frame arrives.
fn exchange(lan: &Lan, pair: [usize; 2], frames: u64) {
    let [from, to] = pair.map(|n| &lan.stations[n]);
    for number in 0..frames {
        from.send(to.number, number);
        let (received, _) = to.receive(DEADLINE).expect("bystanders' frames arrive");
        let numbers: Vec<u64> =
            received.iter().filter(|frame| frame.from == from.number).map(|frame| frame.number).collect();
        assert_eq!(numbers, [number]);
    }
}

/// Sends a frame from `from` to `to` whenever all frames before were taken, until `stop` is set.
fn keep_sending(from: &Station, to: &Station, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        if from.unsent() == 0 {
            from.send(to.number, u64::MAX);
        }
        to.take();
        // Leaves the processor to the poller. It waits for nothing: a frame comes soon after the last one was taken.
        std::thread::sleep(Duration::from_micros(100));
    }
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Station 0 delays its poller while stations 1 and 2 exchange frames, until the engine marks station 0 as slow. Then
/// station 0 behaves well until the mark is gone.
/// Bystanders have ten times the share of station 0: work is charged if it takes half of a port's share of the time, and a poller may be
/// without its processor for most of that.
fn one_goes_too_far(idle: Idle, misbehave: impl Fn(&Station, bool), ways: [usize; 2]) -> Lan {
    let engine = Engine::start(&EngineSettings { idle, ..EngineSettings::default() }).expect("a poller");
    let lan = Lan::new(4, usize::MAX);
    engine.publish(lan.topology(|_| 0, |station| if station == 0 { 1 } else { 10 }));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        let [from, to] = ways.map(|n| &lan.stations[n]);
        scope.spawn(|| keep_sending(from, to, &stop));
        misbehave(&lan.stations[0], true);
        support::wait_until("the port is slow", || {
            exchange(&lan, [1, 2], 1);
            lan.slow(0).slow
        });
        exchange(&lan, [1, 2], FRAMES);
        misbehave(&lan.stations[0], false);
        support::wait_until("the port is no longer slow", || {
            std::thread::sleep(Duration::from_millis(10));
            let slow = lan.slow(0);
            !slow.slow && !slow.quarantined
        });
        // Frames flow again.
        let sent = from.port.counters().in_frames();
        support::wait_until("the port's frames are taken again", || from.port.counters().in_frames() > sent + 10);
    });
    for bystander in [1, 2] {
        assert_eq!(lan.slow(bystander).times, 0, "the bystander was charged: {:?}", lan.slow(bystander));
        assert_eq!(lan.stations[bystander].port.counters().read().drops().count(), 0);
    }
    lan
}

#[test]
fn a_port_whose_memory_stalls_the_poller_when_frames_are_taken_is_slow_and_forgiven_when_it_behaves() {
    for idle in [Idle::Spin, Idle::Sleep] {
        let stall = |station: &Station, on| station.costs[0].stall.store(if on { STALL } else { 0 }, Ordering::Relaxed);
        let lan = one_goes_too_far(idle, stall, [0, 3]);
        let slow = lan.slow(0);
        // How often it becomes slow, and how much of its stalls is charged, depends on what the machine does meanwhile: see
        // `budget_tests`.
        assert!(slow.times >= 1 && slow.longest_ns > 0, "{slow:?}");
        assert_eq!(lan.slow(3).times, 0, "a port that only receives was charged");
    }
}

#[test]
fn a_port_whose_watched_holes_stall_the_poller_is_in_quarantine_too() {
    if !can_limit_holes() {
        skip!("needs userfaultfd(2)");
    }
    let engine = Engine::start(&EngineSettings { idle: Idle::Sleep, ..EngineSettings::default() }).expect("a poller");
    let lan = Lan::new(4, usize::MAX);
    engine.publish(lan.topology(|_| 0, |_| 1));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        let [from, to] = [0, 3].map(|n: usize| &lan.stations[n]);
        scope.spawn(|| keep_sending(from, to, &stop));
        from.costs[0].is_watched.store(true, Ordering::Relaxed);
        from.costs[0].stall.store(STALL, Ordering::Relaxed);
        support::wait_until("the port is in quarantine", || {
            exchange(&lan, [1, 2], 1);
            lan.slow(0).quarantined
        });
    });
    (1..4).for_each(|other| assert_eq!(lan.slow(other).times, 0, "station {other} was charged"));
}

#[test]
fn a_port_whose_memory_stalls_the_poller_when_frames_are_given_to_it_is_slow_and_its_senders_are_not() {
    let stall = |station: &Station, on| station.costs[1].stall.store(if on { STALL } else { 0 }, Ordering::Relaxed);
    let lan = one_goes_too_far(Idle::Sleep, stall, [3, 0]);
    assert_eq!(lan.slow(3).times, 0, "a port that only sends to the slow port was charged: {:?}", lan.slow(3));
    let counters = lan.stations[0].port.counters().read();
    let lost = counters.dropped(DropReason::ReceiverSlow);
    let sent = lan.stations[3].port.counters().in_frames();
    assert_eq!(counters.out_frames + lost, sent, "each frame was delivered or counted");
}

#[test]
fn a_port_whose_memory_stalls_the_poller_when_it_is_asked_for_a_kick_is_slow_too() {
    let stall = |station: &Station, on| station.asking.stall.store(if on { STALL } else { 0 }, Ordering::Relaxed);
    let lan = one_goes_too_far(Idle::Sleep, stall, [0, 3]);
    assert_eq!(lan.slow(3).times, 0, "a port that only receives was charged: {:?}", lan.slow(3));
}

#[test]
fn a_port_whose_frames_take_long_to_compute_is_slow_but_served_by_its_own_poller() {
    let work = |station: &Station, on| station.costs[0].work.store(if on { 2_000_000 } else { 0 }, Ordering::Relaxed);
    let lan = one_goes_too_far(Idle::Spin, work, [0, 3]);
    assert!(lan.slow(0).charged_visits >= 3, "{:?}", lan.slow(0));
}

#[test]
fn a_processor_that_is_taken_away_while_a_port_is_served_and_is_not_accounted_for_is_charged_to_nobody() {
    let engine = Engine::start(&EngineSettings { idle: Idle::Spin, ..EngineSettings::default() }).expect("a poller");
    let lan = Lan::new(4, usize::MAX);
    engine.publish(lan.topology(|_| 0, |station| if station == 0 { 1 } else { 10 }));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        let [from, to] = [0, 3].map(|n: usize| &lan.stations[n]);
        scope.spawn(|| keep_sending(from, to, &stop));
        from.costs[0].stolen.store(2_000_000, Ordering::Relaxed);
        to.costs[1].stolen.store(1_000_000, Ordering::Relaxed);
        support::wait_until("the processor was taken away many times", || {
            exchange(&lan, [1, 2], 1);
            from.costs[0].paid.load(Ordering::Relaxed) >= 300 && to.costs[1].paid.load(Ordering::Relaxed) >= 300
        });
    });
    // Visits in which two accesses were interrupted may be charged for one of them, 200 us. 600 ms and 300 ms were taken away.
    for port in 0..4 {
        let seen = lan.slow(port);
        assert!(seen.longest_ns < 500_000 && seen.charged_ns <= 15_000_000 && !seen.quarantined, "{port}: {seen:?}");
    }
}

#[test]
fn a_port_that_hides_long_visits_among_many_short_ones_is_slow() {
    let work = |station: &Station, on| {
        station.costs[0].one_of.store(20, Ordering::Relaxed);
        station.costs[0].work.store(if on { 20_000_000 } else { 0 }, Ordering::Relaxed);
    };
    let lan = one_goes_too_far(Idle::Spin, work, [0, 3]);
    assert!(lan.slow(0).charged_visits >= 3, "{:?}", lan.slow(0));
}

/// Holds up a quarantine poller in an access to the port's memory. The port stays in quarantine for as long, as that poller ends
/// the quarantine.
fn hold_in_quarantine(cost: &Cost) -> MutexGuard<'_, ()> {
    support::wait_until_some("a quarantine poller stalls in the port's memory", || {
        let held = lock(&cost.hold);
        support::wait_until("a thread stalls in the port's memory", || cost.is_paying());
        // Without frames for so long that the quarantine has ended, it is a usual poller.
        cost.payer().starts_with("quarantine").then_some(held)
    })
}

/// The memory of station 0 stalls each thread that touches it, repeatedly. The poller of the others is not delayed.
fn is_quarantined(way: usize) {
    const LONG: u64 = 300_000_000;
    let engine = Engine::start(&EngineSettings { idle: Idle::Sleep, ..EngineSettings::default() }).expect("a poller");
    let lan = Lan::new(4, usize::MAX);
    engine.publish(lan.topology(|_| 0, |_| 1));
    let stop = AtomicBool::new(false);
    let [from, to] = if way == 0 { [0, 3] } else { [3, 0] }.map(|n: usize| &lan.stations[n]);
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        scope.spawn(|| keep_sending(from, to, &stop));
        lan.stations[0].costs[way].stall.store(LONG, Ordering::Relaxed);
        support::wait_until("the port is in quarantine", || {
            exchange(&lan, [1, 2], 1);
            lan.slow(0).quarantined
        });
        let served = lan.stations[0].costs[way].paid.load(Ordering::Relaxed);
        support::wait_until("a quarantine poller serves the port", || {
            lan.stations[0].costs[way].paid.load(Ordering::Relaxed) > served
        });
        // While a thread is stalled in the port's memory, the other ports are served.
        for _ in 0..3 {
            let cost = &lan.stations[0].costs[way];
            let held = hold_in_quarantine(cost);
            // A change of the topology does not wait for that thread either.
            engine.publish(lan.topology(|_| 0, |_| 1));
            support::wait_until("pollers have the new topology", || engine.is_taken_over());
            exchange(&lan, [1, 2], FRAMES);
            assert!(cost.is_paying() && !engine.is_settled());
            drop(held);
        }
        lan.stations[0].costs[way].stall.store(0, Ordering::Relaxed);
        support::wait_until("the port leaves quarantine", || {
            exchange(&lan, [1, 2], 1);
            !lan.slow(0).quarantined
        });
    });
    support::wait_until("the port's frames are taken again", || from.unsent() == 0);
    support::wait_until("pollers have adopted", || engine.is_settled());
    for bystander in 1..4 {
        assert_eq!(lan.slow(bystander).times, 0, "station {bystander} is charged: {:?}", lan.slow(bystander));
    }
    let counters = |n: usize| lan.stations[n].port.counters().read();
    assert_eq!(counters(1).drops().chain(counters(2).drops()).count(), 0);
    // Each frame from and to the port arrives or is counted.
    let (sent, got) = (counters(from.number.into()).in_frames, counters(to.number.into()));
    support::wait_until("each frame was delivered or counted", || {
        let got = counters(to.number.into());
        got.out_frames + got.dropped(DropReason::ReceiverSlow) == sent
    });
    assert!(got.out_frames > 0);
    [from, to].iter().for_each(|station| drop(station.take()));
    exchange(&lan, [0, 3], 10);
    exchange(&lan, [3, 0], 10);
}

#[test]
fn a_port_that_stalls_when_frames_are_taken_from_it_is_in_quarantine_until_it_behaves() {
    is_quarantined(0);
}

#[test]
fn a_port_that_stalls_when_frames_are_given_to_it_is_in_quarantine_until_it_behaves() {
    is_quarantined(1);
}

#[test]
fn an_engine_that_ends_with_a_port_in_quarantine_leaves_it_to_the_next() {
    let lan = Lan::new(4, usize::MAX);
    let start = || {
        let engine = Engine::start(&EngineSettings { idle: Idle::Sleep, ..EngineSettings::default() });
        let engine = engine.expect("a poller");
        engine.publish(lan.topology(|_| 0, |_| 1));
        engine
    };
    let engine = start();
    lan.stations[0].costs[1].stall.store(STALL, Ordering::Relaxed);
    let mut number = 0;
    support::wait_until("the port is in quarantine", || {
        if lan.stations[3].unsent() == 0 {
            lan.stations[3].send(0, number);
            number += 1;
        }
        lan.slow(0).quarantined
    });
    (0..5).for_each(|more| lan.stations[3].send(0, number + more));
    drop(engine);
    lan.stations[0].costs[1].stall.store(0, Ordering::Relaxed);
    lan.stations[0].take();
    let _engine = start();
    exchange(&lan, [1, 2], 10);
    support::wait_until("the port receives again", || {
        lan.stations[3].send(0, 0);
        !lan.stations[0].take().is_empty()
    });
    lan.stations[0].send(3, 0);
    support::wait_until("the port's frames arrive again", || !lan.stations[3].take().is_empty());
}

#[test]
fn a_port_in_quarantine_is_not_blamed_for_frames_that_others_left_for_it() {
    let engine = Engine::start(&EngineSettings { idle: Idle::Sleep, ..EngineSettings::default() }).expect("a poller");
    let lan = Lan::new(4, usize::MAX);
    engine.publish(lan.topology(|_| 0, |_| 1));
    let [victim, sender] = [0, 3].map(|n: usize| &lan.stations[n]);
    victim.costs[1].stall.store(STALL, Ordering::Relaxed);
    let mut number = 0;
    let mut send = || {
        if sender.unsent() == 0 {
            sender.send(0, number);
            number += 1;
        }
    };
    support::wait_until("the port is in quarantine", || {
        send();
        lan.slow(0).quarantined
    });
    // The next frames are left to the quarantine poller, which does not end the quarantine before it has delivered them.
    let held = support::wait_until_some("a quarantine poller stalls in the port's memory", || {
        let held = lock(&victim.costs[1].hold);
        support::wait_until("a thread stalls in the port's memory", || {
            send();
            victim.costs[1].is_paying()
        });
        victim.costs[1].payer().starts_with("quarantine").then_some(held)
    });
    victim.trap(Step::Deliver);
    support::wait_until("the last frame is taken", || sender.unsent() == 0);
    (0..3).for_each(|more| sender.send(0, 1 << 32 | more));
    support::wait_until("further frames are left", || sender.unsent() == 0);
    exchange(&lan, [1, 2], 1);
    drop(held);
    support::wait_until("the port has a fault", || victim.port.fault().is_some());
    let Some(PortFault::InternalError(defect)) = victim.port.fault() else { panic!("{:?}", victim.port.fault()) };
    assert_eq!(defect.role, Role::Receiver);
    assert_eq!(sender.port.fault(), None, "the sender lost frames, and has no fault");
    exchange(&lan, [1, 2], 10);
    support::wait_until("each frame is counted", || {
        let (sent, got) = (sender.port.counters().read().in_frames, victim.port.counters().read());
        sender.unsent() == 0 && got.out_frames + got.drops().map(|(_, count)| count).sum::<u64>() == sent
    });
}
