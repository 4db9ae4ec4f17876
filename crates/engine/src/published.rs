//! A value that one thread replaces and other threads read at a time of their choice. Configuration reaches pollers as
//! an immutable `Topology`, replaced as a whole; checking for a new one costs one load per round.

#[cfg(loom)]
use loom::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};
#[cfg(not(loom))]
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

/// A value and its version, the number of times it was replaced or touched. Checking for a change costs one load.
#[derive(Debug)]
pub struct Published<T> {
    version: AtomicU64,
    current: Mutex<Arc<T>>,
}

impl<T> Published<T> {
    /// Publishes the first value, as version 1.
    pub fn new(value: T) -> Self {
        Self { version: AtomicU64::new(1), current: Mutex::new(Arc::new(value)) }
    }

    /// Replaces the value. The old one is dropped when its last reader drops it.
    pub fn replace(&self, value: Arc<T>) {
        let old = {
            let mut current = self.current.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            self.version.fetch_add(1, Ordering::Release);
            std::mem::replace(&mut *current, value)
        };
        drop(old);
    }

    /// Increments the version, so that readers read the unchanged value again.
    pub fn touch(&self) {
        let _current = self.current.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// The current version. A reader that has an older one calls [`Published::get`].
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The value and its version.
    pub fn get(&self) -> (Arc<T>, u64) {
        let current = self.current.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Value and version change only under the lock.
        (Arc::clone(&current), self.version.load(Ordering::Acquire))
    }
}
