//! The guest's memory, as the front end maps it for the device: a table that is replaced as a whole.
//!
//! QEMU divides the memory again and again while a guest boots (read-only pieces, the range at 0xc0000): QEMU unmaps a piece
//! and then maps its parts, without waiting for answers. A poller that looked in between would not find its rings. Unmapped
//! pieces therefore stay in use until 2 ms passed without a further message, or until a message about something else came.
//! The answers to the unmap requests wait as well, because such an answer means that nobody uses the memory any more.
//!
//! A piece without a file (a ROM, another device's window) is noted and not used. If no piece came with a file, the front
//! end's question for the device's kind is refused, and QEMU does not start.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringway_memory::Quota;
use ringway_port::guest::{GuestMemory, Region};

use super::function::Dma;
use super::limits::MOST_MAPS;
use super::message::{MapAt, UnmapAt};
use super::refusal::Refusal;

const READABLE: u32 = 1 << 0;
const WRITABLE: u32 = 1 << 1;
/// Flags of DMA_UNMAP.
const WITH_BITMAP: u32 = 1 << 0;
const ALL: u32 = 1 << 1;

/// One mapping. It is not empty and does not wrap.
struct Piece {
    address: u64,
    /// The last DMA address.
    last: u64,
    writable: bool,
    readable: bool,
    /// Offset in the file.
    offset: u64,
    /// The number under which its file is kept.
    kept: u64,
    /// `None` if the mapping came without a file. Then the device cannot use it.
    region: Option<Arc<Region>>,
}

/// Returns the last address of a range.
///
/// # Errors
/// The range is empty or wraps.
fn last(address: u64, size: u64) -> Result<u64, Refusal> {
    let last = size.checked_sub(1).and_then(|behind| address.checked_add(behind));
    last.ok_or(Refusal::MapRange { address, size })
}

/// The mappings of a connection. They do not overlap.
pub struct DmaTable {
    quota: Arc<Quota>,
    pieces: Vec<Piece>,
    changed: bool,
    /// True if memory that the device uses was unmapped since [`DmaTable::take_change`].
    gap: bool,
}

impl DmaTable {
    /// An empty table, with the limits of `quota`.
    pub fn new(quota: Arc<Quota>) -> DmaTable {
        DmaTable { quota, pieces: Vec::new(), changed: false, gap: false }
    }

    /// Adds a mapping. `kept`: the number under which its file is kept.
    ///
    /// # Errors
    /// The flags or the range are invalid, the memory cannot be mapped, or the range overlaps another mapping.
    pub fn map(&mut self, at: MapAt, file: Option<&OwnedFd>, kept: u64) -> Result<(), Refusal> {
        let MapAt { flags, offset, address, size } = at;
        if flags & !(READABLE | WRITABLE) != 0 || flags == 0 {
            return Err(Refusal::MapFlags(flags));
        }
        let last = last(address, size)?;
        if self.pieces.iter().any(|piece| piece.address <= last && address <= piece.last) {
            return Err(Refusal::Overlap(address));
        }
        if self.pieces.len() >= MOST_MAPS {
            return Err(Refusal::TooManyMaps);
        }
        // vfio-user does not give the address in the front end, and no lookup uses it.
        let map = |file| Region::map_within(&self.quota, file, address, size, 0, offset);
        let region = file.map(map).transpose()?.map(Arc::new);
        self.changed |= region.is_some();
        let (readable, writable) = (flags & READABLE != 0, flags & WRITABLE != 0);
        self.pieces.push(Piece { address, last, readable, writable, offset, kept, region });
        Ok(())
    }

    /// Removes the mappings in a range. Front ends with an IOMMU remove several mappings with one message. The memory
    /// is unmapped when the last [`Dma`] that contains it is dropped. Returns the numbers under which their files are kept.
    ///
    /// # Errors
    /// The range contains no mapping, or contains one only in part.
    pub fn unmap(&mut self, at: UnmapAt) -> Result<Vec<u64>, Refusal> {
        let UnmapAt { flags, address, size, .. } = at;
        if flags & WITH_BITMAP != 0 {
            return Err(Refusal::NoBitmap);
        }
        let everything = flags & ALL != 0;
        if flags & !ALL != 0 || (everything && (address, size) != (0, 0)) {
            return Err(Refusal::UnmapFlags(flags));
        }
        let last = if everything { u64::MAX } else { last(address, size)? };
        let touches = |piece: &Piece| piece.address <= last && address <= piece.last;
        if self.pieces.iter().any(|piece| touches(piece) && (piece.address < address || last < piece.last)) {
            return Err(Refusal::Bisects(address));
        }
        let in_use = self.pieces.iter().any(|piece| touches(piece) && piece.region.is_some());
        (self.changed, self.gap) = (self.changed | in_use, self.gap | in_use);
        let removed: Vec<_> = self.pieces.extract_if(.., |piece| touches(piece)).collect();
        if removed.is_empty() && !everything {
            return Err(Refusal::NotMapped(address));
        }
        Ok(removed.iter().filter(|piece| piece.region.is_some()).map(|piece| piece.kept).collect())
    }

    /// Returns the mappings, with the numbers under which their files are kept, if they have files.
    pub fn mappings(&self) -> impl ExactSizeIterator<Item = (MapAt, Option<u64>)> + '_ {
        self.pieces.iter().map(|piece| {
            let &Piece { address, last, writable, readable, offset, kept, ref region } = piece;
            let flags = if readable { READABLE } else { 0 } | if writable { WRITABLE } else { 0 };
            let size = last.wrapping_sub(address).wrapping_add(1);
            (MapAt { flags, offset, address, size }, region.as_ref().map(|_| kept))
        })
    }

    /// A predecessor's table: `gap` tells that memory was unmapped, and its replacement may follow.
    pub fn set_gap(&mut self, gap: bool) {
        (self.gap, self.changed) = (gap, true);
    }

    /// Returns true if the guest has memory, but none of it came with a file.
    pub fn is_without_files(&self) -> bool {
        self.pieces.iter().all(|piece| piece.region.is_none()) && self.pieces.iter().any(|piece| piece.writable)
    }

    /// Returns true if memory was unmapped since [`DmaTable::take_change`].
    pub fn has_gap(&self) -> bool {
        self.gap
    }

    /// Returns the current tables if they changed since the last call.
    pub fn take_change(&mut self) -> Option<Dma> {
        self.gap = false;
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let of = |wanted: fn(&Piece) -> bool| {
            let pieces = self.pieces.iter().filter(|piece| wanted(piece));
            Arc::new(GuestMemory::new(pieces.filter_map(|piece| piece.region.clone()).collect()))
        };
        Some(Dma { readable: of(|piece| piece.readable), writable: of(|piece| piece.writable) })
    }
}
