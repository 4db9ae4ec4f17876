//! SIGBUS in guarded mappings.
//!
//! Touching a page behind the end of a truncated file, or a page that the kernel has no memory for, raises SIGBUS, which
//! would end the process. The handler here finds the mapping, replaces all of it and marks the mapping as lost; the processor
//! repeats the access, which succeeds. The owner of the mapping sees the mark and ends the port with the fault `memory_lost`.
//! Any other SIGBUS has the effect that it had before: see `former`.
//!
//! A lost mapping reads as zeroes, which may look like another mistake of the client. Every fault of a ring is therefore
//! reported as `memory_lost` if the memory was lost.
//!
//! A lost mapping is replaced by a range of the *spare file*, a sparse memory file of this process that is as large as the
//! address space. A mapping at address A is replaced from offset A on. This has four consequences:
//! - The kernel asks for no commit charge for a shared mapping, however large the mapping and however strict the overcommit
//!   setting is, and RLIMIT_DATA does not count it. An anonymous mapping of 1 TiB is refused.
//! - One call replaces the whole mapping. Replacing single pages ends at `vm.max_map_count`, and a mapping of huge pages
//!   cannot be replaced in parts of another size.
//! - Two lost mappings never share a page, as their addresses differ.
//! - Two threads may replace the same mapping at once: the second call maps the same pages again.
//!
//! Mappings of clients' files also raise SIGBUS for pages that do not exist yet: see `holes`.

use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::process::{Resource, getrlimit};

use crate::faults;
use crate::former;
use crate::holes::{self, Filled, Holes};

/// Most mappings that can be guarded at a time.
pub(crate) const ENTRIES: usize = 16_384;
/// Size of the spare file: above every address of a process on the supported processors (56 bits).
const SPARE_BYTES: u64 = 1 << 56;
/// A mapping that was replaced this often and still faults cannot be replaced: the kernel has no memory. From then on
/// its pages are replaced one by one. The number is higher than the number of threads that can fault in one mapping
/// before the first of them has replaced it.
const REPLACED_OFTEN: u32 = 256;

/// Most pages that are filled at a time; a power of two.
const BLOCK_PAGES: usize = 16;

struct Entry {
    /// Odd while `start` and `end` change, so that the signal handler never combines the start of one mapping with the
    /// end of another.
    sequence: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
    /// How often the mapping was replaced; 0 while it is not lost.
    replaced: AtomicU32,
    /// Limit for filling holes; null if the kernel fills them. Valid while the mapping is registered.
    holes: AtomicPtr<Holes>,
    /// Part of the limit of all mappings that this one has taken: filled bytes, at most the size of the mapping. A page that
    /// was freed and filled again is still one page.
    booked_bytes: AtomicU64,
}

impl Entry {
    fn set(&self, start: usize, end: usize) {
        self.sequence.fetch_add(1, Ordering::SeqCst);
        self.start.store(start, Ordering::SeqCst);
        self.end.store(end, Ordering::SeqCst);
        self.sequence.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns start and length of the mapping, if `address` is inside. The entry of a mapping that is in use does not
    /// change.
    fn range_containing(&self, address: usize) -> Option<(usize, usize)> {
        let sequence = self.sequence.load(Ordering::SeqCst);
        let (start, end) = (self.start.load(Ordering::SeqCst), self.end.load(Ordering::SeqCst));
        let stable = sequence.is_multiple_of(2) && self.sequence.load(Ordering::SeqCst) == sequence;
        (stable && (start..end).contains(&address)).then(|| (start, end - start))
    }

    /// Takes `bytes` of this mapping, which has `most`, from the limit of all mappings, as far as they are not taken yet.
    /// Returns how many were taken, or `None` if the limit is reached. Async-signal-safe.
    fn book(&self, bytes: u64, most: u64) -> Option<u64> {
        let sum = |booked: u64| Some(booked.saturating_add(bytes).min(most).max(booked));
        let booked =
            self.booked_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, sum).unwrap_or_else(|same| same);
        let taken = booked.saturating_add(bytes).min(most).saturating_sub(booked);
        if holes::take_from_total(taken) {
            return Some(taken);
        }
        self.booked_bytes.fetch_sub(taken, Ordering::SeqCst);
        None
    }

    /// Returns `bytes` that were booked and not filled.
    fn return_booked(&self, bytes: u64) {
        self.booked_bytes.fetch_sub(bytes, Ordering::SeqCst);
        holes::return_to_total(bytes);
    }
}

static TABLE: [Entry; ENTRIES] = [const {
    Entry {
        sequence: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        replaced: AtomicU32::new(0),
        holes: AtomicPtr::new(ptr::null_mut()),
        booked_bytes: AtomicU64::new(0),
    }
}; ENTRIES];

/// Number of mappings that were lost.
static LOSSES: AtomicU64 = AtomicU64::new(0);
/// Stack of unused entries, filled on first use.
static FREE: Mutex<Vec<u16>> = Mutex::new(Vec::new());
static INSTALL: Once = Once::new();
/// Descriptor of the spare file; -1 if the process could not make one.
static SPARE: AtomicI32 = AtomicI32::new(-1);
/// Descriptor of a file with a single, allocated page, for use when the kernel has no memory left; -1 if there is none.
static LAST_PAGE: AtomicI32 = AtomicI32::new(-1);
/// The userfaultfd; -1 if there is none.
static USERFAULTFD: AtomicI32 = AtomicI32::new(-1);
/// Page size in bytes.
static PAGE: AtomicUsize = AtomicUsize::new(4096);

/// Returns how many mappings of this process were lost so far. While the number does not change, `is_lost` of every
/// mapping stays the same.
#[inline]
#[must_use]
pub fn losses() -> u64 {
    LOSSES.load(Ordering::Acquire)
}

/// A registered mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guarded {
    entry: u16,
}

impl Guarded {
    fn entry(&self) -> &'static Entry {
        &TABLE[usize::from(self.entry)]
    }

    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.entry().replaced.load(Ordering::Relaxed) != 0
    }

    /// Removes the mapping, before it is unmapped. No view of it exists any more.
    pub(crate) fn unregister(&self) {
        let entry = self.entry();
        let (start, end) = (entry.start.load(Ordering::SeqCst), entry.end.load(Ordering::SeqCst));
        entry.set(0, 0);
        entry.holes.store(ptr::null_mut(), Ordering::SeqCst);
        holes::return_to_total(entry.booked_bytes.swap(0, Ordering::SeqCst));
        if self.is_lost() {
            free_spare_pages(start, end - start);
        }
        FREE.lock().unwrap_or_else(PoisonError::into_inner).push(self.entry);
    }
}

/// Frees the pages of the spare file that replaced a lost mapping: the next mapping at that address must not see their
/// contents. Called before the address range can be reused.
fn free_spare_pages(start: usize, bytes: usize) {
    let spare = SPARE.load(Ordering::SeqCst);
    if spare >= 0 {
        // SAFETY: the descriptor is never closed.
        let spare = unsafe { std::os::fd::BorrowedFd::borrow_raw(spare) };
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = rustix::fs::fallocate(spare, how, start as u64, bytes as u64);
    }
}

/// Guards the `bytes` bytes at `start`: whole pages of the file that is mapped there. If `holes` is given, pages that
/// the file lacks are filled only within its limit.
///
/// # Errors
/// All entries are in use, or the kernel refuses.
///
/// # Safety
/// `holes` lives until the mapping is unregistered.
pub(crate) unsafe fn register(start: usize, bytes: usize, holes: Option<&Holes>) -> io::Result<Guarded> {
    INSTALL.call_once(|| {
        FREE.lock().unwrap_or_else(PoisonError::into_inner).extend((0..ENTRIES as u16).rev());
        PAGE.store(page_bytes(), Ordering::SeqCst);
        if let Ok(spare) = spare_file() {
            SPARE.store(spare.into_raw_fd(), Ordering::SeqCst);
        }
        if let Ok(page) = last_page() {
            LAST_PAGE.store(page.into_raw_fd(), Ordering::SeqCst);
        }
        if let Some(file) = holes::descriptor() {
            USERFAULTFD.store(file.as_raw_fd(), Ordering::SeqCst);
        }
        former::install(on_sigbus);
    });
    let taken = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let Some(index) = taken else {
        return Err(io::Error::other(format!("{ENTRIES} memory mappings are in use, no more can be guarded")));
    };
    let entry = &TABLE[usize::from(index)];
    entry.replaced.store(0, Ordering::SeqCst);
    let bound = holes.map_or(ptr::null(), ptr::from_ref);
    entry.holes.store(bound.cast_mut(), Ordering::SeqCst);
    entry.set(start, start + bytes);
    let guarded = Guarded { entry: index };
    match holes.map_or(Ok(()), |_| holes::watch(start, bytes)) {
        Ok(()) => Ok(guarded),
        Err(error) => {
            guarded.unregister();
            Err(error)
        }
    }
}

/// Returns the size of an ordinary page in bytes.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: the call only returns a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two()).unwrap_or(4096)
}

/// Makes a file in memory, for so many bytes.
fn file(name: &str, bytes: u64) -> io::Result<OwnedFd> {
    // A file beyond the limit would raise a signal that ends the process.
    if getrlimit(Resource::Fsize).current.is_some_and(|most| most < bytes) {
        return Err(io::Error::other("RLIMIT_FSIZE"));
    }
    Ok(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?)
}

fn spare_file() -> io::Result<OwnedFd> {
    let file = file("ringway-spare", SPARE_BYTES)?;
    rustix::fs::ftruncate(&file, SPARE_BYTES)?;
    Ok(file)
}

fn last_page() -> io::Result<OwnedFd> {
    let page = page_bytes();
    let file = file("ringway-last-page", page as u64)?;
    // Writes to the page, so that it is allocated.
    rustix::io::pwrite(&file, &vec![0; page], 0)?;
    Ok(file)
}

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler.
    let (address, code) = unsafe { ((*info).si_addr() as usize, (*info).si_code) };
    // A signal that was sent by a process (code 0 and below) has no address.
    if code > 0 {
        // SAFETY: the thread's own errno. The interrupted code may be about to read it, so it is restored below.
        let errno = unsafe { *libc::__errno_location() };
        let replaced = TABLE.iter().any(|entry| match entry.range_containing(address) {
            Some((start, bytes)) => {
                fill(entry, start, start + bytes, address, context) || replace(entry, start, bytes, address)
            }
            None => false,
        });
        // SAFETY: the thread's own errno.
        unsafe { *libc::__errno_location() = errno };
        if replaced {
            return;
        }
    }
    // The signal does not belong to a guarded mapping.
    // SAFETY: the handler's own arguments.
    unsafe { former::call(signal, info, context) };
}

/// Fills the hole at `address`, with the holes around it. Returns false if the file has lost the page or a limit is
/// reached.
///
/// A write fills up to [`BLOCK_PAGES`] pages at a time: pages that are filled together are neighbours in physical memory,
/// too, and the processor keeps several of them in one TLB entry. Where each page is filled by itself, long frames cost 5 %
/// more time (`pass_cost` with frames of 1,514 bytes).
///
/// Async-signal-safe: uses only atomics and bare system calls.
fn fill(entry: &Entry, start: usize, end: usize, address: usize, context: *mut libc::c_void) -> bool {
    let (userfaultfd, holes) = (USERFAULTFD.load(Ordering::SeqCst), entry.holes.load(Ordering::SeqCst));
    if userfaultfd < 0 || holes.is_null() || entry.replaced.load(Ordering::SeqCst) != 0 {
        return false;
    }
    faults::note_in_hole();
    // SAFETY: the faulting thread has a view of the mapping, so the mapping is registered, and `register`'s caller
    // keeps `holes` alive.
    let holes = unsafe { &*holes };
    let (page, writes, now) = (PAGE.load(Ordering::SeqCst), writes(context), holes::now());
    let (at, most) = (address & !(page - 1), (end - start) as u64);
    if writes {
        let block = at & !(BLOCK_PAGES * page - 1);
        let (first, bytes) = (block.max(start), (block + BLOCK_PAGES * page).min(end) - block.max(start));
        if holes.try_take(bytes as u64, writes, now) {
            let (mut filled, mut unused) = (0, bytes as u64);
            if let Some(booked) = entry.book(unused, most) {
                filled = holes::fill(userfaultfd, first, bytes).0;
                unused = (bytes - filled) as u64;
                entry.return_booked(booked.min(unused));
            }
            holes.give_back(unused, writes);
            if (first..first + filled).contains(&at) {
                return true;
            }
        }
    }
    if !holes.take(page as u64, writes, now) {
        return false;
    }
    if entry.book(page as u64, most).is_none() {
        holes.refuse();
        return false;
    }
    holes::fill(userfaultfd, at, page).1 == Filled::Present
}

/// Returns true if the faulting access is a write, or if the processor does not tell.
fn writes(context: *mut libc::c_void) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        const WRITE: libc::greg_t = 1 << 1;
        // SAFETY: the kernel passes a valid context to an SA_SIGINFO handler. It holds the page fault's error code.
        let error = unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_ERR as usize] };
        error & WRITE != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = context;
        true
    }
}

/// Maps other memory in place of a lost mapping. Returns false if that fails.
///
/// Async-signal-safe: uses only atomics and bare system calls.
fn replace(entry: &Entry, start: usize, bytes: usize, address: usize) -> bool {
    let before = entry.replaced.fetch_add(1, Ordering::SeqCst);
    if before == 0 {
        LOSSES.fetch_add(1, Ordering::SeqCst);
    }
    let spare = SPARE.load(Ordering::SeqCst);
    if before < REPLACED_OFTEN {
        // The first call cannot fail for lack of commit charge. That matters: when the second call fails, the kernel
        // may already have unmapped the range.
        if spare >= 0 && map(start, bytes, libc::MAP_SHARED, spare, start) {
            return true;
        }
        if map(start, bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1, 0) {
            return true;
        }
    }
    // The count stops here, so that it never wraps.
    entry.replaced.store(REPLACED_OFTEN, Ordering::SeqCst);
    let (page, last) = (PAGE.load(Ordering::SeqCst), LAST_PAGE.load(Ordering::SeqCst));
    last >= 0 && map(address & !(page - 1), page, libc::MAP_SHARED, last, 0)
}

/// Maps memory over an existing range.
fn map(start: usize, bytes: usize, kind: libc::c_int, file: libc::c_int, offset: usize) -> bool {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let start = start as *mut libc::c_void;
    #[allow(clippy::disallowed_methods, reason = "kept out of core files below")]
    // SAFETY: the range is inside a live mapping of this crate. Replacing it in place keeps every view valid.
    let mapped = unsafe { libc::mmap(start, bytes, protection, kind | libc::MAP_FIXED, file, offset as libc::off_t) };
    if mapped == libc::MAP_FAILED {
        return false;
    }
    // The new mapping is in core files, unlike the one that it replaces. The access goes on if the kernel refuses.
    // SAFETY: the advice changes what a core file has, and nothing in the memory.
    unsafe { libc::madvise(start, bytes, libc::MADV_DONTDUMP) };
    true
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::Mapping;

    /// Runs in a process of its own, because all its mappings lose their memory.
    #[test]
    fn a_lost_mapping_that_there_is_no_memory_for_has_its_last_page_everywhere() {
        if std::env::var_os("RINGWAY_TEST_CHILD").is_none() {
            let name = "guard::tests::a_lost_mapping_that_there_is_no_memory_for_has_its_last_page_everywhere";
            let mut child = Command::new(std::env::current_exe().expect("this program"));
            child.args([name, "--exact"]).env("RINGWAY_TEST_CHILD", "1").stdout(Stdio::null()).stderr(Stdio::null());
            let status = child.status().expect("a child");
            assert!(status.success(), "{status}");
            return;
        }
        let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).expect("a file");
        rustix::fs::ftruncate(&file, 1 << 30).expect("a size");
        let mapping = Mapping::shared(file.as_fd(), 1 << 30).expect("mapped");
        let nothing = rustix::fs::memfd_create("nothing", MemfdFlags::CLOEXEC).expect("a file");
        SPARE.store(nothing.into_raw_fd(), Ordering::SeqCst);
        rustix::fs::ftruncate(&file, 0).expect("truncated");
        for page in 0..1024 {
            let view = mapping.view(page * 4096, 8).expect("inside");
            assert!(view.write(&[page as u8; 8]));
            assert_eq!(view.first_word(), Some(u64::from_ne_bytes([page as u8; 8])));
        }
        assert!(mapping.is_lost());
    }
}
