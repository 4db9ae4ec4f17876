//! The transmit ring: legacy descriptors (8254x manual, 3.3.3), one for each frame.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::area::{Buffers, Words, words64};
use ringway_abi::e1000::transmit::{DONE, EOP, IFCS, RS};
use ringway_memory::Mapping;

use super::misuse_of_queue::Misuse;
use super::positions::Positions;

/// How many frames ahead a buffer is prefetched.
const PREFETCH_AHEAD: u32 = 12;

/// The location and dimensions of a ring.
#[derive(Debug, Clone, Copy)]
pub struct RingLayout {
    /// Number of descriptors, a power of two.
    pub size: u32,
    /// Offset of the descriptors in the memory.
    pub ring: usize,
    /// Offset of the buffers in the memory.
    pub buffers: usize,
    /// Most bytes of a frame in a buffer.
    pub capacity: usize,
    /// Bytes between two buffers, so that not all buffers begin in the same cache set.
    pub gap: usize,
    /// Address of the memory in descriptors.
    pub guest: u64,
}

impl RingLayout {
    /// Returns the address of a buffer's frame in its descriptor.
    pub fn address(&self, number: u32) -> u64 {
        self.guest + (self.buffers + self.gap + number as usize * (self.gap + self.capacity)) as u64
    }

    /// Returns the bytes of all buffers.
    pub fn bytes(&self) -> usize {
        self.size as usize * (self.gap + self.capacity)
    }

    pub(super) fn memory(&self, mapping: &Arc<Mapping>) -> io::Result<(Words<AtomicU64>, Buffers)> {
        let words = words64(mapping, self.ring, self.size * 2)?;
        let buffers = Buffers::new(mapping, self.buffers, self.size, self.gap, self.capacity)?;
        for number in 0..self.size {
            words.at(number * 2).store(self.address(number), Ordering::Relaxed);
        }
        Ok((words, buffers))
    }
}

/// The transmit ring and its buffers.
#[derive(Debug)]
pub struct TransmitQueue {
    /// Two words for each descriptor: the address; length, command and status.
    words: Words<AtomicU64>,
    buffers: Buffers,
    positions: Positions,
    command: u64,
}

impl TransmitQueue {
    /// An empty ring. `report`: whether the device marks each completed descriptor.
    pub fn new(mapping: &Arc<Mapping>, place: &RingLayout, report: bool) -> io::Result<TransmitQueue> {
        let (words, buffers) = place.memory(mapping)?;
        let command = EOP | IFCS | if report { RS } else { 0 };
        Ok(TransmitQueue { words, buffers, positions: Positions::new(place.size), command })
    }

    /// Returns how many descriptors can be filled, as far as known. One descriptor always stays empty.
    #[inline]
    pub fn room(&self) -> u32 {
        self.positions.free()
    }

    /// Returns the `len` bytes of the next frame, to fill, or `None` when a buffer has fewer. There must be room.
    #[inline]
    pub fn next(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.room() > PREFETCH_AHEAD {
            self.buffers.prefetch_mut(self.positions.head().wrapping_add(PREFETCH_AHEAD) as u16);
        }
        self.buffers.frame_mut(self.positions.head() as u16, len)
    }

    /// Queues the next buffer with a frame of `len` bytes. Returns false when a buffer has fewer. There must be room.
    #[inline]
    pub fn push(&mut self, len: usize) -> bool {
        if len > self.buffers.capacity() {
            return false;
        }
        let word = self.words.at(self.positions.head().wrapping_mul(2).wrapping_add(1));
        let wanted = len as u64 | self.command;
        // If the device does not mark descriptors, the word is often the same as a lap before.
        if word.load(Ordering::Relaxed) != wanted {
            word.store(wanted, Ordering::Relaxed);
        }
        self.positions.filled(1);
        true
    }

    /// Returns true if there are frames that are not published.
    #[inline]
    pub fn has_unpublished(&self) -> bool {
        self.positions.has_unpublished()
    }

    /// Returns the tail. The caller publishes the tail to the device.
    #[inline]
    pub fn publish(&mut self) -> u32 {
        self.positions.publish()
    }

    /// Returns true if the device has marked its first descriptor as completed.
    #[inline]
    pub fn has_done(&self) -> bool {
        self.positions.is_with_device() && self.is_done(self.positions.done())
    }

    #[inline]
    fn is_done(&self, position: u32) -> bool {
        self.words.at(position.wrapping_mul(2).wrapping_add(1)).load(Ordering::Acquire) & DONE != 0
    }

    /// Takes back all descriptors marked as completed.
    #[inline]
    pub fn take_reported(&mut self) {
        while self.has_done() {
            self.positions.completed(1);
        }
    }

    /// Takes back the descriptors before the device's head.
    ///
    /// # Errors
    /// The head is not between the first descriptor that the device has and the tail.
    #[inline]
    pub fn take_until(&mut self, head: u32) -> Result<(), Misuse> {
        let taken = self.positions.passed(head).ok_or(Misuse::Head(head))?;
        self.positions.completed(taken);
        Ok(())
    }

    /// Returns the descriptor in the middle of those that the device has: when the device reaches it, half of them are
    /// completed.
    pub fn middle(&self) -> u32 {
        self.positions.middle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_memory::SharedMemory;

    pub const PLACE: RingLayout =
        RingLayout { size: 8, ring: 0, buffers: 4096, capacity: 256, gap: 64, guest: 0x1_0000_0000 };

    fn ring(report: bool) -> (TransmitQueue, SharedMemory) {
        let memory = SharedMemory::create("transmit", 65_536).unwrap();
        (TransmitQueue::new(memory.mapping(), &PLACE, report).unwrap(), memory)
    }

    /// Returns a word of a descriptor, as the device sees it.
    fn word(memory: &SharedMemory, number: usize) -> u64 {
        memory.mapping().view(number * 8, 8).unwrap().first_word().unwrap()
    }

    #[test]
    fn a_frame_is_where_its_descriptor_says() {
        let (mut ring, memory) = ring(true);
        ring.next(60).unwrap().fill(0xab);
        assert!(ring.push(60) && ring.has_unpublished());
        assert_eq!(ring.publish(), 1);
        assert_eq!(word(&memory, 0), 0x1_0000_0000 + 4096 + 64);
        // Length 60; EOP, IFCS and RS.
        assert_eq!(word(&memory, 1), 60 | 0x0b << 24);
        let mut frame = [0; 60];
        assert!(memory.mapping().view(4096 + 64, 60).unwrap().read(&mut frame));
        assert_eq!(frame, [0xab; 60]);
        assert!(ring.next(257).is_none() && !ring.push(257));
    }

    #[test]
    fn a_full_ring_has_one_empty_descriptor_and_is_taken_back_as_reported() {
        let (mut ring, memory) = ring(true);
        for _ in 0..7 {
            assert!(ring.push(60));
        }
        assert_eq!((ring.room(), ring.publish()), (0, 7));
        assert!(!ring.has_done());
        let report = |number: usize| {
            let done = (word(&memory, number * 2 + 1) | 1 << 32).to_le_bytes();
            assert!(memory.mapping().view(number * 16 + 8, 8).unwrap().write(&done));
        };
        (0..3).for_each(report);
        assert!(ring.has_done());
        ring.take_reported();
        assert_eq!(ring.room(), 3);
        // A refilled descriptor is no longer marked as completed.
        for _ in 0..3 {
            assert!(ring.push(64));
        }
        assert_eq!(ring.publish(), 2);
        (3..7).for_each(report);
        ring.take_reported();
        assert_eq!(ring.room(), 4, "the three new ones are the device's");
    }

    #[test]
    fn a_head_says_how_far_the_device_is_and_must_be_possible() {
        let (mut ring, _memory) = ring(false);
        for _ in 0..5 {
            assert!(ring.push(60));
        }
        assert_eq!(ring.publish(), 5);
        assert_eq!(ring.middle(), 2);
        assert_eq!(ring.take_until(3), Ok(()));
        assert_eq!(ring.room(), 5);
        for head in [2, 6, 8, u32::MAX] {
            assert_eq!(ring.take_until(head), Err(Misuse::Head(head)));
        }
        assert_eq!(ring.take_until(5), Ok(()));
        assert_eq!(ring.room(), 7);
    }
}
