//! Who charges for a stall: the thread that was kept or the one that had it relieved, under every interleaving that the memory model allows (loom).
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release -p ringway-engine --test loom_charging`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;

use ringway_engine::Charging;

#[test]
fn each_stall_is_charged_once() {
    loom::model(|| {
        let charging = Arc::new(Charging::default());
        let seen = charging.begun();
        // The thread is let go at any time, charges for the stall, and may be kept and let go again.
        let kept = thread::spawn({
            let charging = charging.clone();
            move || [charging.begin(), charging.begin()]
        });
        let claimed = charging.claim(seen);
        let [first, second] = kept.join().expect("goes on");
        assert_ne!(claimed.is_some(), first, "the stall that was seen");
        assert_eq!(first, second, "and all that follow are the same thread's");
    });
}
