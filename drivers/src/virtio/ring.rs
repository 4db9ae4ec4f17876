//! The common part of both kinds of virtqueue for their driver: their places, their contents, and their errors.

use std::io;
use std::sync::Arc;

use ringway_memory::Mapping;

use super::buffer::{FRAME_AT, HEADER_AT};
use crate::area::Table;

/// What the driver does with a queue's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The driver fills them, and the device reads them.
    Tx,
    /// The device fills them.
    Rx,
}

/// How a ring is made.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Number of descriptors, a power of two.
    pub size: u32,
    /// Direction of the frames.
    pub direction: Direction,
    /// VIRTIO_F_EVENT_IDX: each side tells the position at which it wants the next notification.
    pub event_idx: bool,
}

/// The location of a queue in the memory, and the negotiated features.
#[derive(Debug, Clone, Copy)]
pub struct QueueLayout {
    /// The ring.
    pub shape: Shape,
    /// Most bytes of a frame in a buffer.
    pub capacity: usize,
    /// Offset of the rings in the memory.
    pub rings: usize,
    /// Offset of the buffers in the memory.
    pub buffers: usize,
    /// Address of the memory in descriptors.
    pub guest: u64,
    /// VIRTIO_F_IN_ORDER.
    pub in_order: bool,
}

impl QueueLayout {
    /// Returns the bytes from one buffer to the next.
    pub fn stride(&self) -> usize {
        FRAME_AT + self.capacity
    }

    /// Returns the address of the first buffer's header in descriptors.
    pub fn first(&self) -> u64 {
        self.guest + (self.buffers + HEADER_AT) as u64
    }
}

/// A used buffer, as the device reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// Id of the buffer.
    pub id: u32,
    /// Bytes that the device wrote, including the header.
    pub len: u32,
}

/// Offsets of a ring's three parts from its beginning, for SET_VRING_ADDR.
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    /// The descriptors.
    pub descriptors: usize,
    /// The driver area: what else the driver writes.
    pub driver: usize,
    /// The device area: what the device writes.
    pub device: usize,
    /// Bytes of all parts.
    pub bytes: usize,
}

/// The buffers in the order of the ring's positions, as the driver makes them available.
#[derive(Debug)]
pub struct Order {
    /// For each position, the buffer that is there or was used there last.
    pub ids: Table<u16>,
    /// For each buffer, the length of its descriptor.
    pub lens: Table<u32>,
    /// The length of all descriptors; 0 while they may differ.
    pub common_len: u32,
    /// The address of the first buffer's header in descriptors, and from one to the next.
    addresses: (u64, u64),
}

impl Order {
    /// As many buffers as positions, all with descriptors of this length.
    pub fn new(place: &QueueLayout, len: u32) -> Order {
        let size = place.shape.size;
        let (ids, lens) = (Table::new((0..size).map(|id| id as u16)), Table::new((0..size).map(|_| len)));
        Order { ids, lens, common_len: len, addresses: (place.first(), place.stride() as u64) }
    }

    /// Returns the address of a buffer's header in descriptors.
    #[inline]
    pub fn address(&self, id: u16) -> u64 {
        self.addresses.0 + u64::from(id) * self.addresses.1
    }

    /// Returns the buffer at this position.
    #[inline]
    pub fn id(&self, position: u32) -> u16 {
        self.ids.get(position)
    }

    /// Returns the length that the buffer's descriptor should have.
    #[inline]
    pub fn len(&self, id: u16) -> u32 {
        self.lens.get(id.into())
    }

    /// Returns the length of all descriptors, if it is the same for all.
    pub fn common_len(&self) -> Option<u32> {
        (self.common_len > 0).then_some(self.common_len)
    }

    /// Returns the buffers from position `from` on, up to `to` or to the end of the ring.
    pub fn run(&self, from: u32, to: u32) -> &[u16] {
        let first = from & (self.ids.size() - 1);
        let count = to.wrapping_sub(from).min(self.ids.size() - first);
        &self.ids.items()[first as usize..][..count as usize]
    }
}

/// A ring format. Positions count ring entries from the start, over all laps, and wrap.
pub trait Ring: Sized + Send + std::fmt::Debug {
    /// True for packed rings (VIRTIO_F_RING_PACKED).
    const PACKED: bool;
    /// True if `ready` also counts buffers without a used entry of their own.
    const COUNTS: bool;
    /// The value of SET_VRING_BASE for an unused ring.
    const BASE: u32;

    /// Returns where the parts are for `size` descriptors.
    fn parts(size: u32) -> Parts;

    /// A ring without available buffers, at offset `at` of the memory.
    ///
    /// # Errors
    /// The ring does not fit into the memory.
    fn new(mapping: &Arc<Mapping>, at: usize, shape: &Shape) -> io::Result<Self>;

    /// Writes what never changes while buffers have the places and lengths of `order`.
    fn prepare(&mut self, order: &Order);

    /// Makes the buffers from position `from` up to `to` available. `rewrite`: they may differ from those of the
    /// previous lap.
    fn publish(&mut self, order: &Order, from: u32, to: u32, rewrite: bool);

    /// Returns the number of used buffers from this position on, out of the `outstanding` that the device has. The
    /// driver looks at no more than `most`.
    ///
    /// # Errors
    /// The device claims to have used more than it has.
    fn ready(&mut self, position: u32, outstanding: u32, most: u32) -> Result<u32, Misuse>;

    /// Returns the number of buffers used from this position on in the sequence of `order`, out of the `outstanding`
    /// that the device has, and at most `most`. Stops at the first that is not used, or in whose place another was
    /// used. Calls `each` with their ids.
    ///
    /// # Errors
    /// The device claims to have used more than it has.
    fn ready_in_turn(
        &mut self,
        order: &Order,
        position: u32,
        outstanding: u32,
        most: u32,
        each: impl FnMut(u16),
    ) -> Result<u32, Misuse>;

    /// Returns the used entry of a position.
    fn entry(&self, position: u32) -> Used;

    /// Returns true if the device wants a kick after positions `from` to `to` became available.
    fn wants_kick(&self, from: u32, to: u32) -> bool;

    /// Requests a call when the buffer at this position is used.
    fn want_call(&mut self, position: u32);

    /// Requests no calls. `position` is the next that will be looked at.
    fn want_no_call(&mut self, position: u32);
}

/// A violation of the specification by the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// The index of the used ring is ahead of that of the available ring.
    #[error("it used {claimed} buffers and had {outstanding}")]
    Count {
        /// Buffers that the device claims to have used.
        claimed: u32,
        /// Buffers that the device had.
        outstanding: u32,
    },
    /// The device used a buffer that it does not have.
    #[error("it gave back buffer {0}, which it does not have")]
    Id(u32),
    /// The device reports an impossible length.
    #[error("it wrote {0} bytes into a buffer of {1}")]
    Length(u32, usize),
    /// A frame in no buffers, or in more than there are.
    #[error("it says that a frame takes {0} buffers")]
    Buffers(u16),
}
