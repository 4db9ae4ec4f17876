//! Pages of a client's file that do not exist yet.
//!
//! A page of a sparse file comes into being when it is touched first, and the kernel charges the page to the process that
//! touches it. A client could so have this process make memory without end, outside of the client's own limits. Mappings of
//! clients' files are therefore registered with userfaultfd(2), by which touching such a page raises SIGBUS
//! (UFFD_FEATURE_SIGBUS), and the guard's handler decides: it makes the page as long as the port's bound allows, or the
//! mapping is lost and the port ends with `memory_holes`.
//!
//! Existing pages, in memory or in swap, cost nothing: the kernel maps them as ever. Files of huge pages are not registered:
//! their pages come from a pool that the administrator has set aside. Without userfaultfd in the kernel there is no bound,
//! and the log says so.
//!
//! A guest reads only what it has written before, but receive buffers may be in pages that the guest has never touched. So
//! fewer pages may be made for reading ([`READ_SHARE`]). Both bounds refill within [`REFILL`], because a page may be gone
//! long ago: a port outlives its front ends, and a guest may give memory back. The bound of all mappings together does not
//! refill: a page that was made counts until its mapping goes.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One part of so many of a bound is for pages that are read.
pub(crate) const READ_SHARE: u64 = 64;
/// Nanoseconds in which a bound that is used up becomes whole again.
pub(crate) const REFILL: u64 = 3_600_000_000_000;

/// What may be made of pages, and was. All that the signal handler does with it is atomic.
#[derive(Debug, Default)]
pub(crate) struct Holes {
    /// Bytes that may be made for writing.
    most: AtomicU64,
    /// When each bound is whole again, in nanoseconds of CLOCK_MONOTONIC: for reading, for writing.
    whole: [AtomicU64; 2],
    /// Bytes that were made.
    made: AtomicU64,
    /// A bound was met.
    refused: AtomicBool,
}

impl Holes {
    pub(crate) const fn new(most: u64) -> Holes {
        let (most, made, refused) = (AtomicU64::new(most), AtomicU64::new(0), AtomicBool::new(false));
        Holes { most, whole: [const { AtomicU64::new(0) }; 2], made, refused }
    }

    pub(crate) fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    pub(crate) fn set_most(&self, most: u64) {
        self.most.store(most, Ordering::Relaxed);
    }

    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// A bound of all mappings was met. Async-signal-safe.
    pub(crate) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// Whether a bound was met since this was asked last.
    pub(crate) fn take_refused(&self) -> bool {
        self.refused.swap(false, Ordering::Relaxed)
    }

    /// Whether a page may be made now, at `now` nanoseconds. Async-signal-safe.
    pub(crate) fn take(&self, bytes: u64, writes: bool, now: u64) -> bool {
        let most = self.most() / if writes { 1 } else { READ_SHARE };
        let cost = u128::from(REFILL) * u128::from(bytes) / u128::from(most.max(1));
        let later = |whole: u64| {
            let then = u128::from(whole.max(now)) + cost;
            u64::try_from(then).ok().filter(|&then| then <= now.saturating_add(REFILL))
        };
        let taken = self.whole[usize::from(writes)].fetch_update(Ordering::Relaxed, Ordering::Relaxed, later).is_ok();
        if taken {
            self.made.fetch_add(bytes, Ordering::Relaxed);
        } else {
            self.refuse();
        }
        taken
    }
}

/// Of all mappings together: bytes of pages that may be made, and that were made in mappings that there are.
static MOST_OF_ALL: AtomicU64 = AtomicU64::new(u64::MAX);
static MADE_IN_ALL: AtomicU64 = AtomicU64::new(0);

/// Sets how much may be made in all mappings together.
pub(crate) fn set_most_of_all(bytes: u64) {
    MOST_OF_ALL.store(bytes, Ordering::Relaxed);
}

/// What was made in all mappings that there are.
pub(crate) fn made_in_all() -> u64 {
    MADE_IN_ALL.load(Ordering::Relaxed)
}

/// Whether a page may be made, as far as all mappings together have a bound. Async-signal-safe.
pub(crate) fn take_of_all(bytes: u64) -> bool {
    let most = MOST_OF_ALL.load(Ordering::Relaxed);
    let sum = |made: u64| made.checked_add(bytes).filter(|&sum| sum <= most);
    MADE_IN_ALL.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).is_ok()
}

/// A mapping in which so much was made has gone.
pub(crate) fn give_back_to_all(bytes: u64) {
    MADE_IN_ALL.fetch_sub(bytes, Ordering::Relaxed);
}

/// Nanoseconds of CLOCK_MONOTONIC. Async-signal-safe.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// What became of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// It is there, or will be asked for again.
    There,
    /// The file has no such page, or there is no memory for it.
    Never,
}

/// uapi/linux/userfaultfd.h.
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

    /// `uffdio_register` and `uffdio_zeropage`, which differ in what the kernel answers.
    #[repr(C)]
    pub struct Range {
        pub start: u64,
        pub len: u64,
        pub mode: u64,
        pub answer: u64,
    }
}

/// The process's userfaultfd; none where the kernel has none or does not let us.
pub(crate) fn descriptor() -> Option<&'static OwnedFd> {
    static DESCRIPTOR: OnceLock<Option<OwnedFd>> = OnceLock::new();
    DESCRIPTOR.get_or_init(|| open().ok()).as_ref()
}

fn open() -> io::Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // The first needs no privilege (Linux 5.11). A page that a system call touches is EFAULT to it either way.
    let raw = [flags | uapi::USER_MODE_ONLY, flags].into_iter().find_map(|flags| {
        // SAFETY: makes a descriptor.
        let raw = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        libc::c_int::try_from(raw).ok().filter(|&raw| raw >= 0)
    });
    // SAFETY: just made, and nobody else's.
    let file = unsafe { OwnedFd::from_raw_fd(raw.ok_or_else(io::Error::last_os_error)?) };
    let features = uapi::FEATURE_MISSING_SHMEM | uapi::FEATURE_SIGBUS;
    let mut api = uapi::Api { api: uapi::UFFD_API, features, ioctls: 0 };
    // SAFETY: the structure that this request reads and writes.
    match unsafe { libc::ioctl(file.as_raw_fd(), uapi::IOCTL_API, &raw mut api) } {
        0 => Ok(file),
        _ => Err(io::Error::last_os_error()),
    }
}

/// From now on, touching a page of this mapping that is not there raises SIGBUS.
pub(crate) fn watch(start: usize, bytes: usize) -> io::Result<()> {
    let Some(file) = descriptor() else { return Ok(()) };
    let mut range = uapi::Range { start: start as u64, len: bytes as u64, mode: uapi::MODE_MISSING, answer: 0 };
    // SAFETY: the structure that this request reads and writes.
    match unsafe { libc::ioctl(file.as_raw_fd(), uapi::IOCTL_REGISTER, &raw mut range) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes a page of zeroes. Async-signal-safe.
pub(crate) fn fill(userfaultfd: libc::c_int, page: usize, bytes: usize) -> Filled {
    let mut range = uapi::Range { start: page as u64, len: bytes as u64, mode: 0, answer: 0 };
    // SAFETY: the structure that this request reads and writes.
    if unsafe { libc::ioctl(userfaultfd, uapi::IOCTL_ZEROPAGE, &raw mut range) } == 0 {
        return Filled::There;
    }
    // SAFETY: the thread's own errno.
    match unsafe { *libc::__errno_location() } {
        // Another thread has made it; the mappings of the process change.
        libc::EEXIST | libc::EAGAIN => Filled::There,
        _ => Filled::Never,
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
            assert_eq!(count(start + REFILL / 4), most / 4);
            assert_eq!(count(start + 10 * REFILL), most);
            assert_eq!(holes.made(), (2 * most + most / 4) * PAGE);
        }
    }

    #[test]
    fn a_bound_of_nothing_makes_no_page_and_one_without_end_makes_all() {
        assert!(!Holes::new(0).take(PAGE, true, now()));
        let endless = Holes::new(u64::MAX);
        assert!((0..100_000).all(|_| endless.take(PAGE, false, 1)));
    }
}
