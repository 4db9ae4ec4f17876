//! Calls of programs and the ticker that ends them, under every interleaving that the memory model allows (loom).
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --profile tests -p ringway-forwarding --test loom_awake`.
#![cfg(loom)]

#[allow(dead_code, reason = "the model has no end")]
#[path = "../src/awake.rs"]
mod awake;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;

use awake::Awake;

/// Ticks of a model: with more the ticker stays awake for longer than the calls take.
const TICKS: usize = 4;

#[derive(Default)]
struct Scene {
    awake: Awake,
    epoch: AtomicU64,
    /// The ticker was unparked, and has not parked since.
    is_unparked: AtomicBool,
}

impl Scene {
    /// Ticks, and sleeps after each look without a call. Returns the epoch at which it parked.
    fn tick(&self) -> Option<u64> {
        for _ in 0..TICKS {
            self.epoch.fetch_add(1, Ordering::Relaxed);
            if !self.awake.look() {
                if self.awake.may_park() && !self.is_unparked.swap(false, Ordering::AcqRel) {
                    return Some(self.epoch.load(Ordering::Relaxed));
                }
                self.awake.rise();
            }
        }
        None
    }

    fn unpark(&self, is_needed: bool) {
        if is_needed {
            self.is_unparked.swap(true, Ordering::AcqRel);
        }
    }

    /// Begins a call. Returns its deadline.
    fn call(&self) -> u64 {
        let deadline = self.epoch.load(Ordering::Relaxed) + 1;
        self.unpark(self.awake.call());
        deadline
    }

    /// If a tick has interrupted the call: returns its next deadline.
    fn go_on(&self, deadline: u64) -> Option<u64> {
        (self.epoch.load(Ordering::Relaxed) >= deadline).then(|| {
            self.unpark(self.awake.stay());
            self.epoch.load(Ordering::Relaxed) + 1
        })
    }
}

#[test]
fn the_ticker_does_not_sleep_before_the_deadline_of_a_call() {
    let mut model = loom::model::Builder::new();
    // Each more takes many times as long.
    model.preemption_bound = Some(3);
    model.check(|| {
        let scene = Arc::new(Scene::default());
        let ticker = thread::spawn({
            let scene = scene.clone();
            move || scene.tick()
        });
        // The second call may find what the first has set.
        scene.call();
        let mut deadline = scene.call();
        if let Some(next) = scene.go_on(deadline) {
            deadline = next;
        }
        if let Some(epoch) = ticker.join().expect("ends") {
            assert!(scene.is_unparked.swap(false, Ordering::AcqRel) || epoch >= deadline, "{epoch} of {deadline}");
        }
    });
}
