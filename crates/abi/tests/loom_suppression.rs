//! Virtqueue suppression under every interleaving that the memory model allows (loom).
//!
//! Both directions are the same handshake: the device asks for kicks and the driver publishes, or the driver asks for calls
//! and the device publishes. Run with `RUSTFLAGS="--cfg loom" cargo test --release -p ringway-abi --test loom_suppression`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU16, AtomicU32, Ordering, fence};
use loom::thread;

use ringway_abi::suppression::{PackedSuppression, SplitSuppression};

const SIZE: u16 = 2;
const WRAP: u16 = 1 << 15;

/// The memory between the two sides: what is published, what is asked for, and the eventfd's counter.
struct Shared {
    /// Split: the index. Packed: the flags of a ring's descriptors.
    words: [AtomicU16; SIZE as usize],
    flags: AtomicU16,
    event: AtomicU16,
    wakes: AtomicU32,
}

/// A ring format with one way of suppression. Positions count from 0 and do not wrap.
trait Format: Send + Sync + 'static {
    /// Makes position `at` visible.
    fn publish(shared: &Shared, at: u16);
    /// Makes positions 0 and 1 visible at once.
    fn publish_two(shared: &Shared);
    /// Returns true if position `at` is visible.
    fn is_there(shared: &Shared, at: u16) -> bool;
    fn ask(shared: &Shared, at: u16);
    fn decline(shared: &Shared);
    fn is_wanted(shared: &Shared, old: u16, new: u16) -> bool;
}

struct Split<const EVENT_IDX: bool>;

impl<const EVENT_IDX: bool> Split<EVENT_IDX> {
    fn wish(shared: &Shared) -> SplitSuppression<'_> {
        SplitSuppression { flags: &shared.flags, event: EVENT_IDX.then_some(&shared.event) }
    }
}

/// Indices begin shortly before they wrap.
fn index(position: u16) -> u16 {
    position.wrapping_add(u16::MAX)
}

impl<const EVENT_IDX: bool> Format for Split<EVENT_IDX> {
    fn publish(shared: &Shared, at: u16) {
        shared.words[0].store(at + 1, Ordering::Release);
    }

    fn publish_two(shared: &Shared) {
        Self::publish(shared, 1);
    }

    fn is_there(shared: &Shared, at: u16) -> bool {
        shared.words[0].load(Ordering::Acquire) > at
    }

    fn ask(shared: &Shared, at: u16) {
        Self::wish(shared).ask(index(at));
    }

    fn decline(shared: &Shared) {
        Self::wish(shared).decline();
    }

    fn is_wanted(shared: &Shared, old: u16, new: u16) -> bool {
        Self::wish(shared).is_wanted(index(old), index(new))
    }
}

struct Packed<const EVENT_IDX: bool>;

impl<const EVENT_IDX: bool> Packed<EVENT_IDX> {
    fn wish(shared: &Shared) -> PackedSuppression<'_> {
        PackedSuppression { place: &shared.event, flags: &shared.flags, event_idx: EVENT_IDX }
    }

    fn place(position: u16) -> u16 {
        position % SIZE | if (position / SIZE) % 2 == 0 { WRAP } else { 0 }
    }
}

impl<const EVENT_IDX: bool> Format for Packed<EVENT_IDX> {
    fn publish(shared: &Shared, at: u16) {
        shared.words[usize::from(at % SIZE)].store(1 + at / SIZE, Ordering::Release);
    }

    fn publish_two(shared: &Shared) {
        // The first is held back.
        Self::publish(shared, 1);
        Self::publish(shared, 0);
    }

    fn is_there(shared: &Shared, at: u16) -> bool {
        shared.words[usize::from(at % SIZE)].load(Ordering::Acquire) > at / SIZE
    }

    fn ask(shared: &Shared, at: u16) {
        Self::wish(shared).ask(Self::place(at));
    }

    fn decline(shared: &Shared) {
        Self::wish(shared).decline();
    }

    fn is_wanted(shared: &Shared, old: u16, new: u16) -> bool {
        Self::wish(shared).is_wanted(u32::from(new - old), Self::place(new), SIZE)
    }
}

impl Shared {
    /// At first nothing is asked for: the side is awake.
    fn new<F: Format>() -> Arc<Shared> {
        let zero = || AtomicU16::new(0);
        let words = std::array::from_fn(|_| zero());
        let shared = Arc::new(Shared { words, flags: zero(), event: AtomicU16::new(0), wakes: AtomicU32::new(0) });
        // A split ring's event index that was passed long ago.
        shared.event.store(index(0).wrapping_sub(100), Ordering::Relaxed);
        F::decline(&shared);
        shared
    }

    /// Publishes positions one by one and wakes, as a driver does after each chain and a device after each batch.
    fn publish<F: Format>(&self, positions: std::ops::Range<u16>) {
        for at in positions {
            F::publish(self, at);
            fence(Ordering::SeqCst);
            if F::is_wanted(self, at, at + 1) {
                self.wakes.fetch_add(1, Ordering::Release);
            }
        }
    }
}

fn whoever_sleeps_after_a_second_look_is_woken<F: Format>() {
    loom::model(|| {
        let shared = Shared::new::<F>();
        let waker = thread::spawn({
            let shared = shared.clone();
            move || shared.publish::<F>(0..1)
        });
        F::ask(&shared, 0);
        let sleeps = !F::is_there(&shared, 0);
        waker.join().expect("publishes");
        if sleeps {
            assert_eq!(shared.wakes.load(Ordering::Acquire), 1, "a wake-up was lost");
        }
    });
}

fn whoever_sleeps_again_and_again_sees_everything<F: Format>() {
    // Every interleaving with up to 3 preemptions; all of them take half a minute.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Shared::new::<F>();
        let waker = thread::spawn({
            let shared = shared.clone();
            // A whole lap of the packed ring.
            move || shared.publish::<F>(0..SIZE)
        });
        let (mut seen, mut woken) = (0, 0);
        while seen < SIZE {
            F::ask(&shared, seen);
            if F::is_there(&shared, seen) {
                F::decline(&shared);
                seen += 1;
                continue;
            }
            // Asleep. A wake-up that never comes ends in loom's report of a loop without end.
            while shared.wakes.load(Ordering::Acquire) == woken {
                thread::yield_now();
            }
            woken = shared.wakes.load(Ordering::Acquire);
        }
        waker.join().expect("publishes");
    });
}

/// A batch is published at once and asked about once, as a device does.
fn a_batch_is_one_wake_up_at_most<F: Format>() {
    loom::model(|| {
        let shared = Shared::new::<F>();
        let waker = thread::spawn({
            let shared = shared.clone();
            move || {
                F::publish_two(&shared);
                fence(Ordering::SeqCst);
                let wanted = F::is_wanted(&shared, 0, 2);
                shared.wakes.fetch_add(wanted.into(), Ordering::Release);
            }
        });
        F::ask(&shared, 0);
        let sleeps = !F::is_there(&shared, 0);
        waker.join().expect("publishes");
        let wakes = shared.wakes.load(Ordering::Acquire);
        assert!(if sleeps { wakes == 1 } else { wakes <= 1 });
    });
}

fn whoever_declined_is_left_alone<F: Format>() {
    loom::model(|| {
        let shared = Shared::new::<F>();
        F::ask(&shared, 0);
        F::decline(&shared);
        let passed = 1;
        let waker = thread::spawn({
            let shared = shared.clone();
            move || shared.publish::<F>(passed..SIZE)
        });
        waker.join().expect("publishes");
        assert_eq!(shared.wakes.load(Ordering::Acquire), 0);
    });
}

macro_rules! formats {
    ($($name:ident: $format:ty),* $(,)?) => {
        $(mod $name {
            use super::*;
            #[test]
            fn whoever_sleeps_after_a_second_look_is_woken() {
                super::whoever_sleeps_after_a_second_look_is_woken::<$format>();
            }
            #[test]
            fn whoever_sleeps_again_and_again_sees_everything() {
                super::whoever_sleeps_again_and_again_sees_everything::<$format>();
            }
            #[test]
            fn a_batch_is_one_wake_up_at_most() {
                super::a_batch_is_one_wake_up_at_most::<$format>();
            }
            #[test]
            fn whoever_declined_is_left_alone() {
                super::whoever_declined_is_left_alone::<$format>();
            }
        })*
    };
}

formats! {
    split_flags: Split<false>,
    split_events: Split<true>,
    packed_flags: Packed<false>,
    packed_events: Packed<true>,
}
