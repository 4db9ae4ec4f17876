//! A panic retires the port that was being served, and nothing else.

#![cfg(not(loom))]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringway_engine::{Engine, EngineSettings, Idle, Topology};
use ringway_switch::policy::{Bucket, Egress, Excess, Limit, Rates};
use ringway_switch::{Batch, DropReason, Forward, MacMap, Member, Policy, PortFault, Role, Switch};
use support::{DEADLINE, Lan, Station, Step, lock};

#[test]
fn a_poller_that_does_not_go_round_is_named_and_one_that_sleeps_is_not() {
    for idle in [Idle::Spin, Idle::Sleep] {
        let settings = EngineSettings { cores: support::cpus(2), idle, ..EngineSettings::default() };
        let engine = Engine::start(&settings).expect("pollers");
        let lan = Lan::new(2, usize::MAX);
        engine.publish(lan.topology(usize::from, |_| 1));
        support::wait_until("pollers have adopted", || engine.is_settled());
        assert!(engine.stuck_pollers().is_empty(), "no check was made yet");
        support::wait_until("both pollers make progress", || engine.stuck_pollers().is_empty());
        let held = lock(&lan.stations[1].hold);
        lan.stations[1].send(0, 0);
        support::wait_until("a poller is blocked in the port", || lan.stations[1].is_being_taken());
        support::wait_until("only that poller is reported as stuck", || engine.stuck_pollers() == [1]);
        drop(held);
        support::wait_until("both pollers make progress again", || engine.stuck_pollers().is_empty());
    }
}

/// The scene in which a poller reaches a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scene {
    Plain,
    /// The source has a low ingress limit. Further frames are dropped.
    SourceDrops,
    /// The source has a low ingress limit. Further frames wait.
    SourceWaits,
    /// The receiver has a low egress limit. Further frames are dropped.
    ReceiverDrops,
    /// The receiver has a low egress limit. Further frames wait.
    ReceiverWaits,
    /// The receiver has no room.
    ReceiverFull,
    /// The receiver's bell asks for a call at a later time.
    ReceiverLater,
    /// The source is given the frames of its detour.
    SourceIsGiven,
    /// The source is given the frames of its detour, and its policies drop all frames.
    SourceWaitsAndIsGiven,
}

/// The part of the port that panics in a step. The port is retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Source,
    /// The source, for frames that other ports sent.
    Given,
    /// The receiver while frames are delivered to it. Source and receiver are retired.
    Filling,
    /// The bell of the receiver, after the pass.
    Bell,
}

use Scene::*;
use Whose::*;

const STEPS: &[(Step, Whose, Scene)] = &[
    (Step::Collect, Source, Plain),
    (Step::Collected, Source, Plain),
    (Step::Release, Source, Plain),
    (Step::Capabilities, Source, ReceiverWaits),
    (Step::Rewind, Source, ReceiverWaits),
    (Step::Discard, Source, SourceDrops),
    (Step::Capabilities, Source, ReceiverDrops),
    (Step::DiscardLike, Source, ReceiverDrops),
    (Step::Pending, Source, Plain),
    (Step::HasFrames, Source, SourceWaits),
    (Step::Arm, Source, Plain),
    (Step::Disarm, Source, Plain),
    (Step::TakeEvent, Source, SourceWaits),
    (Step::ArmForEvents, Source, SourceWaits),
    (Step::CountLate, Source, SourceWaits),
    (Step::RingRoom, Source, Plain),
    (Step::RingRoom, Given, SourceIsGiven),
    (Step::RingRoom, Given, SourceWaitsAndIsGiven),
    (Step::Queues, Filling, ReceiverFull),
    (Step::Room, Filling, ReceiverFull),
    (Step::Deliver, Filling, Plain),
    (Step::Delivering, Filling, Plain),
    (Step::Delivered, Filling, Plain),
    (Step::RingFrames, Bell, Plain),
    (Step::RingDue, Bell, ReceiverLater),
];

/// The ports of these tests: a source, the first receiver of its frames, and the receiver that panics; then another source and its
/// receiver that panics; then two bystanders.
const FIRST: [u16; 3] = [0, 1, 2];
const SECOND: [u16; 2] = [3, 4];
const BYSTANDERS: [u16; 2] = [5, 6];

fn policy(scene: Scene, port: u16) -> Option<Policy> {
    let limit = |excess| {
        let mut limit = Limit::new(Rates { bits: None, frames: Some(Bucket::new(10, 2)) });
        limit.excess = excess;
        limit
    };
    let ingress = |excess| Some(Policy { ingress: Some(Arc::new(limit(excess))), ..Policy::default() });
    let egress = |excess| Some(Policy { egress: Some(Arc::new(Egress::new(limit(excess)))), ..Policy::default() });
    match (scene, port) {
        (SourceDrops, 0 | 3) => ingress(Excess::Drop),
        (SourceWaits | SourceWaitsAndIsGiven, 0 | 3) => ingress(Excess::Wait),
        (ReceiverDrops, 2 | 4) => egress(Excess::Drop),
        (ReceiverWaits, 2 | 4) => egress(Excess::Wait),
        _ => None,
    }
}

/// Gives a poller time to fall asleep.
fn pause() {
    std::thread::park_timeout(Duration::from_micros(500));
}

/// Sends from one station to others until one of these has a fault.
fn drive(lan: &Lan, from: u16, to: &[u16], scene: Scene, what: &str) {
    let from = &lan.stations[usize::from(from)];
    let faulty = |port: &u16| lan.stations[usize::from(*port)].port.fault().is_some();
    // Some steps need a batch with frames for one port only.
    let to = if scene == ReceiverDrops { &to[to.len() - 1..] } else { to };
    let began = std::time::Instant::now();
    while !to.iter().any(faulty) && !faulty(&from.number) {
        assert!(began.elapsed() < DEADLINE, "no port has a fault: {what}");
        if from.unsent() < 64 {
            from.send_together(to.iter().cycle().take(4 * to.len()).map(|&to| (to, 0)));
        }
        from.raise_event();
        pause();
    }
}

/// The role in which a port is retired by this step.
fn fault_role(station: &Station, step: Step) -> Option<Role> {
    let fault = station.port.fault()?;
    assert!(!station.is_trapped(step) || fault.name() == "internal_error");
    let text = fault.to_string();
    assert_eq!(fault.name(), "internal_error", "{text}");
    assert!(text.contains("support/mod.rs:") && text.contains("(injected: "), "{text}");
    assert!(text.contains("a defect of Ringway"), "{text}");
    match fault {
        PortFault::InternalError(defect) => Some(defect.role),
        _ => None,
    }
}

/// Ends the other threads of a test, also when the test fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn check_step(step: Step, whose: Whose, scene: Scene, idle: Idle, pollers: usize) {
    let what = format!("{step:?}, {scene:?}, {idle:?}, {pollers} pollers");
    let settings = EngineSettings { cores: support::cpus(pollers), idle, ..EngineSettings::default() };
    let engine = Engine::start(&settings).expect("pollers");
    let lan = Lan::with_policies(7, usize::MAX, 0, |port| policy(scene, port));
    let station = |port: u16| &lan.stations[usize::from(port)];
    for victim in [FIRST[0], FIRST[2], SECOND[0], SECOND[1]].map(station) {
        victim.keeps.store(scene == ReceiverWaits, Ordering::Relaxed);
        victim.discards_like.store(true, Ordering::Relaxed);
        let is_given = matches!(scene, SourceIsGiven | SourceWaitsAndIsGiven);
        victim.gives_left.store(is_given, Ordering::Relaxed);
    }
    for receiver in [FIRST[2], SECOND[1]].map(station) {
        receiver.rings_later.store(scene == ReceiverLater, Ordering::Relaxed);
        if scene == ReceiverFull {
            receiver.room.store(3, Ordering::Relaxed);
        }
    }
    // Both panic, one after the other.
    let (first, second) = if matches!(whose, Source | Given) { (FIRST[0], SECOND[0]) } else { (FIRST[2], SECOND[1]) };
    [first, second].iter().for_each(|&port| station(port).trap(step));
    // Every poller has ports of the switch.
    engine.publish(lan.topology(|port| usize::from(port) % pollers, |_| 1));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let bystanders = scope.spawn(|| {
            let (from, to) = (station(BYSTANDERS[0]), station(BYSTANDERS[1]));
            let (mut sent, mut next) = (0, 0);
            while !done.load(Ordering::Relaxed) || sent < 200 {
                from.send(to.number, sent);
                sent += 1;
                if sent % 16 == 0 {
                    pause();
                }
                while next < sent {
                    let (received, _) = to.receive(DEADLINE).expect("bystanders still exchange frames");
                    for frame in received {
                        assert_eq!((frame.from, frame.number), (from.number, next), "{what}");
                        next += 1;
                    }
                }
            }
            let counters = [from, to].map(|station| station.port.counters().read());
            assert_eq!((counters[0].in_frames, counters[1].out_frames), (sent, sent), "{what}");
            assert_eq!(counters.map(|counters| counters.drops().count()), [0, 0], "{what}");
        });
        let end = SetOnDrop(&done);
        // A receiver without room is not read.
        let reader = (scene != ReceiverFull).then(|| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for receiver in [FIRST[2], SECOND[1]].map(station) {
                        receiver.ask();
                        drop(receiver.take());
                    }
                    std::thread::yield_now();
                }
            })
        });
        let healthy = scope.spawn(|| {
            let mut count = 0;
            while let Some((received, _)) = station(FIRST[1]).receive(Duration::from_millis(1)).or_else(|| {
                let all = done.load(Ordering::Relaxed) && count == station(FIRST[1]).port.counters().read().out_frames;
                (!all).then(|| (Vec::new(), false))
            }) {
                count += received.len() as u64;
            }
        });
        drive(&lan, FIRST[0], &FIRST[1..], scene, &what);
        drive(&lan, SECOND[0], &SECOND[1..], scene, &what);
        for (source, receiver) in [(FIRST[0], FIRST[2]), (SECOND[0], SECOND[1])] {
            let roles = || [source, receiver].map(|port| fault_role(station(port), step));
            let expected = match whose {
                Source => [Some(Role::Source), None],
                Given => [Some(Role::Receiver), None],
                Filling => [Some(Role::Sender), Some(Role::Receiver)],
                Bell => [None, Some(Role::Receiver)],
            };
            support::wait_until(&format!("exactly the expected ports have a fault: {what}"), || roles() == expected);
        }
        support::wait_until("the control thread is notified", || {
            rustix::io::read(engine.faults(), &mut [0; 8]).is_ok() || engine.stuck_pollers().len() > pollers
        });
        support::wait_until("the pollers make progress", || engine.stuck_pollers().is_empty());
        drop(end);
        bystanders.join().expect("bystanders");
        healthy.join().expect("no panic: each frame brings a call");
        if let Some(reader) = reader {
            reader.join().expect("a reader");
        }
    });
    // The inputs of the sources are dropped and not used again. Every frame that was taken is counted.
    let port = |port: u16| station(port).port.counters().read();
    drop(engine);
    for station in &lan.stations {
        assert_eq!(station.used_broken.load(Ordering::SeqCst), 0, "port {}: {what}", station.number);
        let is_gone = whose != Bell && [FIRST[0], SECOND[0]].contains(&station.number);
        assert_eq!(station.drops.load(Ordering::SeqCst), u64::from(is_gone), "port {}: {what}", station.number);
    }
    for ports in [&FIRST[..], &SECOND[..]] {
        let all: Vec<_> = ports.iter().map(|&number| port(number)).collect();
        let out: u64 = all[1..].iter().map(|port| port.out_frames).sum();
        let lost: u64 = all.iter().flat_map(|port| port.drops().map(|(_, count)| count).collect::<Vec<_>>()).sum();
        assert_eq!(all[0].in_frames, out + lost, "{what}: {all:?}");
    }
}

#[test]
fn a_panic_at_any_step_costs_the_port_and_the_receiver_that_it_filled_and_others_go_on() {
    for &(step, whose, scene) in STEPS {
        for idle in [Idle::Sleep, Idle::Spin, Idle::Adaptive(Duration::from_micros(50))] {
            // A poller that never sleeps arms no port.
            if idle == Idle::Spin && matches!(step, Step::Arm | Step::Disarm | Step::ArmForEvents) {
                continue;
            }
            for pollers in 1..=2 {
                check_step(step, whose, scene, idle, pollers);
            }
        }
    }
}

#[test]
fn an_input_that_panics_while_it_is_dropped_costs_no_other_port_anything() {
    let engine = Engine::start(&EngineSettings::default()).expect("a poller");
    let (lan, other) = (Lan::new(2, usize::MAX), Lan::new(2, usize::MAX));
    let both =
        |lans: &[&Lan]| Topology { ports: lans.iter().flat_map(|lan| lan.topology(|_| 0, |_| 1).ports).collect() };
    let station = Arc::clone(&lan.stations[0]);
    // The input panics while it is dropped: here after a panic, below when the port is removed.
    station.trap(Step::Collect);
    station.trap(Step::InputDropped);
    engine.publish(both(&[&lan, &other]));
    station.send(1, 0);
    support::wait_until("the station's input is dropped", || station.drops.load(Ordering::SeqCst) == 1);
    support::wait_until("the port has a fault", || fault_role(&station, Step::Collect) == Some(Role::Source));
    let last = Arc::clone(&lan.stations[1]);
    last.trap(Step::InputDropped);
    engine.publish(both(&[&other]));
    drop(lan);
    support::wait_until("the last station's input is dropped", || last.drops.load(Ordering::SeqCst) == 1);
    other.stations[0].send(1, 7);
    assert_eq!(other.stations[1].receive(DEADLINE).expect("a call").0[0].number, 7);
}

/// Forwards as a MAC map does, and panics if the test has asked for it.
struct Trapped {
    map: MacMap,
    forwards: Arc<AtomicBool>,
    drops: Arc<AtomicBool>,
}

impl Forward for Trapped {
    fn forward(&self, batch: &mut Batch<'_>, from: &Member, switch: &Switch, now: u32) {
        if self.forwards.swap(false, Ordering::SeqCst) {
            panic!("injected: forward");
        }
        self.map.forward(batch, from, switch, now);
    }
}

impl Drop for Trapped {
    fn drop(&mut self) {
        if self.drops.swap(false, Ordering::SeqCst) {
            panic!("injected: drop");
        }
    }
}

fn trapped() -> (Lan, [Arc<AtomicBool>; 2]) {
    let [forwards, drops] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let traps = [Arc::clone(&forwards), Arc::clone(&drops)];
    (Lan::forwarded(2, usize::MAX, 0, |_| None, |map| Box::new(Trapped { map, forwards, drops })), traps)
}

#[test]
fn a_panic_of_the_forwarding_function_costs_the_source_its_place() {
    let engine = Engine::start(&EngineSettings::default()).expect("a poller");
    let (lan, [forwards, _]) = trapped();
    engine.publish(lan.topology(|_| 0, |_| 1));
    lan.stations[0].send(1, 0);
    assert!(lan.stations[1].receive(DEADLINE).is_some());
    forwards.store(true, Ordering::SeqCst);
    lan.stations[0].send(1, 1);
    support::wait_until("the port has a fault", || lan.stations[0].port.fault().is_some());
    assert_eq!(lan.stations[1].port.fault(), None);
    lan.stations[1].send(0, 0);
    support::wait_until("a retired port receives nothing", || {
        lan.stations[0].port.counters().read().dropped(DropReason::InternalError) == 1
    });
}

/// Makes the poller itself panic `times` times in a row, if the process lives for so long.
fn panics_of_its_own(times: usize) {
    let engine = Engine::start(&EngineSettings::default()).expect("a poller");
    for time in 0..times as u64 {
        let lan = Lan::new(2, usize::MAX);
        engine.inject_panic();
        engine.publish(lan.topology(|_| 0, |_| 1));
        support::wait_until("the poller has adopted", || engine.is_settled());
        lan.stations[0].send(1, time);
        assert_eq!(lan.stations[1].receive(DEADLINE).expect("a call").0[0].number, time);
    }
}

#[test]
fn a_panic_while_an_old_topology_is_released_costs_no_port_its_place() {
    let engine = Engine::start(&EngineSettings::default()).expect("a poller");
    for _ in 0..20 {
        let (lan, [_, drops]) = trapped();
        engine.publish(lan.topology(|_| 0, |_| 1));
        support::wait_until("the poller has adopted", || engine.is_settled());
        drops.store(true, Ordering::SeqCst);
        drop(lan);
        engine.publish(Topology::default());
        support::wait_until("the old topology is released", || engine.is_released());
        assert!(!drops.load(Ordering::SeqCst));
    }
}

#[test]
fn a_poller_survives_a_panic_of_its_own() {
    panics_of_its_own(1);
}

const CHILD: &str = "RINGWAY_TEST_CHILD";

/// Runs only this test in a process. Returns its status and its standard error.
fn run_alone(test: &str) -> (Option<i32>, String) {
    let program = std::env::current_exe().expect("this program");
    let output = std::process::Command::new(program).args([test, "--exact", "--nocapture"]).env(CHILD, "1").output();
    let output = output.expect("a child");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_poller_that_panics_again_and_again_ends_the_process() {
    if std::env::var_os(CHILD).is_some() {
        // Four within a minute are too many. However slow the machine is, four of them come within a minute at some time.
        panics_of_its_own(1000);
        return;
    }
    let (status, said) = run_alone("a_poller_that_panics_again_and_again_ends_the_process");
    assert_eq!(status, Some(ringway_runtime::INTERNAL_ERROR), "{said}");
    let line = said.lines().last().expect("a message");
    assert!(line.starts_with("ringway: a defect of Ringway, please report it: poller0 itself failed at "), "{said}");
    assert!(line.contains("poller/adopt.rs:") && line.contains("(injected: poller)"), "{said}");
}
