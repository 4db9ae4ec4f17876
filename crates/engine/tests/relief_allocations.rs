//! The thread that relieves pollers allocates nothing, whatever it does: it would wait where the kernel keeps the lock of the process's mappings.

#![cfg(not(loom))]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use ringway_engine::{Engine, EngineSettings, Idle};
use rustix::thread::gettid;
use support::{Lan, kept, lock, wait_until};

struct Counting;

/// The thread whose allocations are counted. 0: none.
static THREAD: AtomicI32 = AtomicI32::new(0);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

fn count() {
    let thread = THREAD.load(Ordering::SeqCst);
    if thread != 0 && gettid().as_raw_nonzero().get() == thread {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
    }
}

// SAFETY: passes all calls to the system's allocator unchanged.
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

/// A thread that has waited so often has begun.
const WAITS: u64 = 20;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The number of the thread that relieves pollers, once it looks after them. The standard library allocates where a thread
/// begins, after it has its name.
fn relieving() -> Option<i32> {
    let named = |task: &std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim_end() == "relief")
    };
    let task = std::fs::read_dir("/proc/self/task").expect("threads").filter_map(Result::ok).find(named)?;
    // It waits after each look.
    let status = std::fs::read_to_string(task.path().join("status")).ok()?;
    let waits = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    (waits.trim().parse::<u64>().ok()? >= WAITS).then(|| task.file_name().to_str()?.parse().ok())?
}

#[test]
fn the_thread_that_relieves_pollers_allocates_nothing() {
    let settings = EngineSettings { idle: Idle::Sleep, ..EngineSettings::default() };
    let (engine, lan) = (Engine::start(&settings).expect("a poller"), Lan::new(6, usize::MAX));
    engine.publish(lan.topology(|_| 0, |_| 1));
    wait_until("the thread runs", || {
        THREAD.store(relieving().unwrap_or(0), Ordering::SeqCst);
        THREAD.load(Ordering::SeqCst) != 0
    });
    let keep = |station: usize, side: usize, [from, to]: [usize; 2]| {
        let cost = &lan.stations[station].costs[side];
        let (stay, keeper) = kept::stay();
        *lock(&cost.keep) = Some(stay);
        lan.stations[from].send(to as u16, 7);
        wait_until("a thread is relieved", || !engine.take_relieved().is_empty());
        keeper
    };
    // A diversion: nothing says yet whose memory keeps the thread.
    let first = keep(0, 1, [3, 0]);
    // Ports that are shut, opened, and brought into quarantine.
    while !lan.slow(4).quarantined {
        let before = lan.slow(4).charged_visits;
        drop(keep(4, 0, [4, 5]));
        wait_until("the port is charged", || lan.slow(4).charged_visits > before);
    }
    drop(first);
    wait_until("all is served", || {
        lan.stations[1].send(0, 1);
        lan.stations[4].unsent() == 0 && lan.stations[0].take().iter().any(|frame| frame.number == 1)
    });
    drop(engine);
    assert_eq!(ALLOCATIONS.load(Ordering::SeqCst), 0);
}
