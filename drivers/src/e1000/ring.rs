//! The descriptors of the rings. The driver of a link and that of the generator own their buffers in different ways, and use these rings alike.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ringway_abi::e1000::transmit::{DONE, EOP, IFCS, RS};
use ringway_abi::e1000::{ReceiveFormat, ReceiveStatus};
use ringway_memory::Mapping;

use crate::area::{Words, words64};

/// The descriptors of a transmit ring (8254x manual, 3.3). Positions count them over all laps, and wrap.
#[derive(Debug)]
pub struct TransmitRing {
    /// Two words for each: the address; length, command and status.
    words: Words<AtomicU64>,
    last: u64,
}

impl TransmitRing {
    /// An empty ring of `size` descriptors, a power of two, at offset `at` of the memory. `report`: whether the device marks completed frames.
    ///
    /// # Errors
    /// The ring does not fit into the memory.
    pub fn new(mapping: &Arc<Mapping>, at: usize, size: u32, report: bool) -> io::Result<TransmitRing> {
        let last = EOP | IFCS | if report { RS } else { 0 };
        Ok(TransmitRing { words: words64(mapping, at, size * 2)?, last })
    }

    /// Returns the bits of a frame's last descriptor.
    #[inline]
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Fills the descriptor at a position.
    #[inline]
    pub fn put(&mut self, position: u32, first: u64, second: u64) {
        self.words.at(position.wrapping_mul(2)).store(first.to_le(), Ordering::Relaxed);
        self.second(position).store(second.to_le(), Ordering::Relaxed);
    }

    /// Writes the second word of the descriptor at a position, if it differs.
    #[inline]
    pub fn put_second(&mut self, position: u32, second: u64) {
        let word = self.second(position);
        if word.load(Ordering::Relaxed) != second.to_le() {
            word.store(second.to_le(), Ordering::Relaxed);
        }
    }

    /// Returns true if the device has marked the descriptor at a position as completed.
    #[inline]
    #[must_use]
    pub fn is_done(&self, position: u32) -> bool {
        u64::from_le(self.second(position).load(Ordering::Acquire)) & DONE != 0
    }

    #[inline]
    fn second(&self, position: u32) -> &AtomicU64 {
        self.words.at(position.wrapping_mul(2).wrapping_add(1))
    }
}

/// The descriptors of a receive ring: legacy ones (8254x manual, 3.2.3) or extended ones (82574 datasheet, 7.1.5). Positions count them over all
/// laps, and wrap.
#[derive(Debug)]
pub struct ReceiveRing {
    /// Two words for each.
    words: Words<AtomicU64>,
    size: u32,
    format: ReceiveFormat,
    /// The next position that the device will write.
    next: u32,
    /// The first position not given back to the device, as of the last tail.
    published: u32,
}

impl ReceiveRing {
    /// A ring of `size` descriptors, a power of two, at offset `at` of the memory. All belong to the device but one, which stays empty.
    ///
    /// # Errors
    /// The ring does not fit into the memory.
    pub fn new(mapping: &Arc<Mapping>, at: usize, size: u32, format: ReceiveFormat) -> io::Result<ReceiveRing> {
        Ok(ReceiveRing { words: words64(mapping, at, size * 2)?, size, format, next: 0, published: 0 })
    }

    /// Returns the number of descriptors.
    #[inline]
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns how the device writes them.
    #[inline]
    #[must_use]
    pub fn format(&self) -> ReceiveFormat {
        self.format
    }

    /// Returns the next position that the device will write.
    #[inline]
    #[must_use]
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Returns the descriptor at a position.
    #[inline]
    #[must_use]
    pub fn slot(&self, position: u32) -> usize {
        (position & (self.size - 1)) as usize
    }

    /// Returns what the device has written to the descriptor at a position, if it has.
    #[inline]
    #[must_use]
    pub fn status(&self, position: u32) -> Option<ReceiveStatus> {
        let word = self.words.at(position.wrapping_mul(2).wrapping_add(1)).load(Ordering::Acquire);
        self.format.read(u64::from_le(word))
    }

    /// Returns true if the device has written the next descriptor.
    #[inline]
    #[must_use]
    pub fn has_some(&self) -> bool {
        self.status(self.next).is_some()
    }

    /// Writes the address of the buffer at a position.
    #[inline]
    pub fn put_address(&mut self, position: u32, address: u64) {
        self.words.at(position.wrapping_mul(2)).store(address.to_le(), Ordering::Relaxed);
    }

    /// Makes the next descriptor available to the device again. The tail gives it to the device.
    #[inline]
    pub fn renew(&mut self) {
        self.words.at(self.next.wrapping_mul(2).wrapping_add(1)).store(0, Ordering::Relaxed);
        self.next = self.next.wrapping_add(1);
    }

    /// Returns the number of descriptors that can be given back to the device.
    #[inline]
    #[must_use]
    pub fn to_give(&self) -> u32 {
        self.next.wrapping_sub(self.published)
    }

    /// Returns the tail that gives the taken buffers back to the device: the descriptor before the next one stays empty.
    #[inline]
    #[must_use]
    pub fn tail(&self) -> u32 {
        self.next.wrapping_sub(1) & (self.size - 1)
    }

    /// Notes that the tail is published. Returns it.
    #[inline]
    pub fn publish(&mut self) -> u32 {
        self.published = self.next;
        self.tail()
    }

    /// Returns true if publishing the tail now moves it onto this descriptor or across it.
    #[must_use]
    pub fn crosses(&self, at: u32) -> bool {
        at < self.size && at.wrapping_sub(self.published) & (self.size - 1) < self.to_give()
    }
}
