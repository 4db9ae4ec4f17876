//! Mapped registers of a device.
#![allow(unsafe_code)]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use ringway_memory::Mapping;

/// A window of registers. Numbers are little-endian, as on x86. Like on a bus where no device answers, reads outside the window return
/// ones, and writes outside have no effect; so do accesses that are not aligned.
#[derive(Clone, Debug)]
pub struct Registers {
    mapping: Arc<Mapping>,
    at: usize,
    bytes: usize,
}

macro_rules! access {
    ($read:ident, $write:ident, $word:ty) => {
        /// Reads a register at this offset in bytes.
        #[inline]
        #[must_use]
        pub fn $read(&self, at: usize) -> $word {
            match self.place(at, size_of::<$word>()) {
                // SAFETY: in the mapping and aligned. Registers are read like memory that others write: by volatile loads.
                Some(place) => unsafe { place.cast::<$word>().read_volatile() },
                None => <$word>::MAX,
            }
        }

        /// Writes a register at this offset in bytes, after all earlier writes to memory.
        #[inline]
        pub fn $write(&self, at: usize, value: $word) {
            if let Some(place) = self.place(at, size_of::<$word>()) {
                fence(Ordering::Release);
                // SAFETY: see the read; a device's registers are no part of this program's objects.
                unsafe { place.cast::<$word>().write_volatile(value) };
            }
        }
    };
}

impl Registers {
    /// All registers of a mapping.
    pub(crate) fn new(mapping: Mapping) -> Registers {
        let bytes = mapping.bytes();
        Registers { mapping: Arc::new(mapping), at: 0, bytes }
    }

    /// Makes registers of a device within this process, for tests: plain memory, zeroes at first.
    ///
    /// # Errors
    /// The kernel gives no memory.
    pub fn local(bytes: usize) -> io::Result<Registers> {
        Ok(Registers::new(Mapping::private(bytes)?))
    }

    /// Returns a part of the window, or `None` when it is not all inside.
    #[must_use]
    pub fn part(&self, at: usize, bytes: usize) -> Option<Registers> {
        let inside = at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        inside.then(|| Registers { mapping: Arc::clone(&self.mapping), at: self.at + at, bytes })
    }

    /// Returns the bytes of the window.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if the device has gone: registers are zeroes from now on.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.mapping.is_lost()
    }

    access!(read8, write8, u8);
    access!(read16, write16, u16);
    access!(read32, write32, u32);

    /// Writes a register of 64 bits as two of 32, the lower one first (virtio 1.3, 4.1.3.1).
    pub fn write64(&self, at: usize, value: u64) {
        self.write32(at, value as u32);
        self.write32(at + 4, (value >> 32) as u32);
    }

    #[inline]
    fn place(&self, at: usize, bytes: usize) -> Option<*mut u8> {
        let is_inside = at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        let view = if is_inside { self.mapping.view(self.at + at, bytes) } else { None };
        view.map(|view| view.as_ptr()).filter(|place| place.addr().is_multiple_of(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_outside_of_a_window_reach_nothing() {
        let all = Registers::new(Mapping::private(64).unwrap());
        let part = all.part(16, 8).unwrap();
        part.write64(0, 0x1122_3344_5566_7788);
        assert_eq!((all.read32(16), all.read16(20), all.read8(23)), (0x5566_7788, 0x3344, 0x11));
        part.write32(8, 5);
        part.write32(6, 5);
        assert_eq!((part.read32(8), part.read16(1), part.read8(usize::MAX)), (u32::MAX, u16::MAX, u8::MAX));
        assert_eq!((all.read32(24), all.read32(20)), (0, 0x1122_3344));
        assert!(part.part(8, 0).is_some() && part.part(4, 5).is_none() && part.part(1, usize::MAX).is_none());
    }
}
