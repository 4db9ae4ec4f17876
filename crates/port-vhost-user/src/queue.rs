//! A started queue of either ring format, split or packed.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use ringway_port::front_end::ClientFd;
use ringway_port::guest::{DirtyLog, GuestMemory};
use ringway_runtime::{CallAccount, Called};
use ringway_switch::{Batch, Discarded, Frame};

use crate::virtqueue::{Bounce, InflightNote, Packed, Receive, Ring, RingFault, Split, Tally, Transmit};

/// Calls the same method on either ring format.
macro_rules! either {
    ($on:expr, $queue:ident => $do:expr) => {
        match $on {
            Either::Split($queue) => $do,
            Either::Packed($queue) => $do,
        }
    };
}

/// One of the two ring formats.
pub(super) enum Either<S, P> {
    Split(S),
    Packed(P),
}

/// A started queue, in either direction.
pub(super) struct Started<Q> {
    pub(super) memory: Arc<GuestMemory>,
    pub(super) queue: Q,
    /// The call eventfd; `None` if the guest polls.
    pub(super) call: Option<Arc<ClientFd>>,
    pub(super) account: Arc<CallAccount>,
    /// The guest was not to be called when frames were discarded.
    pub(super) owes_call: bool,
}

pub(super) type TransmitQueue = Started<Either<Transmit<Split>, Transmit<Packed>>>;
pub(super) type ReceiveQueue = Started<Either<Receive<Split>, Receive<Packed>>>;

/// Calls the guest. Returns true if there is an eventfd to call by.
fn call(fd: Option<&Arc<ClientFd>>, account: &CallAccount) -> Result<bool, RingFault> {
    match fd.map(|fd| ringway_runtime::call(fd.as_fd(), account)) {
        None => Ok(false),
        Some(Called::Done) => Ok(true),
        Some(Called::Blocked | Called::Failed) => Err(RingFault::CallBlocked),
    }
}

/// Calls the guest if the driver wants a call. Returns true if a call was made.
#[inline]
fn call_if_wanted<R: Ring>(ring: &mut R, fd: Option<&Arc<ClientFd>>, account: &CallAccount) -> Result<bool, RingFault> {
    if ring.call_wanted() { call(fd, account) } else { Ok(false) }
}

/// Replaces any fault by [`RingFault::MemoryLost`] if memory was lost: lost pages read as zeroes, which can look like
/// any other fault.
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

    pub(super) fn rewind(&mut self, frames: usize) -> usize {
        either!(&mut self.queue, queue => queue.rewind(frames))
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
            // A discarded frame reaches no output, so nothing would later ask whether the driver wants a call.
            fence(Ordering::SeqCst);
            // Otherwise the bell calls when it may, a later release, or the end of discarding.
            self.owes_call = self.account.is_held();
            if !self.owes_call {
                self.call_if_wanted()?;
            }
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
        either!(&mut self.queue, queue => call_if_wanted(&mut queue.ring, fd, &self.account))
    }

    pub(super) fn set_log(&mut self, log: Option<Arc<DirtyLog>>) {
        either!(&mut self.queue, queue => queue.set_log(log));
    }

    /// Notes the chains in flight in `taken` from now on. Chains that a predecessor took are marked used, without
    /// sending their frames, and the guest is called.
    pub(super) fn set_inflight(&mut self, taken: Option<InflightNote>) {
        let memory = &*self.memory;
        if either!(&mut self.queue, queue => queue.set_noted(memory, taken)) {
            // The next call reports an eventfd that blocks.
            let _ = self.call_if_wanted();
        }
    }

    /// Notes that no chain is in flight. Returns the position at which the queue can continue.
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
        either!(&mut self.queue, queue => call_if_wanted(&mut queue.ring, fd, &self.account))
    }

    pub(super) fn is_enabled(&self) -> bool {
        either!(&self.queue, queue => queue.enabled)
    }

    /// Sets the longest frame in bytes to deliver. Segmented frames may be longer.
    pub(super) fn set_longest(&mut self, longest: usize) {
        either!(&mut self.queue, queue => queue.longest = longest);
    }

    pub(super) fn set_enabled(&mut self, on: bool) {
        either!(&mut self.queue, queue => queue.enabled = on);
    }

    pub(super) fn set_log(&mut self, log: Option<Arc<DirtyLog>>) {
        either!(&mut self.queue, queue => queue.set_log(log));
    }

    /// Returns an estimate of the available chains, and the size of the ring.
    pub(super) fn room(&mut self) -> Option<(usize, usize)> {
        either!(&mut self.queue, queue => Some((queue.ring.room()?, queue.ring.size().into())))
    }

    /// Returns the bytes of a frame that take one chain, as far as is known.
    pub(super) fn buffer(&mut self) -> usize {
        either!(&mut self.queue, queue => queue.buffer)
    }

    /// Notes the ring's position in `taken` from now on, and continues where a predecessor was.
    pub(super) fn set_inflight(&mut self, taken: Option<InflightNote>) {
        let memory = &*self.memory;
        match &mut self.queue {
            // The used index of a split ring holds its position.
            Either::Split(_) => {}
            Either::Packed(queue) => queue.set_noted(memory, taken),
        }
    }

    /// Disables kicks: the driver of a receive queue need not tell when it makes buffers available.
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
