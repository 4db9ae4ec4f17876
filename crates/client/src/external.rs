//! Memory of the program that its ports use in place of memory of the switch (VPE §3.1, §4.7).

use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use ringway_abi::layout::{FIRST_BUFFER, MAX_UNIT};
use ringway_abi::{External, Shape};
use ringway_memory::Mapping;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};

/// Memory of this program that its ports can send from and receive into: see [`crate::Port::attach_with_memory`].
///
/// The program takes parts of it as [`Area`]s, to send what is in them without a copy. Each port takes a part for the buffers
/// of its slots. Ports of one process may share a memory; the switch refuses ports of two processes.
#[derive(Debug)]
pub struct ExternalMemory {
    file: OwnedFd,
    mapping: Arc<Mapping>,
    unit: u32,
    /// The parts that were taken, in order. The first one is that of the reserved buffers.
    taken: Vec<Range<usize>>,
}

impl ExternalMemory {
    /// Makes a memory of `bytes` bytes, zeroed. Frames are sent from multiples of `unit`: a power of two from 1 to 64. The memory
    /// has less than 2^32 units.
    ///
    /// # Errors
    /// The unit is out of range, or the kernel refuses.
    pub fn new(bytes: usize, unit: u32) -> io::Result<Self> {
        let file = memfd_create("ringway-external", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes as u64)?;
        Self::from_file(file, unit)
    }

    /// Takes the whole of a memfd that the program has. Seals it against shrinking, if it is not.
    ///
    /// # Errors
    /// The file cannot be sealed or is empty, the unit is out of range, or the kernel refuses.
    pub fn from_file(file: OwnedFd, unit: u32) -> io::Result<Self> {
        if !unit.is_power_of_two() || unit > MAX_UNIT {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a unit is a power of two from 1 to 64"));
        }
        if !fcntl_get_seals(&file)?.contains(SealFlags::SHRINK) {
            fcntl_add_seals(&file, SealFlags::SHRINK)?;
        }
        let bytes = usize::try_from(fstat(&file)?.st_size).map_err(io::Error::other)?;
        let mapping = Arc::new(Mapping::shared(file.as_fd(), bytes)?);
        let reserved = 0..FIRST_BUFFER as usize * unit as usize;
        Ok(Self { file, mapping, unit, taken: vec![reserved] })
    }

    /// Takes `bytes` bytes that nothing else has. They stay taken. Returns `None` if so many are not left in one piece.
    pub fn take(&mut self, bytes: usize) -> Option<Area> {
        let range = self.find(bytes)?;
        self.take_at(range)
    }

    /// Takes these bytes. Returns `None` if a part of them is taken already, is outside, or is that of the two reserved buffers:
    /// the first two units. While an area exists, the program uses these bytes only through the area.
    pub fn take_at(&mut self, range: Range<usize>) -> Option<Area> {
        let view = self.mapping.view(range.start, range.end.checked_sub(range.start)?)?;
        let at = self.taken.partition_point(|taken| taken.start < range.end);
        if self.taken[..at].last().is_some_and(|before| before.end > range.start) {
            return None;
        }
        let start = NonNull::new(view.as_ptr())?;
        self.taken.insert(at, range.clone());
        Some(Area { _mapping: Arc::clone(&self.mapping), offset: range.start, start, bytes: range.len() })
    }

    /// Returns the first free range of this length that begins at a multiple of 64.
    fn find(&self, bytes: usize) -> Option<Range<usize>> {
        let ends = self.taken.iter().map(|taken| taken.end.next_multiple_of(64));
        let next = self.taken.iter().skip(1).map(|taken| taken.start).chain([self.mapping.bytes()]);
        let free = ends.zip(next).map(|(from, to)| from..to);
        free.into_iter().find(|free| free.len() >= bytes).map(|free| free.start..free.start + bytes)
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.mapping.bytes()
    }

    /// Returns the unit: frames are sent from its multiples.
    #[must_use]
    pub fn unit(&self) -> u32 {
        self.unit
    }

    /// Takes the part for the buffers of a port's slots.
    pub(crate) fn take_for(&mut self, shape: &Shape) -> Option<External> {
        let buffers = (shape.slots() + shape.extra_buffers) as usize;
        let range = self.find(buffers * shape.buffer_size as usize)?;
        let first = u32::try_from(range.start / self.unit as usize).ok()?;
        self.take_at(range)?;
        Some(External { bytes: self.mapping.bytes() as u64, unit: self.unit, first })
    }

    /// Gives back the part of a port that was not attached. The switch has never had the memory for it.
    pub(crate) fn give_back(&mut self, part: External) {
        let start = part.first as usize * self.unit as usize;
        self.taken.retain(|taken| taken.start != start);
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }
}

/// A part of an [`ExternalMemory`] that the program has to itself. [`crate::TxRing::push_from`] sends from it.
#[derive(Debug)]
pub struct Area {
    _mapping: Arc<Mapping>,
    offset: usize,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the pointer refers to the mapping that is kept next to it, which is Send.
unsafe impl Send for Area {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for Area {}

impl Area {
    /// Returns the offset of the first byte in the memory.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the first byte, for bindings to other languages: their programs write by it, so no reference to the bytes is made.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns true if the area has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl Deref for Area {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: mapped as long as `_mapping` lives, and `bytes` long. No other area or port has these bytes, and the switch only
        // reads them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Area {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: see `deref`; `&mut self` is the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}
