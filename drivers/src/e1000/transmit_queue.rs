//! The transmit ring: legacy descriptors (8254x manual, 3.3.3), one for each frame.

use std::io;
use std::sync::Arc;

use crate::area::Buffers;
use ringway_memory::Mapping;

use super::misuse::Misuse;
use super::positions::Positions;
use super::ring::TransmitRing;

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

    pub(super) fn memory(&self, mapping: &Arc<Mapping>) -> io::Result<Buffers> {
        Buffers::new(mapping, self.buffers, self.size, self.gap, self.capacity)
    }
}

/// The transmit ring and its buffers.
#[derive(Debug)]
pub struct TransmitQueue {
    /// How far it is.
    pub positions: Positions,
    ring: TransmitRing,
    buffers: Buffers,
}

impl TransmitQueue {
    /// An empty ring. `report`: whether the device marks each completed descriptor.
    pub fn new(mapping: &Arc<Mapping>, place: &RingLayout, report: bool) -> io::Result<TransmitQueue> {
        let mut ring = TransmitRing::new(mapping, place.ring, place.size, report)?;
        (0..place.size).for_each(|number| ring.put(number, place.address(number), 0));
        Ok(TransmitQueue { positions: Positions::new(place.size), ring, buffers: place.memory(mapping)? })
    }

    /// Returns the `len` bytes of the next frame, to fill, or `None` when a buffer has fewer. There must be room.
    #[inline]
    pub fn next(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.positions.free() > PREFETCH_AHEAD {
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
        // If the device does not mark descriptors, the word is often the same as a lap before.
        self.ring.put_second(self.positions.head(), len as u64 | self.ring.last());
        self.positions.filled(1);
        true
    }

    /// Returns true if the device has marked its first descriptor as completed.
    #[inline]
    pub fn has_done(&self) -> bool {
        self.positions.is_with_device() && self.ring.is_done(self.positions.done())
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
        let taken = self.positions.passed(head)?;
        self.positions.completed(taken);
        Ok(())
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
        assert!(ring.push(60) && ring.positions.has_unpublished());
        assert_eq!(ring.positions.publish(), 1);
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
        assert_eq!((ring.positions.free(), ring.positions.publish()), (0, 7));
        assert!(!ring.has_done());
        let report = |number: usize| {
            let done = (word(&memory, number * 2 + 1) | 1 << 32).to_le_bytes();
            assert!(memory.mapping().view(number * 16 + 8, 8).unwrap().write(&done));
        };
        (0..3).for_each(report);
        assert!(ring.has_done());
        ring.take_reported();
        assert_eq!(ring.positions.free(), 3);
        // A refilled descriptor is no longer marked as completed.
        for _ in 0..3 {
            assert!(ring.push(64));
        }
        assert_eq!(ring.positions.publish(), 2);
        (3..7).for_each(report);
        ring.take_reported();
        assert_eq!(ring.positions.free(), 4, "the three new ones are the device's");
    }

    #[test]
    fn a_head_says_how_far_the_device_is_and_must_be_possible() {
        let (mut ring, _memory) = ring(false);
        for _ in 0..5 {
            assert!(ring.push(60));
        }
        assert_eq!(ring.positions.publish(), 5);
        assert_eq!(ring.positions.middle(), 2);
        assert_eq!(ring.take_until(3), Ok(()));
        assert_eq!(ring.positions.free(), 5);
        for head in [2, 6, 8, u32::MAX] {
            assert_eq!(ring.take_until(head), Err(Misuse::Head(head)));
        }
        assert_eq!(ring.take_until(5), Ok(()));
        assert_eq!(ring.positions.free(), 7);
    }
}
