//! The port whose memory a poller's thread touches as a receiver: a note for other threads.
//!
//! The kernel may keep a thread in a page fault of a client's memory. Whoever looks at the thread then has to know the client. The port whose
//! input is in use is known from elsewhere; this is the other one: the port that is given frames, or is called.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::attachment::Port;

/// A thread's note. Other threads read it when the thread has stood still for a while; a successor does when the process has died. Copies are the same note.
#[derive(Clone, Copy, Debug)]
pub struct Touching(&'static AtomicU64);

/// A note that no other process reads.
impl Default for Touching {
    fn default() -> Touching {
        Touching(Box::leak(Box::new(AtomicU64::new(0))))
    }
}

impl Touching {
    /// The note in this word.
    #[must_use]
    pub fn at(word: &'static AtomicU64) -> Touching {
        Touching(word)
    }

    /// A note that no thread writes.
    #[must_use]
    pub fn nowhere() -> Touching {
        static NOWHERE: AtomicU64 = AtomicU64::new(0);
        Touching(&NOWHERE)
    }

    /// From now on the thread touches the memory of this port's client.
    #[inline(always)]
    pub(crate) fn begin(&self, port: &Arc<Port>) {
        self.0.store(Self::number_of(Arc::as_ptr(port)), Ordering::Relaxed);
    }

    /// The thread touches no receiver's memory any more.
    #[inline(always)]
    pub(crate) fn end(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// The number of the port that the thread touches, or 0.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns true if this is the number of the port at this address.
    #[must_use]
    pub fn names(number: u64, port: *const Port) -> bool {
        number == Self::number_of(port)
    }

    /// The number of the port at this address: no other port has it at the same time, and it is not 0.
    #[inline(always)]
    #[must_use]
    pub fn number_of(port: *const Port) -> u64 {
        port.addr() as u64
    }
}
