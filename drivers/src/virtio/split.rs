//! The split virtqueue, its driver's side (virtio 1.3, 2.7).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use ringway_memory::Mapping;

use super::ring::{Direction, Misuse, Order, Parts, Ring, Shape, Used};
use crate::area::{Words, words16, words32, words64};

const DESC_F_WRITE: u64 = 2;
const AVAIL_F_NO_INTERRUPT: u16 = 1;
const USED_F_NO_NOTIFY: u16 = 1;
const LINE: usize = 64;

/// A split ring.
#[derive(Debug)]
pub struct Split {
    shape: Shape,
    /// Two words for each descriptor: the address; length, flags and next.
    descriptors: Words<AtomicU64>,
    avail_flags: Words<AtomicU16>,
    avail_index: Words<AtomicU16>,
    avail: Words<AtomicU16>,
    used_event: Words<AtomicU16>,
    used_flags: Words<AtomicU16>,
    used_index: Words<AtomicU16>,
    /// Two words for each entry: the buffer id and the length.
    used: Words<AtomicU32>,
    avail_event: Words<AtomicU16>,
}

impl Split {
    /// Returns the device's used index.
    #[inline]
    #[must_use]
    pub fn used_index(&self) -> u16 {
        self.used_index.at(0).load(Ordering::Acquire)
    }

    /// Writes the descriptor of a buffer.
    #[inline]
    pub fn describe(&mut self, id: u16, address: u64, len: u32) {
        let at = u32::from(id) * 2;
        self.descriptors.at(at).store(address, Ordering::Relaxed);
        self.descriptors.at(at + 1).store(self.word(len), Ordering::Relaxed);
    }

    /// Puts a buffer into the available ring. The index gives it to the device.
    #[inline]
    pub fn put(&mut self, position: u32, id: u16) {
        self.avail.at(position).store(id, Ordering::Relaxed);
    }

    /// Makes the buffers before this position available.
    #[inline]
    pub fn put_index(&mut self, to: u32) {
        self.avail_index.at(0).store(to as u16, Ordering::Release);
    }

    /// Returns the second word of the descriptor of a buffer with this length.
    #[inline]
    fn word(&self, len: u32) -> u64 {
        u64::from(len) | if self.shape.direction == Direction::Rx { DESC_F_WRITE << 32 } else { 0 }
    }
}

impl Ring for Split {
    const PACKED: bool = false;
    const COUNTS: bool = true;
    const BASE: u32 = 0;

    fn parts(size: u32) -> Parts {
        let size = size as usize;
        let driver = size * 16;
        let device = (driver + 4 + 2 * size + 2).next_multiple_of(LINE);
        Parts { descriptors: 0, driver, device, bytes: (device + 4 + 8 * size + 2).next_multiple_of(LINE) }
    }

    fn new(mapping: &Arc<Mapping>, at: usize, shape: &Shape) -> io::Result<Split> {
        let (size, parts) = (shape.size, Self::parts(shape.size));
        let (driver, device) = (at + parts.driver, at + parts.device);
        Ok(Split {
            shape: *shape,
            descriptors: words64(mapping, at, size * 2)?,
            avail_flags: words16(mapping, driver, 1)?,
            avail_index: words16(mapping, driver + 2, 1)?,
            avail: words16(mapping, driver + 4, size)?,
            used_event: words16(mapping, driver + 4 + 2 * size as usize, 1)?,
            used_flags: words16(mapping, device, 1)?,
            used_index: words16(mapping, device + 2, 1)?,
            used: words32(mapping, device + 4, size * 2)?,
            avail_event: words16(mapping, device + 4 + 8 * size as usize, 1)?,
        })
    }

    fn prepare(&mut self, order: &Order) {
        (0..self.shape.size as u16).for_each(|id| self.describe(id, order.address(id), order.len(id)));
    }

    #[inline]
    fn publish(&mut self, order: &Order, from: u32, to: u32, rewrite: bool) {
        if rewrite {
            let mut position = from;
            while position != to {
                let id = order.id(position);
                self.descriptors.at(u32::from(id) * 2 + 1).store(self.word(order.len(id)), Ordering::Relaxed);
                self.put(position, id);
                position = position.wrapping_add(1);
            }
        }
        self.put_index(to);
    }

    #[inline]
    fn ready(&mut self, position: u32, outstanding: u32, most: u32) -> Result<u32, Misuse> {
        let claimed = u32::from(self.used_index().wrapping_sub(position as u16));
        if claimed > outstanding {
            return Err(Misuse::Count { claimed, outstanding });
        }
        Ok(claimed.min(most))
    }

    #[inline(always)]
    fn ready_in_turn(
        &mut self,
        order: &Order,
        position: u32,
        outstanding: u32,
        most: u32,
        mut each: impl FnMut(u16),
    ) -> Result<u32, Misuse> {
        let end = position.wrapping_add(self.ready(position, outstanding, most)?);
        let mut next = position;
        while next != end {
            let ids = order.run(next, end);
            let first = (next & (self.shape.size - 1)) as usize;
            let entries = self.used.all()[2 * first..].as_chunks::<2>().0;
            for (entry, &id) in entries.iter().zip(ids) {
                if entry[0].load(Ordering::Relaxed) != u32::from(id) {
                    return Ok(next.wrapping_sub(position));
                }
                each(id);
                next = next.wrapping_add(1);
            }
        }
        Ok(next.wrapping_sub(position))
    }

    #[inline]
    fn entry(&self, position: u32) -> Used {
        let at = position.wrapping_mul(2);
        let id = self.used.at(at).load(Ordering::Relaxed);
        let len = self.used.at(at.wrapping_add(1)).load(Ordering::Relaxed);
        Used { id, len }
    }

    #[inline]
    fn wants_kick(&self, from: u32, to: u32) -> bool {
        if self.shape.event_idx {
            let event = self.avail_event.at(0).load(Ordering::Relaxed);
            // True if the event index is among the entries that were just published (virtio 1.3, 2.7.10).
            (to as u16).wrapping_sub(event).wrapping_sub(1) < (to as u16).wrapping_sub(from as u16)
        } else {
            self.used_flags.at(0).load(Ordering::Relaxed) & USED_F_NO_NOTIFY == 0
        }
    }

    fn want_call(&mut self, position: u32) {
        if self.shape.event_idx {
            self.used_event.at(0).store(position as u16, Ordering::Relaxed);
        } else {
            self.avail_flags.at(0).store(0, Ordering::Relaxed);
        }
    }

    fn want_no_call(&mut self, position: u32) {
        if self.shape.event_idx {
            // As far away as possible: one call in 65,536 buffers.
            self.used_event.at(0).store(position.wrapping_sub(1) as u16, Ordering::Relaxed);
        } else {
            self.avail_flags.at(0).store(AVAIL_F_NO_INTERRUPT, Ordering::Relaxed);
        }
    }
}
