//! One direction of one ring pair of a pipe: the sender's transmit ring and the receiver's receive ring.
//!
//! Both rings have the same number of slots, and a frame has the same slot numbers in both:
//!
//! ```text
//!   slot number    returned          next             head
//!   -----------------|-----------------|-----------------|-----------
//!   sender    free   |  in the receiver's ring | published |   free
//!   receiver         |  received       | empty
//! ```
//!
//! So a published frame always has room at the receiver, and nothing is dropped: a receiver that returns no slots leaves the
//! sender without free ones.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use ringway_abi::Slot;
use ringway_abi::doorbell::{INDEX, RX_CLIENT, RX_SWITCH, TX_CLIENT, TX_SWITCH};
use ringway_abi::layout::MAX_SLOTS_PER_FRAME;
use ringway_abi::slot::{NS_INDIRECT, NS_MOREFRAG};
use ringway_switch::PortFault;

use super::super::ring::{Ring, RingMemory};

/// How a frame gets from one ring to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    /// The rings lie in one memory: the receiver's slot gets the sender's buffer, and gives its own back on return.
    Swap,
    /// Each ring has buffers of its own memory: the bytes are copied.
    Copy,
}

/// Positions in both rings. They are the switch's own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lane {
    /// The next slot to move: the receiver's `tail`.
    pub(super) next: u32,
    /// The first slot that the receiver has not returned: one after the sender's `tail`.
    pub(super) returned: u32,
    /// How many of the received slots, the first ones, have frames of earlier senders: the sender has other buffers in these slots.
    earlier: u32,
}

/// What one visit may still move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    pub(super) slots: u32,
    /// Copied bytes: exchanged buffers cost none.
    pub(super) bytes: u32,
    /// Nothing was moved. The first frame is moved whatever its size, so that every frame gets through.
    pub(super) is_whole: bool,
    /// When the visit ends, if it has to: the memory that it touches may make it last.
    until: Option<Instant>,
}

impl Allowance {
    pub(super) fn new(slots: u32, bytes: u32) -> Self {
        Self { slots, bytes, is_whole: true, until: None }
    }

    /// The visit ends at this time, even within a frame, which is not moved then.
    pub(super) fn until(self, until: Instant) -> Self {
        Self { until: Some(until), ..self }
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Takes a frame's part of the allowance. Returns false, without effect, if less is left.
    fn take(&mut self, slots: u32, bytes: u32) -> bool {
        let has_room = slots <= self.slots && bytes <= self.bytes;
        if !has_room && !self.is_whole {
            return false;
        }
        let (slots, bytes) = (self.slots.saturating_sub(slots), self.bytes.saturating_sub(bytes));
        *self = Self { slots, bytes, is_whole: false, ..*self };
        true
    }
}

/// What [`Lane::take`] has moved.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    pub(super) frames: u64,
    pub(super) bytes: u64,
    /// Frames with a slot that names no buffer or is too long, at the sender; and frames with a slot of the receiver that names no
    /// buffer. Such a slot arrives empty.
    pub(super) bad_here: u64,
    pub(super) bad_there: u64,
    /// The sender's `head`, if every slot before it was looked at.
    pub(super) head: Option<u32>,
}

/// What one slot's transfer found.
enum Moved {
    Bytes(u64),
    BadHere,
    BadThere,
}

impl Lane {
    /// Returns the number of slots that the receiver has.
    fn received(self, ring: &Ring) -> u32 {
        ring.distance(self.returned, self.next)
    }

    /// Returns the sender's `tail`.
    pub(super) fn tail(self, slots: u32) -> u32 {
        if self.returned == 0 { slots - 1 } else { self.returned - 1 }
    }

    /// Moves published frames from the sender's ring to the receiver's, as far as they are allowed. A frame is moved when all its
    /// slots are published.
    ///
    /// # Errors
    /// The sender's `head` is not one of its own slots, or a frame has too many slots. Complete frames before such a frame are
    /// moved first.
    pub(super) fn take(
        &mut self,
        from: &Ring,
        to: &Ring,
        transfer: Transfer,
        allowance: &mut Allowance,
    ) -> Result<Taken, PortFault> {
        let head = from.doorbell[TX_CLIENT + INDEX].load(Ordering::Acquire);
        let owned = from.slots - 1 - self.received(from);
        if head >= from.slots || from.distance(self.next, head) > owned {
            return Err(PortFault::TxHeadOutOfRange(head));
        }
        let (sources, targets) = (from.memory(), to.memory());
        let (mut done, mut slots) = (
            Taken { head: Some(head), ..Taken::default() },
            [Slot { buffer: 0, len: 0, flags: 0 }; MAX_SLOTS_PER_FRAME],
        );
        let first = self.next;
        'frames: while self.next != head {
            let published = from.distance(self.next, head);
            let Some(frame) = read_frame(from, &sources, self.next, published, &mut slots) else {
                if published as usize >= MAX_SLOTS_PER_FRAME || published == from.slots - 1 {
                    if done.frames == 0 {
                        return Err(PortFault::EndlessFrame);
                    }
                    done.head = None;
                }
                break;
            };
            let copied =
                if transfer == Transfer::Copy { frame.iter().map(|slot| u32::from(slot.len)).sum() } else { 0 };
            if !allowance.take(frame.len() as u32, copied) {
                done.head = None;
                break;
            }
            let (mut bad_here, mut bad_there, mut bytes, mut at) = (false, false, 0, self.next);
            for &slot in frame {
                if allowance.is_over() {
                    done.head = None;
                    break 'frames;
                }
                let (source, target) = (&sources.slots(at, at + 1)[0], &targets.slots(at, at + 1)[0]);
                match transfer {
                    Transfer::Swap => {
                        let flags = slot.flags & !NS_INDIRECT;
                        target[0].store(Slot { flags, ..slot }.to_word(), Ordering::Relaxed);
                        target[1].store(source[1].load(Ordering::Relaxed), Ordering::Relaxed);
                        bytes += u64::from(slot.len);
                    }
                    Transfer::Copy => match copy(&sources, slot, &targets, target) {
                        Moved::Bytes(copied) => bytes += copied,
                        Moved::BadHere => bad_here = true,
                        Moved::BadThere => bad_there = true,
                    },
                }
                at = from.after(at, 1);
            }
            self.next = at;
            done.frames += 1;
            done.bytes += bytes;
            done.bad_here += u64::from(bad_here);
            done.bad_there += u64::from(bad_there && !bad_here);
        }
        if self.next != first {
            to.doorbell[RX_SWITCH + INDEX].store(self.next, Ordering::Release);
        }
        Ok(done)
    }

    /// Returns the number of slots that the sender has published and that were not moved.
    pub(super) fn published(&self, from: &Ring) -> u32 {
        let head = from.doorbell[TX_CLIENT + INDEX].load(Ordering::Relaxed);
        if head < from.slots { from.distance(self.next, head) } else { 0 }
    }

    /// Gives the slots that the receiver has returned back to the sender, if there is one: `most` of them. Returns their number.
    ///
    /// # Errors
    /// The receiver's `head` is not one of its own slots.
    pub(super) fn give_back(
        &mut self,
        to: &Ring,
        from: Option<(&Ring, Transfer)>,
        most: u32,
    ) -> Result<u32, PortFault> {
        let head = to.doorbell[RX_CLIENT + INDEX].load(Ordering::Acquire);
        if head >= to.slots || to.distance(self.returned, head) > self.received(to) {
            return Err(PortFault::RxHeadOutOfRange(head));
        }
        let count = to.distance(self.returned, head).min(most);
        if count == 0 {
            return Ok(0);
        }
        if let Some((from, Transfer::Swap)) = from {
            copy_slots(to, from, self.returned, count);
        }
        self.return_slots(count, to, from);
        Ok(count)
    }

    fn return_slots(&mut self, count: u32, to: &Ring, from: Option<(&Ring, Transfer)>) {
        self.returned = to.after(self.returned, count);
        self.earlier = self.earlier.saturating_sub(count);
        if let Some((from, _)) = from {
            from.doorbell[TX_SWITCH + INDEX].store(self.tail(from.slots), Ordering::Release);
        }
    }

    /// The receiver goes: the frames that it has not returned are the sender's next ones again, except those of earlier senders, which
    /// go with the receiver's memory.
    pub(super) fn take_back(&mut self, to: &Ring, from: Option<(&Ring, Transfer)>) {
        if let Some((from, Transfer::Swap)) = from {
            copy_slots(to, from, self.returned, self.received(to));
        }
        self.return_slots(self.earlier, to, from);
        self.next = self.returned;
    }

    /// Another sender comes. `transfer`: to the receiver, if there is one. A sender in the receiver's memory has the received frames'
    /// buffers in its own slots.
    pub(super) fn begin_sender(&mut self, from: &Ring, transfer: Option<Transfer>) {
        self.earlier = if transfer == Some(Transfer::Swap) { 0 } else { self.received(from) };
    }

    /// The sender goes: the receiver's empty slots get the buffers that the sender's free slots have.
    pub(super) fn leave_buffers(&self, from: &Ring, to: &Ring) {
        copy_slots(from, to, self.next, from.slots - self.received(from));
    }
}

/// Reads the slots of the frame at `at`, each once. `None`: the frame's last slot is not among those that are published, or the frame
/// has too many.
fn read_frame<'s>(
    ring: &Ring,
    memory: &RingMemory<'_>,
    mut at: u32,
    published: u32,
    slots: &'s mut [Slot; MAX_SLOTS_PER_FRAME],
) -> Option<&'s [Slot]> {
    for count in 0..MAX_SLOTS_PER_FRAME.min(published as usize) {
        slots[count] = Slot::from_word(memory.word(at).load(Ordering::Relaxed));
        if !slots[count].more() {
            return Some(&slots[..=count]);
        }
        at = ring.after(at, 1);
    }
    None
}

/// Copies whole slots between rings of the same size.
pub(super) fn copy_slots(source: &Ring, target: &Ring, first: u32, count: u32) {
    let (sources, targets) = (source.memory(), target.memory());
    let mut at = first;
    for _ in 0..count.min(source.slots) {
        let (source_slot, target_slot) = (&sources.slots(at, at + 1)[0], &targets.slots(at, at + 1)[0]);
        for (from, to) in source_slot.iter().zip(target_slot) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        at = source.after(at, 1);
    }
}

/// Copies the bytes of a slot into the buffer of the receiver's slot.
fn copy(sources: &RingMemory<'_>, slot: Slot, targets: &RingMemory<'_>, target: &[AtomicU64; 2]) -> Moved {
    let own = Slot::from_word(target[0].load(Ordering::Relaxed));
    let len = usize::from(slot.len);
    let source = sources.buffer(slot).and_then(|buffer| buffer.sub(0, len));
    let room = targets.buffer(own).and_then(|buffer| buffer.sub(0, len));
    let (moved, len) = match (source, room) {
        (None, _) => (Moved::BadHere, 0),
        (_, None) => (Moved::BadThere, 0),
        (Some(source), Some(room)) if room.copy_from(source) => (Moved::Bytes(slot.len.into()), slot.len),
        (Some(_), Some(_)) => (Moved::BadHere, 0),
    };
    target[0].store(Slot { len, flags: slot.flags & NS_MOREFRAG, ..own }.to_word(), Ordering::Relaxed);
    // The sender's pointer concerns nobody in another memory.
    target[1].store(0, Ordering::Relaxed);
    moved
}
