//! Which of this process's pages the kernel has brought in.

use std::fs::File;
use std::os::unix::fs::FileExt;

const PAGE: usize = 4096;

/// Returns true if each page of this memory is there, as proc_pid_pagemap(5) says: no access to it is a page fault.
///
/// # Panics
/// The kernel does not say.
#[must_use]
pub fn is_resident(start: *const u8, bytes: usize) -> bool {
    let pages = start.addr() / PAGE..(start.addr() + bytes).div_ceil(PAGE);
    let mut entries = vec![0; 8 * pages.len()];
    let map = File::open("/proc/self/pagemap").expect("the map of the process's pages");
    map.read_exact_at(&mut entries, 8 * pages.start as u64).expect("the entries of these pages");
    entries.as_chunks::<8>().0.iter().all(|entry| u64::from_ne_bytes(*entry) >> 63 == 1)
}
