//! A lock for short sections, which waits without libc and can be reset in the child of a fork.

use std::sync::atomic::{AtomicBool, Ordering};

/// The lock. Nothing is held over a call that can wait, but for a request to the daemon, which has a time limit.
#[derive(Debug)]
pub(crate) struct Lock(AtomicBool);

/// Holds the lock.
pub(crate) struct Held<'a>(&'a Lock);

impl Lock {
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(crate) fn try_take(&self) -> Option<Held<'_>> {
        (!self.0.swap(true, Ordering::Acquire)).then(|| Held(self))
    }

    /// Waits for the lock.
    pub(crate) fn take(&self) -> Held<'_> {
        let mut turns = 0u32;
        loop {
            if let Some(held) = self.try_take() {
                return held;
            }
            turns += 1;
            if turns < 100 {
                std::hint::spin_loop();
            } else {
                rustix::thread::sched_yield();
            }
        }
    }

    /// Frees the lock in the child of a fork, where the thread that held it does not exist.
    pub(crate) fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}
