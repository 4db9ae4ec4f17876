//! The steady state allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use ringway_lwep::{Connection, Endpoint, Event, Nanos, Options};

#[path = "network/device.rs"]
mod device;

use device::{Device, devices};

struct Counting;

thread_local! {
    /// Allocations of this thread. Other threads belong to the test harness.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: passes all calls to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(place, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Two {
    ends: [(Endpoint<Device>, Connection); 2],
    now: Nanos,
}

impl Two {
    fn new() -> Self {
        let (left, right) = devices(512, 512);
        let options = Options { keep_alive: Some(1_000_000_000), ..Options::default() };
        let (mut left, mut right) = (Endpoint::new(left, options.clone()), Endpoint::new(right, options));
        let (mac, other) = (left.mac(), right.mac());
        let connection = left.agree(other, 1 << 63 | 5, 0).expect("room");
        let accepted = right.agree(mac, 1 << 63 | 5, 0).expect("room");
        Self { ends: [(left, connection), (right, accepted)], now: 1_000 }
    }

    /// Both ends look, and time passes. With `loses`, the first frames of the left end are lost. Returns what each end has heard.
    fn step(&mut self, mut loses: bool) -> [usize; 2] {
        self.now += 10_000;
        let now = self.now;
        let mut heard = [0; 2];
        for ((endpoint, _), heard) in self.ends.iter_mut().zip(&mut heard) {
            while let Some(event) = endpoint.poll(now) {
                *heard += usize::from(matches!(event, Event::Message { .. }));
            }
            endpoint.link().tx.borrow_mut().carry();
            if std::mem::take(&mut loses) {
                endpoint.link().tx.borrow_mut().lose(3);
            }
        }
        heard
    }

    fn ping_pong(&mut self, rounds: usize) {
        let mut turn = 0;
        for _ in 0..rounds {
            let (endpoint, connection) = &mut self.ends[turn];
            endpoint.send(*connection, b"ping", self.now).expect("room");
            turn = 1 - turn;
            while self.step(false)[turn] == 0 {}
        }
    }

    /// Sends as fast as there is room; with losses if `loses`.
    fn bulk(&mut self, messages: usize, loses: bool) {
        let (mut sent, mut heard, mut steps) = (0, 0, 0);
        while heard < messages {
            steps += 1;
            let (endpoint, connection) = &mut self.ends[0];
            while sent < messages && endpoint.send(*connection, &[7; 1_000], self.now).is_ok() {
                sent += 1;
            }
            heard += self.step(loses && steps % 7 == 0)[1];
        }
    }
}

#[test]
fn the_steady_state_allocates_nothing() {
    let mut two = Two::new();
    let all = |two: &mut Two| {
        two.ping_pong(2_000);
        two.bulk(20_000, false);
        two.bulk(20_000, true);
    };
    // Queues grow to what they need at most.
    (0..3).for_each(|_| all(&mut two));
    let before = ALLOCATIONS.get();
    all(&mut two);
    assert_eq!(ALLOCATIONS.get() - before, 0);
    let counters = two.ends[0].0.counters();
    assert!(counters.repeated > 0 && counters.messages_sent > 160_000, "{counters:?}");
}
