//! The memory of a region, and its sizes.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use ringway_abi::layout::{FIRST_BUFFER, PAGE};
use ringway_abi::netmap::{DEFAULT_BUFFER_SIZE, Wish};
use ringway_abi::{Layout, Shape};
use ringway_memory::{Mapping, SharedMemory};
use ringway_port::front_end::{Process, return_in_background};

use super::error::RegionError;
use super::room::{List, Pages, Pool};

/// Bytes of the pages for the `netmap_if` of registrations.
pub(super) const INTERFACE_BYTES: usize = 256 * PAGE;
/// Bytes before the buffers, unless the first port is very large.
const CONTROL_BYTES: usize = 16 << 20;
/// Buffers of the pool, unless the first port needs many.
const BUFFERS: u32 = 65_536;

/// The sizes of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) buffers: usize,
    pub(super) buffer_count: u32,
    pub(super) buffer_size: u32,
    pub(super) bytes: usize,
}

impl Sizes {
    /// Returns the sizes of a region whose first port has this shape, within `most` bytes.
    pub(super) fn of(shape: &Shape, most: u64) -> Result<Self, RegionError> {
        let size = shape.buffer_size as usize;
        let (own, slots) = (shape.own_bytes(), shape.slots());
        let small = (INTERFACE_BYTES + own, FIRST_BUFFER + slots);
        let bytes_of = |(control, count): (usize, u32)| (control + count as usize * size).next_multiple_of(PAGE);
        let allowed = usize::try_from(most).unwrap_or(usize::MAX);
        if bytes_of(small) > allowed {
            return Err(RegionError::TooLarge { needed: bytes_of(small) as u64, allowed: most });
        }
        let large = (CONTROL_BYTES.max(INTERFACE_BYTES + 2 * own), BUFFERS.max(FIRST_BUFFER + 2 * slots));
        let (buffers, buffer_count) = if bytes_of(large) <= allowed {
            large
        } else {
            // The ports get at most a quarter, or what the first one needs; the pool gets the rest.
            let quarter = INTERFACE_BYTES + (allowed - INTERFACE_BYTES) / 4;
            let fitting = large.0.min(quarter.max(small.0)).min(allowed - small.1 as usize * size);
            let control = (fitting / PAGE * PAGE).max(small.0);
            (control, u32::try_from((allowed - control) / size).unwrap_or(u32::MAX).min(large.1).max(small.1))
        };
        Ok(Self { buffers, buffer_count, buffer_size: shape.buffer_size, bytes: bytes_of((buffers, buffer_count)) })
    }
}

/// One memory with the ports of a family.
#[derive(Debug)]
pub struct Region {
    pub(super) memory: SharedMemory,
    pub(super) sizes: Sizes,
    id: u16,
    pub(super) room: Mutex<Room>,
    /// The process that has opened the first port, or 0.
    owner: AtomicU32,
}

#[derive(Debug)]
pub(super) struct Room {
    pub(super) interfaces: Pages,
    pub(super) ports: Pages,
    pub(super) pool: Pool,
    /// Extra buffers of registrations that have ended, and that are not in the pool yet.
    pub(super) lists: Vec<List>,
    /// Number of ports that were closed and still have their part: pollers or a thread for closings use it.
    pub(super) leaving: usize,
    /// Number of parts and registrations whose memory a thread is giving back.
    pub(super) returning: usize,
}

impl Room {
    /// Returns true if memory of the region comes back within a moment.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving > 0 || self.returning > 0
    }
}

impl Region {
    /// Makes a region whose first port has this shape, of at most `most` bytes.
    ///
    /// # Errors
    /// The shape is out of range or needs more memory, or the kernel refuses.
    pub fn new(id: u16, wish: &Wish, most: u64) -> Result<Arc<Self>, RegionError> {
        let (_, sizes) = Self::sizes(wish, most)?;
        let memory = SharedMemory::create("netmap", sizes.bytes)?;
        let room = Room {
            interfaces: Pages::new(0..INTERFACE_BYTES),
            ports: Pages::new(INTERFACE_BYTES..sizes.buffers),
            pool: Pool::new(sizes.buffer_count),
            lists: Vec::new(),
            leaving: 0,
            returning: 0,
        };
        Ok(Arc::new(Self { memory, sizes, id, room: Mutex::new(room), owner: AtomicU32::new(0) }))
    }

    fn sizes(wish: &Wish, most: u64) -> Result<(Shape, Sizes), RegionError> {
        let buffer_size = if wish.buffer_size == 0 { DEFAULT_BUFFER_SIZE } else { wish.buffer_size };
        let shape = wish.shape(buffer_size);
        Layout::new(shape, 0).map_err(RegionError::Shape)?;
        Ok((shape, Sizes::of(&shape, most)?))
    }

    /// Returns the shape that the first port of a new region gets, and the bytes of the region.
    ///
    /// # Errors
    /// As for [`Region::new`].
    pub fn plan(wish: &Wish, most: u64) -> Result<(Shape, u64), RegionError> {
        let (shape, sizes) = Self::sizes(wish, most)?;
        Ok((shape, sizes.bytes as u64))
    }

    /// Returns the region's number.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Returns the size of the memory in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sizes.bytes as u64
    }

    /// Returns the size of the buffers in bytes.
    #[must_use]
    pub fn buffer_size(&self) -> u32 {
        self.sizes.buffer_size
    }

    /// Returns the shape of a new port.
    ///
    /// # Errors
    /// It has buffers of another size.
    pub fn shape(&self, wish: &Wish) -> Result<Shape, RegionError> {
        let has = self.sizes.buffer_size;
        match wish.buffer_size {
            asked if asked != 0 && asked != has => Err(RegionError::BufferSize { asked, has }),
            _ => Ok(wish.shape(has)),
        }
    }

    /// Waits until threads have given back what was closed.
    #[cfg(test)]
    pub(crate) fn settle(&self) {
        ringway_testing::until("everything has come back", || self.room.lock().returning == 0);
    }

    /// Returns the number of free buffers.
    #[cfg(test)]
    pub(crate) fn free_buffers(&self) -> u32 {
        self.settle();
        while !self.give_back(u32::MAX) {}
        self.room.lock().pool.left()
    }

    /// Returns true if a port of this region was closed and its memory has not come back yet.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.room.lock().is_leaving()
    }

    /// Says whose the region is. The first one counts.
    pub fn set_owner(&self, process: Process) {
        let owner = process.map_or(0, NonZeroU32::get);
        if self.owner.compare_exchange(0, owner, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.mapping().set_owner(process);
        }
    }

    /// Gives room back by `work`, which reads memory of the program and returns what to do with the room. It does so on a thread that serves
    /// nobody else, as the program decides how long reading lasts.
    pub(super) fn return_room<F>(self: &Arc<Self>, work: impl FnOnce(&Region) -> F + Send + 'static)
    where
        F: FnOnce(&mut Room),
    {
        self.room.lock().returning += 1;
        let parties = [NonZeroU32::new(self.owner.load(Ordering::Relaxed)); 2];
        let (region, mut work) = (Arc::clone(self), Some(work));
        return_in_background(parties, move || {
            let free = work.take().map(|work| work(&region));
            let mut room = region.room.lock();
            free.into_iter().for_each(|free| free(&mut room));
            room.returning -= 1;
        });
    }

    /// Returns the memory.
    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        self.memory.mapping()
    }

    /// Writes bytes at an offset of the memory.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let written = self.memory.mapping().view(offset, bytes.len()).is_some_and(|view| view.write(bytes));
        debug_assert!(written, "a layout lies in its region");
    }

    /// Reads a word that clients may write at any time.
    pub(super) fn word(&self, offset: usize) -> Option<u32> {
        let words = self.memory.mapping().view(offset, 4)?.words32()?;
        words.first().map(|word| word.load(Ordering::Relaxed))
    }
}
