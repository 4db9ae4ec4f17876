//! One virtqueue as its driver sees it: which buffers the device has, and in which order.

use std::io;
use std::sync::Arc;

use ringway_memory::Mapping;

use super::area::{Buffers, Table};
use super::{FRAME_AT, HEADER, HEADER_AT};

/// Buffers ahead of the one at hand whose first line is prefetched.
const PREFETCH_AHEAD: u32 = 12;

/// What the driver does with a queue's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Fills them for the device to read.
    Tx,
    /// Gives them to the device to fill.
    Rx,
}

/// Where a queue is in the memory, and what was agreed on.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Descriptors, a power of two.
    pub size: u32,
    /// Bytes of a frame that a buffer holds.
    pub capacity: usize,
    /// Offset of the rings in the memory.
    pub rings: usize,
    /// Offset of the buffers in the memory.
    pub buffers: usize,
    /// Address of the memory as descriptors give it.
    pub guest: u64,
    /// Which way frames go.
    pub direction: Direction,
    /// VIRTIO_F_IN_ORDER.
    pub in_order: bool,
    /// VIRTIO_F_EVENT_IDX.
    pub event_idx: bool,
}

impl Place {
    /// Bytes from one buffer to the next.
    pub fn stride(&self) -> usize {
        FRAME_AT + self.capacity
    }

    /// The address of a buffer's header as descriptors give it.
    pub fn address(&self, id: u16) -> u64 {
        self.guest + (self.buffers + usize::from(id) * self.stride() + HEADER_AT) as u64
    }
}

/// A buffer that the device says it has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// Which.
    pub id: u32,
    /// Bytes the device wrote, header included.
    pub len: u32,
}

/// Offsets of a ring's three parts from its beginning: what SET_VRING_ADDR tells.
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    /// Descriptors.
    pub descriptors: usize,
    /// What else the driver writes.
    pub driver: usize,
    /// What the device writes.
    pub device: usize,
    /// Bytes of all.
    pub bytes: usize,
}

/// The buffers in the order of the ring's places, as the driver wants the device to see them.
#[derive(Debug)]
pub struct Order {
    /// For each place, the buffer that is there or was used there last.
    ids: Table<u16>,
    /// For each buffer, the length of its descriptor.
    lens: Table<u32>,
    /// The length of all descriptors; 0 while they may differ.
    common_len: u32,
}

impl Order {
    /// The buffer at this position.
    #[inline]
    pub fn id(&self, position: u32) -> u16 {
        self.ids.get(position)
    }

    /// The length that its descriptor should have.
    #[inline]
    pub fn len(&self, id: u16) -> u32 {
        self.lens.get(id.into())
    }

    /// The length that all descriptors should have, if it is one.
    pub fn common_len(&self) -> Option<u32> {
        (self.common_len > 0).then_some(self.common_len)
    }

    /// The buffers from this position on, up to another or to the end of the ring.
    pub fn run(&self, from: u32, to: u32) -> &[u16] {
        let first = from & (self.ids.len() - 1);
        let count = to.wrapping_sub(from).min(self.ids.len() - first);
        &self.ids.items()[first as usize..][..count as usize]
    }
}

/// A kind of virtqueue. Positions count places of the ring from the start, over all laps, and wrap.
pub trait Ring: Sized + Send + std::fmt::Debug {
    /// Whether it is what VIRTIO_F_RING_PACKED is about.
    const PACKED: bool;
    /// Whether `ready` also counts buffers without an entry of their own.
    const COUNTS: bool;
    /// What SET_VRING_BASE tells of an untouched ring.
    const BASE: u32;

    /// Where the parts are, for so many descriptors.
    fn parts(size: u32) -> Parts;

    /// A ring with no buffer in it.
    ///
    /// # Errors
    /// It does not fit into the memory.
    fn new(mapping: &Arc<Mapping>, place: &Place) -> io::Result<Self>;

    /// Makes the buffers from one position up to another available. `rewrite`: they may differ from what was there a
    /// lap before.
    fn publish(&mut self, order: &Order, from: u32, to: u32, rewrite: bool);

    /// Buffers that the device has used from this position on, of the `outstanding` it has; the driver looks at `most`.
    ///
    /// # Errors
    /// It claims to have used more than it got.
    fn ready(&mut self, position: u32, outstanding: u32, most: u32) -> Result<u32, Misuse>;

    /// What the device says of a position that was used.
    fn entry(&self, position: u32) -> Used;

    /// Whether the device asks for a kick, now that the positions up to `to` are available instead of `from`.
    fn wants_kick(&self, from: u32, to: u32) -> bool;

    /// Asks for a call when the buffer at this position is used.
    fn want_call(&mut self, position: u32);

    /// Asks for no calls. `position` is the next that will be looked at.
    fn want_no_call(&mut self, position: u32);
}

/// What a device did that none may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// The index of the used ring went beyond that of the available ring.
    #[error("it used {claimed} buffers and had {outstanding}")]
    Count {
        /// Buffers it says it used.
        claimed: u32,
        /// Buffers it had.
        outstanding: u32,
    },
    /// It gave back what it did not have.
    #[error("it gave back buffer {0}, which it does not have")]
    Id(u32),
    /// It wrote more or less than is possible.
    #[error("it wrote {0} bytes into a buffer of {1}")]
    Length(u32, usize),
    /// A frame over no buffers, or over more than there are.
    #[error("it says that a frame takes {0} buffers")]
    Buffers(u16),
}

/// A queue and its buffers.
#[derive(Debug)]
pub struct Queue<R> {
    ring: R,
    order: Order,
    pub buffers: Buffers,
    size: u32,
    /// Next position to make available.
    head: u32,
    /// First position that the device does not know of.
    published: u32,
    /// Next position to be used by the device.
    used: u32,
    /// The length of the descriptor last pushed.
    last_len: u32,
    /// Descriptors of positions before this one may differ from those of the lap before.
    rewrite_until: u32,
    in_order: bool,
    /// Positions of a batch of which only the last has an entry (virtio 1.3, 2.7.12 and 2.8.13) still to be taken, and that
    /// entry's length.
    batch: (u32, u32),
}

impl<R: Ring> Queue<R> {
    /// A queue with all buffers on the driver's side.
    pub fn new(mapping: &Arc<Mapping>, place: &Place) -> io::Result<Queue<R>> {
        let size = place.size;
        let len = (HEADER + place.capacity) as u32;
        Ok(Queue {
            ring: R::new(mapping, place)?,
            order: Order {
                ids: Table::new((0..size).map(|id| id as u16)),
                lens: Table::new((0..size).map(|_| len)),
                common_len: len,
            },
            buffers: Buffers::new(mapping, place.buffers, size, place.capacity)?,
            size,
            head: 0,
            published: 0,
            used: 0,
            last_len: len,
            rewrite_until: size,
            in_order: place.in_order,
            batch: (0, 0),
        })
    }

    /// Buffers on the driver's side, as known.
    #[inline]
    pub fn room(&self) -> u32 {
        self.size.wrapping_sub(self.head.wrapping_sub(self.used))
    }

    /// The next buffer to fill. There must be room.
    #[inline]
    pub fn next(&self) -> u16 {
        // Only what the device has given back: it may be reading the others.
        if self.room() > PREFETCH_AHEAD {
            self.buffers.prefetch_mut(self.order.id(self.head.wrapping_add(PREFETCH_AHEAD)));
        }
        self.order.id(self.head)
    }

    /// Queues it with `len` bytes of frame; false when a buffer does not hold so many. There must be room.
    #[inline]
    pub fn push(&mut self, len: usize) -> bool {
        let len = len.saturating_add(HEADER);
        if len != self.order.common_len as usize && !self.push_different(len) {
            return false;
        }
        self.head = self.head.wrapping_add(1);
        true
    }

    /// Notes a length that not all descriptors have.
    fn push_different(&mut self, len: usize) -> bool {
        if len > HEADER + self.buffers.capacity() {
            return false;
        }
        let len = len as u32;
        if len != self.last_len {
            self.last_len = len;
            self.rewrite_lap();
        }
        self.order.lens.set(self.order.id(self.head).into(), len);
        let all_rewritten = self.rewrite_until.wrapping_sub(self.head) as i32 <= 1;
        self.order.common_len = if all_rewritten { len } else { 0 };
        true
    }

    /// Queues the next `count` buffers with the lengths their descriptors have.
    #[inline]
    pub fn push_many(&mut self, count: u32) {
        debug_assert!(count <= self.room());
        self.head = self.head.wrapping_add(count);
    }

    /// Takes no more part in anything: there is no room, and nothing to publish.
    pub fn shut(&mut self) {
        self.published = self.head;
        self.used = self.head.wrapping_sub(self.size);
    }

    /// Makes what was queued available; true when the device asks for a kick.
    #[inline]
    pub fn publish(&mut self) -> bool {
        let from = self.published;
        if self.head == from {
            return false;
        }
        let rewrite = self.rewrite_until.wrapping_sub(from) as i32 > 0;
        self.ring.publish(&self.order, from, self.head, rewrite);
        self.published = self.head;
        // The device's wish is read after the buffers are visible: one of the two sees the other.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.ring.wants_kick(from, self.head)
    }

    /// For one lap descriptors are to be written again.
    fn rewrite_lap(&mut self) {
        self.rewrite_until = self.head.wrapping_add(self.size);
    }

    /// Takes back up to `max` buffers that the device has used, and shows `each` with the bytes that were written. Gives
    /// their number.
    ///
    /// # Errors
    /// The device did what none may do, or `each` says so.
    #[inline]
    pub fn drain(
        &mut self,
        max: u32,
        mut each: impl FnMut(&Buffers, u16, u32) -> Result<(), Misuse>,
    ) -> Result<u32, Misuse> {
        let start = self.used;
        if self.batch.0 > 0 {
            self.drain_batch(max, &mut each)?;
        }
        let left = max - self.used.wrapping_sub(start);
        let outstanding = self.published.wrapping_sub(self.used);
        let ready = self.ring.ready(self.used, outstanding, left)?;
        let mut position = self.used;
        let end = position.wrapping_add(ready);
        // Only what was used is brought near: the device may be writing what comes after it.
        for ahead in 0..ready.min(PREFETCH_AHEAD) {
            self.buffers.prefetch(self.order.id(position.wrapping_add(ahead)));
        }
        while position != end {
            let left = end.wrapping_sub(position);
            if left > PREFETCH_AHEAD {
                // Another one, where buffers come back out of order.
                self.buffers.prefetch(self.order.id(position.wrapping_add(PREFETCH_AHEAD)));
            }
            let (entry, id) = (self.ring.entry(position), self.order.id(position));
            if entry.id != u32::from(id) {
                self.used = position;
                position = self.take_another(entry, start.wrapping_add(outstanding), left, &mut each)?;
                if self.in_order {
                    break;
                }
                continue;
            }
            position = position.wrapping_add(1);
            each(&self.buffers, id, entry.len)?;
        }
        self.used = position;
        Ok(position.wrapping_sub(start))
    }

    /// Takes back all buffers that were used.
    ///
    /// # Errors
    /// As for `drain`.
    #[inline]
    pub fn take_all(&mut self) -> Result<(), Misuse> {
        if R::COUNTS && self.in_order {
            let ready = self.ring.ready(self.used, self.published.wrapping_sub(self.used), u32::MAX)?;
            self.used = self.used.wrapping_add(ready);
            return Ok(());
        }
        while self.drain(u32::MAX, |_, _, _| Ok(()))? > 0 && self.in_order {}
        Ok(())
    }

    /// Whether there is a buffer to take back.
    ///
    /// # Errors
    /// As for `drain`.
    pub fn has_used(&mut self) -> Result<bool, Misuse> {
        let ready = self.ring.ready(self.used, self.published.wrapping_sub(self.used), 1)?;
        Ok(self.batch.0 > 0 || ready > 0)
    }

    /// Asks for a call when half of the buffers that the device has are used (`half`), or the first.
    pub fn want_call(&mut self, half: bool) {
        let ahead = if half { self.published.wrapping_sub(self.used) / 2 } else { 0 };
        self.ring.want_call(self.used.wrapping_add(ahead));
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// Asks for no calls.
    pub fn want_no_call(&mut self) {
        self.ring.want_no_call(self.used);
    }

    /// Takes back what is left of a batch, up to `max` buffers.
    #[cold]
    fn drain_batch(
        &mut self,
        max: u32,
        each: &mut impl FnMut(&Buffers, u16, u32) -> Result<(), Misuse>,
    ) -> Result<(), Misuse> {
        for _ in 0..self.batch.0.min(max) {
            let (left, last_len) = self.batch;
            let id = self.order.id(self.used);
            // Those without an entry of their own count as filled completely.
            let len = if left == 1 { last_len } else { self.order.len(id) };
            self.batch.0 = left - 1;
            self.used = self.used.wrapping_add(1);
            each(&self.buffers, id, len)?;
        }
        Ok(())
    }

    /// Another buffer came back than the one that was expected: the last of a batch, or one out of order. Takes back what that
    /// means, up to `max` buffers; gives the next position to be used. Positions before `end` were outstanding.
    #[cold]
    fn take_another(
        &mut self,
        entry: Used,
        end: u32,
        max: u32,
        each: &mut impl FnMut(&Buffers, u16, u32) -> Result<(), Misuse>,
    ) -> Result<u32, Misuse> {
        let outstanding = end.wrapping_sub(self.used);
        let holds = |&ahead: &u32| u32::from(self.order.id(self.used.wrapping_add(ahead))) == entry.id;
        // Where all came back in order up to now, the number tells.
        let guess = entry.id.wrapping_sub(self.order.id(self.used).into()) & (self.size - 1);
        let ahead = if guess < outstanding && holds(&guess) { Some(guess) } else { (0..outstanding).find(holds) };
        let ahead = ahead.ok_or(Misuse::Id(entry.id))?;
        if self.in_order {
            if R::COUNTS && self.ring.ready(self.used, outstanding, u32::MAX)? <= ahead {
                return Err(Misuse::Id(entry.id));
            }
            self.batch = (ahead + 1, entry.len);
            self.drain_batch(max, each)?;
            return Ok(self.used);
        }
        // The two change places: the one not yet used will come back later, from wherever.
        self.order.ids.set(self.used.wrapping_add(ahead), self.order.id(self.used));
        self.order.ids.set(self.used, entry.id as u16);
        self.rewrite_lap();
        self.used = self.used.wrapping_add(1);
        each(&self.buffers, entry.id as u16, entry.len)?;
        Ok(self.used)
    }
}
