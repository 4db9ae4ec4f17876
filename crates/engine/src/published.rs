//! A value that one side replaces and others read, each at a moment of its choosing.

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

/// The current value and how often it was replaced. Looking for a change costs one load.
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

    /// Replaces the value. The old one lives until its last reader lets go.
    pub fn replace(&self, value: T) {
        let value = Arc::new(value);
        let old = {
            let mut current = self.current.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            self.version.fetch_add(1, Ordering::Release);
            std::mem::replace(&mut *current, value)
        };
        drop(old);
    }

    /// Has readers read the value again, though it is the same.
    pub fn touch(&self) {
        let _current = self.current.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// The version as of now. A reader that holds an older one calls [`Published::get`].
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The value and its version.
    pub fn get(&self) -> (Arc<T>, u64) {
        let current = self.current.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Both change only under the lock.
        (Arc::clone(&current), self.version.load(Ordering::Acquire))
    }
}
