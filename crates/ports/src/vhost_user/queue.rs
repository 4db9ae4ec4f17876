//! A started queue of either ring format, split or packed.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use ringway_engine::Called;
use ringway_switch::{Batch, Discarded, Frame};

use super::inflight::Taken;
use crate::guest::{DirtyLog, GuestMemory};
use crate::virtqueue::{Bounce, Packed, Receive, Ring, RingFault, Split, Tally, Transmit};

/// Calls the same method of whichever format it is.
macro_rules! either {
    ($on:expr, $queue:ident => $do:expr) => {
        match $on {
            Either::Split($queue) => $do,
            Either::Packed($queue) => $do,
        }
    };
}

/// One of the two formats.
pub(super) enum Either<S, P> {
    Split(S),
    Packed(P),
}

/// What both directions have.
pub(super) struct Started<Q> {
    pub(super) memory: Arc<GuestMemory>,
    pub(super) queue: Q,
    /// Written to wake the guest; none: it polls.
    pub(super) call: Option<OwnedFd>,
}

pub(super) type TransmitQueue = Started<Either<Transmit<Split>, Transmit<Packed>>>;
pub(super) type ReceiveQueue = Started<Either<Receive<Split>, Receive<Packed>>>;

/// Wakes the guest.
fn call(fd: Option<&OwnedFd>) -> Result<bool, RingFault> {
    match fd.map(|fd| ringway_engine::call(fd.as_fd())) {
        None => Ok(false),
        Some(Called::Done) => Ok(true),
        Some(Called::Blocked) => Err(RingFault::CallBlocked),
    }
}

/// Whether the driver wants a call, and makes it.
#[inline]
fn call_if_wanted<R: Ring>(ring: &mut R, fd: Option<&OwnedFd>) -> Result<bool, RingFault> {
    if ring.call_wanted() { call(fd) } else { Ok(false) }
}

/// What is lost reads as zeroes, which may look like any other mistake.
#[inline]
fn or_lost(result: Result<(), RingFault>, memory: &GuestMemory) -> Result<(), RingFault> {
    match result {
        Err(_) if memory.is_lost() => Err(RingFault::MemoryLost),
        result => result,
    }
}

impl TransmitQueue {
    #[inline]
    pub(super) fn collect<'m>(&'m mut self, bounce: &'m Bounce, batch: &mut Batch<'m>) -> Result<(), RingFault> {
        let memory = &*self.memory;
        or_lost(either!(&mut self.queue, queue => queue.collect(memory, bounce, batch)), memory)
    }

    pub(super) fn keep(&mut self, frames: usize) -> usize {
        either!(&mut self.queue, queue => queue.keep(frames))
    }

    pub(super) fn discard(&mut self, most: usize, discarded: &mut Discarded) -> Result<(), RingFault> {
        let memory = &*self.memory;
        or_lost(either!(&mut self.queue, queue => queue.discard(memory, most, discarded)), memory)
    }

    pub(super) fn discard_like(
        &mut self,
        addresses: &[u8; 12],
        most: usize,
        discarded: &mut Discarded,
    ) -> Result<(), RingFault> {
        let memory = &*self.memory;
        or_lost(either!(&mut self.queue, queue => queue.discard_like(memory, addresses, most, discarded)), memory)
    }

    #[inline]
    pub(super) fn release(&mut self) -> Result<(), RingFault> {
        let memory = &*self.memory;
        let (released, discards) = either!(&mut self.queue, queue => (queue.release(memory), queue.discard));
        or_lost(released, memory)?;
        if discards {
            // No frame goes on that would make anybody ask the driver later.
            fence(Ordering::SeqCst);
            self.call_if_wanted()?;
        }
        Ok(())
    }

    #[inline]
    pub(super) fn pending(&mut self) -> bool {
        either!(&mut self.queue, queue => queue.ring.pending())
    }

    pub(super) fn arm(&mut self) {
        either!(&mut self.queue, queue => {
            queue.ring.arm();
            queue.note_ring();
        });
    }

    pub(super) fn disarm(&mut self) {
        either!(&mut self.queue, queue => {
            queue.ring.disarm();
            queue.note_ring();
        });
    }

    #[inline]
    pub(super) fn call_if_wanted(&mut self) -> Result<bool, RingFault> {
        let fd = self.call.as_ref();
        either!(&mut self.queue, queue => call_if_wanted(&mut queue.ring, fd))
    }

    pub(super) fn set_log(&mut self, log: Option<Arc<DirtyLog>>) {
        either!(&mut self.queue, queue => queue.set_log(log));
    }

    /// Where to note what is taken; what a predecessor took is given back unsent, and the guest told.
    pub(super) fn set_taken(&mut self, taken: Option<Taken>) {
        let memory = &*self.memory;
        if either!(&mut self.queue, queue => queue.set_noted(memory, taken)) {
            // A descriptor that blocks is met again by the next call.
            let _ = self.call_if_wanted();
        }
    }

    /// Nothing is in flight. Returns where it can go on.
    pub(super) fn end(self) -> u32 {
        either!(&self.queue, queue => queue.note_end());
        self.base()
    }

    pub(super) fn set_discard(&mut self, on: bool) {
        either!(&mut self.queue, queue => queue.discard = on);
    }

    pub(super) fn base(&self) -> u32 {
        either!(&self.queue, queue => queue.ring.base())
    }

    pub(super) fn size(&self) -> u16 {
        either!(&self.queue, queue => queue.ring.size())
    }
}

impl ReceiveQueue {
    #[inline]
    pub(super) fn deliver<'b, 'm: 'b>(
        &mut self,
        frames: impl Iterator<Item = Frame<'b, 'm>> + Clone,
        tally: &mut Tally,
    ) -> Result<(), RingFault> {
        let memory = &*self.memory;
        let result = either!(&mut self.queue, queue => queue.deliver(memory, frames, tally));
        if memory.is_lost() { Err(RingFault::MemoryLost) } else { result }
    }

    #[inline]
    pub(super) fn call_if_wanted(&mut self) -> Result<bool, RingFault> {
        let fd = self.call.as_ref();
        either!(&mut self.queue, queue => call_if_wanted(&mut queue.ring, fd))
    }

    pub(super) fn is_enabled(&self) -> bool {
        either!(&self.queue, queue => queue.enabled)
    }

    /// Longer frames, segmented ones apart, are not given.
    pub(super) fn set_longest(&mut self, longest: usize) {
        either!(&mut self.queue, queue => queue.longest = longest);
    }

    pub(super) fn set_enabled(&mut self, on: bool) {
        either!(&mut self.queue, queue => queue.enabled = on);
    }

    pub(super) fn set_log(&mut self, log: Option<Arc<DirtyLog>>) {
        either!(&mut self.queue, queue => queue.set_log(log));
    }

    /// About how many chains the driver has put there, of at most so many.
    pub(super) fn room(&mut self) -> Option<(usize, usize)> {
        either!(&mut self.queue, queue => Some((queue.ring.room()?, queue.ring.size().into())))
    }

    /// Where to note how far it is; it goes on where a predecessor was.
    pub(super) fn set_taken(&mut self, taken: Option<Taken>) {
        let memory = &*self.memory;
        match &mut self.queue {
            // A split ring says how far it is.
            Either::Split(_) => {}
            Either::Packed(queue) => queue.set_noted(memory, taken),
        }
    }

    /// The driver of a receive queue need not say when it has put buffers there.
    pub(super) fn disarm(&mut self) {
        either!(&mut self.queue, queue => {
            queue.ring.disarm();
            queue.note_ring();
        });
    }

    pub(super) fn base(&self) -> u32 {
        either!(&self.queue, queue => queue.ring.base())
    }

    pub(super) fn size(&self) -> u16 {
        either!(&self.queue, queue => queue.ring.size())
    }
}
