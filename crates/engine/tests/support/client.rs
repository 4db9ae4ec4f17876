//! Clients whose inputs, or movers, do what a test says.

use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use ringway_engine::{Attached, Ends, Engine, EngineSettings, Idle, Place, Source, Topology};
use ringway_runtime::{Moved, Mover, Signal};
use ringway_switch::{
    Armed, Batch, Bell, CallReason, CallResult, Counters, Discarded, DropReason, FloodPolicy, Frames, Input, Learning,
    MacTable, Member, Output, Owner, Port, PortFault, Switch, WakeOn,
};
use rustix::event::{EventfdFlags, eventfd};

use super::{Cost, lock};

/// What a client's input, or its mover, does, and how often.
#[derive(Default)]
pub struct Memory {
    /// The input has a frame.
    pub has_frame: AtomicBool,
    /// The input always has frames and moves none.
    pub is_held: AtomicBool,
    /// Each visit of the mover moves a frame, and there are more.
    pub moves: AtomicBool,
    /// No kick announces a frame to a poller that sleeps.
    pub is_silent: AtomicBool,
    /// A collect stands still while this is locked.
    pub gate: Mutex<()>,
    pub looks: AtomicU64,
    pub collects: AtomicU64,
    /// Number of topologies with a new peer of the mover that a poller has taken over.
    pub adoptions: AtomicU64,
    /// The cost of that, and of a visit of the mover.
    pub adopting: Cost,
    pub moving: Cost,
    /// The next visit of the mover finds that the client broke the rules.
    pub is_faulty: AtomicBool,
    /// The next visit of the mover panics, or the next call.
    pub panics: AtomicBool,
    pub call_panics: AtomicBool,
    /// The thread that dropped the mover.
    pub dropped_by: Mutex<Option<String>>,
    /// The other client is called again.
    calls_again: AtomicBool,
    kick: OnceLock<OwnedFd>,
    /// By reason: number of calls.
    pub calls: [AtomicU64; 2],
}

#[derive(Clone, Default)]
pub struct Client(Arc<Memory>);

impl Client {
    fn kick_fd(&self) -> &OwnedFd {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        self.kick.get_or_init(|| eventfd(0, flags).expect("an eventfd"))
    }

    /// Wakes the poller, if it sleeps.
    pub fn kick(&self) {
        rustix::io::write(self.kick_fd(), &1u64.to_ne_bytes()).expect("a kick");
    }

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
        drop(lock(&self.gate));
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
}

/// The bytes that a mover's frame has, as its client says. A copy of them may take 32 ms.
const CLAIMED: u64 = 16_000_000;

/// A client's mover.
struct Moves(Client);

impl Drop for Moves {
    fn drop(&mut self) {
        *lock(&self.0.dropped_by) = std::thread::current().name().map(str::to_owned);
    }
}

impl Mover for Moves {
    fn move_frames(&mut self, _: usize, moved: &mut Moved) -> Result<(), PortFault> {
        let Moves(client) = self;
        client.collects.fetch_add(1, Ordering::Relaxed);
        client.moving.pay();
        assert!(!client.panics.swap(false, Ordering::Relaxed), "injected: a visit");
        let moves = client.moves.load(Ordering::Relaxed) || client.has_frame.swap(false, Ordering::AcqRel);
        moved.more = moves || client.is_held.load(Ordering::Relaxed);
        moved.frames = moves.into();
        // It says so and copies nothing: buffers are exchanged.
        moved.bytes = moved.frames * CLAIMED;
        moved.calls_again = client.calls_again.swap(false, Ordering::Relaxed);
        if client.is_faulty.swap(false, Ordering::Relaxed) { Err(PortFault::EndlessFrame) } else { Ok(()) }
    }

    fn pending(&mut self) -> bool {
        self.0.pending()
    }

    fn arm(&mut self) -> bool {
        self.0.pending()
    }

    fn disarm(&mut self) {}

    fn adopt(&mut self) {
        self.0.adopting.pay();
        self.0.adoptions.fetch_add(1, Ordering::Relaxed);
        self.0.calls_again.store(true, Ordering::Relaxed);
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
        assert!(!self.call_panics.swap(false, Ordering::Relaxed), "injected: a call");
        CallResult::Unwanted
    }
}

/// Attaches the clients to a switch that one poller serves. Returns their ports.
pub fn attach(clients: &[Client], idle: Idle) -> (Engine, Vec<Arc<Port>>) {
    publish(topology(clients), idle)
}

/// Attaches the clients of two movers, which one poller serves. Returns their ports.
pub fn attach_movers(clients: &[Client; 2], idle: Idle) -> (Engine, Vec<Arc<Port>>) {
    publish(movers(clients), idle)
}

fn publish((topology, ports): (Topology, Vec<Arc<Port>>), idle: Idle) -> (Engine, Vec<Arc<Port>>) {
    let engine = Engine::start(&EngineSettings { idle, ..EngineSettings::default() }).expect("a poller");
    engine.publish(topology);
    (engine, ports)
}

fn signal(client: &Client) -> Signal {
    Signal::Kick(client.kick_fd().try_clone().expect("a descriptor").into())
}

/// A topology with these clients at one switch. Returns their ports, too.
pub fn topology(clients: &[Client]) -> (Topology, Vec<Arc<Port>>) {
    let table = Arc::new(MacTable::new(64, 64, [1, 2]));
    let port = |client: &Client| Arc::new(Port::new("p", Box::new(client.clone()), Box::new(client.clone())));
    let ports: Vec<_> = clients.iter().map(port).collect();
    let members = (0..).zip(&ports).map(|(index, port)| Member::new(Owner::new(index, 0), Arc::clone(port)));
    let switch = Arc::new(Switch::new("lan0", members, table, Box::new(Learning), FloodPolicy::default()));
    let attached = (0..).zip(clients).map(|(index, client)| {
        let source = Arc::new(Source::new(Box::new(client.clone()), signal(client)));
        Attached { place: Place::Port(Arc::clone(&switch), index), source, poller: 0, weight: 1 }
    });
    (Topology { ports: attached.collect() }, ports)
}

/// Returns a topology with the movers of one client or two, and the ports of these clients.
pub fn movers(clients: &[Client]) -> (Topology, Vec<Arc<Port>>) {
    let ports: Vec<_> =
        clients.iter().map(|client| Arc::new(Port::without_output("p", Box::new(client.clone())))).collect();
    let attached = clients.iter().enumerate().map(|(at, client)| {
        let ends = Ends { own: Arc::clone(&ports[at]), peer: ports.get(1 - at).cloned() };
        let source = Arc::new(Source::of_mover(Box::new(Moves(client.clone())), signal(client)));
        Attached { place: Place::Mover(ends), source, poller: 0, weight: 1 }
    });
    (Topology { ports: attached.collect() }, ports)
}
