//! Pending calls under every interleaving that the memory model allows (loom).
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release -p ringway-switch --test loom_moderation`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::thread;

use ringway_switch::{CallGate, Entry};

const INTERVAL: u64 = 10;
/// The time of the last call.
const BEFORE: u64 = 1;

/// A sleeping client, and the port's gate. Time does not pass unless a test advances it.
struct Port {
    gate: CallGate,
    index: AtomicU32,
    /// The client's wish: nonzero asks for one call (as in the doorbell of a process port).
    wish: AtomicU32,
    granted: AtomicU32,
    calls: AtomicU32,
}

impl Port {
    fn new() -> Arc<Port> {
        let zero = || AtomicU32::new(0);
        Arc::new(Port { gate: CallGate::default(), index: zero(), wish: zero(), granted: zero(), calls: zero() })
    }

    /// A gate whose client was called at `BEFORE`, with no pending call.
    fn called_before() -> Arc<Port> {
        let port = Port::new();
        assert_eq!(port.gate.enter(BEFORE, INTERVAL), Entry::Ask);
        assert_eq!(port.gate.leave(Some(BEFORE), INTERVAL), None);
        port
    }

    fn ask(&self) -> bool {
        let number = self.wish.load(Ordering::Relaxed);
        let called = number != 0 && self.granted.swap(number, Ordering::Relaxed) != number;
        if called {
            self.calls.fetch_add(1, Ordering::Release);
        }
        called
    }

    /// Does what a poller does with an entry. Returns the pending call that it lists, as the time of the last call.
    fn follow(&self, entry: Entry, now: u64) -> Option<u64> {
        match entry {
            Entry::Covered => None,
            Entry::Pending(last) => Some(last),
            Entry::Ask => self.gate.leave(self.ask().then_some(now), INTERVAL),
        }
    }

    /// Publishes and rings at `now`, as a pass does.
    fn publish(&self, now: u64) -> Option<u64> {
        self.index.fetch_add(1, Ordering::Release);
        fence(Ordering::SeqCst);
        self.follow(self.gate.enter(now, INTERVAL), now)
    }

    /// Makes the listed calls at `now`.
    fn make(&self, last: u64, now: u64) -> Option<u64> {
        self.follow(self.gate.enter_pending(last, now, INTERVAL), now)
    }

    /// The client requests a call and checks once more. Returns true if it goes to sleep.
    fn sleeps(&self, seen: u32) -> bool {
        self.wish.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.index.load(Ordering::Acquire) == seen
    }
}

fn join<T>(thread: thread::JoinHandle<T>) -> T {
    thread.join().expect("runs to its end")
}

#[test]
fn news_of_two_pollers_within_the_interval_are_told_when_it_ends() {
    loom::model(|| {
        let port = Port::called_before();
        let publisher = || {
            let port = port.clone();
            thread::spawn(move || port.publish(5))
        };
        let (one, other) = (publisher(), publisher());
        let sleeps = [port.sleeps(0), port.sleeps(1)];
        let listed: Vec<u64> = [join(one), join(other)].into_iter().flatten().collect();
        assert_eq!(port.calls.load(Ordering::Relaxed), 0, "a call before its time");
        assert_eq!(listed, [BEFORE], "one of the two makes the pending call");
        for last in listed {
            assert_eq!(port.make(last, BEFORE + INTERVAL), None);
        }
        // The request is open, whether it was made before the frames or between them.
        assert!(!sleeps.contains(&true) || port.calls.load(Ordering::Relaxed) == 1, "the client sleeps for ever");
    });
}

#[test]
fn news_that_come_while_the_pending_call_is_made_are_not_lost() {
    loom::model(|| {
        let port = Port::called_before();
        let first = port.publish(5).expect("is pending");
        let maker = {
            let port = port.clone();
            thread::spawn(move || port.make(first, BEFORE + INTERVAL))
        };
        let publisher = {
            let port = port.clone();
            thread::spawn(move || port.publish(BEFORE + INTERVAL))
        };
        // All frames except the last have been read.
        let sleeps = port.sleeps(1);
        let listed: Vec<u64> = [join(maker), join(publisher)].into_iter().flatten().collect();
        assert!(listed.len() <= 1, "listed twice: {listed:?}");
        let told_at_once = port.calls.load(Ordering::Relaxed);
        for last in listed {
            assert_eq!(port.make(last, last + BEFORE + 2 * INTERVAL), None);
        }
        let told = port.calls.load(Ordering::Relaxed);
        assert!(told_at_once <= 1 && told <= 1, "one wish, {told} calls");
        assert!(!sleeps || told == 1, "the client sleeps for ever");
    });
}

#[test]
fn two_wishes_are_not_granted_within_one_interval() {
    loom::model(|| {
        let port = Port::new();
        let publisher = || {
            let port = port.clone();
            thread::spawn(move || port.publish(5))
        };
        let (one, other) = (publisher(), publisher());
        port.wish.store(1, Ordering::SeqCst);
        // As soon as it was called, the client requests the next call.
        if port.calls.load(Ordering::Acquire) == 1 {
            port.wish.store(2, Ordering::SeqCst);
        }
        let listed: Vec<u64> = [join(one), join(other)].into_iter().flatten().collect();
        let calls = port.calls.load(Ordering::Relaxed);
        assert!(calls <= 1, "{calls} calls at one time");
        assert!(listed.len() <= 1, "listed twice: {listed:?}");
    });
}
