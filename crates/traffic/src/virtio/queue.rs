//! One virtqueue as its driver sees it: which buffers the device has, and in which order.

use std::io;
use std::sync::Arc;

use ringway_memory::Mapping;

use super::area::Buffers;
use super::{FRAME_AT, HEADER, HEADER_AT};

/// Buffers ahead of the one at hand whose first line is prefetched.
const PREFETCH_AHEAD: u32 = 12;

/// What the driver does with a queue's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Fills them for the device to read.
    Tx,
    /// Gives them to the device to fill.
    Rx,
}

/// Where a queue is in the memory, and what was agreed on.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Descriptors, a power of two.
    pub size: u32,
    /// Bytes from one buffer to the next.
    pub stride: usize,
    /// Offset of the rings in the memory.
    pub rings: usize,
    /// Offset of the buffers in the memory.
    pub buffers: usize,
    /// Address of the memory as descriptors give it.
    pub guest: u64,
    /// Which way frames go.
    pub direction: Direction,
    /// VIRTIO_F_IN_ORDER.
    pub in_order: bool,
    /// VIRTIO_F_EVENT_IDX.
    pub event_idx: bool,
}

impl Place {
    /// The address of a buffer's header as descriptors give it.
    pub fn address(&self, id: u16) -> u64 {
        self.guest + (self.buffers + usize::from(id) * self.stride + HEADER_AT) as u64
    }
}

/// A buffer that the device says it has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// Which.
    pub id: u32,
    /// Bytes the device wrote, header included.
    pub len: u32,
}

/// Offsets of a ring's three parts from its beginning: what SET_VRING_ADDR tells.
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    /// Descriptors.
    pub descriptors: usize,
    /// What else the driver writes.
    pub driver: usize,
    /// What the device writes.
    pub device: usize,
    /// Bytes of all.
    pub bytes: usize,
}

/// The buffers in the order of the ring's places, as the driver wants the device to see them.
#[derive(Debug)]
pub struct Order {
    mask: u32,
    /// For each place, the buffer that is there or was used there last.
    ids: Box<[u16]>,
    /// For each buffer, the length of its descriptor.
    lens: Box<[u32]>,
}

impl Order {
    /// The buffer at this position.
    #[inline]
    pub fn id(&self, position: u32) -> u16 {
        self.ids[(position & self.mask) as usize]
    }

    /// The length that its descriptor should have.
    #[inline]
    pub fn len(&self, id: u16) -> u32 {
        self.lens[usize::from(id)]
    }
}

/// A kind of virtqueue. Positions count places of the ring from the start, over all laps, and wrap.
pub trait Ring: Sized + Send {
    /// Whether it is what VIRTIO_F_RING_PACKED is about.
    const PACKED: bool;
    /// What SET_VRING_BASE tells of an untouched ring.
    const BASE: u32;

    /// Where the parts are, for so many descriptors.
    fn parts(size: u32) -> Parts;

    /// A ring with no buffer in it.
    ///
    /// # Errors
    /// It does not fit into the memory.
    fn new(mapping: &Arc<Mapping>, place: &Place) -> io::Result<Self>;

    /// Makes the buffers from one position up to another available. `rewrite`: descriptors may differ from those of the
    /// last lap.
    fn publish(&mut self, order: &Order, from: u32, to: u32, rewrite: bool);

    /// What the device says of this position, which the driver has not seen used; `None` while it says nothing. The device
    /// has `outstanding` buffers.
    ///
    /// # Errors
    /// It claims to have used more than it got.
    fn look(&mut self, position: u32, outstanding: u32) -> Result<Option<Used>, Misuse>;

    /// How many buffers were used from this position on, when the ring can tell that at once. Only for devices that use
    /// buffers in order.
    ///
    /// # Errors
    /// As for `look`.
    fn count_used(&mut self, position: u32, outstanding: u32) -> Result<Option<u32>, Misuse>;

    /// Whether the device asks for a kick, now that the positions up to `to` are available instead of `from`.
    fn wants_kick(&self, from: u32, to: u32) -> bool;

    /// Asks for a call when the buffer at this position is used.
    fn want_call(&mut self, position: u32);

    /// Asks for no calls. `position` is the next that will be looked at.
    fn want_no_call(&mut self, position: u32);
}

/// What a device did that none may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// The index of the used ring went beyond that of the available ring.
    #[error("it used {claimed} buffers and had {outstanding}")]
    Count {
        /// Buffers it says it used.
        claimed: u32,
        /// Buffers it had.
        outstanding: u32,
    },
    /// It gave back what it did not have.
    #[error("it gave back buffer {0}, which it does not have")]
    Id(u32),
    /// It wrote more or less than is possible.
    #[error("it wrote {0} bytes into a buffer of {1}")]
    Length(u32, usize),
    /// A frame over no buffers, or over more than there are.
    #[error("it says that a frame takes {0} buffers")]
    Buffers(u16),
}

/// A queue and its buffers.
#[derive(Debug)]
pub struct Queue<R> {
    ring: R,
    order: Order,
    pub buffers: Buffers,
    /// Next position to make available.
    head: u32,
    /// First position that the device does not know of.
    published: u32,
    /// Next position to be used by the device.
    used: u32,
    /// Descriptors of positions before this one may differ from those of the lap before.
    rewrite_until: u32,
    in_order: bool,
    /// Positions of a batch of which only the last has an entry (virtio 1.3, 2.7.12 and 2.8.13) still to be taken, and that
    /// entry's length.
    batch: (u32, u32),
}

impl<R: Ring> Queue<R> {
    /// A queue with all buffers on the driver's side.
    pub fn new(mapping: &Arc<Mapping>, place: &Place) -> io::Result<Queue<R>> {
        let ids = (0..place.size).map(|id| id as u16).collect();
        let lens = vec![(place.stride - HEADER_AT) as u32; place.size as usize].into();
        Ok(Queue {
            ring: R::new(mapping, place)?,
            order: Order { mask: place.size - 1, ids, lens },
            buffers: Buffers::new(mapping, place.buffers, place.size, place.stride)?,
            head: 0,
            published: 0,
            used: 0,
            rewrite_until: place.size,
            in_order: place.in_order,
            batch: (0, 0),
        })
    }

    /// Buffers on the driver's side, as known.
    #[inline]
    pub fn room(&self) -> u32 {
        self.order.mask + 1 - self.head.wrapping_sub(self.used)
    }

    /// The next buffer to fill. There must be room.
    #[inline]
    pub fn next(&self) -> u16 {
        self.buffers.prefetch_mut(self.order.id(self.head.wrapping_add(PREFETCH_AHEAD)));
        self.order.id(self.head)
    }

    /// Queues it with `len` bytes of frame. There must be room.
    #[inline]
    pub fn push(&mut self, len: usize) {
        let id = usize::from(self.order.id(self.head));
        let len = (HEADER + len) as u32;
        if self.order.lens[id] != len {
            self.order.lens[id] = len;
            self.rewrite_lap();
        }
        self.head = self.head.wrapping_add(1);
    }

    /// Queues the next `count` buffers with the lengths their descriptors have.
    #[inline]
    pub fn push_many(&mut self, count: u32) {
        debug_assert!(count <= self.room());
        self.head = self.head.wrapping_add(count);
    }

    /// Makes what was queued available; true when the device asks for a kick.
    #[inline]
    pub fn publish(&mut self) -> bool {
        let from = self.published;
        if self.head == from {
            return false;
        }
        let rewrite = self.rewrite_until.wrapping_sub(from) as i32 > 0;
        self.ring.publish(&self.order, from, self.head, rewrite);
        self.published = self.head;
        // The device's wish is read after the buffers are visible: one of the two sees the other.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.ring.wants_kick(from, self.head)
    }

    /// For one lap descriptors are to be written again.
    fn rewrite_lap(&mut self) {
        self.rewrite_until = self.head.wrapping_add(self.order.mask + 1);
    }

    /// Takes back the next buffer that the device has used.
    ///
    /// # Errors
    /// The device did what none may do.
    #[inline]
    pub fn take(&mut self) -> Result<Option<(u16, u32)>, Misuse> {
        if self.batch.0 > 0 {
            return Ok(Some(self.take_of_batch()));
        }
        let outstanding = self.published.wrapping_sub(self.used);
        let Some(entry) = self.ring.look(self.used, outstanding)? else { return Ok(None) };
        let id = self.order.id(self.used);
        if entry.id != u32::from(id) {
            return self.take_another(entry, outstanding).map(Some);
        }
        self.used = self.used.wrapping_add(1);
        Ok(Some((id, entry.len)))
    }

    /// Takes back all buffers that were used.
    ///
    /// # Errors
    /// As for `take`.
    #[inline]
    pub fn take_all(&mut self) -> Result<(), Misuse> {
        if self.in_order
            && let Some(count) = self.ring.count_used(self.used, self.published.wrapping_sub(self.used))?
        {
            self.used = self.used.wrapping_add(count);
            return Ok(());
        }
        while self.take()?.is_some() {}
        Ok(())
    }

    /// Whether there is a buffer to take back.
    ///
    /// # Errors
    /// As for `take`.
    pub fn has_used(&mut self) -> Result<bool, Misuse> {
        let outstanding = self.published.wrapping_sub(self.used);
        Ok(self.batch.0 > 0 || self.ring.look(self.used, outstanding)?.is_some())
    }

    /// Starts to bring near the frame that will probably be taken a little later.
    #[inline]
    pub fn prefetch(&self) {
        self.buffers.prefetch(self.order.id(self.used.wrapping_add(PREFETCH_AHEAD)));
    }

    /// Asks for a call when half of the buffers that the device has are used (`half`), or the first.
    pub fn want_call(&mut self, half: bool) {
        let ahead = if half { self.published.wrapping_sub(self.used) / 2 } else { 0 };
        self.ring.want_call(self.used.wrapping_add(ahead));
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// Asks for no calls.
    pub fn want_no_call(&mut self) {
        self.ring.want_no_call(self.used);
    }

    #[cold]
    fn take_of_batch(&mut self) -> (u16, u32) {
        let (left, last_len) = self.batch;
        let id = self.order.id(self.used);
        // Those without an entry of their own count as filled completely.
        let len = if left == 1 { last_len } else { self.order.len(id) };
        self.batch.0 = left - 1;
        self.used = self.used.wrapping_add(1);
        (id, len)
    }

    /// Another buffer came back than the one that was expected: the last of a batch, or one out of order.
    #[cold]
    fn take_another(&mut self, entry: Used, outstanding: u32) -> Result<(u16, u32), Misuse> {
        let ahead = (0..outstanding).find(|&ahead| {
            let position = self.used.wrapping_add(ahead);
            u32::from(self.order.id(position)) == entry.id
        });
        let ahead = ahead.ok_or(Misuse::Id(entry.id))?;
        if self.in_order {
            if self.ring.count_used(self.used, outstanding)?.is_some_and(|count| count <= ahead) {
                return Err(Misuse::Id(entry.id));
            }
            self.batch = (ahead + 1, entry.len);
            return Ok(self.take_of_batch());
        }
        // The two change places: the one not yet used will come back later, from wherever.
        let (here, there) = (self.used & self.order.mask, self.used.wrapping_add(ahead) & self.order.mask);
        self.order.ids.swap(here as usize, there as usize);
        self.rewrite_lap();
        self.used = self.used.wrapping_add(1);
        Ok((entry.id as u16, entry.len))
    }

    /// Bytes of a frame that fit into one buffer.
    pub fn capacity(&self) -> usize {
        self.buffers.capacity(FRAME_AT)
    }
}
