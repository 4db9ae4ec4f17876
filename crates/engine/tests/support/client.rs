//! Clients whose inputs do what a test says.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ringway_engine::{Attached, Engine, EngineSettings, Idle, Source, Topology};
use ringway_runtime::Signal;
use ringway_switch::{
    Armed, Batch, Bell, CallReason, CallResult, Counters, Discarded, DropReason, FloodPolicy, Frames, Input, Learning,
    MacTable, Member, Moved, Output, Owner, Port, PortFault, Switch, WakeOn,
};
use rustix::event::{EventfdFlags, eventfd};

/// What a client's input does, and how often.
#[derive(Default)]
pub struct Memory {
    /// The input has a frame.
    pub has_frame: AtomicBool,
    /// The input always has frames and moves none.
    pub is_held: AtomicBool,
    /// Each collect moves a frame, and the input has more.
    pub moves: AtomicBool,
    /// No kick announces a frame to a poller that sleeps.
    pub is_silent: AtomicBool,
    /// A collect stands still while this is locked.
    pub gate: Mutex<()>,
    pub looks: AtomicU64,
    pub collects: AtomicU64,
    /// Number of topologies with a new switch that a poller has taken over.
    pub adoptions: AtomicU64,
    /// The other client is called again.
    calls_again: AtomicBool,
    /// By reason: number of calls.
    pub calls: [AtomicU64; 2],
}

#[derive(Clone, Default)]
pub struct Client(Arc<Memory>);

impl Client {
    /// The number of places that refer to this client: the test, and the port's parts.
    pub fn references(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

impl Deref for Client {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        &self.0
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // A poller in an endless visit would keep the test from ending.
        self.is_held.store(false, Ordering::Relaxed);
        self.moves.store(false, Ordering::Relaxed);
    }
}

impl Input for Client {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        self.collects.fetch_add(1, Ordering::Relaxed);
        drop(super::lock(&self.gate));
        if self.has_frame.swap(false, Ordering::AcqRel) {
            batch.refuse(DropReason::Runt);
        }
        Ok(())
    }

    fn release(&mut self) {}

    fn discard(&mut self, _: usize) -> Result<Discarded, PortFault> {
        Ok(Discarded::default())
    }

    fn pending(&mut self) -> bool {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.is_held.load(Ordering::Relaxed)
            || self.calls_again.load(Ordering::Relaxed)
            || self.moves.load(Ordering::Relaxed)
            || self.has_frame.load(Ordering::Acquire)
    }

    fn arm(&mut self, _: WakeOn) -> Armed {
        match (self.pending(), self.is_silent.load(Ordering::Relaxed)) {
            (false, true) => Armed::Silent,
            (pending, _) => Armed::with_kick(pending),
        }
    }

    fn disarm(&mut self) {}

    fn adopted(&mut self) -> bool {
        self.adoptions.fetch_add(1, Ordering::Relaxed);
        self.calls_again.store(true, Ordering::Relaxed);
        true
    }

    fn take_moved(&mut self) -> Moved {
        let moves = self.moves.load(Ordering::Relaxed);
        let more = moves || self.is_held.load(Ordering::Relaxed);
        let calls_again = self.calls_again.swap(false, Ordering::Relaxed);
        Moved { more, frames: moves.into(), calls_again, ..Moved::default() }
    }
}

impl Output for Client {
    fn deliver(&mut self, _: Frames<'_, '_>, _: &Counters) -> Result<(), PortFault> {
        Ok(())
    }
}

impl Bell for Client {
    fn ring(&self, reason: CallReason) -> CallResult {
        self.calls[reason as usize].fetch_add(1, Ordering::Relaxed);
        CallResult::Unwanted
    }
}

/// Attaches the clients to a switch that one poller serves. Returns their ports.
pub fn attach(clients: &[Client], idle: Idle) -> (Engine, Vec<Arc<Port>>) {
    let engine = Engine::start(&EngineSettings { idle, ..EngineSettings::default() }).expect("a poller");
    let (topology, ports) = topology(clients);
    engine.publish(topology);
    (engine, ports)
}

/// A topology with these clients at one switch. Returns their ports, too.
pub fn topology(clients: &[Client]) -> (Topology, Vec<Arc<Port>>) {
    let table = Arc::new(MacTable::new(64, 64, [1, 2]));
    let port = |client: &Client| Arc::new(Port::new("p", Box::new(client.clone()), Box::new(client.clone())));
    let ports: Vec<_> = clients.iter().map(port).collect();
    let members = (0..).zip(&ports).map(|(index, port)| Member::new(Owner::new(index, 0), Arc::clone(port)));
    let switch = Arc::new(Switch::new("lan0", members, table, Box::new(Learning), FloodPolicy::default()));
    let attached = (0..).zip(clients).map(|(index, client)| {
        let kick = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
        let source = Arc::new(Source::new(Box::new(client.clone()), Signal::Kick(kick.into())));
        Attached { switch: Arc::clone(&switch), index, source, poller: 0, weight: 1 }
    });
    (Topology { ports: attached.collect() }, ports)
}
