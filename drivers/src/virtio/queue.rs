//! One virtqueue as its driver sees it: the buffers that the device has, and their order.

use std::io;
use std::sync::Arc;

use ringway_memory::Mapping;

use super::buffer::{FRAME_AT, HEADER};
use super::ring::{Misuse, Order, QueueLayout, Ring, Used};
use crate::area::Buffers;

/// How many buffers ahead the first cache line of a buffer is prefetched.
const PREFETCH_AHEAD: u32 = 12;

/// A queue and its buffers.
#[derive(Debug)]
pub struct Queue<R> {
    ring: R,
    order: Order,
    /// The buffers.
    pub buffers: Buffers,
    size: u32,
    /// The next position to make available.
    head: u32,
    /// The first position that the device does not know of.
    published: u32,
    /// The next position that the device will use.
    used: u32,
    /// The length of the descriptor that was pushed last.
    last_len: u32,
    /// Descriptors of positions before this one may differ from those of the previous lap.
    rewrite_until: u32,
    in_order: bool,
    /// The rest of a batch with a single used entry, that of its last buffer (virtio 1.3, 2.7.12 and 2.8.13): the
    /// number of buffers still to be taken, and the length in that entry.
    batch: (u32, u32),
}

impl<R: Ring> Queue<R> {
    /// A queue whose buffers all belong to the driver.
    pub fn new(mapping: &Arc<Mapping>, place: &QueueLayout) -> io::Result<Queue<R>> {
        let size = place.shape.size;
        let len = (HEADER + place.capacity) as u32;
        let (mut ring, order) = (R::new(mapping, place.rings, &place.shape)?, Order::new(place, len));
        ring.prepare(&order);
        Ok(Queue {
            ring,
            order,
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

    /// Returns the ring.
    pub fn ring(&self) -> &R {
        &self.ring
    }

    /// Returns how many buffers belong to the driver, as far as known.
    #[inline]
    pub fn room(&self) -> u32 {
        self.size.wrapping_sub(self.head.wrapping_sub(self.used))
    }

    /// Returns the next buffer to fill. There must be room.
    #[inline]
    pub fn next(&self) -> u16 {
        // Prefetches only a buffer that the device has given back: the device may be reading the others.
        if self.room() > PREFETCH_AHEAD {
            self.buffers.prefetch_mut(self.order.id(self.head.wrapping_add(PREFETCH_AHEAD)));
        }
        self.order.id(self.head)
    }

    /// Queues the next buffer with a frame of `len` bytes. Returns false when a buffer has fewer. There must be room.
    #[inline]
    pub fn push(&mut self, len: usize) -> bool {
        let len = len.saturating_add(HEADER);
        if len != self.order.common_len as usize && !self.push_different(len) {
            return false;
        }
        self.head = self.head.wrapping_add(1);
        true
    }

    /// Sets a length that not all descriptors have.
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

    /// Queues the next `count` buffers with the lengths that their descriptors have.
    #[inline]
    pub fn push_many(&mut self, count: u32) {
        debug_assert!(count <= self.room());
        self.head = self.head.wrapping_add(count);
    }

    /// Ends the queue: there is no room, and nothing to publish.
    pub fn close(&mut self) {
        self.published = self.head;
        self.used = self.head.wrapping_sub(self.size);
    }

    /// Makes the queued buffers available. Returns true when the device wants a kick.
    #[inline]
    pub fn publish(&mut self) -> bool {
        let from = self.published;
        if self.head == from {
            return false;
        }
        let rewrite = self.rewrite_until.wrapping_sub(from) as i32 > 0;
        self.ring.publish(&self.order, from, self.head, rewrite);
        self.published = self.head;
        // Reads the device's request after the buffers are visible: at least one of the two sides sees the other's
        // write.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.ring.wants_kick(from, self.head)
    }

    /// Has the descriptors of one lap written again.
    fn rewrite_lap(&mut self) {
        self.rewrite_until = self.head.wrapping_add(self.size);
    }

    /// Takes back up to `max` used buffers. With `SHOW`, calls `each` with each buffer and the bytes written to it.
    /// Returns the number of buffers.
    ///
    /// # Errors
    /// The device violated the specification, or `each` returns an error.
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
            // Prefetches only used buffers: the device may be writing to those after them.
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
            // Otherwise the buffer became used just now.
            if entry.id != u32::from(self.order.id(self.used)) {
                self.take_another(entry, left - ready, &mut each)?;
                if self.in_order {
                    break;
                }
            }
        }
        Ok(self.used.wrapping_sub(start))
    }

    /// Takes back all used buffers.
    ///
    /// # Errors
    /// Those of `drain`.
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

    /// Returns true if there is a used buffer.
    ///
    /// # Errors
    /// Those of `drain`.
    pub fn has_used(&mut self) -> Result<bool, Misuse> {
        let ready = self.ring.ready(self.used, self.published.wrapping_sub(self.used), 1)?;
        Ok(self.batch.0 > 0 || ready > 0)
    }

    /// Requests a call when half of the buffers that the device has are used (`half`), or the first.
    pub fn want_call(&mut self, half: bool) {
        let ahead = if half { self.published.wrapping_sub(self.used) / 2 } else { 0 };
        self.ring.want_call(self.used.wrapping_add(ahead));
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// Requests no calls.
    pub fn want_no_call(&mut self) {
        self.ring.want_no_call(self.used);
    }

    /// Takes back the rest of a batch, up to `max` buffers.
    #[cold]
    fn drain_batch(
        &mut self,
        max: u32,
        each: &mut impl FnMut(&Buffers, u16, u32) -> Result<(), Misuse>,
    ) -> Result<(), Misuse> {
        for _ in 0..self.batch.0.min(max) {
            let (left, last_len) = self.batch;
            let id = self.order.id(self.used);
            // Buffers without an entry of their own count as completely filled.
            let len = if left == 1 { last_len } else { self.order.len(id) };
            self.batch.0 = left - 1;
            self.used = self.used.wrapping_add(1);
            each(&self.buffers, id, len)?;
        }
        Ok(())
    }

    /// The device used another buffer than the expected one: the last of a batch, or one out of order. Takes back the
    /// buffers that this concerns, up to `max`.
    #[cold]
    fn take_another(
        &mut self,
        entry: Used,
        max: u32,
        each: &mut impl FnMut(&Buffers, u16, u32) -> Result<(), Misuse>,
    ) -> Result<(), Misuse> {
        let outstanding = self.published.wrapping_sub(self.used);
        let holds = |&ahead: &u32| u32::from(self.order.id(self.used.wrapping_add(ahead))) == entry.id;
        // If all buffers were used in order so far, the id gives the distance.
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
        // The two buffers swap positions: the one that is not yet used will be used later, at any position.
        self.order.ids.set(self.used.wrapping_add(ahead), self.order.id(self.used));
        self.order.ids.set(self.used, entry.id as u16);
        self.rewrite_lap();
        self.used = self.used.wrapping_add(1);
        each(&self.buffers, entry.id as u16, entry.len)
    }
}
