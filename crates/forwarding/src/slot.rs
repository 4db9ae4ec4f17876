//! A place for an instance, and whose turn it is to use it.
//!
//! A poller must not wait for another thread. So each thread first takes the slot, by one atomic exchange. A poller that finds it taken leaves
//! its frames where they are and comes back ([`Slot::enter`]). The others wait: they say that they want the slot, and the poller leaves it
//! to them after its batch ([`Slot::borrow`]). Before they take it again, a poller that found it taken has its turn. So neither side
//! keeps the other out, and the lock within, which the compiler asks for, is hardly ever waited for.
//!
//! A poller that the kernel keeps within the slot is relieved by another of its number, for which nobody waits either: it takes the slot over, or
//! frees it for who wants it. The lock keeps all of them apart.
//!
//! A client whose memory makes its poller wait also makes those wait who want the slot meanwhile. A thread that serves other programs, too,
//! waits for a moment only ([`Slot::borrow_soon`]).

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::instance::Instance;

/// Nobody has the slot.
const FREE: usize = 0;
/// Another thread than its poller has the slot.
const BORROWED: usize = 1;

/// The value of a slot that the calling thread has as its poller.
#[inline]
fn own() -> usize {
    thread_local! {
        static MARK: u64 = const { 0 };
    }
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}
/// Time between two looks of a thread that waits. Pollers make no system call for it.
const LOOK: Duration = Duration::from_micros(20);
/// Longest wait for the turn of a poller: its port may have left.
const TURN: Duration = Duration::from_millis(2);
/// Longest wait for a poller to leave. It collects and judges a batch meanwhile: a call takes a millisecond of processor time, but the memory
/// of a client can make the poller wait for longer. After that the lock within keeps both apart.
const LEAVE: Duration = Duration::from_secs(1);
/// Longest wait of a thread that serves other programs, too, for each of what it waits for: as long as a call may take.
const SOON: Duration = Duration::from_millis(1);

/// A place for an instance.
#[derive(Debug)]
pub(crate) struct Slot {
    /// `None` while an instance is being started anew.
    instance: Mutex<Option<Instance>>,
    /// [`FREE`], [`BORROWED`], or the mark of a poller's thread.
    owner: AtomicUsize,
    /// Another thread than the slot's poller waits for the slot, or has it.
    is_wanted: AtomicBool,
    /// The poller has found the slot taken.
    is_awaited: AtomicBool,
    /// Lets one borrower in at a time.
    borrowers: Mutex<()>,
    /// A thread of its own fires the timer, which had to wait for the slot.
    pub(crate) is_fired_apart: AtomicBool,
    /// When the instance's timer fires, in nanoseconds; 0: not.
    pub(crate) timer: AtomicU64,
    /// Until when the instance's calls are bounded to a shorter time.
    pub(crate) short_until: AtomicU64,
}

impl Slot {
    pub(crate) fn new(instance: Option<Instance>) -> Slot {
        let timer = AtomicU64::new(instance.as_ref().map_or(0, Instance::timer));
        Slot {
            instance: Mutex::new(instance),
            owner: AtomicUsize::new(FREE),
            is_wanted: AtomicBool::new(false),
            is_awaited: AtomicBool::new(false),
            borrowers: Mutex::new(()),
            is_fired_apart: AtomicBool::new(false),
            timer,
            short_until: AtomicU64::new(0),
        }
    }

    /// Takes the slot for its poller. Returns false if another thread has or wants it.
    #[inline]
    pub(crate) fn enter(&self) -> bool {
        if self.is_wanted.load(Ordering::Relaxed) {
            return self.refuse();
        }
        if let Err(found) = self.owner.compare_exchange(FREE, own(), Ordering::Acquire, Ordering::Relaxed)
            && !self.relieve(found, own())
        {
            return self.refuse();
        }
        if self.is_awaited.load(Ordering::Relaxed) {
            self.is_awaited.store(false, Ordering::Relaxed);
        }
        true
    }

    #[cold]
    fn refuse(&self) -> bool {
        self.is_awaited.store(true, Ordering::Relaxed);
        // Who wants it must not wait for a poller that does not leave.
        let found = self.owner.load(Ordering::Relaxed);
        if found != FREE {
            self.relieve(found, FREE);
        }
        false
    }

    /// Takes the slot from a thread that has it as its poller, which the present poller has relieved. Returns false if it has another owner.
    #[cold]
    fn relieve(&self, found: usize, new: usize) -> bool {
        found != BORROWED && self.owner.compare_exchange(found, new, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Gives the slot back if its poller has it.
    #[inline]
    pub(crate) fn leave(&self) {
        if self.owner.load(Ordering::Relaxed) == own() {
            self.owner.store(FREE, Ordering::Release);
        }
    }

    /// The instance, for the poller that has entered.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<Instance>> {
        self.instance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the slot and uses it. Not for its poller.
    pub(crate) fn borrow<T>(&self, work: impl FnOnce(&mut Option<Instance>) -> T) -> T {
        self.borrow_within([TURN, LEAVE], work)
    }

    /// The same with these longest waits for the turn of a poller and for a poller to leave.
    fn borrow_within<T>(&self, waits: [Duration; 2], work: impl FnOnce(&mut Option<Instance>) -> T) -> T {
        let _one = self.borrowers.lock().unwrap_or_else(PoisonError::into_inner);
        let (_borrowed, _) = self.take(waits);
        work(&mut self.lock())
    }

    /// Uses the slot if that takes no long wait. For a thread that serves other programs, too.
    pub(crate) fn borrow_soon<T>(&self, work: impl FnOnce(&mut Option<Instance>) -> T) -> Option<T> {
        let _one = wait(SOON, || match self.borrowers.try_lock() {
            Ok(one) => Some(one),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        })?;
        let (_borrowed, is_taken) = self.take([SOON; 2]);
        is_taken.then(|| work(&mut self.lock()))
    }

    /// Takes the slot for the one borrower. Returns false if its poller did not leave in time.
    fn take(&self, [turn, leave]: [Duration; 2]) -> (Borrowed<'_>, bool) {
        if wait(turn, || (!self.is_awaited.load(Ordering::Relaxed)).then_some(())).is_none() {
            self.is_awaited.store(false, Ordering::Relaxed);
        }
        self.is_wanted.store(true, Ordering::Relaxed);
        let borrowed = Borrowed(self);
        let take = || self.owner.compare_exchange(FREE, BORROWED, Ordering::Acquire, Ordering::Relaxed).ok();
        let is_taken = wait(leave, take).is_some();
        (borrowed, is_taken)
    }
}

/// Gives a borrowed slot back, or takes back that it is wanted.
struct Borrowed<'s>(&'s Slot);

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        let Slot { owner, is_wanted, .. } = self.0;
        let _ = owner.compare_exchange(BORROWED, FREE, Ordering::Release, Ordering::Relaxed);
        is_wanted.store(false, Ordering::Relaxed);
    }
}

/// Waits for what `look` returns. `None`: that takes too long.
fn wait<T>(most: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        let found = look();
        if found.is_some() || begun.elapsed() >= most {
            return found;
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::thread;

    use ringway_testing::{PATIENCE, until};

    use super::*;

    #[test]
    fn a_poller_never_waits_and_has_its_turn_between_two_borrowers() {
        const BORROWED_TIMES: usize = 200;
        let slot = Arc::new(Slot::new(None));
        let is_held = Arc::new(AtomicBool::new(false));
        let begun = Arc::new(AtomicUsize::new(0));
        let (borrower, held, begins) = (Arc::clone(&slot), Arc::clone(&is_held), Arc::clone(&begun));
        let thread = thread::spawn(move || {
            for number in 1..=BORROWED_TIMES {
                borrower.borrow_within([PATIENCE; 2], |_| {
                    assert!(!held.swap(true, Ordering::SeqCst), "both have the slot");
                    begins.store(number, Ordering::SeqCst);
                    until("the poller finds the slot taken", || borrower.is_awaited.load(Ordering::SeqCst));
                    held.store(false, Ordering::SeqCst);
                });
            }
        });
        // How many borrowers had begun when the poller was refused; how often it had its turn after that.
        let (mut refused, mut turns) = (None, 0);
        while !thread.is_finished() {
            let before = begun.load(Ordering::SeqCst);
            if slot.enter() {
                assert!(!is_held.swap(true, Ordering::SeqCst), "both have the slot");
                drop(slot.instance.try_lock().expect("the lock is free"));
                let now = begun.load(Ordering::SeqCst);
                is_held.store(false, Ordering::SeqCst);
                slot.leave();
                if let Some(refused) = refused.take() {
                    assert!(now <= refused + 1, "{} borrowers had the slot before the poller", now - refused);
                    turns += 1;
                }
            } else {
                refused.get_or_insert(before);
                thread::yield_now();
            }
        }
        thread.join().expect("the borrower has ended");
        assert!(turns >= BORROWED_TIMES - 1, "{turns} turns");
    }

    #[test]
    fn a_poller_that_relieves_another_within_the_slot_keeps_nobody_waiting() {
        let slot = Arc::new(Slot::new(None));
        let (kept_slot, entered, (release, released)) = (Arc::clone(&slot), channel(), channel::<()>());
        let kept = thread::spawn(move || {
            assert!(kept_slot.enter());
            entered.0.send(()).expect("the test goes on");
            let _ = released.recv();
            kept_slot.leave();
        });
        entered.1.recv().expect("the poller is within");
        // Who wants the slot gets it as soon as the successor comes by.
        let (borrower, times) = (Arc::clone(&slot), Arc::new(AtomicUsize::new(0)));
        let done = Arc::clone(&times);
        let borrows = thread::spawn(move || {
            for _ in 0..20 {
                borrower.borrow_within([PATIENCE; 2], |_| done.fetch_add(1, Ordering::Relaxed));
            }
        });
        let mut turns = 0;
        until("both sides have their turns", || {
            if slot.enter() {
                turns += 1;
                slot.leave();
            }
            turns >= 20 && times.load(Ordering::Relaxed) == 20
        });
        borrows.join().expect("all were let in");
        // The first one leaves nothing that it does not have any more.
        assert!(slot.enter());
        drop(release);
        kept.join().expect("it leaves");
        assert_eq!(slot.owner.load(Ordering::Relaxed), own());
        slot.leave();
        assert!(slot.borrow_soon(|_| ()).is_some());
    }
}
