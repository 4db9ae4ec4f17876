//! The kernel keeps a poller's thread in a client's memory: the other ports go on.

#![cfg(not(loom))]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::{Duration, Instant};

use ringway_engine::{Engine, EngineSettings, Idle, Relieved};
use ringway_switch::policy::{Bucket, Excess, Limit, Rates};
use ringway_switch::{DetourRoom, Moderation, Policy, Tap, TappedFrame};
use support::client::{Client, movers};
use support::{Cost, DEADLINE, Lan, kept, lock, wait_until, wait_until_some};

/// Two stations exchange frames, one at a time. Checks that each frame arrives.
#[track_caller]
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
    let lan = Lan::new(stations, usize::MAX);
    (publish(EngineSettings { cores, ..EngineSettings::default() }, &lan), lan)
}

fn publish(settings: EngineSettings, lan: &Lan) -> Engine {
    let engine = Engine::start(&EngineSettings { idle: Idle::Sleep, ..settings }).expect("pollers");
    // The stations 0 and 3 are on the first poller, 4 and 5 on the last one, and the bystanders where a test has them.
    let pollers = engine.pollers();
    engine.publish(lan.topology(|n| if n >= 4 || n == 1 || n == 2 { pollers - 1 } else { 0 }, |_| 1));
    exchange(lan, [1, 2], 3);
    engine
}

/// Has the kernel keep the thread that pays this cost next, by a frame between two stations.
fn keep(lan: &Lan, cost: &Cost, [from, to]: [usize; 2]) -> kept::Keeper {
    let (stay, keeper) = kept::stay();
    *lock(&cost.keep) = Some(stay);
    lan.stations[from].send(lan.stations[to].number, 7);
    wait_until("the kernel keeps a thread", || is_kept_at(cost));
    keeper
}

/// Returns true if the thread that the test keeps next pays this cost. [`Cost::is_paying`] may still name a thread that the test let go and that
/// has not gone on yet.
fn is_kept_at(cost: &Cost) -> bool {
    lock(&cost.keep).is_none()
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

/// Sends frames, one at a time, until one arrives: those for a port that is shut are lost.
fn until_served(lan: &Lan, [from, to]: [usize; 2]) {
    wait_until("the port is served", || {
        let before = counted(lan, to);
        lan.stations[from].send(to as u16, 1);
        wait_until("the frame is counted", || counted(lan, to) > before);
        !lan.stations[to].take().is_empty()
    });
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
    until_served(&lan, [3, 0]);
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
    // It waits for that one no longer than for a while, as the poller that empties it has to be told to.
    let port = &lan.stations[0].port;
    wait_until("the detour ends", || port.begin_detour(Waker::noop().clone(), DetourRoom::Nothing, || ()));
    port.abandon_detour();
    exchange(&lan, [1, 2], 20);
    for number in 0..10_000 {
        let before = counted(&lan, 0);
        lan.stations[5].send(0, number);
        wait_until("the frame is counted", || counted(&lan, 0) > before);
        lan.stations[0].take();
        let drops: Vec<_> = lan.stations[0].port.counters().read().drops().collect();
        assert_eq!(drops, [], "frame {number}");
    }
    drop(second);
    exchange(&lan, [4, 0], 20);
    exchange(&lan, [0, 5], 20);
    true
}

/// Has the kernel keep a thread once more that pays this cost, and waits until another thread serves the poller's ports.
fn keep_and_relieve(engine: &Engine, lan: &Lan, cost: &Cost, pair: [usize; 2]) -> kept::Keeper {
    let keeper = keep(lan, cost, pair);
    exchange(lan, [1, 2], 3);
    wait_until("a thread is relieved", || !engine.take_relieved().is_empty());
    keeper
}

#[test]
fn a_port_whose_output_a_kept_thread_has_goes_on_sending_and_gets_its_frames_afterwards() {
    wait_until("nobody examined visits yet", || {
        let (engine, lan) = start(Vec::new());
        let keeper = keep_and_relieve(&engine, &lan, &lan.stations[0].costs[1], [3, 0]);
        lan.stations[4].send(0, 1);
        exchange(&lan, [1, 2], 20);
        wait_until("the frame was taken", || lan.stations[4].unsent() == 0);
        // Where visits were examined already, it is this port's memory that keeps the thread.
        let is_innocent = lan.stations[0].port.counters().read().drops().count() == 0;
        if is_innocent {
            exchange(&lan, [0, 5], 20);
        }
        drop(keeper);
        if is_innocent {
            let mut received = Vec::new();
            wait_until("both frames are given", || {
                received.extend(lan.stations[0].take().iter().map(|frame| frame.number));
                received.len() == 2
            });
            assert_eq!(received, [7, 1]);
            // The detour has ended, and further frames come directly.
            wait_until("pollers have adopted", || engine.is_settled());
            exchange(&lan, [4, 0], 20);
            assert_eq!(lan.stations[0].port.counters().read().drops().count(), 0);
        }
        is_innocent
    });
}

/// Brings a station's port into quarantine: it keeps two threads, one after the other.
fn quarantine(engine: &Engine, lan: &Lan, n: usize) {
    while !lan.slow(n).quarantined {
        let before = lan.slow(n).charged_visits;
        drop(keep_and_relieve(engine, lan, &lan.stations[n].costs[0], [n, 5]));
        wait_until("the port is charged", || lan.slow(n).charged_visits > before);
        lan.stations[5].take();
    }
}

#[test]
fn a_port_whose_output_a_kept_thread_has_comes_into_quarantine_as_any_other() {
    wait_until("nobody examined visits yet", || {
        let (engine, lan) = start(Vec::new());
        let keeper = keep_and_relieve(&engine, &lan, &lan.stations[0].costs[1], [3, 0]);
        lan.stations[4].send(0, 1);
        exchange(&lan, [1, 2], 20);
        wait_until("the frame was taken", || lan.stations[4].unsent() == 0);
        let is_innocent = lan.stations[0].port.counters().read().drops().count() == 0;
        if is_innocent {
            quarantine(&engine, &lan, 0);
            wait_until("a quarantine poller serves the port", || {
                if lan.stations[0].unsent() == 0 {
                    lan.stations[0].send(5, 8);
                }
                lan.stations[0].costs[0].payer().starts_with("quarantine")
            });
            lan.stations[4].send(0, 2);
            exchange(&lan, [1, 2], 20);
        }
        drop(keeper);
        if is_innocent {
            let mut received = Vec::new();
            wait_until("its frames are given", || {
                received.extend(lan.stations[0].take().iter().map(|frame| frame.number));
                received.len() == 3
            });
            assert_eq!(received, [7, 1, 2]);
        }
        is_innocent
    });
}

#[test]
fn a_poller_of_ports_in_quarantine_that_the_kernel_keeps_holds_up_no_other() {
    let (engine, lan) = start(Vec::new());
    quarantine(&engine, &lan, 0);
    // It is kept at another port of the same client, and has its output.
    let keeper = keep(&lan, &lan.stations[3].costs[1], [0, 3]);
    // A poller waits for that, or the port is shut already.
    lan.stations[4].send(3, 9);
    exchange(&lan, [1, 2], 200);
    exchange(&lan, [2, 5], 20);
    drop(keeper);
    wait_until("the frames are counted", || counted(&lan, 3) == 2);
    wait_until("the port is served", || {
        lan.stations[5].send(3, 10);
        lan.stations[3].take().iter().any(|frame| frame.number == 10)
    });
}

#[test]
fn each_thread_that_is_kept_is_charged_once_whatever_it_does_at_the_port() {
    // The first call, and the one with which the port is opened.
    let (engine, lan) = start(Vec::new());
    let ringing = &lan.stations[0].ringing;
    let first = keep_and_relieve(&engine, &lan, ringing, [3, 0]);
    let (stay, second) = kept::stay();
    *lock(&ringing.keep) = Some(stay);
    drop(first);
    exchange(&lan, [1, 2], 3);
    wait_until("the successor is kept", || is_kept_at(ringing));
    // It is that of a quarantine poller if the first stay was long.
    wait_until("it is relieved", || engine.relieved_threads() >= 2);
    drop(second);
    wait_until("both threads are charged", || lan.slow(0).charged_visits >= 2);
    drop(engine);
    let slow = lan.slow(0);
    assert_eq!((slow.quarantined, slow.charged_visits), (true, 2));

    // Visits are examined while another thread is kept, so that a thread would charge for itself.
    let (engine, lan) = start(Vec::new());
    let other = keep_and_relieve(&engine, &lan, &lan.stations[3].costs[0], [3, 5]);
    let examined = keep_and_relieve(&engine, &lan, &lan.stations[0].costs[0], [0, 5]);
    drop(examined);
    wait_until("the port is charged", || lan.slow(0).charged_visits > 0);
    drop(other);
    wait_until("the other port is charged", || lan.slow(3).charged_visits > 0);
    drop(engine);
    assert_eq!([0, 3].map(|n| lan.slow(n).charged_visits), [1, 1]);
}

#[test]
fn what_a_successor_does_besides_visits_is_charged() {
    let stall = |cost: &Cost| cost.stall.store(5_000_000, Ordering::Relaxed);
    // The frames of one station wait for a limit.
    let limit = |port: u16| {
        let mut limit = Limit::new(Rates { bits: None, frames: Some(Bucket::new(10, 2)) });
        limit.excess = Excess::Wait;
        (port == 3).then(|| Policy { ingress: Some(Arc::new(limit)), ..Policy::default() })
    };
    let lan = Lan::with_policies(6, usize::MAX, 0, limit);
    // The second poller examines its visits as its thread has relieved another one.
    let engine = publish(EngineSettings { cores: support::cpus(2), ..EngineSettings::default() }, &lan);
    let _keeper = keep_and_relieve(&engine, &lan, &lan.stations[4].costs[0], [4, 5]);
    let client = Client::default();
    let (mut mover, _) = movers(std::slice::from_ref(&client));
    stall(&client.adopting);
    wait_until("it is charged for being taken over", || {
        // Time in which the thread waited for its processor is subtracted, and may be all of it: then the next time counts.
        for poller in [1, 0] {
            let mut topology = lan.topology(|_| 1, |_| 1);
            mover.ports[0].poller = poller;
            topology.ports.extend(mover.ports.iter().cloned());
            engine.publish(topology);
            wait_until("pollers have adopted", || engine.is_settled());
        }
        mover.ports[0].source.slow().charged_visits > 0
    });

    stall(&lan.stations[3].waiting);
    wait_until("it is charged for being asked about events", || {
        if lan.stations[3].unsent() == 0 {
            lan.stations[3].send_together((0..40).map(|number| (5, number)));
        }
        lan.slow(3).charged_visits > 0
    });
}

#[test]
fn a_client_whose_ports_are_removed_while_they_keep_threads_keeps_two() {
    let (engine, lan) = start_with(Vec::new(), 12);
    lan.join(6..12);
    let publish = |first: usize| {
        let mut topology = lan.topology(|_| 0, |_| 1);
        topology.ports.drain(6..first);
        engine.publish(topology);
    };
    let keepers = [6, 7].map(|n| {
        let cost = &lan.stations[n].costs[0];
        let (removes, removed) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
        *lock(&cost.first) = Some(Box::new(move || {
            let _ = removes.0.send(());
            let _ = removed.1.recv();
        }));
        let (stay, keeper) = kept::stay();
        *lock(&cost.keep) = Some(stay);
        lan.stations[n].send(5, 7);
        removes.1.recv().expect("a thread visits the port");
        publish(n + 1);
        removed.0.send(()).expect("the thread waits");
        wait_until("the kernel keeps a thread", || is_kept_at(cost));
        exchange(&lan, [1, 2], 20);
        keeper
    });
    wait_until("all other ports of the client are shut", || {
        lan.stations[1].send(9, 1);
        lan.stations[9].port.counters().read().drops().count() > 0
    });
    lan.stations[8].send(5, 8);
    exchange(&lan, [1, 2], 20);
    assert_eq!(lan.stations[8].unsent(), 1);
    drop(keepers);
    wait_until("the port is served", || lan.stations[8].unsent() == 0);
}

#[test]
fn a_thread_that_goes_on_to_another_port_no_longer_counts_for_the_first() {
    let (engine, lan) = start(Vec::new());
    let first = keep_and_relieve(&engine, &lan, &lan.stations[0].costs[0], [0, 3]);
    let (stay, second) = kept::stay();
    *lock(&lan.stations[3].costs[1].keep) = Some(stay);
    drop(first);
    wait_until("the thread is kept at the other port", || is_kept_at(&lan.stations[3].costs[1]));
    wait_until("the first port is open", || {
        lan.stations[1].send(0, 1);
        lan.stations[0].take().iter().any(|frame| frame.number == 1)
    });
    assert_eq!(lan.slow(0).charged_visits, 1);
    drop(second);
    exchange(&lan, [0, 5], 20);
    drop(engine);
    assert_eq!(lan.slow(0).charged_visits, 1);
}

#[test]
fn a_thread_that_is_let_go_ends_its_visit() {
    let (engine, lan) = start(Vec::new());
    // A visit has several passes.
    engine.publish(lan.topology(|_| 0, |_| 8));
    let first = keep_and_relieve(&engine, &lan, &lan.stations[0].costs[0], [0, 5]);
    // The thread that takes the next batch has to be relieved: it is not the one that was relieved before.
    let (stay, second) = kept::stay();
    *lock(&lan.stations[0].costs[0].keep) = Some(stay);
    lan.stations[0].send_together((0..1000).map(|number| (4, number)));
    drop(first);
    exchange(&lan, [1, 2], 3);
    // On a busy machine the port is in quarantine already, and the successor is that of a quarantine poller.
    wait_until("the successor is relieved in the next visit", || engine.relieved_threads() >= 2);
    drop(second);
    wait_until("the port is served", || lan.stations[0].unsent() == 0);
}

/// Two calls have to be further apart than this.
const APART: Duration = Duration::from_millis(300);

/// Has a call to a station's client pending in the poller's list, as it was called before.
fn delay_call(lan: &Lan, n: usize) {
    let to = &lan.stations[n];
    to.port.set_moderation(Moderation::Fixed { interval: APART, above: None });
    wait_until("a call is pending", || {
        exchange(lan, [1, n], 1);
        to.ask();
        let before = lock(&to.calls).len();
        lan.stations[1].send(n as u16, 1);
        wait_until("the frame is given", || !to.take().is_empty());
        exchange(lan, [1, 2], 1);
        lock(&to.calls).len() == before
    });
}

#[test]
fn calls_that_were_pending_when_a_thread_was_kept_are_made_by_others() {
    let (engine, lan) = start(Vec::new());
    delay_call(&lan, 5);
    let keeper = keep_and_relieve(&engine, &lan, &lan.stations[0].costs[0], [0, 3]);
    assert!(lan.stations[5].is_called(DEADLINE));
    drop(keeper);
}

#[test]
fn calls_that_become_pending_after_a_thread_was_let_go_are_made_by_others() {
    let (engine, lan) = start(Vec::new());
    let to = &lan.stations[5];
    let keeper = keep_and_relieve(&engine, &lan, &lan.stations[0].costs[0], [0, 5]);
    // Called just before, so that the thread leaves its call pending. All others have asked this client anew before.
    to.port.set_moderation(Moderation::Fixed { interval: APART, above: None });
    to.ask();
    lan.stations[1].send(5, 1);
    assert!(to.is_called(DEADLINE));
    to.take();
    to.ask();
    drop(keeper);
    assert!(to.is_called(DEADLINE));
    assert_eq!(to.take().iter().map(|frame| frame.number).collect::<Vec<_>>(), [7]);
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
