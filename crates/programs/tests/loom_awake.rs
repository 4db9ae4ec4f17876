//! Calls of programs and the ticker that ends them, under every interleaving that the memory model allows (loom).
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --profile tests -p ringway-programs --test loom_awake`.
#![cfg(loom)]

// Under loom the crate itself is empty, so that its compiler of programs need not be built.
#[path = "../src/awake.rs"]
mod awake;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use awake::Awake;

fn wait_for(epoch: &AtomicU64, deadline: u64) {
    while epoch.load(Ordering::Relaxed) < deadline {
        thread::yield_now();
    }
}

#[test]
fn no_call_goes_on_while_the_ticker_sleeps() {
    loom::model(|| {
        let (awake, epoch) = (Arc::new(Awake::default()), Arc::new(AtomicU64::new(0)));
        let ticker = thread::spawn({
            let (awake, epoch) = (awake.clone(), epoch.clone());
            move || {
                while !awake.has_ended() {
                    epoch.fetch_add(1, Ordering::Relaxed);
                    if !awake.look() {
                        awake.sleep(thread::park);
                    }
                }
            }
        });
        for _ in 0..2 {
            let deadline = epoch.load(Ordering::Relaxed) + 1;
            if awake.call() {
                ticker.thread().unpark();
            }
            // An endless loop of a program, until a tick interrupts it.
            wait_for(&epoch, deadline);
            if awake.stay() {
                ticker.thread().unpark();
            }
            let deadline = epoch.load(Ordering::Relaxed) + 1;
            wait_for(&epoch, deadline);
            awake.leave();
        }
        awake.end();
        ticker.thread().unpark();
        ticker.join().expect("ends");
    });
}
