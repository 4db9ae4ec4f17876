//! One mapped region of a guest's memory.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ringway_memory::{GiveError, Kept, Limits, Mapping, OverQuota, Quota, View};

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
    /// It would be more memory than the port, or all ports, may have.
    #[error("{0}")]
    Limit(OverQuota),
    /// The kernel refuses.
    #[error("memory cannot be mapped (is it shared? QEMU: -object memory-backend-memfd,share=on): {0}")]
    Map(#[from] std::io::Error),
}

impl From<GiveError> for RegionError {
    fn from(error: GiveError) -> RegionError {
        match error {
            GiveError::Limit(over) => RegionError::Limit(over),
            GiveError::Kernel(error) => RegionError::Map(error),
        }
    }
}

/// A piece of guest memory: where the guest has it, where the front end has it, and our mapping of it.
#[derive(Debug)]
pub struct Region {
    guest: u64,
    user: u64,
    size: u64,
    /// Device, inode and offset of what is mapped.
    file: (u64, u64, u64),
    mapping: Arc<Mapping>,
}

impl Region {
    /// As [`Region::map_within`], without limits.
    ///
    /// # Errors
    /// As there.
    pub fn map(file: &OwnedFd, guest: u64, size: u64, user: u64, offset: u64) -> Result<Region, RegionError> {
        Self::map_within(&Quota::of_port(Limits::ANY), file, guest, size, user, offset)
    }

    /// Maps `size` bytes at `offset` of `file`: guest physical address `guest`, the front end's own address `user`.
    ///
    /// # Errors
    /// Sizes and addresses do not go together, the file is too short, the port has more memory than it may, or the kernel refuses.
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
        super::check_backing(file)?;
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
        self.mapping.whole()
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
        Kept::new(&self.mapping, |mapping| find(mapping.view(offset, len)?))
    }

    /// Whether a page of it could not be had.
    #[inline]
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.mapping.is_lost()
    }

    /// Whether this is `size` bytes at `offset` of `file`, at these addresses, and still whole.
    #[must_use]
    pub fn is_same(&self, file: &OwnedFd, guest: u64, size: u64, user: u64, offset: u64) -> bool {
        // The mapping holds the file, so that no other has its number.
        (self.guest, self.size, self.user, self.file.2) == (guest, size, user, offset)
            && !self.is_lost()
            && rustix::fs::fstat(file).is_ok_and(|stat| {
                let is_long_enough = u64::try_from(stat.st_size).is_ok_and(|has| has.saturating_sub(offset) >= size);
                (stat.st_dev, stat.st_ino) == (self.file.0, self.file.1) && is_long_enough
            })
    }

    /// Whether the two share guest addresses, or addresses in the front end.
    #[must_use]
    pub fn overlaps(&self, other: &Region) -> bool {
        let meet = |a: u64, b: u64| a < b.saturating_add(other.size) && b < a.saturating_add(self.size);
        meet(self.guest, other.guest) || meet(self.user, other.user)
    }
}
