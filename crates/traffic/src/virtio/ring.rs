//! The common part of both kinds of virtqueue for their driver: their places, their contents, and their errors.

use std::io;
use std::sync::Arc;

use ringway_memory::Mapping;

use super::{FRAME_AT, HEADER_AT};
use crate::area::Table;

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
    /// Bytes of a frame that a buffer holds.
    pub capacity: usize,
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
    /// Bytes from one buffer to the next.
    pub fn stride(&self) -> usize {
        FRAME_AT + self.capacity
    }

    /// The address of a buffer's header as descriptors give it.
    pub fn address(&self, id: u16) -> u64 {
        self.guest + (self.buffers + usize::from(id) * self.stride() + HEADER_AT) as u64
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
    /// For each place, the buffer that is there or was used there last.
    pub ids: Table<u16>,
    /// For each buffer, the length of its descriptor.
    pub lens: Table<u32>,
    /// The length of all descriptors; 0 while they may differ.
    pub common_len: u32,
}

impl Order {
    /// As many buffers as places, all with descriptors of this length.
    pub fn new(size: u32, len: u32) -> Order {
        let (ids, lens) = (Table::new((0..size).map(|id| id as u16)), Table::new((0..size).map(|_| len)));
        Order { ids, lens, common_len: len }
    }

    /// The buffer at this position.
    #[inline]
    pub fn id(&self, position: u32) -> u16 {
        self.ids.get(position)
    }

    /// The length that its descriptor should have.
    #[inline]
    pub fn len(&self, id: u16) -> u32 {
        self.lens.get(id.into())
    }

    /// The length that all descriptors should have, if it is one.
    pub fn common_len(&self) -> Option<u32> {
        (self.common_len > 0).then_some(self.common_len)
    }

    /// The buffers from this position on, up to another or to the end of the ring.
    pub fn run(&self, from: u32, to: u32) -> &[u16] {
        let first = from & (self.ids.len() - 1);
        let count = to.wrapping_sub(from).min(self.ids.len() - first);
        &self.ids.items()[first as usize..][..count as usize]
    }
}

/// A kind of virtqueue. Positions count places of the ring from the start, over all laps, and wrap.
pub trait Ring: Sized + Send + std::fmt::Debug {
    /// Whether it is what VIRTIO_F_RING_PACKED is about.
    const PACKED: bool;
    /// Whether `ready` also counts buffers without an entry of their own.
    const COUNTS: bool;
    /// What SET_VRING_BASE tells of an untouched ring.
    const BASE: u32;

    /// Where the parts are, for so many descriptors.
    fn parts(size: u32) -> Parts;

    /// A ring with no buffer in it.
    ///
    /// # Errors
    /// It does not fit into the memory.
    fn new(mapping: &Arc<Mapping>, place: &Place) -> io::Result<Self>;

    /// Makes the buffers from one position up to another available. `rewrite`: they may differ from what was there a
    /// lap before.
    fn publish(&mut self, order: &Order, from: u32, to: u32, rewrite: bool);

    /// Buffers that the device has used from this position on, of the `outstanding` it has; the driver looks at `most`.
    ///
    /// # Errors
    /// It claims to have used more than it got.
    fn ready(&mut self, position: u32, outstanding: u32, most: u32) -> Result<u32, Misuse>;

    /// Buffers that the device has used from this position on just as they are in `order`, of `most` that it has: those up to
    /// the first that it has not used, or that another came back for. `each` sees their numbers.
    ///
    /// # Errors
    /// It claims to have used more than it got.
    fn ready_in_turn(
        &mut self,
        order: &Order,
        position: u32,
        outstanding: u32,
        most: u32,
        each: impl FnMut(u16),
    ) -> Result<u32, Misuse>;

    /// What the device says of a position that was used.
    fn entry(&self, position: u32) -> Used;

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
