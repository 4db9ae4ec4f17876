//! The kernel keeps a poller's thread in a client's memory: the other ports go on.

#![cfg(not(loom))]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringway_engine::{Engine, EngineSettings, Idle, Relieved};
use ringway_switch::{Tap, TappedFrame};
use support::{Cost, DEADLINE, Lan, kept, lock, wait_until, wait_until_some};

/// Two stations exchange frames, one at a time. Checks that each frame arrives.
fn exchange(lan: &Lan, pair: [usize; 2], frames: u64) {
    let [from, to] = pair.map(|n| &lan.stations[n]);
    for number in 0..frames {
        from.send(to.number, number);
        let (received, _) = to.receive(DEADLINE).expect("the frame arrives");
        let numbers: Vec<u64> =
            received.iter().filter(|frame| frame.from == from.number).map(|frame| frame.number).collect();
        assert_eq!(numbers, [number]);
    }
}

fn start(cores: Vec<usize>) -> (Engine, Lan) {
    start_with(cores, 6)
}

fn start_with(cores: Vec<usize>, stations: u16) -> (Engine, Lan) {
    let settings = EngineSettings { idle: Idle::Sleep, cores, ..EngineSettings::default() };
    let (engine, lan) = (Engine::start(&settings).expect("pollers"), Lan::new(stations, usize::MAX));
    // The stations 0 and 3 are on the first poller, 4 and 5 on the last one, and the bystanders where a test has them.
    let pollers = engine.pollers();
    engine.publish(lan.topology(|n| if n >= 4 || n == 1 || n == 2 { pollers - 1 } else { 0 }, |_| 1));
    exchange(&lan, [1, 2], 3);
    (engine, lan)
}

/// Has the kernel keep the thread that pays this cost next, by a frame between two stations.
fn keep(lan: &Lan, cost: &Cost, [from, to]: [usize; 2]) -> kept::Keeper {
    let (stay, keeper) = kept::stay();
    *lock(&cost.keep) = Some(stay);
    lan.stations[from].send(lan.stations[to].number, 7);
    wait_until("the kernel keeps a thread", || cost.is_paying());
    keeper
}

/// The frames that a port was given, or that were dropped there.
fn counted(lan: &Lan, port: usize) -> u64 {
    let read = lan.stations[port].port.counters().read();
    read.out_frames + read.drops().map(|(_, frames)| frames).sum::<u64>()
}

/// Waits until a thread is relieved, which serves one of these ports.
fn relieved(engine: &Engine, lan: &Lan, ports: &[usize]) {
    let reports =
        wait_until_some("a thread is relieved", || Some(engine.take_relieved()).filter(|all| !all.is_empty()));
    // On a machine that is busy, one that waits for the first may follow.
    let relieved = |port: &usize| Relieved { poller: 0, port: Some(lan.stations[*port].port.name().to_owned()) };
    assert!(ports.iter().map(relieved).any(|one| reports.first() == Some(&one)), "{reports:?}");
}

/// Checks that the frame for which a thread was kept arrives, and that its ports are served as before.
fn ends(engine: &Engine, lan: &Lan, [from, to]: [usize; 2]) {
    let (received, _) = lan.stations[to].receive(DEADLINE).expect("the frame arrives");
    assert_eq!(received.iter().map(|frame| (frame.from, frame.number)).collect::<Vec<_>>(), [(from as u16, 7)]);
    exchange(lan, [from, to], 20);
    exchange(lan, [to, from], 20);
    wait_until("pollers have adopted", || engine.is_settled());
    for station in 1..6 {
        assert_eq!(lan.stations[station].port.counters().read().drops().count(), 0, "station {station}");
    }
}

#[test]
fn a_thread_that_the_kernel_keeps_when_it_takes_frames_holds_up_no_other_port() {
    for _ in 0..3 {
        let (engine, lan) = start(Vec::new());
        let keeper = keep(&lan, &lan.stations[0].costs[0], [0, 3]);
        exchange(&lan, [1, 2], 200);
        relieved(&engine, &lan, &[0]);
        // Nobody touches that client's memory meanwhile.
        lan.stations[1].send(0, 1);
        exchange(&lan, [1, 2], 20);
        assert_eq!(lan.stations[0].port.counters().read().out_frames, 0);
        assert!(engine.stuck_pollers().is_empty() || engine.stuck_pollers().is_empty(), "the poller goes on");
        drop(keeper);
        ends(&engine, &lan, [0, 3]);
    }
}

#[test]
fn a_thread_that_the_kernel_keeps_when_it_gives_frames_holds_up_no_other_port() {
    let (engine, lan) = start(Vec::new());
    let keeper = keep(&lan, &lan.stations[0].costs[1], [3, 0]);
    exchange(&lan, [1, 2], 200);
    relieved(&engine, &lan, &[3, 0]);
    // Nobody waits for the output that the thread has.
    lan.stations[4].send(0, 1);
    exchange(&lan, [1, 2], 200);
    drop(keeper);
    wait_until("both frames are counted", || counted(&lan, 0) == 2);
    let received: Vec<_> = lan.stations[0].take().iter().map(|frame| (frame.from, frame.number)).collect();
    // The second one is dropped if visits were examined already, so that it is known whose memory keeps the thread.
    let is_known = lan.stations[0].port.counters().read().out_frames == 1;
    assert_eq!(received, [(3, 7), (4, 1)][..if is_known { 1 } else { 2 }]);
    exchange(&lan, [3, 0], 20);
}

#[test]
fn a_poller_that_waits_for_what_a_kept_thread_has_is_relieved_too() {
    let (_engine, lan) = start(support::cpus(2));
    let keeper = keep(&lan, &lan.stations[0].costs[1], [3, 0]);
    // The second poller waits for the output, or the frame goes by the detour already.
    lan.stations[4].send(0, 1);
    exchange(&lan, [1, 2], 200);
    exchange(&lan, [5, 1], 20);
    drop(keeper);
    wait_until("both frames are counted", || counted(&lan, 0) == 2);
    wait_until("the frame was taken", || lan.stations[4].unsent() == 0);
    exchange(&lan, [4, 5], 20);
}

#[test]
fn one_thread_after_the_other_is_kept_and_the_engine_ends_when_they_are_let_go() {
    let (engine, lan) = start(Vec::new());
    let keepers = [0, 3, 4].map(|n| keep(&lan, &lan.stations[n].costs[0], [n, 5]));
    exchange(&lan, [1, 2], 200);
    wait_until("no thread stands still", || engine.stuck_pollers().is_empty());
    drop(keepers);
    let mut received = Vec::new();
    wait_until("the frames arrive", || {
        received.extend(lan.stations[5].take().iter().map(|frame| frame.from));
        received.len() == 3
    });
    received.sort_unstable();
    assert_eq!(received, [0, 3, 4]);
    drop(engine);
    // Another engine serves the ports.
    let engine = Engine::start(&EngineSettings::default()).expect("a poller");
    engine.publish(lan.topology(|_| 0, |_| 1));
    exchange(&lan, [0, 5], 20);
}

/// Has the kernel keep each thread that pays one of these costs.
fn keep_each<'c>(costs: impl IntoIterator<Item = &'c Cost>) -> kept::Keeper {
    let (stay, keeper) = kept::stay();
    let stay = Arc::new(stay);
    costs.into_iter().for_each(|cost| *lock(&cost.keep_each) = Some(Arc::clone(&stay)));
    keeper
}

/// Lets the threads go, and further ones pass.
fn let_go<'c>(keeper: kept::Keeper, costs: impl IntoIterator<Item = &'c Cost>) {
    costs.into_iter().for_each(|cost| *lock(&cost.keep_each) = None);
    drop(keeper);
}

#[test]
fn a_client_whose_doorbell_keeps_each_thread_that_calls_it_keeps_one() {
    let (engine, lan) = start(Vec::new());
    let keeper = keep_each([&lan.stations[0].ringing]);
    lan.stations[3].send(0, 7);
    exchange(&lan, [1, 2], 200);
    relieved(&engine, &lan, &[0]);
    // Frames for it and its own ones lead nobody there either.
    lan.stations[4].send(0, 8);
    lan.stations[0].send(5, 9);
    exchange(&lan, [1, 2], 200);
    exchange(&lan, [4, 5], 20);
    assert_eq!(engine.take_relieved(), []);
    assert!(engine.stuck_pollers().is_empty() || engine.stuck_pollers().is_empty(), "the poller goes on");
    // The memory answers: the port comes back.
    let_go(keeper, [&lan.stations[0].ringing]);
    let (received, _) = lan.stations[5].receive(DEADLINE).expect("the frame arrives");
    assert_eq!(received.iter().map(|frame| (frame.from, frame.number)).collect::<Vec<_>>(), [(0, 9)]);
    wait_until("the first frame was given", || lan.stations[0].take().iter().any(|frame| frame.number == 7));
    exchange(&lan, [3, 0], 20);
    exchange(&lan, [0, 3], 20);
}

/// Has each of many ports of one client keep each thread that touches it, and checks that the others go on.
fn one_client_with_many_ports_keeps_few_threads(side: usize) {
    let (engine, lan) = start_with(Vec::new(), 86);
    let all = 6..86;
    lan.join(all.clone());
    let costs = || all.clone().map(|n| &lan.stations[n].costs[side]);
    let keeper = keep_each(costs());
    for n in all.clone() {
        let other = [1, 3, 5][n % 3];
        let (from, to) = if side == 0 { (n, other) } else { (other, n) };
        lan.stations[from].send(to as u16, 1000 + n as u64);
    }
    exchange(&lan, [4, 2], 100);
    exchange(&lan, [2, 4], 100);
    let reports = engine.take_relieved();
    // The first one is kept in the memory of either of two clients; then two are known to be this one's.
    assert!((1..=3).contains(&reports.len()), "{reports:?}");
    let_go(keeper, costs());
    wait_until("the ports are served", || lan.stations.iter().all(|station| station.unsent() == 0));
    wait_until("their frames have come", || lan.stations[4].take().is_empty() && lan.stations[85].take().is_empty());
    exchange(&lan, [85, 4], 20);
    exchange(&lan, [4, 85], 20);
}

#[test]
fn a_client_that_keeps_each_thread_that_takes_frames_from_any_of_its_ports_keeps_few() {
    one_client_with_many_ports_keeps_few_threads(0);
}

#[test]
fn a_client_that_keeps_each_thread_that_gives_frames_to_any_of_its_ports_keeps_few() {
    one_client_with_many_ports_keeps_few_threads(1);
}

/// A capture at which the kernel keeps the thread that gives it frames next, as in the memory of a sender while its frames are copied.
#[derive(Default)]
struct Stays {
    stay: Mutex<Option<kept::Stay>>,
    is_staying: AtomicBool,
}

impl Tap for Stays {
    fn see<'b, 'm: 'b>(&self, _: &mut dyn Iterator<Item = TappedFrame<'b, 'm>>) {
        let stay = lock(&self.stay).take();
        stay.inspect(|stay| {
            self.is_staying.store(true, Ordering::SeqCst);
            stay.stay();
        });
    }

    fn ring(&self) {}
}

#[test]
fn frames_come_while_another_ones_thread_is_kept_that_copies_frames_to_the_detour() {
    while !frames_come_while_a_second_thread_is_kept() {}
}

/// Returns false if visits were examined already, so that it was known whose memory keeps the first thread: then no second one is kept.
fn frames_come_while_a_second_thread_is_kept() -> bool {
    let settings = EngineSettings { idle: Idle::Sleep, ..EngineSettings::default() };
    let (engine, mut lan) = (Engine::start(&settings).expect("a poller"), Lan::new(6, usize::MAX));
    let tap = Arc::new(Stays::default());
    lan.tap(0, Arc::clone(&tap) as Arc<dyn Tap>);
    engine.publish(lan.topology(|_| 0, |_| 1));
    exchange(&lan, [1, 2], 3);
    // The first thread has the output, so that frames for the port take its detour. The second one is kept beside it.
    let first = keep(&lan, &lan.stations[0].costs[1], [3, 0]);
    relieved(&engine, &lan, &[3, 0]);
    let (stay, second) = kept::stay();
    *lock(&tap.stay) = Some(stay);
    lan.stations[4].send(0, 8);
    wait_until("the kernel keeps the second thread", || tap.is_staying.load(Ordering::SeqCst) || counted(&lan, 0) > 0);
    if !tap.is_staying.load(Ordering::SeqCst) {
        return false;
    }
    // Now the detour could end, but for the second one.
    drop(first);
    // A capture sees frames after they were left.
    wait_until("both frames are given", || counted(&lan, 0) == 2);
    exchange(&lan, [1, 2], 20);
    for number in 0..10_000 {
        let before = counted(&lan, 0);
        lan.stations[5].send(0, number);
        wait_until("the frame is counted", || counted(&lan, 0) > before);
        let drops: Vec<_> = lan.stations[0].port.counters().read().drops().collect();
        assert_eq!(drops, [], "frame {number}");
    }
    drop(second);
    lan.stations[0].take();
    exchange(&lan, [4, 0], 20);
    exchange(&lan, [0, 5], 20);
    true
}

/// `cargo test --profile tests -p ringway-engine --test relief -- --ignored --nocapture how_long`
#[test]
#[ignore = "a measurement"]
fn how_long_other_ports_stand_still() {
    let mut longest: Vec<Duration> = (0..25)
        .map(|_| {
            let (_engine, lan) = start(support::cpus(1));
            let keeper = keep(&lan, &lan.stations[0].costs[0], [0, 3]);
            let began = Instant::now();
            exchange(&lan, [1, 2], 1);
            let stood_still = began.elapsed();
            drop(keeper);
            stood_still
        })
        .collect();
    longest.sort_unstable();
    println!("{longest:.1?}");
}
