//! The queue of frames to send.

use super::any_ring::AnyRing;
use super::ring::Misuse;

/// A ring to send from. Frames are numbered from 0. Frame `n` has the buffer id `n` modulo the ring's size, so that a ring without an
/// order is used in order as well: an id is free once all frames up to its last one were sent.
#[derive(Debug)]
pub struct Transmit {
    ring: AnyRing,
    in_order: bool,
    /// Frames queued.
    queued: u64,
    /// Frames sent: all up to this number.
    sent: u64,
    /// For each id, whether the device has used it, and `sent` has not reached its frame.
    used: Box<[bool]>,
}

impl Transmit {
    /// A queue without frames. `in_order`: VIRTIO_F_IN_ORDER.
    pub fn new(ring: AnyRing, in_order: bool) -> Transmit {
        let used = vec![false; ring.size() as usize].into();
        Transmit { ring, in_order, queued: 0, sent: 0, used }
    }

    /// Returns the ring.
    pub fn ring(&mut self) -> &mut AnyRing {
        &mut self.ring
    }

    /// Returns how many frames can be queued.
    #[inline]
    pub fn room(&mut self) -> Result<usize, Misuse> {
        self.reclaim()?;
        Ok(u64::from(self.ring.size()).saturating_sub(self.queued - self.sent) as usize)
    }

    /// Queues a frame. Returns false if there is no room.
    #[inline]
    pub fn queue(&mut self, address: u64, len: u32) -> Result<bool, Misuse> {
        if self.queued - self.sent >= u64::from(self.ring.size()) && self.room()? == 0 {
            return Ok(false);
        }
        let id = self.queued & u64::from(self.ring.size() - 1);
        self.ring.offer(id as u16, address, len);
        self.queued += 1;
        Ok(true)
    }

    /// Returns how many frames were sent, as far as known: all up to this number.
    #[inline]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Finds out what was sent.
    #[inline]
    pub fn reclaim(&mut self) -> Result<(), Misuse> {
        let size = self.ring.size();
        while let Some(used) = self.ring.used()? {
            if self.in_order {
                let count = self.ring.batch(used)?;
                self.ring.advance(count);
                self.sent += u64::from(count);
                continue;
            }
            // The number of the frame that has this id, counted from `sent`.
            let ahead = used.id.wrapping_sub(self.sent as u32) & (size - 1);
            let known = self.queued - self.sent - u64::from(self.ring.unpublished());
            if used.id >= size || u64::from(ahead) >= known || self.used[used.id as usize] {
                return Err(Misuse::Id(used.id));
            }
            self.ring.advance(1);
            self.used[used.id as usize] = true;
            while std::mem::take(&mut self.used[(self.sent & u64::from(size - 1)) as usize]) {
                self.sent += 1;
            }
        }
        Ok(())
    }
}
