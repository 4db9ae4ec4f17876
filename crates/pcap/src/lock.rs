//! Locks whose holder is known.
//!
//! A signal handler that interrupts the holder would wait for its own thread, and the child of a fork for a thread that it does not
//! have: both would wait for ever. They are told so instead.

use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::thread::futex;
use rustix::time::Timespec;

/// The number of the next thread that asks for a lock.
static NEXT: AtomicU64 = AtomicU64::new(1);
/// The first number of a thread of this process. Threads of the processes that it was forked from have lower ones.
static FIRST: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// This thread's number; 0: it has none.
    static OWN: Cell<u64> = const { Cell::new(0) };
}

#[inline]
fn own_number() -> u64 {
    let own = OWN.get();
    if own == 0 { take_number() } else { own }
}

#[cold]
fn take_number() -> u64 {
    let own = NEXT.fetch_add(1, Ordering::Relaxed);
    OWN.set(own);
    own
}

extern "C" fn in_child() {
    FIRST.store(NEXT.load(Ordering::Relaxed), Ordering::Relaxed);
    OWN.set(0);
}

/// Prepares for forks. To be called before there is a lock.
pub fn watch_forks() {
    // Threads that come here at the same time all do it, and a child then does the same twice. A lock could stay locked in a child.
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if !IS_DONE.load(Ordering::Acquire) {
        // SAFETY: the C library forgets the function when this library is unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        IS_DONE.store(true, Ordering::Release);
    }
}

/// A waiter asks for the next turn after this time: before, a thread that sends frame after frame keeps the lock.
const TURN_AFTER: Duration = Duration::from_millis(1);
/// Longest sleep of a waiter that does not have the next turn: the one that has it may have jumped out of its wait.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Why a lock cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// This thread has it: the caller is a signal handler that has interrupted it.
    Interrupted,
    /// A thread had it when this process was forked. It is never released here.
    Inherited,
    /// Another thread has it, or has the next turn.
    Held,
}

/// A value for one thread at a time.
#[derive(Debug)]
pub struct Lock<T> {
    /// The number of the thread that has it; 0: none.
    holder: AtomicU64,
    /// The number of the thread that has the next turn; 0, or a number of the parent process: any thread.
    next: AtomicU64,
    /// Threads that sleep for it.
    sleepers: AtomicU32,
    /// Counts what wakes the sleepers.
    wakes: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time has a reference to the value.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub const fn new(value: T) -> Lock<T> {
        Lock {
            holder: AtomicU64::new(0),
            next: AtomicU64::new(0),
            sleepers: AtomicU32::new(0),
            wakes: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Returns the value if no thread has it, and no other thread has the next turn.
    #[inline]
    pub fn try_lock(&self) -> Result<Guard<'_, T>, Busy> {
        let own = own_number();
        if self.next.load(Ordering::Relaxed) == 0 { self.take(own) } else { self.take_in_turn(own) }
    }

    #[inline]
    fn take(&self, own: u64) -> Result<Guard<'_, T>, Busy> {
        match self.holder.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(Guard(self)),
            Err(holder) => Err(Self::busy(own, holder)),
        }
    }

    #[cold]
    fn take_in_turn(&self, own: u64) -> Result<Guard<'_, T>, Busy> {
        if self.is_turn_of_another(own) {
            return Err(Self::busy(own, self.holder.load(Ordering::Relaxed)));
        }
        let guard = self.take(own)?;
        let _ = self.next.compare_exchange(own, 0, Ordering::SeqCst, Ordering::Relaxed);
        Ok(guard)
    }

    fn busy(own: u64, holder: u64) -> Busy {
        match holder {
            0 => Busy::Held,
            holder if holder == own => Busy::Interrupted,
            holder if holder < FIRST.load(Ordering::Relaxed) => Busy::Inherited,
            _ => Busy::Held,
        }
    }

    fn is_turn_of_another(&self, own: u64) -> bool {
        let next = self.next.load(Ordering::SeqCst);
        next != own && next >= FIRST.load(Ordering::Relaxed)
    }

    /// Returns the number of wakes up to now.
    pub fn wakes(&self) -> u32 {
        self.wakes.load(Ordering::SeqCst)
    }

    /// Wakes all threads that sleep for the lock: they look again at what they wait for. Async-signal-safe.
    pub fn wake(&self) {
        // In one order with a sleeper: either this thread sees it, or it sees that the count has moved.
        self.wakes.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _ = futex::wake(&self.wakes, futex::Flags::PRIVATE, i32::MAX as u32);
        }
    }

    /// The number of the thread that has the next turn.
    #[cfg(test)]
    pub fn next_turn(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    /// The place of the value.
    pub fn as_ptr(&self) -> *mut T {
        self.value.get()
    }
}

/// A locked value. Also a thread that is cancelled releases it.
#[derive(Debug)]
pub struct Guard<'a, T>(&'a Lock<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is this guard's.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is this guard's, which is borrowed mutably.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.holder.swap(0, Ordering::SeqCst);
        if self.0.sleepers.load(Ordering::SeqCst) > 0 {
            self.0.wake();
        }
    }
}

/// The wait of a thread for a lock.
#[derive(Debug)]
pub struct Waiter<'a, T> {
    lock: &'a Lock<T>,
    own: u64,
    is_first_sleep: bool,
    /// Whose turn was next when this thread looked last.
    other: u64,
}

impl<T> Waiter<'_, T> {
    pub fn new(lock: &Lock<T>) -> Waiter<'_, T> {
        Waiter { lock, own: own_number(), is_first_sleep: true, other: 0 }
    }

    /// Sleeps until the lock may be free, or until a wake after the first `wakes`, for at most `longest`. The thread then has to try.
    pub fn sleep(&mut self, wakes: u32, longest: Duration) {
        let most = match (self.is_first_sleep, self.has_turn()) {
            (true, _) => TURN_AFTER,
            (false, true) => longest,
            (false, false) => LOOK_AGAIN,
        };
        let longest = longest.min(most);
        // In one order with a release: either this thread sees it, or the holder sees a sleeper.
        self.lock.sleepers.fetch_add(1, Ordering::SeqCst);
        if self.lock.holder.load(Ordering::SeqCst) != 0 || self.lock.is_turn_of_another(self.own) {
            let longest = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: longest.subsec_nanos().into() };
            let _ = futex::wait(&self.lock.wakes, futex::Flags::PRIVATE, wakes, Some(&longest));
        }
        self.lock.sleepers.fetch_sub(1, Ordering::SeqCst);
        self.is_first_sleep = false;
    }

    /// Asks for the next turn, unless this is the first sleep. Takes it from a thread that has left the lock free since the last look.
    fn has_turn(&mut self) -> bool {
        let next = self.lock.next.load(Ordering::SeqCst);
        let is_left = next == self.other && self.lock.holder.load(Ordering::SeqCst) == 0;
        self.other = next;
        if self.is_first_sleep || next == self.own || !is_left && self.lock.is_turn_of_another(self.own) {
            return next == self.own;
        }
        self.lock.next.compare_exchange(next, self.own, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

impl<T> Drop for Waiter<'_, T> {
    /// Leaves the next turn to others, if the thread has it and has not taken it.
    fn drop(&mut self) {
        if self.lock.next.compare_exchange(self.own, 0, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
            self.lock.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No time ends such a sleep.
    const FOR_EVER: Duration = Duration::from_secs(1 << 30);

    /// Waits for the lock.
    fn wait_for<T>(lock: &Lock<T>) -> Guard<'_, T> {
        let mut waiter = Waiter::new(lock);
        loop {
            let wakes = lock.wakes();
            match lock.try_lock() {
                Ok(guard) => return guard,
                Err(_) => waiter.sleep(wakes, FOR_EVER),
            }
        }
    }

    #[test]
    fn a_thread_that_takes_a_lock_over_and_over_gives_the_others_their_turns() {
        static LOCK: Lock<u32> = Lock::new(0);
        let mut guard = LOCK.try_lock().unwrap();
        let threads = [(); 3].map(|()| std::thread::spawn(|| *wait_for(&LOCK) += 1));
        while *guard < threads.len() as u32 {
            ringway_testing::until("another thread has the next turn", || LOCK.next_turn() != 0);
            let before = *guard;
            drop(guard);
            guard = wait_for(&LOCK);
            assert!(*guard > before, "no other thread had the lock");
        }
    }

    #[test]
    fn a_turn_that_its_thread_does_not_take_goes_to_the_next_thread() {
        static LOCK: Lock<u32> = Lock::new(0);
        // As a thread that has jumped out of its wait.
        let mut gone = Waiter::new(&LOCK);
        gone.own = u64::MAX;
        gone.is_first_sleep = false;
        assert!(gone.has_turn());
        std::mem::forget(gone);
        let other = std::thread::spawn(|| *wait_for(&LOCK) += 1);
        ringway_testing::until("the other thread has had the lock", || other.is_finished());
        // A wait that ends otherwise leaves its turn.
        let mut ended = Waiter::new(&LOCK);
        ended.is_first_sleep = false;
        assert!(ended.has_turn());
        let other = std::thread::spawn(|| LOCK.try_lock().err());
        assert_eq!(other.join().unwrap(), Some(Busy::Held));
        drop(ended);
        let other = std::thread::spawn(|| LOCK.try_lock().err());
        assert_eq!(other.join().unwrap(), None);
    }

    #[test]
    fn who_would_wait_for_itself_is_told() {
        static LOCK: Lock<u32> = Lock::new(1);
        let other = || std::thread::spawn(|| LOCK.try_lock().map(|mut value| *value += 1)).join().unwrap();
        let guard = LOCK.try_lock().unwrap();
        assert_eq!(LOCK.try_lock().err(), Some(Busy::Interrupted));
        assert_eq!(other(), Err(Busy::Held));
        drop(guard);
        assert_eq!((other(), *LOCK.try_lock().unwrap()), (Ok(()), 2));
    }

    #[test]
    fn a_child_is_told_of_what_was_locked_and_has_other_locks_as_usual() {
        static LOCK: Lock<u32> = Lock::new(1);
        watch_forks();
        let _guard = LOCK.try_lock().unwrap();
        let is_as_expected = || {
            let of_child = Lock::new(());
            let held = of_child.try_lock();
            let interrupted = of_child.try_lock().err();
            (LOCK.try_lock().err(), held.is_ok(), interrupted) == (Some(Busy::Inherited), true, Some(Busy::Interrupted))
        };
        // SAFETY: the child allocates nothing, and ends by `_exit`.
        let child = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit((!is_as_expected()).into());
            }
            child
        };
        let mut status = -1;
        // SAFETY: the child's number, and a place for its status.
        assert_eq!((unsafe { libc::waitpid(child, &raw mut status, 0) }, status), (child, 0));
    }

    #[test]
    fn every_thread_that_sleeps_for_a_lock_gets_it() {
        const TIMES: u32 = 20_000;
        static LOCK: Lock<u32> = Lock::new(0);
        let count = || {
            for _ in 0..TIMES {
                let mut value = wait_for(&LOCK);
                *value += 1;
                // The others find it locked.
                std::thread::yield_now();
            }
        };
        let threads = [(); 4].map(|()| std::thread::spawn(count));
        ringway_testing::until("all threads have had the lock", || threads.iter().all(|thread| thread.is_finished()));
        assert_eq!(*LOCK.try_lock().unwrap(), 4 * TIMES);
    }
}
