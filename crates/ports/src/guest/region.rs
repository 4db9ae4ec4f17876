//! One piece of a guest's memory.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ringway_memory::{Kept, Mapping, View};

/// Why a region cannot be had. The text is for users.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// Nothing in it.
    #[error("a memory region of 0 bytes")]
    Empty,
    /// An address or an offset and the size add up to more than there is.
    #[error("a memory region whose {what} {start:#x} and size {size:#x} wrap around")]
    Wraps {
        /// Which address.
        what: &'static str,
        /// Where it begins.
        start: u64,
        /// Its bytes.
        size: u64,
    },
    /// The file does not hold it.
    #[error("a memory region of {size:#x} bytes at offset {offset:#x} of a file of {file:#x} bytes")]
    BeyondFile {
        /// Where it begins in the file.
        offset: u64,
        /// Its bytes.
        size: u64,
        /// Bytes of the file.
        file: u64,
    },
    /// The kernel refuses.
    #[error("memory cannot be mapped (is it shared? QEMU: -object memory-backend-memfd,share=on): {0}")]
    Map(#[from] std::io::Error),
}

/// A piece of guest memory: where the guest has it, where the front end has it, and our mapping of it.
#[derive(Debug)]
pub struct Region {
    guest: u64,
    user: u64,
    size: u64,
    /// Bytes of the mapping before the region's first.
    lead: usize,
    /// Device, inode and offset of what is mapped.
    file: (u64, u64, u64),
    mapping: Arc<Mapping>,
}

impl Region {
    /// Maps `size` bytes at `offset` of `file`: guest physical address `guest`, the front end's own address `user`.
    ///
    /// # Errors
    /// Sizes and addresses do not go together, the file is too short, or the kernel refuses.
    pub fn map(file: &OwnedFd, guest: u64, size: u64, user: u64, offset: u64) -> Result<Region, RegionError> {
        if size == 0 {
            return Err(RegionError::Empty);
        }
        for (what, start) in [("guest address", guest), ("user address", user), ("file offset", offset)] {
            if start.checked_add(size).is_none() {
                return Err(RegionError::Wraps { what, start, size });
            }
        }
        super::check_backing(file)?;
        let stat = rustix::fs::fstat(file).map_err(std::io::Error::from)?;
        let has = u64::try_from(stat.st_size).unwrap_or(0);
        if offset + size > has {
            return Err(RegionError::BeyondFile { offset, size, file: has });
        }
        // Files of huge pages can be mapped at multiples of their page size only, which they state as block size.
        let page = u64::try_from(stat.st_blksize).unwrap_or(0).max(4096);
        let page = if page.is_power_of_two() { page } else { 4096 };
        let start = offset & !(page - 1);
        let end = (offset + size).next_multiple_of(page).min(has.next_multiple_of(page));
        let bytes = usize::try_from(end - start).map_err(std::io::Error::other)?;
        let mapping = Arc::new(Mapping::shared_at(file.as_fd(), start, bytes)?);
        let file = (stat.st_dev, stat.st_ino, offset);
        Ok(Region { guest, user, size, lead: (offset - start) as usize, file, mapping })
    }

    /// Its first guest physical address.
    #[inline]
    #[must_use]
    pub fn guest(&self) -> u64 {
        self.guest
    }

    /// Its first address in the front end.
    #[must_use]
    pub fn user(&self) -> u64 {
        self.user
    }

    /// Its bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Device, inode and offset of what is mapped.
    #[must_use]
    pub fn file(&self) -> (u64, u64, u64) {
        self.file
    }

    /// All of it.
    #[inline]
    #[must_use]
    pub fn whole(&self) -> View<'_> {
        // `map` saw to it that the region is inside its mapping.
        let whole = self.mapping.whole();
        whole.sub(self.lead, self.size as usize).unwrap_or(whole)
    }

    /// What `find` makes of `len` bytes at the guest physical address, kept as long as it is needed; `None` unless they are all
    /// inside.
    pub fn keep<T: ?Sized + 'static>(
        &self,
        address: u64,
        len: usize,
        find: impl for<'m> FnOnce(View<'m>) -> Option<&'m T>,
    ) -> Option<Kept<T>> {
        let offset = usize::try_from(address.checked_sub(self.guest)?).ok()?;
        self.whole().sub(offset, len)?;
        Kept::new(&self.mapping, |mapping| find(mapping.view(self.lead + offset, len)?))
    }

    /// Whether a page of it could not be had.
    #[inline]
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.mapping.is_lost()
    }

    /// Whether both are the same piece of the same file at the same addresses.
    #[must_use]
    pub fn is_same(&self, other: &Region) -> bool {
        let identity = |region: &Region| (region.guest, region.user, region.size, region.file);
        identity(self) == identity(other)
    }

    /// Whether the two share guest addresses, or addresses in the front end.
    #[must_use]
    pub fn overlaps(&self, other: &Region) -> bool {
        let meet = |a: u64, b: u64| a < b + other.size && b < a + self.size;
        meet(self.guest, other.guest) || meet(self.user, other.user)
    }
}
