//! The port whose memory a poller's thread touches as a receiver: a note for other threads.
//!
//! The kernel may keep a thread in a page fault of a client's memory. Whoever looks at the thread then has to know the client. The port whose
//! input is in use is known from elsewhere; this is the other one: the port that is given frames, or is called.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::attachment::Port;

/// A thread's note. Other threads read it when the thread has stood still for a while.
#[derive(Debug, Default)]
pub struct Touching(AtomicUsize);

impl Touching {
    /// From now on the thread touches the memory of this port's client.
    #[inline(always)]
    pub(crate) fn begin(&self, port: &Arc<Port>) {
        self.0.store(number_of(port), Ordering::Relaxed);
    }

    /// The thread touches no receiver's memory any more.
    #[inline(always)]
    pub(crate) fn end(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// The number of the port that the thread touches, or 0.
    #[must_use]
    pub fn number(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns true if this is the number of the port at this address.
    #[must_use]
    pub fn names(number: usize, port: *const Port) -> bool {
        number == port.addr()
    }
}

/// A number that no other port has at the same time, and that is not 0.
#[inline(always)]
fn number_of(port: &Arc<Port>) -> usize {
    Arc::as_ptr(port).addr()
}
