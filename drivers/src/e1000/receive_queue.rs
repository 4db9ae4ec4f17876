//! The receive ring: legacy descriptors (8254x manual, 3.2.3) or extended ones (82574 datasheet, 7.1.5).

use std::io;
use std::sync::Arc;

use crate::area::Buffers;
use ringway_abi::e1000::{ReceiveFormat, ReceiveStatus};
use ringway_memory::Mapping;

use super::misuse::Misuse;
use super::ring::ReceiveRing;
use super::transmit_queue::RingLayout;

/// How many frames ahead the first cache line of a frame is prefetched.
const PREFETCH_AHEAD: u32 = 12;
/// Bytes of a frame check sequence.
const FCS: usize = 4;

/// The receive ring and its buffers.
#[derive(Debug)]
pub struct ReceiveQueue {
    /// Its descriptors.
    pub ring: ReceiveRing,
    buffers: Buffers,
    place: RingLayout,
    /// True if frames include their frame check sequence.
    with_fcs: bool,
    /// A frame over several buffers as far as received, and the number of its buffers.
    part: (Vec<u8>, u32),
}

impl ReceiveQueue {
    /// A ring whose buffers all belong to the device, except one descriptor that stays empty.
    pub fn new(
        mapping: &Arc<Mapping>,
        place: &RingLayout,
        format: ReceiveFormat,
        with_fcs: bool,
    ) -> io::Result<ReceiveQueue> {
        let mut ring = ReceiveRing::new(mapping, place.ring, place.size, format)?;
        (0..place.size).for_each(|number| ring.put_address(number, place.address(number)));
        Ok(ReceiveQueue { ring, buffers: place.memory(mapping)?, place: *place, with_fcs, part: (Vec::new(), 0) })
    }

    /// Calls `take` with received frames that take up to `max` descriptors. Returns the numbers of descriptors and of
    /// frames.
    ///
    /// # Errors
    /// The device wrote an invalid length, or a frame without an end.
    #[inline]
    pub fn take(&mut self, max: u32, mut take: impl FnMut(&[u8])) -> Result<(u32, u32), Misuse> {
        let (start, mut frames) = (self.ring.next(), 0);
        while self.ring.next().wrapping_sub(start) < max {
            let Some(status) = self.ring.status(self.ring.next()) else { break };
            let ahead = self.ring.next().wrapping_add(PREFETCH_AHEAD);
            if self.ring.status(ahead).is_some() {
                self.buffers.prefetch(ahead as u16);
            }
            if status.bad {
                self.part.0.clear();
                self.part.1 = 0;
            } else if status.end && self.part.1 == 0 {
                let len = self.without_fcs(status.len);
                let frame = len.and_then(|len| self.buffers.frame(self.ring.next() as u16, len));
                take(frame.ok_or_else(|| self.wrong_length(status.len))?);
                frames += 1;
            } else {
                frames += u32::from(self.gather(status, &mut take)?);
            }
            self.renew();
        }
        Ok((self.ring.next().wrapping_sub(start), frames))
    }

    /// Makes the present descriptor available to the device again.
    #[inline]
    fn renew(&mut self) {
        if self.ring.format() == ReceiveFormat::Extended {
            let next = self.ring.next();
            self.ring.put_address(next, self.place.address(next & (self.place.size - 1)));
        }
        self.ring.renew();
    }

    /// Adds the present buffer to its frame. Returns true when the frame is complete.
    #[cold]
    fn gather(&mut self, status: ReceiveStatus, take: &mut impl FnMut(&[u8])) -> Result<bool, Misuse> {
        let piece =
            self.buffers.frame(self.ring.next() as u16, status.len).ok_or_else(|| self.wrong_length(status.len))?;
        self.part.0.extend_from_slice(piece);
        self.part.1 += 1;
        if self.part.1 >= self.place.size {
            return Err(Misuse::Endless(self.part.1));
        }
        if status.end {
            let len = self.without_fcs(self.part.0.len()).ok_or_else(|| self.wrong_length(self.part.0.len()))?;
            take(&self.part.0[..len]);
            self.part = (std::mem::take(&mut self.part.0), 0);
            self.part.0.clear();
        }
        Ok(status.end)
    }

    #[inline]
    fn without_fcs(&self, len: usize) -> Option<usize> {
        if self.with_fcs { len.checked_sub(FCS) } else { Some(len) }
    }

    fn wrong_length(&self, len: usize) -> Misuse {
        Misuse::Length(len, self.place.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_memory::SharedMemory;

    const PLACE: RingLayout =
        RingLayout { size: 8, ring: 0, buffers: 4096, capacity: 256, gap: 64, guest: 0x1_0000_0000 };

    struct Device {
        memory: SharedMemory,
        format: ReceiveFormat,
        at: usize,
    }

    impl Device {
        /// Writes one descriptor and its buffer as a device does. The bytes count up from `first`.
        fn write(&mut self, len: usize, first: u8, end: bool) {
            let place = self.at % 8;
            self.at += 1;
            let bytes: Vec<u8> = (0..len.min(256)).map(|number| first.wrapping_add(number as u8)).collect();
            let put =
                |at: usize, bytes: &[u8]| assert!(self.memory.mapping().view(at, bytes.len()).unwrap().write(bytes));
            put(4096 + place * 320 + 64, &bytes);
            let (len, status) = (len as u64, 1 | u64::from(end) << 1);
            let word = match self.format {
                ReceiveFormat::Legacy => len | status << 32,
                ReceiveFormat::Extended => status | len << 32,
            };
            if self.format == ReceiveFormat::Extended {
                put(place * 16, &[0xee; 8]);
            }
            put(place * 16 + 8, &word.to_le_bytes());
        }

        fn address(&self, number: usize) -> u64 {
            self.memory.mapping().view(number * 16, 8).unwrap().first_word().unwrap()
        }
    }

    fn ring(format: ReceiveFormat, with_fcs: bool) -> (ReceiveQueue, Device) {
        let memory = SharedMemory::create("receive", 65_536).unwrap();
        let ring = ReceiveQueue::new(memory.mapping(), &PLACE, format, with_fcs).unwrap();
        (ring, Device { memory, format, at: 0 })
    }

    /// Takes frames. Returns their lengths and first bytes.
    fn taken(ring: &mut ReceiveQueue, max: u32) -> Vec<(usize, u8)> {
        let mut frames = Vec::new();
        ring.take(max, |frame| frames.push((frame.len(), frame[0]))).unwrap();
        frames
    }

    #[test]
    fn frames_come_in_order_over_many_laps_and_buffers_go_back() {
        for format in [ReceiveFormat::Legacy, ReceiveFormat::Extended] {
            let (mut ring, mut device) = ring(format, false);
            assert_eq!(ring.ring.publish(), 7);
            for round in 0..20u8 {
                for number in 0..3 {
                    device.write(60 + usize::from(number), round + number, true);
                }
                assert!(ring.ring.has_some());
                let wanted: Vec<_> = (0..3).map(|number| (60 + usize::from(number), round + number)).collect();
                assert_eq!(taken(&mut ring, 2), wanted[..2], "{format:?}");
                assert_eq!(taken(&mut ring, 9), wanted[2..]);
                assert_eq!(ring.ring.to_give(), 3);
                assert_eq!(ring.ring.publish(), (3 * u32::from(round) + 2) % 8);
                assert_eq!(ring.ring.to_give(), 0);
                for number in 0..8 {
                    assert_eq!(device.address(number), PLACE.address(number as u32));
                }
            }
        }
    }

    #[test]
    fn a_frame_over_several_buffers_is_put_together_and_its_check_sequence_left_out() {
        for format in [ReceiveFormat::Legacy, ReceiveFormat::Extended] {
            let (mut ring, mut device) = ring(format, true);
            device.write(256, 0, false);
            device.write(256, 0, false);
            assert_eq!(taken(&mut ring, 9), []);
            // Two bytes of the frame check sequence are in the last buffer but one.
            device.write(258 - 256, 0, true);
            device.write(64, 9, true);
            assert_eq!(taken(&mut ring, 9), [(510, 0), (60, 9)]);
        }
    }

    #[test]
    fn lengths_that_cannot_be_are_named() {
        let (mut beyond, mut device) = ring(ReceiveFormat::Legacy, false);
        device.write(257, 0, true);
        assert_eq!(beyond.take(9, |_| ()), Err(Misuse::Length(257, 256)));
        let (mut short, mut device) = ring(ReceiveFormat::Legacy, true);
        device.write(3, 0, true);
        assert_eq!(short.take(9, |_| ()), Err(Misuse::Length(3, 256)));
        let (mut endless, mut device) = ring(ReceiveFormat::Extended, false);
        (0..8).for_each(|_| device.write(256, 0, false));
        assert_eq!(endless.take(9, |_| ()), Err(Misuse::Endless(8)));
    }

    #[test]
    fn a_threshold_is_crossed_by_what_is_given_back() {
        let (mut ring, mut device) = ring(ReceiveFormat::Legacy, false);
        ring.ring.publish();
        (0..3).for_each(|_| device.write(60, 0, true));
        taken(&mut ring, 9);
        let crossed: Vec<u32> = (0..9).filter(|&at| ring.ring.crosses(at)).collect();
        assert_eq!(crossed, [0, 1, 2]);
        assert!(!ring.ring.crosses(u32::MAX));
    }
}
