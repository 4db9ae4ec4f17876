//! Owned address space.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::{io, ptr};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::guard::{self, Guarded};
use crate::view::View;

/// A piece of address space, unmapped on drop. Reached only through [`View`]s.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    guarded: Guarded,
}

// SAFETY: the mapping is plain memory that outlives every view of it; all access goes through views, which treat it as
// memory that others write concurrently.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` of `file`, shared and writable.
    ///
    /// # Errors
    /// The kernel refuses, or `bytes` is 0.
    pub fn shared(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        Self::shared_at(file, 0, bytes)
    }

    /// Maps `bytes` of `file` from `offset` on, shared and writable.
    ///
    /// # Errors
    /// The kernel refuses (`offset` must be a multiple of the page size), or `bytes` is 0.
    pub fn shared_at(file: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address the kernel chooses replaces nothing.
        let start = unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, file, offset) }?;
        Self::own(start.cast(), bytes)
    }

    /// Zeroed memory of this process alone.
    ///
    /// # Errors
    /// The kernel refuses, or `bytes` is 0.
    pub fn private(bytes: usize) -> io::Result<Self> {
        // SAFETY: as in `shared`.
        let start = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }?;
        Self::own(start.cast(), bytes)
    }

    fn own(start: *mut u8, bytes: usize) -> io::Result<Self> {
        let start_ptr = NonNull::new(start).ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        match guard::register(start as usize, bytes) {
            Ok(guarded) => Ok(Self { start: start_ptr, bytes, guarded }),
            Err(error) => {
                // SAFETY: just mapped, nobody has a view.
                let _ = unsafe { rustix::mm::munmap(start.cast(), bytes) };
                Err(error)
            }
        }
    }

    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// All of it.
    #[inline]
    #[must_use]
    pub fn whole(&self) -> View<'_> {
        // SAFETY: start and bytes describe this mapping, which lives as long as the borrow.
        unsafe { View::new(self.start.as_ptr(), self.bytes) }
    }

    /// `len` bytes at `offset`; `None` when they are not all inside.
    #[inline]
    #[must_use]
    pub fn view(&self, offset: usize, len: usize) -> Option<View<'_>> {
        self.whole().sub(offset, len)
    }

    /// Whether a page could not be had since the mapping was made: the file behind it was truncated, or memory ran out.
    /// From then on the mapping is zeroes that nobody shares.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.guarded.is_lost()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.guarded.unregister();
        // SAFETY: every view borrows the mapping, so none is left.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Memory made to be shared with one client: a memfd that can neither shrink nor grow, and its mapping.
#[derive(Debug)]
pub struct SharedMemory {
    file: OwnedFd,
    mapping: Arc<Mapping>,
}

impl SharedMemory {
    /// Makes `bytes` of zeroed memory, sealed. Pages are taken when first touched.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn create(name: &str, bytes: usize) -> io::Result<Self> {
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, bytes as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mapping = Arc::new(Mapping::shared(file.as_fd(), bytes)?);
        Ok(Self { file, mapping })
    }

    /// Maps what a switch sent.
    ///
    /// # Errors
    /// The file is smaller than `bytes` or not sealed against shrinking, or the kernel refuses.
    pub fn open(file: OwnedFd, bytes: usize) -> io::Result<Self> {
        let seals = rustix::fs::fcntl_get_seals(&file)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(io::Error::other("shared memory is not sealed against shrinking"));
        }
        let has = rustix::fs::fstat(&file)?.st_size;
        if has < 0 || (has as u64) < bytes as u64 {
            return Err(io::Error::other(format!("shared memory has {has} bytes, {bytes} were promised")));
        }
        let mapping = Arc::new(Mapping::shared(file.as_fd(), bytes)?);
        Ok(Self { file, mapping })
    }

    /// The descriptor to pass on.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The mapping.
    #[must_use]
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }
}
