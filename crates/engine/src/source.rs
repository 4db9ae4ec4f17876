//! Where a poller's frames come from.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ringway_switch::{Input, Switch};

/// How a client makes itself heard.
#[derive(Debug)]
pub enum Signal {
    /// By memory, which the poller watches while it is awake, and by this eventfd when it asked for a kick.
    Kick(OwnedFd),
    /// By this device's readiness alone.
    Device(OwnedFd),
}

impl Signal {
    /// The descriptor to wait for.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Kick(fd) | Self::Device(fd) => fd.as_fd(),
        }
    }

    pub(crate) fn in_memory(&self) -> bool {
        matches!(self, Self::Kick(_))
    }
}

/// A port's input. Whoever takes it owns it until it is put back.
pub struct Source {
    id: u64,
    signal: Signal,
    input: Mutex<Option<Box<dyn Input>>>,
}

impl Source {
    /// A source nobody serves yet.
    #[must_use]
    pub fn new(input: Box<dyn Input>, signal: Signal) -> Source {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Source { id: NEXT.fetch_add(1, Ordering::Relaxed), signal, input: Mutex::new(Some(input)) }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn signal(&self) -> &Signal {
        &self.signal
    }

    pub(crate) fn take(&self) -> Option<Box<dyn Input>> {
        self.input.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn put_back(&self, input: Box<dyn Input>) {
        *self.input.lock().unwrap_or_else(PoisonError::into_inner) = Some(input);
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("id", &self.id).field("signal", &self.signal).finish_non_exhaustive()
    }
}

/// A port in a topology.
#[derive(Clone, Debug)]
pub struct Attached {
    /// The switch as of this topology.
    pub switch: Arc<Switch>,
    /// The port's index in it.
    pub index: u16,
    /// Its input.
    pub source: Arc<Source>,
    /// Which poller serves it, modulo their number.
    pub poller: usize,
    /// Batches per round, at least 1.
    pub weight: u32,
}
