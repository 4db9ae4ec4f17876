//! One virtqueue as its driver sees it: the buffers that the device has, and their order.

use std::io;
use std::sync::Arc;

use ringway_memory::Mapping;

use super::ring::{Misuse, Order, Place, Ring, Used};
use super::{FRAME_AT, HEADER};
use crate::area::Buffers;

/// Buffers ahead of the one at hand whose first line is prefetched.
const PREFETCH_AHEAD: u32 = 12;

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
            order: Order::new(size, len),
            buffers: Buffers::new(mapping, place.buffers, size, FRAME_AT, place.capacity)?,
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

    /// The ring itself.
    pub fn ring(&self) -> &R {
        &self.ring
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

    /// Takes back up to `max` buffers that the device has used, and shows `each` with the bytes that were written, if they are
    /// to be shown. Gives their number.
    ///
    /// # Errors
    /// The device did what none may do, or `each` says so.
    #[inline]
    pub fn drain<const SHOW: bool>(
        &mut self,
        max: u32,
        mut each: impl FnMut(&Buffers, u16, u32) -> Result<(), Misuse>,
    ) -> Result<u32, Misuse> {
        let start = self.used;
        if self.batch.0 > 0 {
            self.drain_batch(max, &mut each)?;
        }
        loop {
            let left = max - self.used.wrapping_sub(start);
            let outstanding = self.published.wrapping_sub(self.used);
            let (ring, buffers, order) = (&mut self.ring, &self.buffers, &self.order);
            // Only what was used is brought near: the device may be writing what comes after it.
            let found = |id| {
                if SHOW {
                    buffers.prefetch(id)
                }
            };
            let ready = ring.ready_in_turn(order, self.used, outstanding, left, found)?;
            for step in 0..if SHOW { ready } else { 0 } {
                let position = self.used.wrapping_add(step);
                each(buffers, order.id(position), ring.entry(position).len)?;
            }
            self.used = self.used.wrapping_add(ready);
            if ready == left.min(outstanding) || self.ring.ready(self.used, outstanding - ready, 1)? == 0 {
                break;
            }
            let entry = self.ring.entry(self.used);
            // Else it came just now.
            if entry.id != u32::from(self.order.id(self.used)) {
                self.take_another(entry, left - ready, &mut each)?;
                if self.in_order {
                    break;
                }
            }
        }
        Ok(self.used.wrapping_sub(start))
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
        while self.drain::<false>(u32::MAX, |_, _, _| Ok(()))? > 0 && self.in_order {}
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
    /// means, up to `max` buffers.
    #[cold]
    fn take_another(
        &mut self,
        entry: Used,
        max: u32,
        each: &mut impl FnMut(&Buffers, u16, u32) -> Result<(), Misuse>,
    ) -> Result<(), Misuse> {
        let outstanding = self.published.wrapping_sub(self.used);
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
            return self.drain_batch(max, each);
        }
        // The two change places: the one not yet used will come back later, from wherever.
        self.order.ids.set(self.used.wrapping_add(ahead), self.order.id(self.used));
        self.order.ids.set(self.used, entry.id as u16);
        self.rewrite_lap();
        self.used = self.used.wrapping_add(1);
        each(&self.buffers, entry.id as u16, entry.len)
    }
}
