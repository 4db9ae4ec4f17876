//! One mapped region of a guest's memory.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ringway_memory::{Kept, Limits, MapError, Mapping, OverQuota, Quota, View};

use super::backing;

/// Why a region cannot be mapped. The text is for users.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// The region has 0 bytes.
    #[error("a memory region of 0 bytes")]
    Empty,
    /// The sum of an address or an offset and the size overflows.
    #[error("a memory region whose {what} {start:#x} and size {size:#x} wrap around")]
    Wraps {
        /// Which address or offset.
        what: &'static str,
        /// Its value.
        start: u64,
        /// Size of the region in bytes.
        size: u64,
    },
    /// The file is too short for the region.
    #[error("a memory region of {size:#x} bytes at offset {offset:#x} of a file of {file:#x} bytes")]
    BeyondFile {
        /// Offset of the region in the file.
        offset: u64,
        /// Size of the region in bytes.
        size: u64,
        /// Length of the file in bytes.
        file: u64,
    },
    /// The region would exceed the memory limit of the port or of all ports together.
    #[error("{0}")]
    Limit(OverQuota),
    /// The kernel refuses the mapping.
    #[error("memory cannot be mapped (is it shared? QEMU: -object memory-backend-memfd,share=on): {0}")]
    Map(#[from] std::io::Error),
}

impl From<MapError> for RegionError {
    fn from(error: MapError) -> RegionError {
        match error {
            MapError::Limit(over) => RegionError::Limit(over),
            MapError::Kernel(error) => RegionError::Map(error),
        }
    }
}

/// One region of guest memory: its guest physical address, its address in the front end's address space, and our
/// mapping of it.
#[derive(Debug)]
pub struct Region {
    guest: u64,
    user: u64,
    size: u64,
    /// Device and inode of the mapped file, and the offset in it.
    file: (u64, u64, u64),
    mapping: Arc<Mapping>,
}

impl Region {
    /// Maps a region without a memory limit, otherwise like [`Region::map_within`].
    ///
    /// # Errors
    /// Those of [`Region::map_within`], except the limit.
    pub fn map(file: &OwnedFd, guest: u64, size: u64, user: u64, offset: u64) -> Result<Region, RegionError> {
        Self::map_within(&Quota::of_port(Limits::ANY), file, guest, size, user, offset)
    }

    /// Maps `size` bytes at `offset` of `file`. They are the memory at guest physical address `guest`, and at address
    /// `user` of the front end.
    ///
    /// # Errors
    /// The size is 0, an address range wraps around, the file is not in memory or too short, the port would exceed its
    /// memory limit, or the kernel refuses.
    pub fn map_within(
        quota: &Arc<Quota>,
        file: &OwnedFd,
        guest: u64,
        size: u64,
        user: u64,
        offset: u64,
    ) -> Result<Region, RegionError> {
        if size == 0 {
            return Err(RegionError::Empty);
        }
        for (what, start) in [("guest address", guest), ("user address", user), ("file offset", offset)] {
            if start.checked_add(size).is_none() {
                return Err(RegionError::Wraps { what, start, size });
            }
        }
        backing::check(file)?;
        let stat = rustix::fs::fstat(file).map_err(std::io::Error::from)?;
        let has = u64::try_from(stat.st_size).unwrap_or(0);
        if offset.checked_add(size).is_none_or(|end| end > has) {
            return Err(RegionError::BeyondFile { offset, size, file: has });
        }
        let bytes = usize::try_from(size).map_err(std::io::Error::other)?;
        let mapping = Arc::new(Mapping::given(file.as_fd(), offset, bytes, quota)?);
        let file = (stat.st_dev, stat.st_ino, offset);
        Ok(Region { guest, user, size, file, mapping })
    }

    /// The first guest physical address.
    #[inline]
    #[must_use]
    pub fn guest(&self) -> u64 {
        self.guest
    }

    /// The first address in the front end's address space.
    #[must_use]
    pub fn user(&self) -> u64 {
        self.user
    }

    /// The size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Device and inode of the mapped file, and the offset in it.
    #[must_use]
    pub fn file(&self) -> (u64, u64, u64) {
        self.file
    }

    /// A view of the whole region.
    #[inline]
    #[must_use]
    pub fn whole(&self) -> View<'_> {
        self.mapping.whole()
    }

    /// Returns what `find` returns for the `len` bytes at the guest physical address, and keeps the mapping alive with
    /// it. Returns `None` unless all the bytes are inside the region.
    pub fn keep<T: ?Sized + 'static>(
        &self,
        address: u64,
        len: usize,
        find: impl for<'m> FnOnce(View<'m>) -> Option<&'m T>,
    ) -> Option<Kept<T>> {
        let offset = usize::try_from(address.checked_sub(self.guest)?).ok()?;
        self.whole().sub(offset, len)?;
        Kept::new(&self.mapping, |mapping| find(mapping.view(offset, len)?))
    }

    /// Returns true if a page of the region was lost: an access found no memory behind it.
    #[inline]
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.mapping.is_lost()
    }

    /// Returns true if this region maps `size` bytes at `offset` of `file` at these addresses, and none of its pages is
    /// lost.
    #[must_use]
    pub fn is_same(&self, file: &OwnedFd, guest: u64, size: u64, user: u64, offset: u64) -> bool {
        // The mapping keeps the file open, so no other file can have its inode number.
        (self.guest, self.size, self.user, self.file.2) == (guest, size, user, offset)
            && !self.is_lost()
            && rustix::fs::fstat(file).is_ok_and(|stat| {
                let is_long_enough = u64::try_from(stat.st_size).is_ok_and(|has| has.saturating_sub(offset) >= size);
                (stat.st_dev, stat.st_ino) == (self.file.0, self.file.1) && is_long_enough
            })
    }

    /// Returns true if the two regions share guest addresses, or addresses of the front end.
    #[must_use]
    pub fn overlaps(&self, other: &Region) -> bool {
        let meet = |a: u64, b: u64| a < b.saturating_add(other.size) && b < a.saturating_add(self.size);
        meet(self.guest, other.guest) || meet(self.user, other.user)
    }
}
