//! The log of written pages, for a migration that copies them again (vhost-user, "Migration").

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringway_memory::{Limits, MapError, Mapping, OverQuota, Quota};

use super::backing;

const PAGE_BITS: u32 = 12;

/// Why a dirty log cannot be mapped. The text is for users.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The log is too short for one word.
    #[error("a dirty log of {0} bytes")]
    Size(u64),
    /// The offset is not a multiple of the page size, or the file is too short.
    #[error("a dirty log of {size:#x} bytes at offset {offset:#x} of a file of {file:#x} bytes")]
    Place {
        /// Offset of the log in the file.
        offset: u64,
        /// Size of the log in bytes.
        size: u64,
        /// Length of the file in bytes.
        file: u64,
    },
    /// The log would exceed the memory limit of the port or of all ports together.
    #[error("{0}")]
    Limit(OverQuota),
    /// The kernel refuses the mapping.
    #[error("the dirty log cannot be mapped: {0}")]
    Map(#[from] std::io::Error),
}

impl From<MapError> for LogError {
    fn from(error: MapError) -> LogError {
        match error {
            MapError::Limit(over) => LogError::Limit(over),
            MapError::Kernel(error) => LogError::Map(error),
        }
    }
}

/// Why a written page could not be marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFault {
    /// The log has no bit for this guest physical address.
    TooSmall(u64),
    /// A page of the log was lost.
    MemoryLost,
}

/// A dirty log: a bitmap, shared with the front end, with one bit for each page of 4,096 bytes of guest physical
/// memory.
#[derive(Debug)]
pub struct DirtyLog {
    mapping: Mapping,
    words: usize,
}

impl DirtyLog {
    /// Maps a log without a memory limit, otherwise like [`DirtyLog::map_within`].
    ///
    /// # Errors
    /// Those of [`DirtyLog::map_within`], except the limit.
    pub fn map(file: &OwnedFd, size: u64, offset: u64) -> Result<DirtyLog, LogError> {
        Self::map_within(&Quota::of_port(Limits::ANY), file, size, offset)
    }

    /// Maps `size` bytes at `offset` of `file`.
    ///
    /// # Errors
    /// The size is too small, the offset is not a multiple of the page size, the file is not in memory or too short,
    /// the port would exceed its memory limit, or the kernel refuses.
    pub fn map_within(quota: &Arc<Quota>, file: &OwnedFd, size: u64, offset: u64) -> Result<DirtyLog, LogError> {
        let words = usize::try_from(size / 4).map_err(|_| LogError::Size(size))?;
        if words == 0 {
            return Err(LogError::Size(size));
        }
        backing::check(file)?;
        let has = u64::try_from(rustix::fs::fstat(file).map_err(std::io::Error::from)?.st_size).unwrap_or(0);
        if !offset.is_multiple_of(4096) || offset.checked_add(size).is_none_or(|end| end > has) {
            return Err(LogError::Place { offset, size, file: has });
        }
        Ok(DirtyLog { mapping: Mapping::given(file.as_fd(), offset, words.saturating_mul(4), quota)?, words })
    }

    /// Marks the pages of the `len` bytes at the guest physical address as dirty. Returns false when the log is too
    /// short for them.
    #[must_use]
    pub fn mark(&self, address: u64, len: u64) -> bool {
        let Some(behind) = len.checked_sub(1) else { return true };
        let Some(last) = address.checked_add(behind) else { return false };
        let (first, last) = (address >> PAGE_BITS, last >> PAGE_BITS);
        // The bit of a page is bit `page % 8` of byte `page / 8`. In little-endian words of 32 bits that is bit `page %
        // 32` of word `page / 32`.
        if (last / 32) as usize >= self.words {
            return false;
        }
        let view = self.mapping.view(0, self.words.saturating_mul(4));
        let Some(words) = view.and_then(|view| view.words32()) else { return false };
        for page in first..=last {
            // Release: the data written to the page become visible before its bit.
            words[(page / 32) as usize].fetch_or((1u32 << (page % 32)).to_le(), Ordering::Release);
        }
        true
    }

    /// Marks the pages of several ranges (guest physical address and length) as dirty.
    ///
    /// # Errors
    /// The log is too short, or a page of it was lost.
    pub fn mark_all(&self, ranges: impl IntoIterator<Item = (u64, u64)>) -> Result<(), LogFault> {
        for (address, len) in ranges {
            if !self.mark(address, len) {
                return Err(LogFault::TooSmall(address));
            }
        }
        if self.is_lost() { Err(LogFault::MemoryLost) } else { Ok(()) }
    }

    /// Returns true if a page of the log was lost: an access found no memory behind it.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.mapping.is_lost()
    }
}
