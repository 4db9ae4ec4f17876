//! The split virtqueue, its driver's side (virtio 1.3, 2.7).

use std::io;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use ringway_memory::Kept;

use super::entry::{Misuse, Shape, Used};
use crate::pci::{Dma, Piece};

const DESC_F_WRITE: u64 = 2;
const AVAIL_F_NO_INTERRUPT: u16 = 1;
const USED_F_NO_NOTIFY: u16 = 1;
/// Places in the available ring before its entries: flags, index.
const ENTRIES: usize = 2;

/// A split ring. Positions count entries from the start, over all laps, and wrap.
#[derive(Debug)]
pub struct Split {
    shape: Shape,
    /// Places of descriptors, available ring and used ring, for the device.
    pub parts: [u64; 3],
    /// Two words for each descriptor: the address; length, flags and next.
    descriptors: Kept<[AtomicU64]>,
    avail: Kept<[AtomicU16]>,
    used_head: Kept<[AtomicU16]>,
    /// Two words for each entry: the buffer id and the length.
    used: Kept<[AtomicU32]>,
    avail_event: Kept<[AtomicU16]>,
    /// What the driver has written: rewriting it would take the cache line from the device.
    written: Box<[(u64, u64)]>,
    ids: Box<[u16]>,
    /// The device's index, when it was read last.
    known: u16,
}

impl Split {
    pub fn new(dma: &mut Dma, shape: Shape) -> io::Result<Split> {
        let size = usize::from(shape.size);
        let descriptors = dma.allocate(16 * size, 64)?;
        let avail = dma.allocate(2 * (ENTRIES + size + 1), 64)?;
        let used = dma.allocate(4 + 8 * size + 2, 64)?;
        let words16 = |piece: &Piece, at: usize, count: usize| {
            Kept::new(piece.mapping(), |memory| memory.view(piece.at() + at, 2 * count)?.words16())
        };
        let of = |piece: &Piece| (piece.mapping().clone(), piece.at());
        let ((memory, at), (used_memory, used_at)) = (of(&descriptors), of(&used));
        let none = || io::Error::other("a ring has no place in the memory");
        Ok(Split {
            shape,
            parts: [descriptors.bus(), avail.bus(), used.bus()],
            descriptors: Kept::new(&memory, |memory| memory.view(at, 16 * size)?.words64()).ok_or_else(none)?,
            avail: words16(&avail, 0, ENTRIES + size + 1).ok_or_else(none)?,
            used_head: words16(&used, 0, 2).ok_or_else(none)?,
            used: Kept::new(&used_memory, |memory| memory.view(used_at + 4, 8 * size)?.words32()).ok_or_else(none)?,
            avail_event: words16(&used, 4 + 8 * size, 1).ok_or_else(none)?,
            written: vec![(0, 0); size].into(),
            ids: vec![0; size].into(),
            known: 0,
        })
    }

    #[inline]
    fn mask(&self) -> usize {
        usize::from(self.shape.size) - 1
    }

    #[inline]
    pub fn offer(&mut self, position: u32, id: u16, address: u64, len: u32) {
        let (slot, id_at) = (position as usize & self.mask(), usize::from(id) & self.mask());
        let flags = if self.shape.writable { DESC_F_WRITE } else { 0 };
        let word = u64::from(len) | flags << 32;
        if self.written[id_at] != (address, word) {
            self.written[id_at] = (address, word);
            self.descriptors[2 * id_at].store(address, Ordering::Relaxed);
            self.descriptors[2 * id_at + 1].store(word, Ordering::Relaxed);
        }
        if self.ids[slot] != id {
            self.ids[slot] = id;
            self.avail[ENTRIES + slot].store(id, Ordering::Relaxed);
        }
    }

    #[inline]
    pub fn publish(&mut self, to: u32) {
        self.avail[1].store(to as u16, Ordering::Release);
    }

    #[inline]
    pub fn used(&mut self, position: u32, outstanding: u32) -> Result<Option<Used>, Misuse> {
        if self.known == position as u16 {
            self.known = self.used_head[1].load(Ordering::Acquire);
            let claimed = u32::from(self.known.wrapping_sub(position as u16));
            if claimed > outstanding {
                return Err(Misuse::Count { claimed, outstanding });
            }
            if claimed == 0 {
                return Ok(None);
            }
        }
        let slot = position as usize & self.mask();
        let [id, len] = [0, 1].map(|word| self.used[2 * slot + word].load(Ordering::Relaxed));
        Ok(Some(Used { id, len }))
    }

    /// Returns true if the device has told that it used `count` buffers from this position on.
    #[inline]
    pub fn covers(&self, position: u32, count: u32) -> bool {
        u32::from(self.known.wrapping_sub(position as u16)) >= count
    }

    #[inline]
    pub fn wants_kick(&self, from: u32, to: u32) -> bool {
        if self.shape.event_idx {
            let event = self.avail_event[0].load(Ordering::Relaxed);
            // True if the event index is among the entries that were just published (virtio 1.3, 2.7.10).
            (to as u16).wrapping_sub(event).wrapping_sub(1) < (to as u16).wrapping_sub(from as u16)
        } else {
            self.used_head[0].load(Ordering::Relaxed) & USED_F_NO_NOTIFY == 0
        }
    }

    pub fn want_call(&mut self, position: u32) {
        match self.shape.event_idx {
            true => self.avail[ENTRIES + self.mask() + 1].store(position as u16, Ordering::Relaxed),
            false => self.avail[0].store(0, Ordering::Relaxed),
        }
    }

    pub fn want_no_call(&mut self, position: u32) {
        match self.shape.event_idx {
            // As far away as possible: one call in 65,536 buffers.
            true => self.want_call(position.wrapping_sub(1)),
            false => self.avail[0].store(AVAIL_F_NO_INTERRUPT, Ordering::Relaxed),
        }
    }
}
