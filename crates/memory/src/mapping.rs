//! Owned address space. A mapping is rounded to the page size of its file.
//!
//! No mapping is in a core file of this process: what clients own, and frames, would be in files that outlast them. Clippy forbids
//! other ways to map memory (`clippy.toml`).

use std::ffi::c_void;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{io, ptr};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::guard::{self, Guarded};
use crate::quota::{Claim, OverQuota, Quota};
use crate::release::SharedFile;
use crate::view::View;

/// A mapped range of address space, unmapped on drop. All access is through [`View`]s.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    /// The mapped pages that contain it.
    pages: Pages,
    guarded: Guarded,
    /// Dropped after the pages are unmapped.
    claim: Option<Claim>,
    /// The file, if this process made it and a client has it, too.
    shared: Option<SharedFile>,
}

/// Why memory of another process cannot be mapped. The text is for users.
#[derive(Debug)]
pub enum MapError {
    /// The quota is used up.
    Limit(OverQuota),
    /// The kernel refuses the mapping.
    Kernel(io::Error),
}

impl From<io::Error> for MapError {
    fn from(error: io::Error) -> MapError {
        MapError::Kernel(error)
    }
}

/// Whole mapped pages of this process.
#[derive(Clone, Copy, Debug)]
struct Pages {
    start: usize,
    bytes: usize,
}

impl Pages {
    fn keep_out_of_core_files(self) -> io::Result<()> {
        // SAFETY: the advice changes what a core file has, and nothing in the memory. The pages belong to this process.
        Ok(unsafe { rustix::mm::madvise(self.start as *mut c_void, self.bytes, Advice::LinuxDontDump) }?)
    }

    /// # Safety
    /// The pages were just mapped or are no longer in use, and no view of them exists.
    unsafe fn unmap(self) {
        // SAFETY: the caller guarantees that no view of the pages exists.
        let _ = unsafe { rustix::mm::munmap(self.start as *mut c_void, self.bytes) };
    }
}

// SAFETY: the mapping is plain memory that outlives every view of it. All access goes through views, which treat it as
// memory that others write concurrently.
unsafe impl Send for Mapping {}
// SAFETY: see Send.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` bytes of `file`, shared and writable.
    ///
    /// # Errors
    /// The kernel refuses, or `bytes` is 0.
    pub fn shared(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        Self::shared_at(file, 0, bytes)
    }

    /// Maps `bytes` bytes at `offset` of `file`, shared and writable, and the rest of the pages that contain them.
    ///
    /// # Errors
    /// The kernel refuses, or `bytes` is 0.
    pub fn shared_at(file: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<Self> {
        Self::map(file, offset, bytes, |_| Ok(None))
    }

    /// Maps a file of another process like [`Mapping::shared_at`], within `quota`.
    ///
    /// # Errors
    /// The quota is used up, the kernel refuses, or `bytes` is 0.
    pub fn given(file: BorrowedFd<'_>, offset: u64, bytes: usize, quota: &Arc<Quota>) -> Result<Self, MapError> {
        Self::map(file, offset, bytes, |rounded| quota.claim(rounded as u64).map(Some).map_err(MapError::Limit))
    }

    fn map<E: From<io::Error>>(
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
        claim: impl FnOnce(usize) -> Result<Option<Claim>, E>,
    ) -> Result<Self, E> {
        let page = page_bytes(file)?;
        let lead = (offset % page as u64) as usize;
        let rounded = lead.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(page));
        let Some(rounded) = rounded.filter(|_| bytes > 0) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("a mapping of {bytes} bytes")).into());
        };
        let claim = claim(rounded)?;
        let (access, from) = (ProtFlags::READ | ProtFlags::WRITE, offset - lead as u64);
        #[allow(clippy::disallowed_methods, reason = "`own` keeps it out of core files")]
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let start = unsafe { rustix::mm::mmap(ptr::null_mut(), rounded, access, MapFlags::SHARED, file, from) };
        let pages = Pages { start: start.map_err(io::Error::from)? as usize, bytes: rounded };
        // Holes are watched only in files of ordinary pages: huge pages come from a pool of their own.
        Ok(Self::own(pages, lead, bytes, page == guard::page_bytes(), claim)?)
    }

    /// Maps zeroed memory of this process alone.
    ///
    /// # Errors
    /// The kernel refuses, or `bytes` is 0.
    pub fn private(bytes: usize) -> io::Result<Self> {
        Self::anonymous(bytes, MapFlags::PRIVATE)
    }

    /// Maps zeroed memory of this process, and has the kernel bring it in: no later access waits for the kernel, unless the memory is swapped out.
    ///
    /// # Errors
    /// The kernel refuses, or `bytes` is 0.
    pub fn resident(bytes: usize) -> io::Result<Self> {
        Self::anonymous(bytes, MapFlags::PRIVATE | MapFlags::POPULATE)
    }

    /// Maps zeroed memory of this process and the children that it forks.
    ///
    /// # Errors
    /// The kernel refuses, or `bytes` is 0.
    pub fn inherited(bytes: usize) -> io::Result<Self> {
        Self::anonymous(bytes, MapFlags::SHARED)
    }

    fn anonymous(bytes: usize, kind: MapFlags) -> io::Result<Self> {
        let rounded = bytes.checked_next_multiple_of(guard::page_bytes()).ok_or(io::ErrorKind::InvalidInput)?;
        #[allow(clippy::disallowed_methods, reason = "`own` keeps it out of core files")]
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let start =
            unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), rounded, ProtFlags::READ | ProtFlags::WRITE, kind) }?;
        Self::own(Pages { start: start as usize, bytes: rounded }, 0, bytes, false, None)
    }

    fn own(pages: Pages, lead: usize, bytes: usize, watched: bool, claim: Option<Claim>) -> io::Result<Self> {
        let guarded = NonNull::new((pages.start + lead) as *mut u8)
            .ok_or_else(|| io::Error::other("mmap returned address 0"))
            .and_then(|start| {
                pages.keep_out_of_core_files()?;
                let holes = claim.as_ref().filter(|_| watched).map(|claim| claim.quota().holes());
                // SAFETY: the claim keeps the quota alive, and is dropped after the mapping is unregistered.
                Ok((start, unsafe { guard::register(pages.start, pages.bytes, holes) }?))
            });
        match guarded {
            Ok((start, guarded)) => Ok(Self { start, bytes, pages, guarded, claim, shared: None }),
            Err(error) => {
                // SAFETY: the pages were just mapped, and no view of them exists.
                unsafe { pages.unmap() };
                Err(error)
            }
        }
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns a view of the whole mapping.
    #[inline]
    #[must_use]
    pub fn whole(&self) -> View<'_> {
        // SAFETY: start and bytes describe this mapping, which lives as long as the borrow.
        unsafe { View::new(self.start.as_ptr(), self.bytes) }
    }

    /// Returns the `len` bytes at `offset`, or `None` when they are not all inside.
    #[inline]
    #[must_use]
    pub fn view(&self, offset: usize, len: usize) -> Option<View<'_>> {
        self.whole().sub(offset, len)
    }

    /// Says which process has the memory, too, if it has a number: the time that unmapping lasts is that process's.
    pub fn set_owner(&self, process: Option<NonZeroU32>) {
        if let Some(shared) = &self.shared {
            shared.owner.store(process.map_or(0, NonZeroU32::get), Ordering::Relaxed);
        }
    }

    /// Returns true if a page of the mapping was lost: the file was truncated, or memory ran out. From then on other
    /// memory, zeroes at first, replaces the mapping and is shared with no process.
    #[inline]
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.guarded.is_lost()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let (guarded, pages, claim) = (self.guarded, self.pages, self.claim.take());
        let unmap = move || {
            guarded.unregister();
            // SAFETY: every view borrows the mapping, so no view exists any more.
            unsafe { pages.unmap() };
            drop(claim);
        };
        match self.shared.take() {
            Some(shared) => shared.release(unmap),
            None => unmap(),
        }
    }
}

/// Returns the page size of a mapping of `file`. A file of huge pages can only be mapped, unmapped and replaced in
/// units of these.
fn page_bytes(file: BorrowedFd<'_>) -> io::Result<usize> {
    /// HUGETLBFS_MAGIC of statfs(2). Files of hugetlbfs state their page size as block size.
    const HUGETLBFS: u32 = 0x9584_58f6;
    let (base, about) = (guard::page_bytes(), rustix::fs::fstatfs(file)?);
    if about.f_type as u32 != HUGETLBFS {
        return Ok(base);
    }
    match usize::try_from(about.f_bsize) {
        Ok(huge) if huge.is_power_of_two() && huge >= base => Ok(huge),
        _ => Err(io::Error::other(format!("a file of huge pages of {} bytes", about.f_bsize))),
    }
}

/// Memory to be shared with one client: a memfd that can neither shrink nor grow, and its mapping.
#[derive(Debug)]
pub struct SharedMemory {
    file: Arc<OwnedFd>,
    mapping: Arc<Mapping>,
}

impl SharedMemory {
    /// Makes `bytes` bytes of zeroed memory and seals it. Pages are allocated when first touched. More seals can be added, as Ringway adds one
    /// before it unmaps the memory ([`crate::release_by`]): a client that adds some harms itself.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn create(name: &str, bytes: usize) -> io::Result<Self> {
        let file = Arc::new(sealed_file(name, bytes)?);
        let mut mapping = Mapping::shared(file.as_fd(), bytes)?;
        mapping.shared = Some(SharedFile { file: Arc::clone(&file), owner: AtomicU32::new(0) });
        Ok(Self { file, mapping: Arc::new(mapping) })
    }

    /// Makes such memory with all of its pages. A page that its client takes out is not made again: the mapping is lost when this
    /// process touches the page. So a client cannot go on taking pages out, each of which costs this process a fault. Without
    /// userfaultfd(2) in the kernel it can. For a few pages: they are unmapped where the memory is dropped, and nobody can add seals.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn create_whole(name: &str, bytes: usize) -> io::Result<Self> {
        let file = sealed_file(name, bytes)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SEAL)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes as u64)?;
        Self::whole(file, bytes)
    }

    /// Maps memory that another process has made by [`SharedMemory::create_whole`], in its place.
    ///
    /// # Errors
    /// The file is smaller than `bytes` or not sealed against shrinking, or the kernel refuses.
    pub fn open_whole(file: OwnedFd, bytes: usize) -> io::Result<Self> {
        check_sealed(&file, bytes)?;
        Self::whole(file, bytes)
    }

    fn whole(file: OwnedFd, bytes: usize) -> io::Result<Self> {
        let mapping = Mapping::given(file.as_fd(), 0, bytes, &Quota::without_holes()).map_err(|error| match error {
            MapError::Kernel(error) => error,
            MapError::Limit(limit) => io::Error::other(limit),
        })?;
        Ok(Self { file: Arc::new(file), mapping: Arc::new(mapping) })
    }

    /// Maps memory that a switch has sent.
    ///
    /// # Errors
    /// The file is smaller than `bytes` or not sealed against shrinking, or the kernel refuses.
    pub fn open(file: OwnedFd, bytes: usize) -> io::Result<Self> {
        check_sealed(&file, bytes)?;
        let mapping = Arc::new(Mapping::shared(file.as_fd(), bytes)?);
        Ok(Self { file: Arc::new(file), mapping })
    }

    /// Maps memory that a predecessor of this process has made ([`SharedMemory::create`]) and a client has.
    ///
    /// # Errors
    /// See [`SharedMemory::open`].
    pub fn left(file: OwnedFd, bytes: usize) -> io::Result<Self> {
        let Self { file, mapping } = Self::open(file, bytes)?;
        let mut mapping = Arc::into_inner(mapping).ok_or(io::ErrorKind::Other)?;
        mapping.shared = Some(SharedFile { file: Arc::clone(&file), owner: AtomicU32::new(0) });
        Ok(Self { file, mapping: Arc::new(mapping) })
    }

    /// Returns the descriptor to pass on.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the mapping.
    #[must_use]
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }
}

/// Checks that a file has this many bytes and cannot shrink.
fn check_sealed(file: &OwnedFd, bytes: usize) -> io::Result<()> {
    let seals = rustix::fs::fcntl_get_seals(file)?;
    if !seals.contains(SealFlags::SHRINK) {
        return Err(io::Error::other("shared memory is not sealed against shrinking"));
    }
    let has = rustix::fs::fstat(file)?.st_size;
    if has < 0 || (has as u64) < bytes as u64 {
        return Err(io::Error::other(format!("shared memory has {has} bytes, {bytes} were promised")));
    }
    Ok(())
}

fn sealed_file(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(file)
}
