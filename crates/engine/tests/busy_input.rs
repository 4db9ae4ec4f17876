//! An input that has frames, and that cannot take them because another thread holds them.

#![cfg(not(loom))]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ringway_engine::{Attached, Engine, EngineSettings, Idle, Signal, Source, Topology};
use ringway_switch::{
    Armed, Batch, Bell, CallReason, CallResult, Counters, Discarded, DropReason, FloodPolicy, Frames, Input, Learning,
    MacTable, Member, Moved, Output, Owner, Port, PortFault, Switch, WakeOn,
};
use rustix::event::{EventfdFlags, eventfd};

#[derive(Default)]
struct Client {
    /// The input always has frames and moves none, until this is cleared.
    is_held: AtomicBool,
    /// The input has a frame.
    has_frame: AtomicBool,
    looks: AtomicU64,
    /// Each collect moves a frame, and the input has more.
    moves: AtomicBool,
    collects: AtomicU64,
}

#[derive(Clone, Default)]
struct Side(Arc<Client>);

impl Drop for Side {
    fn drop(&mut self) {
        // A poller in an endless visit would keep the test from ending.
        self.0.is_held.store(false, Ordering::Relaxed);
        self.0.moves.store(false, Ordering::Relaxed);
    }
}

impl Input for Side {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        self.0.collects.fetch_add(1, Ordering::Relaxed);
        if self.0.has_frame.swap(false, Ordering::AcqRel) {
            batch.refuse(DropReason::Runt);
        }
        Ok(())
    }

    fn release(&mut self) {}

    fn discard(&mut self, _: usize) -> Result<Discarded, PortFault> {
        Ok(Discarded::default())
    }

    fn pending(&mut self) -> bool {
        self.0.looks.fetch_add(1, Ordering::Relaxed);
        self.0.is_held.load(Ordering::Relaxed)
            || self.0.moves.load(Ordering::Relaxed)
            || self.0.has_frame.load(Ordering::Acquire)
    }

    fn arm(&mut self, _: WakeOn) -> Armed {
        Armed::with_kick(self.pending())
    }

    fn disarm(&mut self) {}

    fn take_moved(&mut self) -> Moved {
        let moves = self.0.moves.load(Ordering::Relaxed);
        Moved { more: moves || self.0.is_held.load(Ordering::Relaxed), frames: moves.into(), ..Moved::default() }
    }
}

impl Output for Side {
    fn deliver(&mut self, _: Frames<'_, '_>, _: &Counters) -> Result<(), PortFault> {
        Ok(())
    }
}

impl Bell for Side {
    fn ring(&self, _: CallReason) -> CallResult {
        CallResult::Unwanted
    }
}

/// Two ports of a switch that one poller serves.
fn start() -> (Engine, [Side; 2], Vec<Arc<Port>>) {
    let engine = Engine::start(&EngineSettings { idle: Idle::Spin, ..EngineSettings::default() }).expect("a poller");
    let table = Arc::new(MacTable::new(64, 64, [1, 2]));
    let sides = [Side::default(), Side::default()];
    let ports: Vec<_> =
        sides.iter().map(|side| Arc::new(Port::new("p", Box::new(side.clone()), Box::new(side.clone())))).collect();
    let members = (0..).zip(&ports).map(|(index, port)| Member::new(Owner::new(index, 0), Arc::clone(port)));
    let switch = Arc::new(Switch::new("lan0", members, table, Box::new(Learning), FloodPolicy::default()));
    let attached = (0..).zip(&sides).map(|(index, side)| {
        let kick = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
        let source = Arc::new(Source::new(Box::new(side.clone()), Signal::Kick(kick)));
        Attached { switch: Arc::clone(&switch), index, source, poller: 0, weight: 1 }
    });
    engine.publish(Topology { ports: attached.collect() });
    (engine, sides, ports)
}

#[test]
fn a_visit_that_moves_nothing_ends_although_the_input_has_more() {
    let (_engine, sides, ports) = start();
    sides[0].0.is_held.store(true, Ordering::Relaxed);
    let looks = sides[0].0.looks.load(Ordering::Relaxed);
    support::wait_until("the poller finds the held input", || sides[0].0.looks.load(Ordering::Relaxed) > looks + 2);
    for taken in 1..=3 {
        sides[1].0.has_frame.store(true, Ordering::Release);
        support::wait_until("the other port has its turn", || ports[1].counters().read().in_frames == taken);
    }
    sides[0].0.is_held.store(false, Ordering::Relaxed);
}

#[test]
fn a_visit_ends_when_the_input_has_moved_what_one_visit_may() {
    let (_engine, sides, _ports) = start();
    // Between two looks at the other port the poller visits this one once, and the other port is looked at in every round.
    let counts = || (sides[1].0.looks.load(Ordering::Acquire), sides[0].0.collects.load(Ordering::Acquire));
    sides[0].0.moves.store(true, Ordering::Relaxed);
    let before = counts();
    support::wait_until("many visits", || counts().1 > before.1 + 10_000);
    let after = counts();
    let (looks, collects) = (after.0 - before.0, after.1 - before.1);
    assert!(collects < 16 * looks, "{collects} passes of one port, {looks} looks at the other one");
}
