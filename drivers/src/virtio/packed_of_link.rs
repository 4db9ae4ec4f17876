//! The packed virtqueue, its driver's side (virtio 1.3, 2.8).

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ringway_memory::Kept;

use super::entry::{Shape, Used};
use crate::pci::Dma;

/// Flags of a descriptor, in its second word.
const WRITE: u64 = 1 << (48 + 1);
const AVAIL: u64 = 1 << (48 + 7);
const USED: u64 = 1 << (48 + 15);

/// Event suppression: flags are in the upper half of the word, offset and wrap counter in the lower.
const EVENTS_ENABLE: u32 = 0;
const EVENTS_DISABLE: u32 = 1;
const EVENTS_AT: u32 = 2;
const WRAP: u32 = 1 << 15;

/// A packed ring. Positions count descriptors from the start, over all laps, and wrap.
#[derive(Debug)]
pub struct Packed {
    shape: Shape,
    /// Places of descriptors, driver area and device area, for the device.
    pub parts: [u64; 3],
    /// Two words for each descriptor: the address; length, buffer id and flags.
    descriptors: Kept<[AtomicU64]>,
    driver_events: Kept<[AtomicU32]>,
    device_events: Kept<[AtomicU32]>,
    /// The addresses that the driver has written. The device never writes them.
    addresses: Box<[u64]>,
    /// The next position to publish, and the second word of its descriptor, which is written last.
    first: (u32, u64),
}

impl Packed {
    pub fn new(dma: &mut Dma, shape: Shape) -> io::Result<Packed> {
        let size = usize::from(shape.size);
        let (descriptors, driver, device) = (dma.allocate(16 * size, 64)?, dma.allocate(4, 64)?, dma.allocate(4, 64)?);
        let none = || io::Error::other("a ring has no place in the memory");
        let words64 = Kept::new(descriptors.mapping(), |memory| memory.view(descriptors.at(), 16 * size)?.words64());
        let [driver_events, device_events] =
            [&driver, &device].map(|piece| Kept::new(piece.mapping(), |memory| memory.view(piece.at(), 4)?.words32()));
        Ok(Packed {
            shape,
            parts: [descriptors.bus(), driver.bus(), device.bus()],
            descriptors: words64.ok_or_else(none)?,
            driver_events: driver_events.ok_or_else(none)?,
            device_events: device_events.ok_or_else(none)?,
            addresses: vec![0; size].into(),
            first: (0, 0),
        })
    }

    #[inline]
    fn slot(&self, position: u32) -> usize {
        position as usize & (usize::from(self.shape.size) - 1)
    }

    /// Returns the driver's wrap counter at this position.
    #[inline]
    fn wrap(&self, position: u32) -> bool {
        position & u32::from(self.shape.size) == 0
    }

    #[inline]
    pub fn offer(&mut self, position: u32, id: u16, address: u64, len: u32) {
        let slot = self.slot(position);
        if self.addresses[slot] != address {
            self.addresses[slot] = address;
            self.descriptors[2 * slot].store(address, Ordering::Relaxed);
        }
        let turn = if self.wrap(position) { AVAIL } else { USED };
        let write = if self.shape.writable { WRITE } else { 0 };
        let word = u64::from(len) | u64::from(id) << 32 | turn | write;
        // The device waits for the first descriptor, so it sees all descriptors or none.
        match position == self.first.0 {
            true => self.first.1 = word,
            false => self.descriptors[2 * slot + 1].store(word, Ordering::Relaxed),
        }
    }

    #[inline]
    pub fn publish(&mut self, to: u32) {
        let (position, word) = self.first;
        self.descriptors[2 * self.slot(position) + 1].store(word, Ordering::Release);
        self.first.0 = to;
    }

    #[inline]
    pub fn used(&self, position: u32, outstanding: u32) -> Option<Used> {
        let word = self.descriptors[2 * self.slot(position) + 1].load(Ordering::Acquire);
        let used = if self.wrap(position) { AVAIL | USED } else { 0 };
        let is_used = outstanding > 0 && word & (AVAIL | USED) == used;
        is_used.then_some(Used { id: (word >> 32) as u32 & 0xffff, len: word as u32 })
    }

    #[inline]
    pub fn wants_kick(&self, from: u32, to: u32) -> bool {
        let (events, lap) = (self.device_events[0].load(Ordering::Relaxed), u32::from(self.shape.size));
        match events >> 16 & 3 {
            EVENTS_ENABLE => true,
            EVENTS_AT => {
                let mut event = to & !(lap - 1) | events & (lap - 1);
                if (events & WRAP != 0) != self.wrap(to) {
                    // The event is in the previous lap.
                    event = event.wrapping_sub(lap);
                }
                to.wrapping_sub(event).wrapping_sub(1) < to.wrapping_sub(from)
            }
            _ => false,
        }
    }

    pub fn want_call(&mut self, position: u32) {
        let word = match self.shape.event_idx {
            true => EVENTS_AT << 16 | if self.wrap(position) { WRAP } else { 0 } | self.slot(position) as u32,
            false => EVENTS_ENABLE << 16,
        };
        self.driver_events[0].store(word, Ordering::Relaxed);
    }

    pub fn want_no_call(&mut self) {
        self.driver_events[0].store(EVENTS_DISABLE << 16, Ordering::Relaxed);
    }
}
