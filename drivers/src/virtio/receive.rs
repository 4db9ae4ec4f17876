//! The queue of received frames.

use ringway_memory::Buffer;

use super::any_ring::AnyRing;
use super::buffer::HEADER;
use super::ring::{Misuse, Used};
use crate::pci::Dma;

/// Buffers that are given back together, at most: each time costs a cache line that the device reads.
const TOGETHER: u32 = 32;

/// A ring to receive from.
#[derive(Debug)]
pub struct Receive {
    ring: AnyRing,
    in_order: bool,
    /// The buffer of each id.
    buffers: Vec<Buffer>,
    /// Where it is in the ring, if it was given to the device.
    given: Box<[Option<u32>]>,
    /// Bytes of a buffer.
    bytes: u32,
    /// The frame that was found and not given back yet.
    first: Option<Used>,
    /// The rest of a batch with one entry: buffers, and the length in the last one's entry.
    batch: (u32, u32),
}

impl Receive {
    /// Gives all buffers to the device: as many as the ring has descriptors.
    pub fn new(ring: AnyRing, in_order: bool, buffers: Vec<Buffer>, dma: &Dma) -> Receive {
        let bytes = buffers.first().map_or(0, |buffer| buffer.len()) as u32;
        let given = vec![None; ring.size() as usize].into();
        let mut queue = Receive { ring, in_order, buffers, given, bytes, first: None, batch: (0, 0) };
        (0..queue.buffers.len()).for_each(|id| queue.offer(id as u32, dma));
        queue
    }

    /// Returns the ring.
    pub fn ring(&mut self) -> &mut AnyRing {
        &mut self.ring
    }

    /// Returns the buffer of the next received frame and the bytes written to it, at least a header.
    #[inline]
    pub fn first(&mut self) -> Result<Option<(&mut Buffer, usize)>, Misuse> {
        if self.first.is_none() {
            self.first = self.take()?;
        }
        Ok(self.first.map(|used| (&mut self.buffers[used.id as usize], used.len as usize)))
    }

    /// Gives the buffer of that frame back, or what was put into its place. Returns true if the device should now be told.
    #[inline]
    pub fn give_back(&mut self, dma: &Dma) -> bool {
        if let Some(used) = self.first.take() {
            self.offer(used.id, dma);
        }
        self.ring.unpublished() >= TOGETHER.min(self.ring.size() / 2)
    }

    fn offer(&mut self, id: u32, dma: &Dma) {
        let buffer = &self.buffers[id as usize];
        let address = dma.bus(buffer.start().as_ptr()).unwrap_or(0);
        self.given[id as usize] = Some(self.ring.head());
        self.ring.offer(id as u16, address, self.bytes);
    }

    #[inline]
    fn take(&mut self) -> Result<Option<Used>, Misuse> {
        if self.in_order {
            return self.take_in_order();
        }
        let Some(used) = self.ring.used()? else { return Ok(None) };
        self.own(used)?;
        Ok(Some(used))
    }

    fn take_in_order(&mut self) -> Result<Option<Used>, Misuse> {
        if self.batch.0 == 0 {
            let Some(used) = self.ring.used()? else { return Ok(None) };
            self.batch = (self.ring.batch(used)?, used.len);
        }
        let id = self.ring.tail() & (self.ring.size() - 1);
        // Buffers without an entry were used completely.
        let len = if self.batch.0 == 1 { self.batch.1 } else { self.bytes };
        let used = Used { id, len };
        self.own(used)?;
        self.batch.0 -= 1;
        Ok(Some(used))
    }

    /// Takes a used buffer from the device.
    #[inline]
    fn own(&mut self, used: Used) -> Result<(), Misuse> {
        let given = self.given.get_mut(used.id as usize).and_then(Option::take);
        if given.is_none_or(|position| !self.ring.is_published(position)) {
            return Err(Misuse::Id(used.id));
        }
        if used.len > self.bytes || (used.len as usize) < HEADER {
            return Err(Misuse::Length(used.len, self.bytes as usize));
        }
        self.ring.advance(1);
        Ok(())
    }
}
