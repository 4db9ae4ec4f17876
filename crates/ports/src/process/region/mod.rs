//! Regions: one memory for all ports of a family of processes, with one pool of buffers.
//!
//! ```text
//! 0            INTERFACE_BYTES         buffers
//! | netmap_if  | port | port |  ...    | 0 | 1 | 2 | ...   |
//! ```
//!
//! The memory has its final size from the start, so that one mapping covers all later ports; pages are made as they are
//! touched. Each registration has a page with a `netmap_if`, each port has doorbell and rings. Every slot may name any buffer
//! of the pool.
//!
//! When a port goes, the buffers that its slots name go back to the pool, whatever port they were allocated to: the client
//! may have swapped them. A number that is out of range or free already is ignored. A client that writes one number into many
//! slots loses buffers of its own region until the region goes.
//!
//! - `room`: which pages and buffers are in use. `calls`: the call descriptors of a port's registrations.
//! - `registration`: a port, or some of its rings, for one connection.

mod calls;
mod registration;
mod room;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use ringway_abi::layout::{FIRST_BUFFER, PAGE, netmap_ring};
use ringway_abi::netmap::{DEFAULT_BUFFER_SIZE, Wish};
use ringway_abi::slot::SLOT_BYTES;
use ringway_abi::{Layout, LayoutError, Place, Shape, Slot};
use ringway_engine::Signal;
use ringway_memory::SharedMemory;
use rustix::event::{EventfdFlags, eventfd};

use super::input::ProcessInput;
use super::output::ProcessOutput;
use super::ring;
use crate::port_io::PortIo;
use calls::{Calls, RegionBell};
use registration::Claims;
use room::{Pages, Pool};

pub use registration::Registration;

/// Bytes of the pages for the `netmap_if` of registrations.
const INTERFACE_BYTES: usize = 256 * PAGE;
/// Bytes before the buffers, unless the first port is very large.
const CONTROL_BYTES: usize = 16 << 20;
/// Buffers of the pool, unless the first port needs many.
const BUFFERS: u32 = 65_536;

/// Why a region has no room for a port or a registration, or cannot be made.
#[derive(Debug)]
pub enum RegionError {
    /// The region would be larger than allowed.
    TooLarge {
        /// Bytes that the port needs.
        needed: u64,
        /// Bytes that are allowed.
        allowed: u64,
    },
    /// The region has no room.
    NoRoom(&'static str),
    /// The pool has too few free buffers.
    NoBuffers {
        /// Buffers that are needed.
        needed: u32,
        /// Buffers that are free.
        left: u32,
    },
    /// The buffers of the region have another size.
    BufferSize {
        /// The size that was asked for.
        asked: u32,
        /// The size of the region's buffers.
        has: u32,
    },
    /// The port does not have these rings.
    NoRings,
    /// Another registration has one of the rings, and one of the two is exclusive.
    Busy,
    /// The port has the most registrations that it can have.
    Registrations,
    /// A number is out of range.
    Shape(LayoutError),
    /// The kernel refuses.
    Kernel(io::Error),
}

impl std::fmt::Display for RegionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLarge { needed, allowed } => {
                write!(f, "the port needs a region of {needed} bytes: {allowed} are allowed")
            }
            Self::NoRoom(what) => write!(f, "the memory that the program's ports share has no room left for {what}"),
            Self::NoBuffers { needed, left } => {
                write!(f, "{needed} buffers are needed, and the memory that the program's ports share has {left} left")
            }
            Self::BufferSize { asked, has } => write!(f, "buffers of {asked} bytes: the program's ports have {has}"),
            Self::NoRings => f.write_str("the port does not have these rings"),
            Self::Busy => f.write_str("another registration has one of these rings, and one of the two is exclusive"),
            Self::Registrations => write!(f, "the port has {} registrations: it can have no more", calls::MOST),
            Self::Shape(error) => error.fmt(f),
            Self::Kernel(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RegionError {}

impl From<io::Error> for RegionError {
    fn from(error: io::Error) -> Self {
        Self::Kernel(error)
    }
}

/// The sizes of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    buffers: usize,
    buffer_count: u32,
    buffer_size: u32,
    bytes: usize,
}

impl Sizes {
    /// Returns the sizes of a region whose first port has this shape, within `most` bytes.
    fn of(shape: &Shape, most: u64) -> Result<Self, RegionError> {
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
    memory: SharedMemory,
    sizes: Sizes,
    id: u16,
    room: Mutex<Room>,
}

#[derive(Debug)]
struct Room {
    interfaces: Pages,
    ports: Pages,
    pool: Pool,
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
        };
        Ok(Arc::new(Self { memory, sizes, id, room: Mutex::new(room) }))
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

    /// Makes a port in this region.
    ///
    /// # Errors
    /// The region has no room for it, the wish is out of range, or the kernel has no descriptors left.
    pub fn open(self: &Arc<Self>, wish: &Wish, colour: u32) -> Result<(PortIo, Arc<RegionPort>), RegionError> {
        let shape = self.shape(wish)?;
        let part = Part::allocate(self, shape, colour)?;
        let (layout, mapping) = (part.layout, self.memory.mapping());
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let kick = eventfd(0, flags).map_err(io::Error::from)?;
        let mut input = ProcessInput::new(Arc::clone(mapping), layout)?;
        let mut output = ProcessOutput::new(Arc::clone(mapping), layout)?;
        input.keep(Arc::clone(&part), wish.header.into());
        output.keep(Arc::clone(&part), wish.header.into());
        let calls = Arc::new(Calls::default());
        let pairs = 0..shape.tx_rings.max(shape.rx_rings);
        let pairs = pairs.map(|pair| ring::doorbell_of(mapping, &layout, pair)).collect::<io::Result<_>>()?;
        let bell = RegionBell::new(pairs, Arc::clone(&calls));
        let signal = Signal::Kick(kick.try_clone()?);
        let sides = PortIo { input: Box::new(input), output: Box::new(output), bell: Box::new(bell), signal };
        let claims = Mutex::new(Claims::new(shape.tx_rings, shape.rx_rings));
        Ok((sides, Arc::new(RegionPort { part, kick, calls, colour, header: wish.header, claims })))
    }

    /// Writes bytes at an offset of the memory.
    fn write(&self, offset: usize, bytes: &[u8]) {
        let written = self.memory.mapping().view(offset, bytes.len()).is_some_and(|view| view.write(bytes));
        debug_assert!(written, "a layout lies in its region");
    }

    /// Reads a word that clients may write at any time.
    fn word(&self, offset: usize) -> Option<u32> {
        let words = self.memory.mapping().view(offset, 4)?.words32()?;
        words.first().map(|word| word.load(Ordering::Relaxed))
    }
}

/// A port's own part of its region, and the buffers of its slots. They go back to the region when nothing uses the port
/// any more: the pollers have released its input and its output.
#[derive(Debug)]
pub(super) struct Part {
    region: Arc<Region>,
    layout: Layout,
}

impl Part {
    fn allocate(region: &Arc<Region>, shape: Shape, colour: u32) -> Result<Arc<Self>, RegionError> {
        let Sizes { buffers, buffer_count, bytes, .. } = region.sizes;
        let place = |base| Place { base, buffers, buffer_count, bytes };
        // Also checks the shape, which `own_bytes` needs.
        Layout::new(shape, colour).map_err(RegionError::Shape)?;
        let (base, mut given) = {
            let mut room = region.room.lock();
            let (needed, left) = (shape.slots(), room.pool.left());
            if needed > left {
                return Err(RegionError::NoBuffers { needed, left });
            }
            let base = room.ports.allocate(shape.own_bytes()).ok_or(RegionError::NoRoom("another port"))?;
            (base, room.pool.allocate(needed).unwrap_or_default().into_iter())
        };
        let layout = Layout::in_region(shape, colour, place(base)).map_err(RegionError::Shape)?;
        // An earlier port, or any process of the family, may have written here.
        let zeroes = [0; PAGE];
        (base..layout.end).step_by(PAGE).for_each(|page| region.write(page, &zeroes));
        layout.ring_contents(|| given.next().unwrap_or(0), |at, bytes| region.write(at, bytes));
        Ok(Arc::new(Self { region: Arc::clone(region), layout }))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let Self { region, layout } = self;
        let shape = layout.shape;
        let tx = (0..shape.tx_rings).map(|ring| (layout.tx_ring(ring), shape.tx_slots));
        let rx = (0..shape.rx_rings).map(|ring| (layout.rx_ring(ring), shape.rx_slots));
        let mut room = region.room.lock();
        for (at, slots) in tx.chain(rx) {
            let slots = region.memory.mapping().view(at + netmap_ring::SLOTS, slots as usize * SLOT_BYTES);
            let words = slots.and_then(|slots| slots.words64()).unwrap_or_default();
            for word in words.iter().step_by(SLOT_BYTES / 8) {
                room.pool.free(Slot::from_word(word.load(Ordering::Relaxed)).buffer);
            }
        }
        room.ports.free(layout.base, layout.end - layout.base);
    }
}

/// A port in a region, as its registrations share it.
#[derive(Debug)]
pub struct RegionPort {
    part: Arc<Part>,
    kick: OwnedFd,
    calls: Arc<Calls>,
    colour: u32,
    header: u8,
    claims: Mutex<Claims>,
}

impl RegionPort {
    /// Returns the region.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.part.region
    }

    /// Returns the layout.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.part.layout
    }

    /// Returns the bytes of the offload header before each frame.
    #[must_use]
    pub fn header(&self) -> u8 {
        self.header
    }

    fn memory(&self) -> BorrowedFd<'_> {
        self.part.region.memory.file()
    }
}

#[cfg(test)]
mod tests;
