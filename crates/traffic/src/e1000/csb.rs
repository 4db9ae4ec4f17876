//! The communication status block (Maffione 2012, section 4.4.2; words as in FreeBSD's if_lem driver): words in the guest's
//! memory that hold the positions of driver and device, and whether each wants to be woken.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use ringway_memory::Mapping;

use crate::area::{Words, words32};

/// Size of the block in bytes.
pub const CSB_BYTES: usize = 4096;
/// No threshold.
const NEVER: u32 = u32::MAX;

// Indices of the words.
const GUEST_TDT: u32 = 0;
const GUEST_NEED_TXKICK: u32 = 1;
const GUEST_NEED_RXKICK: u32 = 2;
const GUEST_CSB_ON: u32 = 3;
const GUEST_RDT: u32 = 4;
const GUEST_TXKICK_AT: u32 = 5;
const HOST_TDH: u32 = 16;
const HOST_NEED_TXKICK: u32 = 17;
const HOST_NEED_RXKICK: u32 = 21;
const HOST_RXKICK_AT: u32 = 23;

/// The driver's view of the block.
#[derive(Debug)]
pub struct Csb(Words<AtomicU32>);

impl Csb {
    /// Initializes a block at this offset of the memory as a driver does: the device sleeps, and interrupts the driver
    /// for received frames.
    pub fn new(mapping: &Arc<Mapping>, at: usize) -> io::Result<Csb> {
        let csb = Csb(words32(mapping, at, (CSB_BYTES / 4) as u32)?);
        csb.set(HOST_NEED_TXKICK, 1);
        csb.set(HOST_RXKICK_AT, NEVER);
        csb.set(GUEST_TXKICK_AT, NEVER);
        csb.set(GUEST_NEED_RXKICK, 1);
        csb.set(GUEST_CSB_ON, 1);
        Ok(csb)
    }

    #[inline]
    fn set(&self, word: u32, value: u32) {
        self.0.at(word).store(value, Ordering::Release);
    }

    #[inline]
    fn get(&self, word: u32) -> u32 {
        self.0.at(word).load(Ordering::Acquire)
    }

    /// Publishes the transmit tail. Returns true if the device wants the register written.
    #[inline]
    pub fn publish_transmit(&self, tail: u32) -> bool {
        self.set(GUEST_TDT, tail);
        // Reads the device's request after the tail is visible: at least one of the two sides sees the other's write.
        fence(Ordering::SeqCst);
        self.get(HOST_NEED_TXKICK) & 1 != 0
    }

    /// Publishes the receive tail. `crosses` tells whether this passes a threshold. Returns true if the device wants
    /// the register written.
    #[inline]
    pub fn publish_receive(&self, tail: u32, crosses: impl FnOnce(u32) -> bool) -> bool {
        self.set(GUEST_RDT, tail);
        fence(Ordering::SeqCst);
        self.get(HOST_NEED_RXKICK) & 1 != 0 || crosses(self.get(HOST_RXKICK_AT))
    }

    /// Returns the device's transmit head.
    #[inline]
    pub fn transmitted(&self) -> u32 {
        self.get(HOST_TDH)
    }

    /// Requests an interrupt for received frames, or none. The caller has to check for received frames once more
    /// afterwards.
    pub fn want_received(&self, wanted: bool) {
        self.set(GUEST_NEED_RXKICK, wanted.into());
        fence(Ordering::SeqCst);
    }

    /// Requests an interrupt when the device has completed this descriptor, or none. The caller has to check the head
    /// once more afterwards.
    pub fn want_transmitted(&self, at: Option<u32>) {
        self.set(GUEST_TXKICK_AT, at.unwrap_or(NEVER));
        self.set(GUEST_NEED_TXKICK, at.is_some().into());
        fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_memory::SharedMemory;

    #[test]
    fn words_are_where_the_drivers_in_use_have_them() {
        let memory = SharedMemory::create("csb", 65_536).unwrap();
        let csb = Csb::new(memory.mapping(), 4096).unwrap();
        let word = |byte: usize| memory.mapping().view(4096 + byte, 4).unwrap().words32().unwrap();
        let read = |byte: usize| word(byte)[0].load(Ordering::Relaxed);
        assert_eq!([0, 4, 8, 12, 16, 20].map(read), [0, 0, 1, 1, 0, u32::MAX]);
        assert_eq!([64, 68, 80, 84, 88, 92].map(read), [0, 1, 0, 0, 0, u32::MAX]);

        assert!(csb.publish_transmit(5), "the device sleeps at first");
        word(68)[0].store(0, Ordering::Relaxed);
        assert!(!csb.publish_transmit(6));
        assert_eq!(read(0), 6);
        word(64)[0].store(4, Ordering::Relaxed);
        assert_eq!(csb.transmitted(), 4);

        assert!(!csb.publish_receive(9, |at| at != u32::MAX));
        assert_eq!(read(16), 9);
        word(92)[0].store(3, Ordering::Relaxed);
        assert!(csb.publish_receive(9, |at| at == 3));
        word(84)[0].store(1, Ordering::Relaxed);
        assert!(csb.publish_receive(9, |_| false));

        csb.want_received(false);
        csb.want_transmitted(Some(7));
        assert_eq!([4, 8, 20].map(read), [1, 0, 7]);
        csb.want_transmitted(None);
        assert_eq!([4, 20].map(read), [0, u32::MAX]);
    }
}
