//! A client that cannot kick a sleeping poller, although the poller asked for kicks.

#![cfg(not(loom))]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ringway_engine::{Attached, Engine, EngineSettings, Idle, Signal, Source, Topology};
use ringway_switch::{
    Armed, Batch, Bell, CallReason, CallResult, Counters, Discarded, DropReason, FloodPolicy, Frames, Input, Learning,
    MacTable, Member, Output, Owner, Port, PortFault, Switch, WakeOn,
};
use rustix::event::{EventfdFlags, eventfd};

/// The client's memory.
#[derive(Default)]
struct Memory {
    frame: AtomicBool,
    silent: AtomicBool,
    looks: AtomicU64,
}

#[derive(Clone)]
struct Silent(Arc<Memory>);

impl Input for Silent {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        if self.0.frame.swap(false, Ordering::AcqRel) {
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
        self.0.frame.load(Ordering::Acquire)
    }

    fn arm(&mut self, _: WakeOn) -> Armed {
        match (self.pending(), self.0.silent.load(Ordering::Relaxed)) {
            (false, true) => Armed::Silent,
            (pending, _) => Armed::with_kick(pending),
        }
    }

    fn disarm(&mut self) {}
}

impl Output for Silent {
    fn deliver(&mut self, _: Frames<'_, '_>, _: &Counters) -> Result<(), PortFault> {
        Ok(())
    }
}

impl Bell for Silent {
    fn ring(&self, _: CallReason) -> CallResult {
        CallResult::Unwanted
    }
}

#[test]
fn a_sleeping_poller_finds_frames_that_no_kick_announces() {
    for idle in [Idle::Sleep, Idle::Adaptive(Duration::from_micros(50))] {
        let client = Silent(Arc::default());
        client.0.silent.store(true, Ordering::Relaxed);
        let engine = Engine::start(&EngineSettings { idle, ..EngineSettings::default() }).expect("a poller");
        let port = Arc::new(Port::new("p", Box::new(client.clone()), Box::new(client.clone())));
        let table = Arc::new(MacTable::new(64, 64, [1, 2]));
        let members = vec![Member::new(Owner::new(0, 0), Arc::clone(&port))];
        let switch = Arc::new(Switch::new("lan0", members, table, Box::new(Learning), FloodPolicy::default()));
        let kick = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
        let source = Arc::new(Source::new(Box::new(client.clone()), Signal::Kick(kick)));
        let attached = Attached { switch, index: 0, source, poller: 0, weight: 1 };
        engine.publish(Topology { ports: vec![attached] });
        for taken in 1..=3 {
            let sleeps = engine.readings()[0].sleeps;
            support::wait_until("the poller sleeps", || engine.readings()[0].sleeps > sleeps + 2);
            client.0.frame.store(true, Ordering::Release);
            support::wait_until("the poller sees the frame", || port.counters().read().in_frames == taken);
        }
        assert_eq!(port.counters().read().kicks, 0);

        // Once the client can kick again, the port is not polled any more.
        client.0.silent.store(false, Ordering::Relaxed);
        client.0.frame.store(true, Ordering::Release);
        support::wait_until("the port is polled once more", || port.counters().read().in_frames == 4);
        support::wait_until("the port is not polled any more", || {
            let looks = client.0.looks.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(20));
            client.0.looks.load(Ordering::Relaxed) == looks
        });
    }
}
