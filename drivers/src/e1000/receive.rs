//! The receive ring: legacy descriptors (8254x manual, 3.2.3) or extended ones (82574 datasheet, 7.1.5).

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use ringway_abi::e1000::{ReceiveFormat, ReceiveStatus};
use ringway_memory::{Buffer, Kept, prefetch_read};

use super::misuse::Misuse;
use super::transmit::words;
use crate::pci::Dma;

/// How many frames ahead the first cache line of a frame is prefetched.
const PREFETCH_AHEAD: u32 = 4;

/// The receive ring and its buffers. Positions count descriptors over all laps, and wrap.
#[derive(Debug)]
pub struct Receive {
    /// Two words for each descriptor.
    words: Kept<[AtomicU64]>,
    bus: u64,
    buffers: Vec<Buffer>,
    /// The address of each buffer as the device sees it.
    addresses: Box<[u64]>,
    size: u32,
    format: ReceiveFormat,
    /// Bytes that the device may write into a buffer.
    capacity: usize,
    /// The next position that the device will write.
    next: u32,
    /// The first position not given back to the device, as of the last tail.
    published: u32,
    /// The next descriptor continues a frame that spans several, which is dropped.
    skips: bool,
    dropped: u64,
}

impl Receive {
    /// A ring with a buffer for each descriptor, a power of two. All belong to the device but one, whose descriptor stays empty.
    pub fn new(dma: &mut Dma, format: ReceiveFormat, buffers: Vec<Buffer>, capacity: usize) -> io::Result<Receive> {
        let size = buffers.len() as u32;
        let ring = dma.allocate(size as usize * 16, 4096)?;
        let addresses = buffers.iter().map(|buffer| dma.bus(buffer.as_ptr())).collect::<Option<_>>();
        let addresses = addresses.ok_or_else(|| io::Error::other("a buffer has no place in the memory"))?;
        let mut receive = Receive {
            words: words(&ring, size)?,
            bus: ring.bus(),
            buffers,
            addresses,
            size,
            format,
            capacity,
            next: 0,
            published: 0,
            skips: false,
            dropped: 0,
        };
        (0..size).for_each(|_| receive.renew());
        receive.next = 0;
        Ok(receive)
    }

    /// Returns the address of the ring as the device sees it, and the number of descriptors.
    pub fn place(&self) -> (u64, u32) {
        (self.bus, self.size)
    }

    #[inline]
    fn slot(&self, position: u32) -> usize {
        (position & (self.size - 1)) as usize
    }

    #[inline]
    fn status(&self, position: u32) -> Option<ReceiveStatus> {
        let word = self.words[self.slot(position) * 2 + 1].load(Ordering::Acquire);
        self.format.read(u64::from_le(word))
    }

    /// Returns true if the device has written a descriptor.
    #[inline]
    pub fn has_some(&self) -> bool {
        self.status(self.next).is_some()
    }

    /// Finds the next frame, and drops frames that span several descriptors before it. Returns its length.
    ///
    /// # Errors
    /// The device wrote an invalid length.
    #[inline]
    pub fn find(&mut self) -> Result<Option<usize>, Misuse> {
        while let Some(status) = self.status(self.next) {
            if status.len > self.capacity {
                return Err(Misuse::Length(status.len, self.capacity));
            }
            if status.end && !self.skips {
                return Ok(Some(status.len));
            }
            self.skips = !status.end;
            self.dropped += u64::from(status.end);
            self.renew();
            // The caller gives buffers back between two frames.
            if self.to_give() >= self.size - 1 {
                break;
            }
        }
        Ok(None)
    }

    /// Returns the first `len` bytes of the next frame.
    #[inline]
    pub fn frame(&self, len: usize) -> &[u8] {
        prefetch_read(self.buffers[self.slot(self.next.wrapping_add(PREFETCH_AHEAD))].as_ptr());
        &self.buffers[self.slot(self.next)][..len]
    }

    /// Swaps the buffer of the next frame for another one, whose address the device sees as `bus`.
    #[inline]
    pub fn swap(&mut self, spare: &mut Buffer, bus: u64) {
        let slot = self.slot(self.next);
        std::mem::swap(&mut self.buffers[slot], spare);
        self.addresses[slot] = bus;
    }

    /// Makes the next descriptor available to the device again. The tail gives it to the device.
    #[inline]
    pub fn renew(&mut self) {
        let slot = self.slot(self.next);
        self.words[slot * 2].store(self.addresses[slot].to_le(), Ordering::Relaxed);
        self.words[slot * 2 + 1].store(0, Ordering::Relaxed);
        self.next = self.next.wrapping_add(1);
    }

    /// Returns the number of descriptors that can be given back to the device.
    #[inline]
    pub fn to_give(&self) -> u32 {
        self.next.wrapping_sub(self.published)
    }

    /// Returns the tail that gives the taken buffers back to the device: the descriptor before the next one stays empty.
    #[inline]
    pub fn tail(&self) -> u32 {
        self.slot(self.next.wrapping_sub(1)) as u32
    }

    /// Notes that the tail was published.
    #[inline]
    pub fn publish(&mut self) {
        self.published = self.next;
    }

    /// Returns true if publishing the tail now moves it onto this descriptor or across it.
    pub fn crosses(&self, at: u32) -> bool {
        at < self.size && at.wrapping_sub(self.published) & (self.size - 1) < self.to_give()
    }

    /// Returns the number of frames that were dropped because they span several descriptors.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}
