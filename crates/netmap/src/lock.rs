//! A lock for short sections, which waits without libc and survives forks, signal handlers and the death of its holder.

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{Timespec, gettid, nanosleep};

/// Turns of a wait before the thread sleeps: longer than a ring's synchronisation takes.
const TURNS: u32 = 200;
/// Time between two looks of a thread that sleeps. It sleeps, so that a holder of lower priority on the same processor can go on.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000 };
/// Looks, about a second, after which a lock in shared memory is taken from its holder: it may be stopped, or no thread at all.
const MOST_LOOKS: u32 = 20_000;

/// The lock: the number of the thread that holds it, or 0. Nothing is held over a call that can wait, but for a request to the daemon,
/// which has a time limit.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Lock(AtomicU32);

/// A value and its lock.
pub(crate) struct Guarded<T> {
    lock: Lock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is used by the holder of the lock only.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { lock: Lock::new(), value: UnsafeCell::new(value) }
    }

    /// Works with the value. `None`: this is a signal handler, and its own thread does so.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        let _held = self.lock.take()?;
        // SAFETY: the lock is held.
        Some(work(unsafe { &mut *self.value.get() }))
    }

    /// As [`Lock::reset`].
    pub(crate) fn reset(&self) {
        self.lock.reset();
    }
}

/// Holds the lock.
pub(crate) struct Held<'a>(&'a Lock);

thread_local! {
    /// This thread's number, once it is known.
    static OWN: Cell<u32> = const { Cell::new(0) };
}

/// Returns this thread's number.
#[inline]
fn own() -> u32 {
    match OWN.get() {
        0 => look_up_own(),
        own => own,
    }
}

/// Asks the kernel for this thread's number. The only thread of a fork's child has another number than the thread that forked.
#[cold]
pub(crate) fn look_up_own() -> u32 {
    let own = gettid().as_raw_pid().cast_unsigned();
    OWN.set(own);
    own
}

/// Returns false if there is no thread of this number.
fn is_alive(thread: u32) -> bool {
    // SAFETY: signal 0 is none: the kernel only looks for the thread.
    let found = unsafe { libc::syscall(libc::SYS_tkill, thread, 0) };
    found == 0 || crate::errno::get() != libc::ESRCH
}

impl Lock {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The lock in a word of shared memory, which any program of the family can write.
    pub(crate) const fn in_word(word: &AtomicU32) -> &Self {
        // SAFETY: a lock is such a word.
        unsafe { &*std::ptr::from_ref(word).cast::<Self>() }
    }

    #[inline]
    fn try_replace(&self, holder: u32, own: u32) -> bool {
        self.0.compare_exchange(holder, own, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Waits for the lock. `None`: this thread holds it itself. That happens in a signal handler, which has to do without.
    #[inline]
    pub(crate) fn take(&self) -> Option<Held<'_>> {
        let own = own();
        (self.try_replace(0, own) || self.wait(own, u32::MAX)).then(|| Held(self))
    }

    /// As [`Lock::take`], for a lock that processes share. Takes it from a holder that has kept it for a second.
    #[inline]
    pub(crate) fn take_shared(&self) -> Option<Held<'_>> {
        let own = own();
        (self.try_replace(0, own) || self.wait(own, TURNS + MOST_LOOKS)).then(|| Held(self))
    }

    /// Waits for the lock, and takes it. Takes it from a thread that has ended without releasing it, and from any after `most` turns.
    /// Returns false if this thread has it.
    #[cold]
    fn wait(&self, own: u32, most: u32) -> bool {
        let (mut turns, mut last) = (0u32, 0);
        loop {
            let holder = self.0.load(Ordering::Relaxed);
            if holder == own {
                return false;
            }
            if holder == 0 && self.try_replace(0, own) {
                return true;
            }
            if holder != std::mem::replace(&mut last, holder) {
                turns = 0;
            }
            turns = turns.saturating_add(1);
            if turns < TURNS {
                std::hint::spin_loop();
            } else {
                crate::errno::kept(|| {
                    if holder != 0 && (turns >= most || !is_alive(holder)) {
                        // If another thread has done the same, it holds the lock now.
                        let _ = self.0.compare_exchange(holder, 0, Ordering::Relaxed, Ordering::Relaxed);
                    } else {
                        let _ = nanosleep(&LOOK_EVERY);
                    }
                });
            }
        }
    }

    /// Frees the lock in the child of a fork, where the thread that held it does not exist.
    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Release);
    }
}
