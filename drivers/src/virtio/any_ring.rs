//! A ring of either kind, for buffers of its user, one by one.

use std::io;
use std::sync::atomic::{Ordering, fence};

use super::packed::Packed;
use super::ring::{Misuse, Ring, Shape, Used};
use super::split::Split;
use crate::area::Table;
use crate::pci::Dma;

/// A ring, and what the driver has written: rewriting it would take the cache line from the device.
#[derive(Debug)]
enum Kind {
    Split {
        ring: Split,
        /// For each buffer, the address and the length.
        written: Table<(u64, u32)>,
        /// For each place of the available ring, the buffer.
        ids: Table<u16>,
        /// The device's index, when it was read last.
        known: u16,
    },
    Packed {
        ring: Packed,
        /// The address in each descriptor. The device never writes them.
        addresses: Table<u64>,
        /// The second word of the first descriptor to publish, which is written last.
        first: u64,
    },
}

/// A ring, and how far each side is. Positions count entries from the start, over all laps, and wrap.
#[derive(Debug)]
pub struct AnyRing {
    kind: Kind,
    parts: [u64; 3],
    size: u32,
    /// The next position to offer.
    head: u32,
    /// The first position that the device does not know of.
    published: u32,
    /// The next position that the device will use.
    tail: u32,
}

impl AnyRing {
    /// Makes a ring without buffers, with notifications of the driver off.
    ///
    /// # Errors
    /// There is too little memory.
    pub fn new(dma: &mut Dma, shape: &Shape, packed: bool) -> io::Result<AnyRing> {
        let size = shape.size;
        let parts = if packed { Packed::parts(size) } else { Split::parts(size) };
        let piece = dma.allocate(parts.bytes, 64)?;
        let (mapping, at) = (piece.mapping(), piece.at());
        let kind = if packed {
            let addresses = Table::new((0..size).map(|_| 0));
            Kind::Packed { ring: Packed::new(mapping, at, shape)?, addresses, first: 0 }
        } else {
            let (written, ids) = (Table::new((0..size).map(|_| (0, 0))), Table::new((0..size).map(|_| 0)));
            Kind::Split { ring: Split::new(mapping, at, shape)?, written, ids, known: 0 }
        };
        let parts = [parts.descriptors, parts.driver, parts.device].map(|offset| piece.bus() + offset as u64);
        let mut ring = AnyRing { kind, parts, size, head: 0, published: 0, tail: 0 };
        ring.want_no_call();
        Ok(ring)
    }

    /// Returns the addresses of its three parts.
    #[must_use]
    pub fn parts(&self) -> [u64; 3] {
        self.parts
    }

    /// Returns the number of descriptors.
    #[inline]
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns the next position to offer.
    #[inline]
    #[must_use]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Returns true if the device knows of the buffer that was offered at this position, within a lap.
    #[inline]
    #[must_use]
    pub fn is_published(&self, position: u32) -> bool {
        self.head.wrapping_sub(position) > self.unpublished()
    }

    /// Returns the next position that the device will use.
    #[inline]
    #[must_use]
    pub fn tail(&self) -> u32 {
        self.tail
    }

    /// Returns how many offered buffers the device does not know of.
    #[inline]
    #[must_use]
    pub fn unpublished(&self) -> u32 {
        self.head.wrapping_sub(self.published)
    }

    /// Returns how many buffers the device has.
    #[inline]
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.published.wrapping_sub(self.tail)
    }

    /// Puts a buffer into the next position. There must be room, and the device does not have the id.
    #[inline]
    pub fn offer(&mut self, id: u16, address: u64, len: u32) {
        let position = self.head;
        match &mut self.kind {
            Kind::Split { ring, written, ids, .. } => {
                if written.get(id.into()) != (address, len) {
                    written.set(id.into(), (address, len));
                    ring.describe(id, address, len);
                }
                if ids.get(position) != id {
                    ids.set(position, id);
                    ring.put(position, id);
                }
            }
            Kind::Packed { ring, addresses, first } => {
                if addresses.get(position) != address {
                    addresses.set(position, address);
                    ring.put_address(position, address);
                }
                let word = ring.available(position, id, len);
                // The device waits for the first descriptor, so it sees all descriptors or none.
                match position == self.published {
                    true => *first = word,
                    false => ring.put_word(position, word, Ordering::Relaxed),
                }
            }
        }
        self.head = position.wrapping_add(1);
    }

    /// Makes the offered buffers available. Returns true when the device wants a kick.
    #[inline]
    pub fn publish(&mut self) -> bool {
        let (from, to) = (self.published, self.head);
        if from == to {
            return false;
        }
        match &mut self.kind {
            Kind::Split { ring, .. } => ring.put_index(to),
            Kind::Packed { ring, first, .. } => ring.put_word(from, *first, Ordering::Release),
        }
        self.published = to;
        // Reads the device's request after the buffers are visible: at least one of the two sides sees the other's write.
        fence(Ordering::SeqCst);
        match &self.kind {
            Kind::Split { ring, .. } => ring.wants_kick(from, to),
            Kind::Packed { ring, .. } => ring.wants_kick(from, to),
        }
    }

    /// Returns the entry of the next used buffer, which stays the next.
    ///
    /// # Errors
    /// The device claims to have used more than it has.
    #[inline]
    pub fn used(&mut self) -> Result<Option<Used>, Misuse> {
        let (position, outstanding) = (self.tail, self.outstanding());
        match &mut self.kind {
            Kind::Split { ring, known, .. } => {
                if *known == position as u16 {
                    *known = ring.used_index();
                    let claimed = u32::from(known.wrapping_sub(position as u16));
                    if claimed > outstanding {
                        return Err(Misuse::Count { claimed, outstanding });
                    }
                    if claimed == 0 {
                        return Ok(None);
                    }
                }
                Ok(Some(ring.entry(position)))
            }
            Kind::Packed { ring, .. } => Ok(if outstanding > 0 { ring.used(position) } else { None }),
        }
    }

    /// Goes on behind the next `count` used buffers.
    #[inline]
    pub fn advance(&mut self, count: u32) {
        self.tail = self.tail.wrapping_add(count);
    }

    /// Returns the number of buffers that an entry stands for if the device works in order: buffer ids are positions, and the entry
    /// has the last one's (virtio 1.3, 2.7.12 and 2.8.13).
    ///
    /// # Errors
    /// The device does not have the last one.
    #[inline]
    pub fn batch(&self, used: Used) -> Result<u32, Misuse> {
        let count = (used.id.wrapping_sub(self.tail) & (self.size - 1)) + 1;
        let is_told = match &self.kind {
            Kind::Split { known, .. } => u32::from(known.wrapping_sub(self.tail as u16)) >= count,
            Kind::Packed { .. } => count <= self.outstanding(),
        };
        if used.id < self.size && is_told { Ok(count) } else { Err(Misuse::Id(used.id)) }
    }

    /// Asks for a call when the next buffer is used.
    pub fn want_call(&mut self) {
        match &mut self.kind {
            Kind::Split { ring, .. } => ring.want_call(self.tail),
            Kind::Packed { ring, .. } => ring.want_call(self.tail),
        }
        // As in `publish`: what is used before the device sees the request is seen by the caller, who looks afterwards.
        fence(Ordering::SeqCst);
    }

    /// Asks for no call.
    pub fn want_no_call(&mut self) {
        match &mut self.kind {
            Kind::Split { ring, .. } => ring.want_no_call(self.tail),
            Kind::Packed { ring, .. } => ring.want_no_call(self.tail),
        }
    }
}
