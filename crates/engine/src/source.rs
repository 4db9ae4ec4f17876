//! Where a poller's frames come from.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ringway_switch::{Input, Switch};

use crate::engine::PollerState;

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
    place: Mutex<Place>,
}

/// Where an input is while nobody has it.
struct Place {
    input: Option<Box<dyn Input>>,
    /// Pollers that came for it while another had it; one that has lost interest since is no trouble.
    waiting: Vec<Arc<PollerState>>,
}

impl Source {
    /// A source nobody serves yet.
    #[must_use]
    pub fn new(input: Box<dyn Input>, signal: Signal) -> Source {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let place = Place { input: Some(input), waiting: Vec::new() };
        Source { id: NEXT.fetch_add(1, Ordering::Relaxed), signal, place: Mutex::new(place) }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn signal(&self) -> &Signal {
        &self.signal
    }

    /// The input. When another poller has it, `poller` is woken, with `returned` set, as soon as it is there.
    pub(crate) fn take(&self, poller: &Arc<PollerState>) -> Option<Box<dyn Input>> {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        let input = place.input.take();
        if input.is_none() && !place.waiting.iter().any(|waiting| Arc::ptr_eq(waiting, poller)) {
            place.waiting.push(Arc::clone(poller));
        }
        input
    }

    pub(crate) fn put_back(&self, input: Box<dyn Input>) {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        place.input = Some(input);
        for poller in place.waiting.drain(..) {
            poller.returned.store(true, Ordering::Release);
            poller.wake();
        }
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
