//! The device's side of both ring formats.
#![allow(dead_code, reason = "each user needs a part of it")]

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use crate::backend::{EVENT_IDX, RING_PACKED, Session};

/// A buffer of one descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffer {
    pub id: u16,
    pub address: u64,
    pub len: u32,
    pub writable: bool,
}

/// One queue of a session.
pub enum Queue<'s> {
    Split(SplitQueue<'s>),
    Packed(PackedQueue<'s>),
}

pub struct SplitQueue<'s> {
    descriptors: &'s [AtomicU64],
    avail: &'s [AtomicU16],
    used_head: &'s [AtomicU16],
    used: &'s [AtomicU32],
    avail_event: &'s AtomicU16,
    mask: u16,
    event_idx: bool,
    taken: u16,
    known: u16,
    given: u16,
    published: u16,
}

pub struct PackedQueue<'s> {
    words: &'s [AtomicU64],
    driver: &'s AtomicU32,
    device: &'s AtomicU32,
    size: u32,
    /// Positions, counted over all laps.
    taken: u32,
    given: u32,
    published: u32,
    /// The first used descriptor of those not yet published.
    first: u64,
}

impl<'s> Queue<'s> {
    /// Queue 0 receives, queue 1 sends.
    pub fn new(session: &'s Session, queue: usize) -> Queue<'s> {
        let told = &session.rings[queue];
        let size = told.size as usize;
        let descriptors = session.at(told.descriptors, 16 * size).words64().expect("aligned");
        let word32 = |at| &session.at(at, 4).words32().expect("aligned")[0];
        if session.features & RING_PACKED != 0 {
            assert_eq!(told.base, 0x8000_8000, "both wrap counters are 1");
            let (driver, device) = (word32(told.driver), word32(told.device));
            let size = told.size;
            Queue::Packed(PackedQueue {
                words: descriptors,
                driver,
                device,
                size,
                taken: 0,
                given: 0,
                published: 0,
                first: 0,
            })
        } else {
            assert_eq!(told.base, 0);
            let used = session.at(told.device, 4 + 8 * size + 4);
            Queue::Split(SplitQueue {
                descriptors,
                avail: session.at(told.driver, 6 + 2 * size).words16().expect("aligned"),
                used_head: used.sub(0, 4).and_then(|view| view.words16()).expect("aligned"),
                used: used.sub(4, 8 * size).and_then(|view| view.words32()).expect("aligned"),
                avail_event: &used.sub(4 + 8 * size, 2).and_then(|view| view.words16()).expect("aligned")[0],
                mask: told.size as u16 - 1,
                event_idx: session.features & EVENT_IDX != 0,
                taken: 0,
                known: 0,
                given: 0,
                published: 0,
            })
        }
    }

    /// Returns the next available buffer.
    #[inline]
    pub fn take(&mut self) -> Option<Buffer> {
        match self {
            Queue::Split(queue) => queue.take(),
            Queue::Packed(queue) => queue.take(),
        }
    }

    /// Marks a buffer used. The driver sees it after `publish`.
    #[inline]
    pub fn give(&mut self, id: u16, len: u32) {
        self.give_batch(id, len, 1);
    }

    /// Marks a batch of buffers used. `id` is the last buffer of the batch (VIRTIO_F_IN_ORDER).
    #[inline]
    pub fn give_batch(&mut self, id: u16, len: u32, buffers: u16) {
        match self {
            Queue::Split(queue) => {
                let at = usize::from(queue.given & queue.mask) * 2;
                queue.used[at].store(id.into(), Ordering::Relaxed);
                queue.used[at + 1].store(len, Ordering::Relaxed);
                queue.given = queue.given.wrapping_add(buffers);
            }
            Queue::Packed(queue) => {
                let used = if queue.wrap(queue.given) { 0x8080 } else { 0 };
                let word = u64::from(len) | u64::from(id) << 32 | used << 48;
                if queue.given == queue.published {
                    queue.first = word;
                } else {
                    queue.words[queue.at(queue.given) + 1].store(word, Ordering::Relaxed);
                }
                queue.given = queue.given.wrapping_add(buffers.into());
            }
        }
    }

    /// Publishes the used buffers. Returns true if the driver asks for a call.
    #[inline]
    pub fn publish(&mut self) -> bool {
        match self {
            Queue::Split(queue) => {
                let (old, new) = (queue.published, queue.given);
                if old == new {
                    return false;
                }
                queue.used_head[1].store(new, Ordering::Release);
                queue.published = new;
                fence(Ordering::SeqCst);
                if queue.event_idx {
                    let event = queue.avail[usize::from(queue.mask) + 3].load(Ordering::Relaxed);
                    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
                } else {
                    queue.avail[0].load(Ordering::Relaxed) & 1 == 0
                }
            }
            Queue::Packed(queue) => {
                let (old, new) = (queue.published, queue.given);
                if old == new {
                    return false;
                }
                queue.words[queue.at(old) + 1].store(queue.first, Ordering::Release);
                queue.published = new;
                fence(Ordering::SeqCst);
                let event = queue.driver.load(Ordering::Relaxed);
                match event >> 16 {
                    0 => true,
                    1 => false,
                    // The event is at a place of this ring, with the wrap counter that is valid there.
                    2 => (old..new).any(|position| {
                        event & 0xffff == (position & (queue.size - 1)) | if queue.wrap(position) { 0x8000 } else { 0 }
                    }),
                    other => panic!("event flags {other}"),
                }
            }
        }
    }

    /// Asks for a kick at the next available buffer, or for no kick.
    pub fn want_kick(&mut self, wanted: bool, event_idx: bool) {
        match self {
            Queue::Split(queue) if event_idx => {
                let event = if wanted { queue.taken } else { queue.taken.wrapping_sub(1) };
                queue.avail_event.store(event, Ordering::Relaxed);
            }
            Queue::Split(queue) => queue.used_head[0].store(u16::from(!wanted), Ordering::Relaxed),
            Queue::Packed(queue) => {
                let wrap = if queue.wrap(queue.taken) { 0x8000 } else { 0 };
                let at = 2 << 16 | wrap | queue.taken & (queue.size - 1);
                let word = if !wanted {
                    1 << 16
                } else if event_idx {
                    at
                } else {
                    0
                };
                queue.device.store(word, Ordering::Relaxed);
            }
        }
        fence(Ordering::SeqCst);
    }

    /// Falsely reports `count` further buffers as used.
    pub fn claim(&mut self, count: u16) {
        match self {
            Queue::Split(queue) => {
                queue.given = queue.given.wrapping_add(count);
                self.publish();
            }
            Queue::Packed(_) => unreachable!("packed rings have no count"),
        }
    }
}

impl SplitQueue<'_> {
    #[inline]
    fn take(&mut self) -> Option<Buffer> {
        if self.taken == self.known {
            self.known = self.avail[1].load(Ordering::Acquire);
            if self.taken == self.known {
                return None;
            }
        }
        let id = self.avail[2 + usize::from(self.taken & self.mask)].load(Ordering::Relaxed);
        let at = usize::from(id) * 2;
        let address = self.descriptors[at].load(Ordering::Relaxed);
        let word = self.descriptors[at + 1].load(Ordering::Relaxed);
        assert_eq!(word >> 32 & 5, 0, "neither chained nor indirect");
        self.taken = self.taken.wrapping_add(1);
        Some(Buffer { id, address, len: word as u32, writable: word >> 32 & 2 != 0 })
    }
}

impl PackedQueue<'_> {
    #[inline]
    fn at(&self, position: u32) -> usize {
        (position & (self.size - 1)) as usize * 2
    }

    #[inline]
    fn wrap(&self, position: u32) -> bool {
        position & self.size == 0
    }

    #[inline]
    fn take(&mut self) -> Option<Buffer> {
        let at = self.at(self.taken);
        let word = self.words[at + 1].load(Ordering::Acquire);
        let (avail, used) = (word >> 55 & 1 != 0, word >> 63 & 1 != 0);
        if avail == used || avail != self.wrap(self.taken) {
            return None;
        }
        assert_eq!(word >> 48 & 5, 0, "neither chained nor indirect");
        let address = self.words[at].load(Ordering::Relaxed);
        self.taken = self.taken.wrapping_add(1);
        Some(Buffer { id: (word >> 32) as u16, address, len: word as u32, writable: word >> 48 & 2 != 0 })
    }
}
