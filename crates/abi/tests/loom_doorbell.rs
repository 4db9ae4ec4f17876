//! The doorbell's handshake under every interleaving that the memory model allows (loom).
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release -p ringway-abi --test loom_doorbell`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use ringway_abi::doorbell::{SharedWakeRequest, WakeRequest, granted, publish_fence};

/// One direction of a ring pair: one side moves the index and wakes the other, which requests wake-ups and sleeps. On
/// transmit the client moves `head` and the switch sleeps. For a call the switch moves `tail` and the client sleeps.
struct Direction {
    index: AtomicU32,
    wish: AtomicU32,
    /// The last request that was granted. One word, even if several pollers may wake the same client.
    last: AtomicU32,
    /// The eventfd's counter.
    wakes: AtomicU32,
}

impl Direction {
    fn new() -> Arc<Direction> {
        let zero = || AtomicU32::new(0);
        Arc::new(Direction { index: zero(), wish: zero(), last: zero(), wakes: zero() })
    }

    /// Publishes and wakes, as `TxRing::publish` of a client does, and `pass` of the switch.
    fn publish(&self, index: u32) {
        self.index.store(index, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        publish_fence();
        if granted(&self.wish, &self.last) {
            self.wakes.fetch_add(1, Ordering::Release);
        }
    }
}

#[test]
fn whoever_sleeps_after_a_second_look_is_woken() {
    loom::model(|| {
        let direction = Direction::new();
        let waker = thread::spawn({
            let direction = direction.clone();
            move || direction.publish(1)
        });
        let mut wish = WakeRequest::default();
        wish.make(&direction.wish);
        // The second look: nothing has moved, so this side sleeps.
        let sleeps = direction.index.load(Ordering::Acquire) == 0;
        waker.join().expect("publishes");
        if sleeps {
            assert_eq!(direction.wakes.load(Ordering::Acquire), 1, "a wake-up was lost");
        }
    });
}

#[test]
fn one_wish_is_granted_at_most_once() {
    loom::model(|| {
        let direction = Direction::new();
        let waker = thread::spawn({
            let direction = direction.clone();
            move || {
                direction.publish(1);
                direction.publish(2);
            }
        });
        let mut wish = WakeRequest::default();
        wish.make(&direction.wish);
        waker.join().expect("publishes");
        assert!(direction.wakes.load(Ordering::Acquire) <= 1);
    });
}

#[test]
fn two_pollers_that_deliver_to_one_client_call_it_once() {
    loom::model(|| {
        let direction = Direction::new();
        let mut wish = WakeRequest::default();
        wish.make(&direction.wish);
        let pollers: Vec<_> = (0..2)
            .map(|_| {
                let direction = direction.clone();
                thread::spawn(move || {
                    // Under the port's lock in the switch: the index moves by one each time.
                    direction.index.fetch_add(1, Ordering::Release);
                    direction.wake();
                })
            })
            .collect();
        for poller in pollers {
            poller.join().expect("delivers");
        }
        assert_eq!(direction.wakes.load(Ordering::Acquire), 1);
    });
}

#[test]
fn a_side_that_sleeps_again_and_again_sees_everything_that_was_published() {
    loom::model(|| {
        let direction = Direction::new();
        let waker = thread::spawn({
            let direction = direction.clone();
            move || {
                direction.publish(1);
                direction.publish(2);
            }
        });
        let mut wish = WakeRequest::default();
        let (mut seen, mut woken) = (0, 0);
        while seen < 2 {
            wish.make(&direction.wish);
            let index = direction.index.load(Ordering::Acquire);
            if index != seen {
                wish.withdraw(&direction.wish);
                seen = index;
                continue;
            }
            // Asleep. A wake-up that never comes ends in loom's report of a loop without end.
            while direction.wakes.load(Ordering::Acquire) == woken {
                thread::yield_now();
            }
            woken = direction.wakes.load(Ordering::Acquire);
        }
        assert!(!wish.is_open() || seen == 2);
        waker.join().expect("publishes");
    });
}

#[test]
fn a_withdrawn_wish_is_not_granted_later() {
    loom::model(|| {
        let direction = Direction::new();
        let mut wish = WakeRequest::default();
        wish.make(&direction.wish);
        wish.withdraw(&direction.wish);
        let waker = thread::spawn({
            let direction = direction.clone();
            move || direction.publish(1)
        });
        waker.join().expect("publishes");
        assert_eq!(direction.wakes.load(Ordering::Acquire), 0);
    });
}

#[test]
fn a_waiter_that_leaves_takes_no_wake_up_from_one_that_comes() {
    loom::model(|| {
        let direction = Direction::new();
        let counts = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let waits = |direction: &Direction, counts: &[AtomicU32; 2], leaves: bool| {
            let request = SharedWakeRequest { wish: &direction.wish, number: &counts[0], waiters: &counts[1] };
            request.make();
            let sleeps = direction.index.load(Ordering::Acquire) == 0;
            if leaves {
                // Its time was over.
                request.withdraw();
            }
            sleeps
        };
        let leaver = thread::spawn({
            let (direction, counts) = (direction.clone(), counts.clone());
            move || waits(&direction, &counts, true)
        });
        let waker = thread::spawn({
            let direction = direction.clone();
            move || direction.publish(1)
        });
        let sleeps = waits(&direction, &counts, false);
        leaver.join().expect("leaves");
        waker.join().expect("publishes");
        if sleeps {
            assert!(direction.wakes.load(Ordering::Acquire) >= 1, "a wake-up was lost");
        }
    });
}
