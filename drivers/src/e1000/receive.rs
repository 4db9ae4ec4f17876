//! The receive ring with buffers of its user.

use std::io;

use ringway_abi::e1000::ReceiveFormat;
use ringway_memory::{Buffer, prefetch_read};

use super::bring_up::RingAt;
use super::misuse::Misuse;
use super::ring::ReceiveRing;
use crate::pci::Dma;

/// How many frames ahead the first cache line of a frame is prefetched.
const PREFETCH_AHEAD: u32 = 4;

/// The receive ring and its buffers.
#[derive(Debug)]
pub struct Receive {
    /// Its descriptors.
    pub ring: ReceiveRing,
    bus: u64,
    buffers: Vec<Buffer>,
    /// The address of each buffer as the device sees it.
    addresses: Box<[u64]>,
    /// Bytes that the device may write into a buffer.
    capacity: usize,
    /// The next descriptor continues a frame that spans several, which is dropped.
    skips: bool,
    dropped: u64,
}

impl Receive {
    /// A ring with a buffer for each descriptor, a power of two. All belong to the device but one, whose descriptor stays empty.
    pub fn new(dma: &mut Dma, format: ReceiveFormat, buffers: Vec<Buffer>, capacity: usize) -> io::Result<Receive> {
        let size = buffers.len() as u32;
        let ring = dma.allocate(size as usize * 16, 4096)?;
        let addresses = buffers.iter().map(|buffer| dma.bus(buffer.as_ptr())).collect::<Option<Box<[u64]>>>();
        let addresses = addresses.ok_or_else(|| io::Error::other("a buffer has no place in the memory"))?;
        let bus = ring.bus();
        let mut ring = ReceiveRing::new(ring.mapping(), ring.at(), size, format)?;
        addresses.iter().zip(0..).for_each(|(&address, slot)| ring.put_address(slot, address));
        Ok(Receive { ring, bus, buffers, addresses, capacity, skips: false, dropped: 0 })
    }

    /// Returns where the ring is.
    pub fn place(&self) -> RingAt {
        RingAt { address: self.bus, size: self.ring.size() }
    }

    /// Finds the next frame, and drops frames that span several descriptors before it. Returns its length.
    ///
    /// # Errors
    /// The device wrote an invalid length.
    #[inline]
    pub fn find(&mut self) -> Result<Option<usize>, Misuse> {
        while let Some(status) = self.ring.status(self.ring.next()) {
            if status.len > self.capacity {
                return Err(Misuse::Length(status.len, self.capacity));
            }
            if status.end && !self.skips && !status.bad {
                return Ok(Some(status.len));
            }
            self.skips = !status.end;
            self.dropped += u64::from(status.end);
            self.renew();
            // The caller gives buffers back between two frames.
            if self.ring.to_give() >= self.ring.size() - 1 {
                break;
            }
        }
        Ok(None)
    }

    /// Returns the first `len` bytes of the next frame.
    #[inline]
    pub fn frame(&self, len: usize) -> &[u8] {
        prefetch_read(self.buffers[self.ring.slot(self.ring.next().wrapping_add(PREFETCH_AHEAD))].as_ptr());
        &self.buffers[self.ring.slot(self.ring.next())][..len]
    }

    /// Swaps the buffer of the next frame for another one, whose address the device sees as `bus`.
    #[inline]
    pub fn swap(&mut self, spare: &mut Buffer, bus: u64) {
        let slot = self.ring.slot(self.ring.next());
        std::mem::swap(&mut self.buffers[slot], spare);
        self.addresses[slot] = bus;
    }

    /// Makes the next descriptor available to the device again. The tail gives it to the device.
    #[inline]
    pub fn renew(&mut self) {
        let next = self.ring.next();
        self.ring.put_address(next, self.addresses[self.ring.slot(next)]);
        self.ring.renew();
    }

    /// Returns the number of frames that were dropped because they span several descriptors.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}
