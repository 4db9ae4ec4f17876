//! The instructions of a poller for each round: `poller_cost SCENE PORTS ROUNDS`, under `valgrind --tool=callgrind`.
//!
//! Scenes:
//! - `active`: every port has one frame in every round.
//! - `parked`: no port has a frame, and the poller does not sleep. A round polls eight of the ports.
//! - `mixed`: one port has one frame in every round; the others have none.
//! - `asleep`: no port has a frame, and the poller sleeps. One port gets a frame and kicks each time that it is armed. A
//!   round is one such wake-up.
//!
//! Each run also counts what starts and ends the engine: divide the difference of two runs by the difference of their
//! rounds.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use ringway_engine::{Attached, Engine, EngineSettings, Idle, Place, Source, Topology};
use ringway_runtime::Signal;
use ringway_switch::{
    Armed, Batch, Bell, CallReason, CallResult, Counters, Discarded, DropReason, FloodPolicy, Frames, Input, Learning,
    MacTable, Member, Output, Owner, Port, PortFault, Switch, WakeOn,
};
use rustix::event::{EventfdFlags, eventfd};

/// The poller waits this long in its last round, in which the main thread ends it.
const LAST_ROUND: Duration = Duration::from_millis(500);

/// A port in memory. Each frame that it sends is dropped.
struct InMemory {
    /// It has a frame whenever it is polled.
    is_busy: bool,
    has_frame: AtomicBool,
    /// Rounds until the end, of the port that counts them.
    rounds: AtomicU64,
    ended: Sender<()>,
    /// It sends a frame each time that it is armed.
    answers: bool,
    kick: OwnedFd,
}

impl InMemory {
    fn count_round(&self) {
        let left = self.rounds.load(Ordering::Relaxed);
        self.rounds.store(left.wrapping_sub(1), Ordering::Relaxed);
        if left == 1 {
            self.ended.send(()).expect("the main thread waits");
            std::thread::sleep(LAST_ROUND);
        }
    }
}

#[derive(Clone)]
struct End(Arc<InMemory>);

impl Input for End {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        if self.0.is_busy || self.0.has_frame.swap(false, Ordering::Relaxed) {
            batch.refuse(DropReason::Runt);
        }
        Ok(())
    }

    fn release(&mut self) {}

    fn discard(&mut self, _: usize) -> Result<Discarded, PortFault> {
        Ok(Discarded::default())
    }

    fn pending(&mut self) -> bool {
        if !self.0.answers {
            self.0.count_round();
        }
        self.0.is_busy || self.0.has_frame.load(Ordering::Relaxed)
    }

    fn arm(&mut self, _: WakeOn) -> Armed {
        if self.0.answers {
            self.0.count_round();
            self.0.has_frame.store(true, Ordering::Relaxed);
            rustix::io::write(&self.0.kick, &1u64.to_ne_bytes()).expect("an eventfd");
        }
        Armed::Kick
    }

    fn disarm(&mut self) {}
}

impl Output for End {
    fn deliver(&mut self, _: Frames<'_, '_>, _: &Counters) -> Result<(), PortFault> {
        Ok(())
    }
}

impl Bell for End {
    fn ring(&self, _: CallReason) -> CallResult {
        CallResult::Unwanted
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [scene, ports, rounds] = arguments.as_slice() else { panic!("poller_cost SCENE PORTS ROUNDS") };
    let (ports, rounds): (u16, u64) = (ports.parse().expect("a number"), rounds.parse().expect("a number"));
    // A round of parked ports polls some of them only.
    let counted = if scene == "parked" { (rounds * 8.min(u64::from(ports))).div_ceil(ports.into()) } else { rounds };
    let (ended, end) = channel();
    let ends: Vec<End> = (0..ports)
        .map(|number| {
            End(Arc::new(InMemory {
                is_busy: scene == "active" || scene == "mixed" && number == 0,
                has_frame: AtomicBool::new(false),
                rounds: AtomicU64::new(if number == 0 { counted } else { 0 }),
                ended: ended.clone(),
                answers: scene == "asleep" && number == 0,
                kick: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd"),
            }))
        })
        .collect();
    let member = |(end, number): (&End, u16)| {
        let port = Port::new(format!("p{number}"), Box::new(end.clone()), Box::new(end.clone()));
        Member::new(Owner::new(number, 0), Arc::new(port))
    };
    let members: Vec<Member> = ends.iter().zip(0..).map(member).collect();
    let table = Arc::new(MacTable::new(64, 64, [1, 2]));
    let switch = Arc::new(Switch::new("lan0", members, table, Box::new(Learning), FloodPolicy::default()));
    let attached = |(end, index): (&End, u16)| {
        let signal = Signal::Kick(end.0.kick.try_clone().expect("a descriptor").into());
        let source = Arc::new(Source::new(Box::new(end.clone()), signal));
        Attached { place: Place::Port(Arc::clone(&switch), index), source, poller: 0, weight: 1 }
    };
    let topology = Topology { ports: ends.iter().zip(0..).map(attached).collect() };
    // A poller that may sleep runs no rounds before it has ports.
    let idle = if scene == "parked" { Idle::Spin } else { Idle::Sleep };
    let settings = EngineSettings { idle, pacing: false, ..EngineSettings::default() };
    let engine = Engine::start(&settings).expect("a poller");
    engine.publish(topology);
    end.recv().expect("the rounds end");
    drop(engine);
}
