//! A ring of either kind.

use std::io;
use std::sync::atomic::{Ordering, fence};

use super::entry::{Misuse, Shape, Used};
use super::packed_of_link::Packed;
use super::split_of_link::Split;
use crate::pci::Dma;

#[derive(Debug)]
enum Kind {
    Split(Split),
    Packed(Packed),
}

/// A ring, and how far each side is. Positions count entries from the start, over all laps, and wrap.
#[derive(Debug)]
pub struct Ring {
    kind: Kind,
    size: u32,
    /// The next position to offer.
    head: u32,
    /// The first position that the device does not know of.
    published: u32,
    /// The next position that the device will use.
    tail: u32,
}

impl Ring {
    /// Makes a ring without buffers, with notifications of the driver off.
    pub fn new(dma: &mut Dma, shape: Shape, packed: bool) -> io::Result<Ring> {
        let kind = match packed {
            true => Kind::Packed(Packed::new(dma, shape)?),
            false => Kind::Split(Split::new(dma, shape)?),
        };
        let mut ring = Ring { kind, size: shape.size.into(), head: 0, published: 0, tail: 0 };
        ring.want_no_call();
        Ok(ring)
    }

    /// Returns the addresses of its three parts.
    pub fn parts(&self) -> [u64; 3] {
        match &self.kind {
            Kind::Split(ring) => ring.parts,
            Kind::Packed(ring) => ring.parts,
        }
    }

    /// Returns the number of descriptors.
    #[inline]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns the next position to offer.
    #[inline]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Returns true if the device knows of the buffer that was offered at this position, within a lap.
    #[inline]
    pub fn is_published(&self, position: u32) -> bool {
        self.head.wrapping_sub(position) > self.unpublished()
    }

    /// Returns the next position that the device will use.
    #[inline]
    pub fn tail(&self) -> u32 {
        self.tail
    }

    /// Returns how many offered buffers the device does not know of.
    #[inline]
    pub fn unpublished(&self) -> u32 {
        self.head.wrapping_sub(self.published)
    }

    /// Returns how many buffers the device has.
    #[inline]
    pub fn outstanding(&self) -> u32 {
        self.published.wrapping_sub(self.tail)
    }

    /// Puts a buffer into the next position. There must be room, and the device does not have the id.
    #[inline]
    pub fn offer(&mut self, id: u16, address: u64, len: u32) {
        match &mut self.kind {
            Kind::Split(ring) => ring.offer(self.head, id, address, len),
            Kind::Packed(ring) => ring.offer(self.head, id, address, len),
        }
        self.head = self.head.wrapping_add(1);
    }

    /// Makes the offered buffers available. Returns true when the device wants a kick.
    #[inline]
    pub fn publish(&mut self) -> bool {
        let (from, to) = (self.published, self.head);
        if from == to {
            return false;
        }
        match &mut self.kind {
            Kind::Split(ring) => ring.publish(to),
            Kind::Packed(ring) => ring.publish(to),
        }
        self.published = to;
        // Reads the device's request after the buffers are visible: at least one of the two sides sees the other's write.
        fence(Ordering::SeqCst);
        match &self.kind {
            Kind::Split(ring) => ring.wants_kick(from, to),
            Kind::Packed(ring) => ring.wants_kick(from, to),
        }
    }

    /// Returns the entry of the next used buffer, which stays the next.
    #[inline]
    pub fn used(&mut self) -> Result<Option<Used>, Misuse> {
        let outstanding = self.outstanding();
        match &mut self.kind {
            Kind::Split(ring) => ring.used(self.tail, outstanding),
            Kind::Packed(ring) => Ok(ring.used(self.tail, outstanding)),
        }
    }

    /// Goes on behind the next `count` used buffers.
    #[inline]
    pub fn advance(&mut self, count: u32) {
        self.tail = self.tail.wrapping_add(count);
    }

    /// Returns the number of buffers that an entry stands for if the device works in order: buffer ids are positions, and the entry
    /// has the last one's (virtio 1.3, 2.7.12 and 2.8.13).
    #[inline]
    pub fn batch(&self, used: Used) -> Result<u32, Misuse> {
        let count = (used.id.wrapping_sub(self.tail) & (self.size - 1)) + 1;
        let is_told = match &self.kind {
            Kind::Split(ring) => ring.covers(self.tail, count),
            Kind::Packed(_) => count <= self.outstanding(),
        };
        if used.id < self.size && is_told { Ok(count) } else { Err(Misuse::Id(used.id)) }
    }

    /// Asks for a call when the next buffer is used.
    pub fn want_call(&mut self) {
        match &mut self.kind {
            Kind::Split(ring) => ring.want_call(self.tail),
            Kind::Packed(ring) => ring.want_call(self.tail),
        }
        // As in `publish`: what is used before the device sees the request is seen by the caller, who looks afterwards.
        fence(Ordering::SeqCst);
    }

    /// Asks for no call.
    pub fn want_no_call(&mut self) {
        match &mut self.kind {
            Kind::Split(ring) => ring.want_no_call(self.tail),
            Kind::Packed(ring) => ring.want_no_call(),
        }
    }
}
