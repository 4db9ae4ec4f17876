//! What each descriptor number is to this library, found with one load.
//!
//! A number is one of: not ours (0), a netmap descriptor (an index into the files), an epoll set that has netmap descriptors (an index into
//! the sets), or private: one of the library's own descriptors, which the program does not know and must not close.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

/// Descriptor numbers from this one on are never ours. It is the kernel's default for `fs.nr_open`.
const NUMBERS: usize = 1 << 20;
const PRIVATE: u16 = u16::MAX;
const SET: u16 = 0x8000;

// Zeroes: pages of it exist once they are written.
static TABLE: [AtomicU16; NUMBERS] = [const { AtomicU16::new(0) }; NUMBERS];

/// What a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Nothing that concerns netmap.
    Other,
    /// A netmap descriptor: index of its file.
    File(u16),
    /// An epoll set with netmap descriptors: its index.
    Set(u16),
    /// The library's own.
    Private,
}

/// One more than the highest descriptor number that was ever ours.
static END: AtomicUsize = AtomicUsize::new(0);

fn word(fd: c_int) -> Option<&'static AtomicU16> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// Returns what the descriptor is.
#[inline]
pub(crate) fn entry(fd: c_int) -> Entry {
    match word(fd).map_or(0, |word| word.load(Ordering::Acquire)) {
        0 => Entry::Other,
        PRIVATE => Entry::Private,
        word if word & SET != 0 => Entry::Set(word & !SET),
        word => Entry::File(word - 1),
    }
}

/// Sets what the descriptor is. Returns false if the number is too large for that.
pub(crate) fn set(fd: c_int, entry: Entry) -> bool {
    let value = match entry {
        Entry::Other => 0,
        Entry::File(index) => index + 1,
        Entry::Set(index) => SET | index,
        Entry::Private => PRIVATE,
    };
    match word(fd) {
        Some(word) => {
            if entry != Entry::Other {
                END.fetch_max(fd as usize + 1, Ordering::Relaxed);
            }
            word.store(value, Ordering::Release);
            true
        }
        None => entry == Entry::Other,
    }
}

/// Calls `visit` with each descriptor from `first` to `last` that is not [`Entry::Other`].
pub(crate) fn each(first: c_int, last: c_int, mut visit: impl FnMut(c_int, Entry)) {
    let first = usize::try_from(first).unwrap_or(0).min(END.load(Ordering::Relaxed));
    let last = usize::try_from(last)
        .map_or(0, |last| last.saturating_add(1))
        .clamp(first, END.load(Ordering::Relaxed).max(first));
    for (at, word) in TABLE[first..last].iter().enumerate() {
        if word.load(Ordering::Relaxed) != 0 {
            let fd = (first + at) as c_int;
            visit(fd, entry(fd));
        }
    }
}

/// Returns true if no descriptor was ever ours.
#[inline]
pub(crate) fn is_empty() -> bool {
    END.load(Ordering::Relaxed) == 0
}
