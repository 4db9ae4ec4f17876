//! The packed virtqueue, its driver's side (virtio 1.3, 2.8).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ringway_memory::Mapping;

use super::ring::{Direction, Misuse, Order, Parts, Ring, Shape, Used};
use crate::area::{Words, words32, words64};

/// Flags of a descriptor, in its second word.
const WRITE: u64 = 1 << (48 + 1);
const AVAIL: u64 = 1 << (48 + 7);
const USED: u64 = 1 << (48 + 15);

/// The buffer id in the second word of a descriptor.
const ID: u64 = 0xffff << 32;
/// Descriptors in a cache line.
const PER_LINE: usize = 4;

/// Event suppression: flags are in the upper half of the word, offset and wrap counter in the lower.
const EVENTS_ENABLE: u32 = 0;
const EVENTS_DISABLE: u32 = 1;
const EVENTS_AT: u32 = 2;
const WRAP: u32 = 1 << 15;

/// A packed ring.
#[derive(Debug)]
pub struct Packed {
    shape: Shape,
    /// Two words for each descriptor: the address; length, buffer id and flags.
    descriptors: Words<AtomicU64>,
    driver_events: Words<AtomicU32>,
    device_events: Words<AtomicU32>,
    /// The bit of a position that distinguishes odd laps from even ones.
    lap: u32,
}

impl Packed {
    /// Returns the driver's wrap counter at this position.
    #[inline]
    fn wrap(&self, position: u32) -> bool {
        position & self.lap == 0
    }

    #[inline]
    fn second_word(&self, position: u32) -> &AtomicU64 {
        self.descriptors.at(position.wrapping_mul(2).wrapping_add(1))
    }

    /// Returns the second word of an available descriptor at a position.
    #[inline]
    #[must_use]
    pub fn available(&self, position: u32, id: u16, len: u32) -> u64 {
        u64::from(len) | u64::from(id) << 32 | self.turn(position)
    }

    /// Writes the address of the descriptor at a position.
    #[inline]
    pub fn put_address(&mut self, position: u32, address: u64) {
        self.descriptors.at(position.wrapping_mul(2)).store(address, Ordering::Relaxed);
    }

    /// Writes the second word of the descriptor at a position: gives it to the device, if `ordering` is a release or that of a descriptor
    /// before it will be.
    #[inline]
    pub fn put_word(&mut self, position: u32, word: u64, ordering: Ordering) {
        self.second_word(position).store(word, ordering);
    }

    /// Returns the used entry of a position, if the device has used it.
    #[inline]
    #[must_use]
    pub fn used(&self, position: u32) -> Option<Used> {
        let word = self.second_word(position).load(Ordering::Acquire);
        let used = if self.wrap(position) { AVAIL | USED } else { 0 };
        (word & (AVAIL | USED) == used).then(|| Self::entry_of(word))
    }

    #[inline]
    fn entry_of(word: u64) -> Used {
        Used { id: (word >> 32) as u32 & 0xffff, len: word as u32 }
    }

    /// Writes the second word of the descriptor at a position.
    #[inline]
    fn store(&mut self, order: &Order, position: u32, ordering: Ordering) {
        let id = order.id(position);
        self.put_word(position, self.available(position, id, order.len(id)), ordering);
    }

    /// Returns the flags of an available descriptor at this position.
    #[inline]
    fn turn(&self, position: u32) -> u64 {
        let write = if self.shape.direction == Direction::Rx { WRITE } else { 0 };
        if self.wrap(position) { AVAIL | write } else { USED | write }
    }

    /// Writes the second words of several positions, if all have the same length.
    #[inline]
    fn store_run(&self, order: &Order, from: u32, to: u32, len: u32) {
        let mut position = from;
        while position != to {
            let ids = order.run(position, to);
            let word = u64::from(len) | self.turn(position);
            let first = (position & (self.lap - 1)) as usize;
            // Indices, here and below: whether a zipped iterator is inlined depends on the rest of the crate, and calls cost a tenth.
            let words = &self.descriptors.all()[2 * first..].as_chunks::<2>().0[..ids.len()];
            for (at, &id) in ids.iter().enumerate() {
                words[at][1].store(word | u64::from(id) << 32, Ordering::Relaxed);
            }
            position = position.wrapping_add(ids.len() as u32);
        }
    }
}

impl Ring for Packed {
    const PACKED: bool = true;
    const COUNTS: bool = false;
    /// Both wrap counters start as 1 (vhost-user, "Vring descriptor indices").
    const BASE: u32 = 1 << 15 | 1 << 31;

    fn parts(size: u32) -> Parts {
        let driver = size as usize * 16;
        Parts { descriptors: 0, driver, device: driver + 64, bytes: driver + 128 }
    }

    fn new(mapping: &Arc<Mapping>, at: usize, shape: &Shape) -> io::Result<Packed> {
        let parts = Self::parts(shape.size);
        Ok(Packed {
            shape: *shape,
            descriptors: words64(mapping, at, shape.size * 2)?,
            driver_events: words32(mapping, at + parts.driver, 1)?,
            device_events: words32(mapping, at + parts.device, 1)?,
            lap: shape.size,
        })
    }

    // Every descriptor is written when it is made available.
    fn prepare(&mut self, _order: &Order) {}

    #[inline]
    fn publish(&mut self, order: &Order, from: u32, to: u32, rewrite: bool) {
        if rewrite {
            let mut position = from;
            while position != to {
                self.put_address(position, order.address(order.id(position)));
                position = position.wrapping_add(1);
            }
        }
        // The first descriptor is written last. The device waits for it, so it sees all descriptors or none.
        let second = from.wrapping_add(1);
        match order.common_len() {
            Some(len) => self.store_run(order, second, to, len),
            None => {
                let mut position = second;
                while position != to {
                    self.store(order, position, Ordering::Relaxed);
                    position = position.wrapping_add(1);
                }
            }
        }
        self.store(order, from, Ordering::Release);
    }

    #[inline]
    fn ready(&mut self, position: u32, outstanding: u32, most: u32) -> Result<u32, Misuse> {
        let most = outstanding.min(most);
        let mut ready = 0;
        while ready < most {
            let next = position.wrapping_add(ready);
            let used = if self.wrap(next) { AVAIL | USED } else { 0 };
            if self.second_word(next).load(Ordering::Acquire) & (AVAIL | USED) != used {
                break;
            }
            ready += 1;
        }
        Ok(ready)
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
        let end = position.wrapping_add(outstanding.min(most));
        let mut next = position;
        while next != end {
            let ids = order.run(next, end);
            let used = if self.wrap(next) { AVAIL | USED } else { 0 };
            let first = (next & (self.lap - 1)) as usize;
            let words = self.descriptors.all()[2 * first..][..2 * ids.len()].as_chunks::<2>().0;
            // The bits in which a descriptor differs from the expected used descriptor.
            let odd = |words: &[AtomicU64; 2], id: u16| {
                (words[1].load(Ordering::Acquire) ^ (used | u64::from(id) << 32)) & (AVAIL | USED | ID)
            };
            // Checks a cache line of descriptors at a time, and one by one from the line with a descriptor that is not
            // used.
            let mut count = 0;
            for (line, words) in words.as_chunks::<PER_LINE>().0.iter().enumerate() {
                let ids = &ids[line * PER_LINE..][..PER_LINE];
                if (0..PER_LINE).fold(0, |all, at| all | odd(&words[at], ids[at])) != 0 {
                    break;
                }
                ids.iter().for_each(|&id| each(id));
                count += PER_LINE;
            }
            while count < ids.len() {
                if odd(&words[count], ids[count]) != 0 {
                    return Ok(next.wrapping_add(count as u32).wrapping_sub(position));
                }
                each(ids[count]);
                count += 1;
            }
            next = next.wrapping_add(count as u32);
        }
        Ok(next.wrapping_sub(position))
    }

    #[inline]
    fn entry(&self, position: u32) -> Used {
        Self::entry_of(self.second_word(position).load(Ordering::Relaxed))
    }

    #[inline]
    fn wants_kick(&self, from: u32, to: u32) -> bool {
        let events = self.device_events.at(0).load(Ordering::Relaxed);
        match events >> 16 & 3 {
            EVENTS_ENABLE => true,
            EVENTS_AT => {
                let mut event = to & !(self.lap - 1) | events & (self.lap - 1);
                if (events & WRAP != 0) != self.wrap(to) {
                    // The event is in the previous lap.
                    event = event.wrapping_sub(self.lap);
                }
                to.wrapping_sub(event).wrapping_sub(1) < to.wrapping_sub(from)
            }
            _ => false,
        }
    }

    fn want_call(&mut self, position: u32) {
        let word = if self.shape.event_idx {
            let wrap = if self.wrap(position) { WRAP } else { 0 };
            EVENTS_AT << 16 | wrap | position & (self.lap - 1)
        } else {
            EVENTS_ENABLE << 16
        };
        self.driver_events.at(0).store(word, Ordering::Relaxed);
    }

    fn want_no_call(&mut self, _position: u32) {
        self.driver_events.at(0).store(EVENTS_DISABLE << 16, Ordering::Relaxed);
    }
}
