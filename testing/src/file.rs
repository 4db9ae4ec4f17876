//! Temporary directories, memory files and eventfds.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FlockOperation, MemfdFlags, flock, ftruncate, memfd_create};

/// A directory of the test's own, removed with its content when dropped.
///
/// # Panics
/// The directory cannot be created.
#[must_use]
pub fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// A memory file of `bytes` zeroes.
///
/// # Panics
/// The kernel gives none.
#[must_use]
pub fn memfd(bytes: u64) -> OwnedFd {
    let file = memfd_create("test", MemfdFlags::CLOEXEC).expect("a memory file");
    ftruncate(&file, bytes).expect("a size");
    file
}

/// An eventfd that does not block.
///
/// # Panics
/// The kernel gives none.
#[must_use]
pub fn new_eventfd() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd")
}

/// Sum of what was written to an eventfd since it was last read.
pub fn take_count(eventfd: impl AsFd) -> u64 {
    let mut count = [0; 8];
    rustix::io::read(eventfd, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
}

/// Allocated bytes of a file.
///
/// # Panics
/// The file has no status.
#[must_use]
pub fn allocated(file: impl AsFd) -> u64 {
    rustix::fs::fstat(file).expect("a file").st_blocks as u64 * 512
}

/// Allocated bytes of all memory files of a process (`/proc/PROCESS`) whose name holds `name`.
///
/// # Panics
/// There is no such process.
#[must_use]
pub fn allocated_by_name(process: &str, name: &str) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = std::fs::read_dir(format!("/proc/{process}/fd")).expect("the process lives").flatten();
    let is_named = |path: &std::path::PathBuf| {
        std::fs::read_link(path).is_ok_and(|target| target.to_string_lossy().contains(&format!("memfd:{name}")))
    };
    // A descriptor may have gone since the list was read.
    let bytes = |path: std::path::PathBuf| std::fs::metadata(path).map_or(0, |status| status.blocks() * 512);
    files.map(|entry| entry.path()).filter(is_named).map(bytes).sum()
}

/// More huge pages of 2 MiB than there were, for as long as this lives. No other test program has some meanwhile: their pages would
/// be taken for its own.
pub struct MoreHugePages {
    pages: i64,
    _turn: Option<File>,
}

const NUMBER: &str = "/proc/sys/vm/nr_hugepages";

impl MoreHugePages {
    /// Waits for its turn, and asks the kernel for `pages` more. There may be none, or this process may have no right to them.
    #[must_use]
    pub fn ask_for(pages: i64) -> Self {
        let path = std::env::temp_dir().join("ringway-huge-pages.lock");
        let turn = File::options().create(true).append(true).open(path).ok();
        let turn = turn.filter(|file| flock(file, FlockOperation::LockExclusive).is_ok());
        Self::change(pages);
        Self { pages, _turn: turn }
    }

    fn change(by: i64) {
        let number = std::fs::read_to_string(NUMBER).ok().and_then(|text| text.trim().parse::<i64>().ok());
        let _ = std::fs::write(NUMBER, (number.unwrap_or(0) + by).max(0).to_string());
    }
}

impl Drop for MoreHugePages {
    fn drop(&mut self) {
        Self::change(-self.pages);
    }
}
