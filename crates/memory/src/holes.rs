//! Pages of a client's file that do not exist yet.
//!
//! A page of a sparse file is allocated when it is first touched, and the kernel charges it to the process that touches
//! it. So a client could make this process allocate memory without bound, outside of the client's own limits. Mappings
//! of clients' files are therefore registered with userfaultfd(2), by which touching such a page raises SIGBUS
//! (UFFD_FEATURE_SIGBUS), and the guard's handler decides: it allocates the page within the port's bound; otherwise the
//! mapping is lost and the port ends with `memory_holes`.
//!
//! Existing pages, in memory or in swap, cost nothing: the kernel maps them as usual. Files of huge pages are not
//! registered: their pages come from a pool that the administrator has set aside. Without userfaultfd in the kernel
//! there is no bound, and the log says so.
//!
//! A frame that a guest sends is in pages that the guest has written, but receive buffers may be in pages that the
//! guest has never touched. So fewer pages may be allocated for reading ([`READ_SHARE`]). Both bounds refill within
//! [`REFILL_NS`], because a page may have been freed since: a port outlives its front ends, and a guest may return memory.
//! The bound of all mappings together does not refill: an allocated page counts until its mapping is removed.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Filling for reads has this fraction of the limit for writes.
pub(crate) const READ_SHARE: u64 = 64;
/// Nanoseconds in which an empty bucket refills.
pub(crate) const REFILL_NS: u64 = 3_600_000_000_000;

/// Limits the filling of holes by two token buckets, one for writes and one for reads. Everything that the signal
/// handler uses is atomic.
#[derive(Debug, Default)]
pub(crate) struct Holes {
    /// Bytes that may be filled for writes: the size of the bucket.
    limit: AtomicU64,
    /// When each bucket is full again, in nanoseconds of CLOCK_MONOTONIC: for reads, and for writes.
    full_at: [AtomicU64; 2],
    /// Bytes that were filled.
    filled_bytes: AtomicU64,
    /// True if a limit was reached.
    refused: AtomicBool,
}

impl Holes {
    pub(crate) const fn new(limit: u64) -> Holes {
        let (limit, filled_bytes, refused) = (AtomicU64::new(limit), AtomicU64::new(0), AtomicBool::new(false));
        Holes { limit, full_at: [const { AtomicU64::new(0) }; 2], filled_bytes, refused }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    pub(crate) fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    pub(crate) fn filled_bytes(&self) -> u64 {
        self.filled_bytes.load(Ordering::Relaxed)
    }

    /// Notes that the limit of all mappings was reached. Async-signal-safe.
    pub(crate) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// Returns true if a limit was reached since the last call.
    pub(crate) fn take_refused(&self) -> bool {
        self.refused.swap(false, Ordering::Relaxed)
    }

    /// Takes `bytes` from a bucket at the time `now`, in nanoseconds, and notes a limit that is reached. Returns false if
    /// the bucket has too few. Async-signal-safe.
    pub(crate) fn take(&self, bytes: u64, writes: bool, now: u64) -> bool {
        let taken = self.try_take(bytes, writes, now);
        if !taken {
            self.refuse();
        }
        taken
    }

    /// Takes `bytes` from a bucket at the time `now`, in nanoseconds. Returns false if the bucket has too few.
    /// Async-signal-safe.
    pub(crate) fn try_take(&self, bytes: u64, writes: bool, now: u64) -> bool {
        let cost = self.cost(bytes, writes);
        let later = |full_at: u64| {
            let then = u128::from(full_at.max(now)) + cost;
            u64::try_from(then).ok().filter(|&then| then <= now.saturating_add(REFILL_NS))
        };
        let taken = self.full_at[usize::from(writes)].fetch_update(Ordering::Relaxed, Ordering::Relaxed, later).is_ok();
        if taken {
            self.filled_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        taken
    }

    /// Returns `bytes` that were taken and not used to a bucket. Async-signal-safe.
    pub(crate) fn give_back(&self, bytes: u64, writes: bool) {
        let cost = u64::try_from(self.cost(bytes, writes)).unwrap_or(u64::MAX);
        let earlier = |full_at: u64| Some(full_at.saturating_sub(cost));
        let _ = self.full_at[usize::from(writes)].fetch_update(Ordering::Relaxed, Ordering::Relaxed, earlier);
        self.filled_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Nanoseconds in which `bytes` of a bucket refill.
    fn cost(&self, bytes: u64, writes: bool) -> u128 {
        let most = self.limit() / if writes { 1 } else { READ_SHARE };
        u128::from(REFILL_NS) * u128::from(bytes) / u128::from(most.max(1))
    }
}

/// Limit for all mappings together, and bytes that were filled in all present mappings.
static TOTAL_LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);
static TOTAL_FILLED: AtomicU64 = AtomicU64::new(0);

/// Sets how many bytes may be filled in all mappings together.
pub(crate) fn set_total_limit(bytes: u64) {
    TOTAL_LIMIT.store(bytes, Ordering::Relaxed);
}

/// Returns the bytes filled in all present mappings.
pub(crate) fn total_filled() -> u64 {
    TOTAL_FILLED.load(Ordering::Relaxed)
}

/// Takes `bytes` from the limit of all mappings. Returns false if the limit is reached. Async-signal-safe.
pub(crate) fn take_from_total(bytes: u64) -> bool {
    let most = TOTAL_LIMIT.load(Ordering::Relaxed);
    let sum = |made: u64| made.checked_add(bytes).filter(|&sum| sum <= most);
    TOTAL_FILLED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).is_ok()
}

/// Returns the filled bytes of a removed mapping to the limit of all mappings.
pub(crate) fn return_to_total(bytes: u64) {
    TOTAL_FILLED.fetch_sub(bytes, Ordering::Relaxed);
}

/// Returns nanoseconds of CLOCK_MONOTONIC. Async-signal-safe.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable and outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// The result of filling a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// The page is there, or the access will fault again.
    Present,
    /// The file has no such page, or there is no memory for it.
    Failed,
}

/// Constants of uapi/linux/userfaultfd.h.
mod uapi {
    pub const UFFD_API: u64 = 0xaa;
    pub const USER_MODE_ONLY: libc::c_int = 1;
    pub const FEATURE_MISSING_SHMEM: u64 = 1 << 5;
    pub const FEATURE_SIGBUS: u64 = 1 << 7;
    pub const MODE_MISSING: u64 = 1;
    pub const IOCTL_API: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;
    pub const IOCTL_REGISTER: libc::Ioctl = 0xc020_aa00_u32 as libc::Ioctl;
    pub const IOCTL_ZEROPAGE: libc::Ioctl = 0xc020_aa04_u32 as libc::Ioctl;

    #[repr(C)]
    pub struct Api {
        pub api: u64,
        pub features: u64,
        pub ioctls: u64,
    }

    /// `uffdio_register` and `uffdio_zeropage`. They differ only in the meaning of the last field, which the kernel
    /// writes.
    #[repr(C)]
    pub struct Range {
        pub start: u64,
        pub len: u64,
        pub mode: u64,
        pub answer: u64,
    }
}

/// Returns the process's userfaultfd, or `None` if the kernel has none or refuses it.
pub(crate) fn descriptor() -> Option<&'static OwnedFd> {
    static DESCRIPTOR: OnceLock<Option<OwnedFd>> = OnceLock::new();
    DESCRIPTOR.get_or_init(|| open().ok()).as_ref()
}

fn open() -> io::Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // The first variant needs no privilege (Linux 5.11). In both variants, a system call that touches a missing page
    // fails with EFAULT.
    let raw = [flags | uapi::USER_MODE_ONLY, flags].into_iter().find_map(|flags| {
        // SAFETY: the call only makes a descriptor.
        let raw = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        libc::c_int::try_from(raw).ok().filter(|&raw| raw >= 0)
    });
    // SAFETY: the descriptor was just made, and nothing else owns it.
    let file = unsafe { OwnedFd::from_raw_fd(raw.ok_or_else(io::Error::last_os_error)?) };
    let features = uapi::FEATURE_MISSING_SHMEM | uapi::FEATURE_SIGBUS;
    let mut api = uapi::Api { api: uapi::UFFD_API, features, ioctls: 0 };
    // SAFETY: `api` is the structure that this request reads and writes.
    match unsafe { libc::ioctl(file.as_raw_fd(), uapi::IOCTL_API, &raw mut api) } {
        0 => Ok(file),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes accesses to missing pages of this mapping raise SIGBUS from now on.
pub(crate) fn watch(start: usize, bytes: usize) -> io::Result<()> {
    let Some(file) = descriptor() else { return Ok(()) };
    let mut range = uapi::Range { start: start as u64, len: bytes as u64, mode: uapi::MODE_MISSING, answer: 0 };
    // SAFETY: `range` is the structure that this request reads and writes.
    match unsafe { libc::ioctl(file.as_raw_fd(), uapi::IOCTL_REGISTER, &raw mut range) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Fills whole pages with zeroes, up to the first page that is there already. Returns the number of bytes filled, and the
/// result for the first page. Async-signal-safe.
pub(crate) fn fill(userfaultfd: libc::c_int, start: usize, bytes: usize) -> (usize, Filled) {
    let mut range = uapi::Range { start: start as u64, len: bytes as u64, mode: 0, answer: 0 };
    // SAFETY: `range` is the structure that this request reads and writes.
    if unsafe { libc::ioctl(userfaultfd, uapi::IOCTL_ZEROPAGE, &raw mut range) } == 0 {
        return (bytes, Filled::Present);
    }
    // The answer is a number of bytes, or a negative error number if that is 0.
    let filled = usize::try_from(range.answer as i64).unwrap_or(0).min(bytes);
    // SAFETY: the thread's own errno.
    match unsafe { *libc::__errno_location() } {
        // EEXIST: the page is there. EAGAIN: some pages were filled, or the mappings of the process are changing.
        libc::EEXIST | libc::EAGAIN => (filled, Filled::Present),
        _ => (filled, if filled > 0 { Filled::Present } else { Filled::Failed }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    #[test]
    fn as_many_pages_are_made_as_the_bound_allows_and_as_many_again_within_an_hour() {
        for (writes, share) in [(true, 1), (false, READ_SHARE)] {
            let holes = Holes::new(64 << 20);
            let most = (64 << 20) / share / PAGE;
            let count = |now| (0..).take_while(|_| holes.take(PAGE, writes, now)).count() as u64;
            let start = 1 << 50;
            assert_eq!(count(start), most);
            assert!(holes.take_refused() && !holes.take_refused());
            assert_eq!(count(start), 0);
            assert_eq!(count(start + REFILL_NS / 4), most / 4);
            assert_eq!(count(start + 10 * REFILL_NS), most);
            assert_eq!(holes.filled_bytes(), (2 * most + most / 4) * PAGE);
        }
    }

    #[test]
    fn what_is_taken_and_not_used_can_be_taken_again() {
        let holes = Holes::new(64 * PAGE);
        let start = 1 << 50;
        for _ in 0..1000 {
            assert!(holes.try_take(16 * PAGE, true, start));
            holes.give_back(15 * PAGE, true);
            holes.give_back(PAGE, true);
        }
        assert!(holes.try_take(48 * PAGE, true, start) && !holes.try_take(17 * PAGE, true, start));
        assert!(holes.filled_bytes() == 48 * PAGE && !holes.take_refused(), "a try is no refusal");
        assert!(!holes.take(17 * PAGE, true, start) && holes.take_refused());
    }

    #[test]
    fn a_bound_of_nothing_makes_no_page_and_one_without_end_makes_all() {
        assert!(!Holes::new(0).take(PAGE, true, now()));
        let endless = Holes::new(u64::MAX);
        assert!((0..100_000).all(|_| endless.take(PAGE, false, 1)));
    }
}
