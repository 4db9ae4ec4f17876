//! The log of written pages, for a migration that copies them again (vhost-user, "Migration").

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringway_memory::{GiveError, Limits, Mapping, OverQuota, Quota};

use crate::virtqueue::RingFault;

const PAGE_BITS: u32 = 12;

/// Why a log cannot be had. The text is for users.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Too short for a page.
    #[error("a dirty log of {0} bytes")]
    Size(u64),
    /// Not a multiple of the page size, or beyond what there is.
    #[error("a dirty log of {size:#x} bytes at offset {offset:#x} of a file of {file:#x} bytes")]
    Place {
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
    #[error("the dirty log cannot be mapped: {0}")]
    Map(#[from] std::io::Error),
}

impl From<GiveError> for LogError {
    fn from(error: GiveError) -> LogError {
        match error {
            GiveError::Limit(over) => LogError::Limit(over),
            GiveError::Kernel(error) => LogError::Map(error),
        }
    }
}

/// One bit per page of 4,096 bytes of guest physical memory, shared with the front end.
#[derive(Debug)]
pub struct DirtyLog {
    mapping: Mapping,
    words: usize,
}

impl DirtyLog {
    /// As [`DirtyLog::map_within`], without limits.
    ///
    /// # Errors
    /// As there.
    pub fn map(file: &OwnedFd, size: u64, offset: u64) -> Result<DirtyLog, LogError> {
        Self::map_within(&Quota::of_port(Limits::ANY), file, size, offset)
    }

    /// Maps `size` bytes at `offset` of `file`.
    ///
    /// # Errors
    /// The file does not hold them, the port has more memory than it may, or the kernel refuses.
    pub fn map_within(quota: &Arc<Quota>, file: &OwnedFd, size: u64, offset: u64) -> Result<DirtyLog, LogError> {
        let words = usize::try_from(size / 4).map_err(|_| LogError::Size(size))?;
        if words == 0 {
            return Err(LogError::Size(size));
        }
        super::check_backing(file)?;
        let has = u64::try_from(rustix::fs::fstat(file).map_err(std::io::Error::from)?.st_size).unwrap_or(0);
        if !offset.is_multiple_of(4096) || offset.checked_add(size).is_none_or(|end| end > has) {
            return Err(LogError::Place { offset, size, file: has });
        }
        Ok(DirtyLog { mapping: Mapping::given(file.as_fd(), offset, words.saturating_mul(4), quota)?, words })
    }

    /// Marks the pages of `len` bytes at the guest physical address; false when the log does not reach that far.
    #[must_use]
    pub fn mark(&self, address: u64, len: u64) -> bool {
        let Some(behind) = len.checked_sub(1) else { return true };
        let Some(last) = address.checked_add(behind) else { return false };
        let (first, last) = (address >> PAGE_BITS, last >> PAGE_BITS);
        // Byte page / 8, bit page % 8: in little-endian words of 32 that is word page / 32, bit page % 32.
        if (last / 32) as usize >= self.words {
            return false;
        }
        let view = self.mapping.view(0, self.words.saturating_mul(4));
        let Some(words) = view.and_then(|view| view.words32()) else { return false };
        for page in first..=last {
            // What was written is there before its bit is.
            words[(page / 32) as usize].fetch_or((1u32 << (page % 32)).to_le(), Ordering::Release);
        }
        true
    }

    /// Marks the pages of several ranges.
    ///
    /// # Errors
    /// The log does not reach that far, or its memory was lost.
    pub fn mark_all(&self, ranges: impl IntoIterator<Item = (u64, u64)>) -> Result<(), RingFault> {
        for (address, len) in ranges {
            if !self.mark(address, len) {
                return Err(RingFault::LogTooSmall(address));
            }
        }
        if self.is_lost() { Err(RingFault::MemoryLost) } else { Ok(()) }
    }

    /// Whether a page of it could not be had.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.mapping.is_lost()
    }
}
