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

/// Why a lock cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// This thread has it: the caller is a signal handler that has interrupted it.
    Interrupted,
    /// A thread had it when this process was forked. It is never released here.
    Inherited,
    /// Another thread has it.
    Held,
}

/// A value for one thread at a time.
#[derive(Debug)]
pub struct Lock<T> {
    /// The number of the thread that has it; 0: none.
    holder: AtomicU64,
    /// Threads that sleep for it.
    sleepers: AtomicU32,
    /// Counts releases that wake a sleeper.
    releases: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time has a reference to the value.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub const fn new(value: T) -> Lock<T> {
        let (sleepers, releases) = (AtomicU32::new(0), AtomicU32::new(0));
        Lock { holder: AtomicU64::new(0), sleepers, releases, value: UnsafeCell::new(value) }
    }

    /// Returns the value if no thread has it.
    #[inline]
    pub fn try_lock(&self) -> Result<Guard<'_, T>, Busy> {
        let own = own_number();
        match self.holder.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(Guard(self)),
            Err(holder) if holder == own => Err(Busy::Interrupted),
            Err(holder) if holder < FIRST.load(Ordering::Relaxed) => Err(Busy::Inherited),
            Err(_) => Err(Busy::Held),
        }
    }

    /// Sleeps until the lock may be free, for at most `longest`. One of those that sleep is told of a release, and has to try.
    pub fn sleep(&self, longest: Duration) {
        // In one order with the release: either this thread sees it, or the holder sees a sleeper.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let seen = self.releases.load(Ordering::SeqCst);
        if self.holder.load(Ordering::SeqCst) != 0 {
            let longest = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: longest.subsec_nanos().into() };
            let _ = futex::wait(&self.releases, futex::Flags::PRIVATE, seen, Some(&longest));
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    #[cold]
    fn wake_one(&self) {
        self.releases.fetch_add(1, Ordering::SeqCst);
        let _ = futex::wake(&self.releases, futex::Flags::PRIVATE, 1);
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
            self.0.wake_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_would_wait_for_itself_or_for_nobody_is_told() {
        static LOCK: Lock<u32> = Lock::new(1);
        let other = || std::thread::spawn(|| LOCK.try_lock().map(|mut value| *value += 1)).join().unwrap();
        let guard = LOCK.try_lock().unwrap();
        assert_eq!(LOCK.try_lock().err(), Some(Busy::Interrupted));
        assert_eq!(other(), Err(Busy::Held));
        drop(guard);
        assert_eq!(other(), Ok(()));
        // As in the child of a fork: what was locked stays so, and other locks are as usual.
        let guard = LOCK.try_lock().unwrap();
        in_child();
        assert_eq!((LOCK.try_lock().err(), other()), (Some(Busy::Inherited), Err(Busy::Inherited)));
        let of_child = Lock::new(());
        let _of_child = of_child.try_lock().unwrap();
        assert_eq!(of_child.try_lock().err(), Some(Busy::Interrupted));
        assert_eq!(*guard, 2);
    }

    #[test]
    fn every_thread_that_sleeps_for_a_lock_gets_it() {
        const TIMES: u32 = 20_000;
        static LOCK: Lock<u32> = Lock::new(0);
        let count = || {
            for _ in 0..TIMES {
                loop {
                    if let Ok(mut value) = LOCK.try_lock() {
                        *value += 1;
                        // The others find it locked.
                        std::thread::yield_now();
                        break;
                    }
                    // No time ends this sleep.
                    LOCK.sleep(Duration::from_secs(1 << 30));
                }
            }
        };
        let threads = [(); 4].map(|()| std::thread::spawn(count));
        ringway_testing::until("all threads have had the lock", || threads.iter().all(|thread| thread.is_finished()));
        assert_eq!(*LOCK.try_lock().unwrap(), 4 * TIMES);
    }
}
