//! What a descriptor from a front end is, before anything is done with it.
//!
//! A poller must never wait in somebody else's file system: writing a pipe that nobody reads, or touching a page of a
//! file that a FUSE server withholds, lasts as long as the front end likes.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{FileType, FsWord, fstat, fstatfs};

/// Whether it is an eventfd: the name of such a file is the kernel's own, and that of a file in a file system begins
/// with a slash or is a number in brackets behind another word (proc(5), "/proc/pid/fd/").
///
/// # Errors
/// There is no `/proc` to tell.
pub fn is_eventfd(file: &OwnedFd) -> std::io::Result<bool> {
    let name = rustix::fs::readlink(format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::with_capacity(64))?;
    Ok(name.as_bytes() == b"anon_inode:[eventfd]")
}

/// Whether its pages come from this kernel alone: memory files (memfd, tmpfs, hugetlbfs) and files of local disks.
///
/// # Errors
/// The kernel does not say.
pub fn is_memory(file: &OwnedFd) -> std::io::Result<bool> {
    // statfs(2): TMPFS_MAGIC (memfd, too), HUGETLBFS_MAGIC, RAMFS_MAGIC, EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC,
    // BTRFS_SUPER_MAGIC. Devices are in a tmpfs, too.
    const LOCAL: [FsWord; 6] = [0x0102_1994, 0x9584_58f6, 0x8584_58f6, 0xef53, 0x5846_5342, 0x9123_683e];
    let regular = FileType::from_raw_mode(fstat(file)?.st_mode) == FileType::RegularFile;
    Ok(regular && LOCAL.contains(&fstatfs(file)?.f_type))
}
