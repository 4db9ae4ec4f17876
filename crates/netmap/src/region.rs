//! Mapped memory of the daemon: one mapping for each region, however many files use it.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::lock::Lock;
use crate::private::Private;

/// Most regions that one process maps at the same time.
const REGIONS: usize = 64;

struct Region {
    users: AtomicU32,
    inode: AtomicU64,
    start: AtomicPtr<u8>,
    bytes: AtomicUsize,
    memory: Private,
}

static REGION: [Region; REGIONS] = [const {
    Region {
        users: AtomicU32::new(0),
        inode: AtomicU64::new(0),
        start: AtomicPtr::new(null_mut()),
        bytes: AtomicUsize::new(0),
        memory: Private::none(),
    }
}; REGIONS];
pub(crate) static LOCK: Lock = Lock::new();

/// A use of a region. It is given back with [`Used::end`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used(usize);

impl Used {
    /// Uses the region with this memory. Maps it unless another file has it mapped.
    pub(crate) fn new(memory: OwnedFd, bytes: usize) -> Option<Used> {
        let stat = rustix::fs::fstat(&memory).ok()?;
        if usize::try_from(stat.st_size).ok()? != bytes || bytes == 0 {
            return None;
        }
        let _held = LOCK.take()?;
        let users = |region: &Region| region.users.load(Ordering::Relaxed);
        // An inode's number is not used again while the memory is open here.
        let known =
            REGION.iter().position(|region| users(region) > 0 && region.inode.load(Ordering::Relaxed) == stat.st_ino);
        if let Some(index) = known {
            REGION[index].users.fetch_add(1, Ordering::Relaxed);
            return Some(Used(index));
        }
        let index = REGION.iter().position(|region| users(region) == 0)?;
        REGION[index].unmap();
        #[allow(clippy::disallowed_methods, reason = "the memory of the program that this library is in")]
        // SAFETY: a new mapping, at an address that the kernel chooses. The memory is sealed against shrinking.
        let start = unsafe {
            mmap(
                null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &memory,
                0,
            )
        };
        let region = &REGION[index];
        region.start.store(start.ok()?.cast(), Ordering::Relaxed);
        region.bytes.store(bytes, Ordering::Relaxed);
        region.inode.store(stat.st_ino, Ordering::Relaxed);
        region.memory.put(memory);
        region.users.store(1, Ordering::Release);
        Some(Used(index))
    }

    /// Returns the place at `offset`, if `bytes` bytes from there are in the region.
    pub(crate) fn place(self, offset: usize, bytes: usize) -> Option<NonNull<u8>> {
        let region = &REGION[self.0];
        let end = offset.checked_add(bytes)?;
        let start = NonNull::new(region.start.load(Ordering::Relaxed))?;
        // SAFETY: inside the mapping.
        (end <= region.bytes.load(Ordering::Relaxed)).then(|| unsafe { start.add(offset) })
    }

    /// Returns the memory's size.
    pub(crate) fn bytes(self) -> usize {
        REGION[self.0].bytes.load(Ordering::Relaxed)
    }

    /// Returns the memory.
    pub(crate) fn memory(self) -> Option<BorrowedFd<'static>> {
        REGION[self.0].memory.get()
    }

    /// Ends the use. The last one unmaps the memory. In a signal handler whose own thread is mapping memory, the mapping stays until its place
    /// is wanted.
    pub(crate) fn end(self) {
        let region = &REGION[self.0];
        if region.users.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        if let Some(_held) = LOCK.take()
            && region.users.load(Ordering::Acquire) == 0
        {
            region.unmap();
        }
    }
}

impl Region {
    /// Unmaps the memory, if there is any. The caller holds the lock, and the region has no users.
    fn unmap(&self) {
        let start = self.start.swap(null_mut(), Ordering::Relaxed);
        if !start.is_null() {
            // SAFETY: mapped by `Used::new`; the last file that used it has gone.
            let _ = unsafe { munmap(start.cast(), self.bytes.load(Ordering::Relaxed)) };
            self.memory.close();
        }
    }
}

/// Moves a memory file away from the number `fd`: see [`Private::leave`].
pub(crate) fn leave(fd: i32) {
    REGION.iter().for_each(|region| region.memory.leave(fd));
}
