//! The communication status block under every interleaving that the memory model allows (loom).
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release -p ringway-abi --test loom_csb`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::thread;

use ringway_abi::csb::{Csb, WORDS};

const COUNT: u32 = 8;

/// A block, and how often each side was woken.
struct Shared {
    words: Vec<AtomicU32>,
    kicks: AtomicU32,
    interrupts: AtomicU32,
}

impl Shared {
    fn new() -> Arc<Shared> {
        let words = (0..WORDS).map(|_| AtomicU32::new(0)).collect();
        let shared = Shared { words, kicks: AtomicU32::new(0), interrupts: AtomicU32::new(0) };
        // No threshold, as drivers begin.
        shared.words[5].store(u32::MAX, Ordering::Relaxed);
        Arc::new(shared)
    }

    fn csb(&self) -> Csb<'_> {
        Csb::new(&self.words).expect("a block")
    }

    /// The driver: a frame more, and a kick if the device wants one.
    fn send(&self, tail: u32) {
        self.words[0].store(tail, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.words[17].load(Ordering::Relaxed) != 0 {
            self.kicks.fetch_add(1, Ordering::Release);
        }
    }

    /// The device: frames up to `head` are sent.
    fn complete(&self, before: u32, head: u32) {
        self.csb().sent(head);
        fence(Ordering::SeqCst);
        if self.csb().wants_sent(before, head, COUNT) {
            self.interrupts.fetch_add(1, Ordering::Release);
        }
    }
}

fn wait(wakes: &AtomicU32, woken: &mut u32) {
    // A wake-up that never comes ends in loom's report of a loop without end.
    while wakes.load(Ordering::Acquire) == *woken {
        thread::yield_now();
    }
    *woken = wakes.load(Ordering::Acquire);
}

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(check);
}

#[test]
fn a_device_that_sleeps_again_and_again_sees_every_frame() {
    model(|| {
        let shared = Shared::new();
        shared.csb().begin(0, 0);
        let driver = thread::spawn({
            let shared = shared.clone();
            move || (1..=2).for_each(|tail| shared.send(tail))
        });
        let (mut head, mut woken) = (0, 0);
        while head < 2 {
            let tail = shared.csb().transmit_tail();
            if tail != head {
                shared.csb().decline();
                head = tail;
                continue;
            }
            shared.csb().ask();
            if shared.csb().transmit_tail() == head {
                wait(&shared.kicks, &mut woken);
            }
        }
        driver.join().expect("sends");
    });
}

/// A driver with a full ring requests a wake-up and checks once more.
fn a_driver_with_a_full_ring_is_woken(ask: fn(&Shared)) {
    model(move || {
        let shared = Shared::new();
        let device = thread::spawn({
            let shared = shared.clone();
            move || (0..2).for_each(|head| shared.complete(head, head + 1))
        });
        ask(&shared);
        fence(Ordering::SeqCst);
        if shared.words[16].load(Ordering::Acquire) < 2 {
            let mut woken = 0;
            while shared.words[16].load(Ordering::Acquire) < 2 {
                wait(&shared.interrupts, &mut woken);
            }
        }
        device.join().expect("sends");
    });
}

#[test]
fn a_driver_that_waits_for_any_progress_is_woken() {
    a_driver_with_a_full_ring_is_woken(|shared| shared.words[1].store(1, Ordering::Relaxed));
}

#[test]
fn a_driver_that_waits_for_a_place_is_woken() {
    a_driver_with_a_full_ring_is_woken(|shared| shared.words[5].store(2, Ordering::Relaxed));
}

#[test]
fn a_driver_that_waits_for_frames_is_woken() {
    model(|| {
        let shared = Shared::new();
        let device = thread::spawn({
            let shared = shared.clone();
            move || {
                shared.csb().received(1);
                fence(Ordering::SeqCst);
                if shared.csb().wants_received() {
                    shared.interrupts.fetch_add(1, Ordering::Release);
                }
            }
        });
        shared.words[2].store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if shared.words[20].load(Ordering::Acquire) == 0 {
            wait(&shared.interrupts, &mut 0);
        }
        device.join().expect("receives");
    });
}

#[test]
fn a_device_that_declined_is_left_alone() {
    model(|| {
        let shared = Shared::new();
        shared.csb().begin(0, 0);
        shared.csb().decline();
        let driver = thread::spawn({
            let shared = shared.clone();
            move || (1..=2).for_each(|tail| shared.send(tail))
        });
        driver.join().expect("sends");
        assert_eq!(shared.kicks.load(Ordering::Acquire), 0);
    });
}
