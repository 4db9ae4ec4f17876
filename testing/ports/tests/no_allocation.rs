//! A busy poller allocates nothing. The engine, process ports and their clients run in one process, whose allocator
//! counts the allocations of the poller's thread. This file has only one test, because the count is per process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringway_abi::attach::Request;
use ringway_client::{Port, Shape};
use ringway_engine::{Attached, Engine, EngineSettings, Idle, Place, Source, Topology};
use ringway_port_process::{self as process, AttachServer, ClientId, ExternalMemory, Grant, Host, NetmapHost, Process};
use ringway_switch::{FloodPolicy, Learning, MacTable, Member, Owner, Switch};
use ringway_testing::PATIENCE;

/// The thread whose allocations are counted; 0: none.
static WATCHED: AtomicI32 = AtomicI32::new(0);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
/// Where the first of them was.
static FIRST: Mutex<Option<Backtrace>> = Mutex::new(None);

struct Counting;

fn count() {
    let watched = WATCHED.load(Ordering::Relaxed);
    let is_watched = watched != 0 && rustix::thread::gettid().as_raw_nonzero().get() == watched;
    if is_watched && ALLOCATIONS.fetch_add(1, Ordering::Relaxed) == 0 {
        // Taking it allocates.
        WATCHED.store(0, Ordering::Relaxed);
        let here = Backtrace::force_capture();
        *FIRST.lock().unwrap_or_else(PoisonError::into_inner) = Some(here);
        WATCHED.store(watched, Ordering::Relaxed);
    }
}

// SAFETY: hands everything to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.realloc(place, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Attaches every client to one switch.
struct Lan {
    engine: Arc<Engine>,
    table: Arc<MacTable>,
    ports: BTreeMap<ClientId, (Member, Arc<Source>)>,
    next: u16,
}

impl Lan {
    fn publish(&self) {
        let members = self.ports.values().map(|(member, _)| member.clone());
        let (table, learning) = (Arc::clone(&self.table), Box::new(Learning));
        let switch = Arc::new(Switch::new("lan", members, table, learning, FloodPolicy::default()));
        let attached = self.ports.values().map(|(member, source)| Attached {
            place: Place::Port(Arc::clone(&switch), member.owner.index()),
            source: Arc::clone(source),
            poller: 0,
            weight: 1,
        });
        self.engine.publish(Topology { ports: attached.collect() });
    }
}

impl NetmapHost for Lan {}

impl Host for Lan {
    fn check(&mut self, _: &Request) -> Result<(), String> {
        Ok(())
    }

    fn attach(
        &mut self,
        client: ClientId,
        _: Process,
        request: Request,
        memory: Option<Arc<ExternalMemory>>,
    ) -> Result<Grant, String> {
        let layout = request.layout(0).map_err(|error| error.to_string())?;
        let (sides, ends) = process::open_with(&request.port, layout, memory).map_err(|error| error.to_string())?;
        let port = Arc::new(ringway_switch::Port::new(request.port, sides.output, sides.bell));
        let member = Member::new(Owner::new(self.next, 0), port);
        self.next += 1;
        self.ports.insert(client, (member, Arc::new(Source::new(sides.input, sides.signal))));
        self.publish();
        Ok(Grant { ends, colour: 0, mac: [0; 6] })
    }

    fn detach(&mut self, client: ClientId) {
        self.ports.remove(&client);
        self.publish();
    }
}

fn frame(to: u8, from: u8, size: usize) -> Vec<u8> {
    let mut frame = vec![0x11; size];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from]);
    if to == 0xff {
        frame[..6].fill(0xff);
    }
    frame
}

fn poller_thread() -> i32 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("proc").map_while(Result::ok);
    let mut named = tasks
        .filter(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "poller0"));
    named.next().and_then(|task| task.file_name().to_str()?.parse().ok()).expect("the poller")
}

/// Sends frames of all kinds and receives until `frames` frames have come. In turn, each client receives nothing for a
/// while, so that it loses frames of all others.
fn exchange(ports: &mut [Port], kinds: &[Vec<Vec<u8>>], frames: u64) {
    let (mut received, mut turn, deadline) = (0, 0, Instant::now() + PATIENCE);
    while received < frames {
        for (port, kinds) in ports.iter_mut().zip(kinds) {
            for _ in 0..32 {
                turn += 1;
                port.tx().push(&kinds[turn % kinds.len()]);
            }
            port.flush();
        }
        let away = turn / 4096 % (ports.len() + 1);
        for (_, port) in ports.iter_mut().enumerate().filter(|(place, _)| *place != away) {
            received += port.rx().drain(512, |_| {}) as u64;
        }
        assert!(Instant::now() < deadline, "{received} of {frames} frames");
    }
}

#[test]
fn a_poller_allocates_nothing_while_frames_move() {
    let dir = tempfile::tempdir().expect("a folder");
    let socket = dir.path().join("attach.sock");
    let settings = EngineSettings { idle: Idle::Adaptive(Duration::from_micros(50)), ..EngineSettings::default() };
    let engine = Arc::new(Engine::start(&settings).expect("a thread"));
    let table = Arc::new(MacTable::new(8192, 1024, [1, 2]));
    let lan = Lan { engine: Arc::clone(&engine), table, ports: BTreeMap::new(), next: 0 };
    let server =
        AttachServer::start(&socket, &Default::default(), Box::new(lan), &Default::default()).expect("a socket");
    let mut ports: Vec<Port> = (0..3)
        .map(|number| Port::attach(&socket, &format!("lan:p{number}"), Shape::default()).expect("a port"))
        .collect();
    // To each other port, to all, to an unknown address, to the sender itself, too short, and over several slots.
    let kinds = |own: u8| -> Vec<Vec<u8>> {
        let to = [(own + 1) % 3, (own + 2) % 3, 0xff, 0x77, own];
        let sized = |size| to.map(|to| frame(to, own, size)).to_vec();
        [sized(60), sized(1514), sized(9000), vec![vec![1; 5]]].concat()
    };
    let kinds: Vec<_> = (0..3).map(kinds).collect();
    exchange(&mut ports, &kinds, 1000);

    let (poller, before) = (poller_thread(), engine.readings()[0].passes);
    WATCHED.store(poller, Ordering::SeqCst);
    exchange(&mut ports, &kinds, 300_000);
    WATCHED.store(0, Ordering::SeqCst);
    let passes = engine.readings()[0].passes - before;
    let first = FIRST.lock().unwrap_or_else(PoisonError::into_inner).take();
    assert_eq!(ALLOCATIONS.load(Ordering::SeqCst), 0, "in {passes} passes, first {first:?}");
    assert!(passes > 100, "{passes}");

    // Checks that the counter works: adopting another port allocates.
    WATCHED.store(poller, Ordering::SeqCst);
    ports.push(Port::attach(&socket, "lan:another", Shape::default()).expect("a port"));
    exchange(&mut ports, &kinds, 1000);
    WATCHED.store(0, Ordering::SeqCst);
    assert!(ALLOCATIONS.load(Ordering::SeqCst) > 0, "the counter does not work");
    drop((ports, server));
}
