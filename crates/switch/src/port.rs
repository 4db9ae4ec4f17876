//! What the switch knows of a port.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::batch::Batch;
use crate::counters::Counters;
use crate::deliver::Frames;
use crate::offload::Accepts;

/// A client broke the rules in a way that ends its port. Its display text is for the client and the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortFault {
    /// `head` is not a slot of the transmit ring.
    TxHeadOutOfRange(u32),
    /// `head` of the receive ring is not between its last value and `tail`.
    RxHeadOutOfRange(u32),
    /// A frame spans more slots than are allowed and has no end.
    EndlessFrame,
    /// The memory file was truncated, or its pages cannot be had.
    MemoryLost,
    /// The device behind the port failed or was removed.
    DeviceLost,
    /// Waking the client blocks: its eventfd was made blocking and filled up.
    CallBlocked,
}

impl PortFault {
    /// The name in `status --json` and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TxHeadOutOfRange(_) => "tx_head_out_of_range",
            Self::RxHeadOutOfRange(_) => "rx_head_out_of_range",
            Self::EndlessFrame => "endless_frame",
            Self::MemoryLost => "memory_lost",
            Self::DeviceLost => "device_lost",
            Self::CallBlocked => "call_blocked",
        }
    }
}

impl std::fmt::Display for PortFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TxHeadOutOfRange(head) => write!(f, "transmit ring: head {head} is not a slot of the ring"),
            Self::RxHeadOutOfRange(head) => {
                write!(f, "receive ring: head {head} is not between its last value and tail")
            }
            Self::EndlessFrame => write!(f, "transmit ring: a frame spans 64 slots and still has NS_MOREFRAG set"),
            Self::MemoryLost => write!(f, "the shared memory was truncated or its pages cannot be had"),
            Self::DeviceLost => write!(f, "the device behind the port failed or was removed"),
            Self::CallBlocked => write!(f, "the call eventfd was made blocking and filled up"),
        }
    }
}

/// The side of a port that frames come in by. Belongs to one poller at a time.
pub trait Input: Send {
    /// Takes up to `batch.room()` frames, without giving their memory back yet.
    ///
    /// # Errors
    /// The client broke the rules; frames already in the batch may still be delivered.
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault>;

    /// Gives the memory of the last collected frames back to the client. Called once after every `collect`, also when that
    /// took nothing or failed: what one of them locks the other may unlock.
    fn release(&mut self);

    /// Whether there may be frames, as far as memory tells. Kinds that only a descriptor can tell say false.
    fn pending(&mut self) -> bool;

    /// Asks the client for a kick when it has frames; true when it has some already, so that nobody may sleep.
    fn arm(&mut self) -> bool;

    /// No kicks are needed: memory is being watched.
    fn disarm(&mut self);
}

/// The side of a port that frames go out by. Used under the port's lock, by any poller.
pub trait Output: Send {
    /// The offloads that `deliver` may be given; other frames are finished before. Asked under the same lock.
    fn accepts(&self) -> Accepts {
        Accepts::NOTHING
    }

    /// Delivers `frames` in order with one reservation and one publication, and counts what it delivers and drops.
    ///
    /// # Errors
    /// The client broke the rules.
    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault>;
}

/// What there is now that a client may be waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Frames to receive.
    Frames,
    /// Room to send.
    Room,
}

/// Wakes a port's client. Called after everything of a pass is published and fenced; may be called at any time.
pub trait Bell: Send + Sync {
    /// Wakes the client if it asked for that; true when a call was made. A client that waits for something else sleeps on.
    fn ring(&self, news: News) -> bool;

    /// Whether a call did not return by itself. The client goes then ([`PortFault::CallBlocked`]), and is not called again.
    fn is_blocked(&self) -> bool {
        false
    }
}

/// One port: what any poller may reach.
pub struct Port {
    name: String,
    counters: Counters,
    output: Mutex<Box<dyn Output>>,
    bell: Box<dyn Bell>,
    fault: Mutex<Option<PortFault>>,
}

impl Port {
    /// A port of any kind.
    #[must_use]
    pub fn new(name: impl Into<String>, output: Box<dyn Output>, bell: Box<dyn Bell>) -> Self {
        let (name, output) = (name.into(), Mutex::new(output));
        Self { name, counters: Counters::default(), output, bell, fault: Mutex::new(None) }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its counters.
    #[inline]
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Its output, locked.
    #[inline]
    pub(crate) fn output(&self) -> MutexGuard<'_, Box<dyn Output>> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the client if it asked for this; true when that cost the port its place ([`Port::fault`]).
    #[inline]
    pub fn ring(&self, news: News) -> bool {
        if !self.bell.ring(news) {
            return false;
        }
        self.counters.add_call();
        let blocked = self.bell.is_blocked();
        if blocked {
            self.fail(PortFault::CallBlocked);
        }
        blocked
    }

    /// Notes why the port must end; the first reason stays.
    #[cold]
    pub fn fail(&self, fault: PortFault) {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
    }

    /// Why the port must end, if it must.
    #[must_use]
    pub fn fault(&self) -> Option<PortFault> {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port").field("name", &self.name).finish_non_exhaustive()
    }
}
