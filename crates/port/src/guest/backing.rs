//! The kinds of files that a front end's memory may be made of: tmpfs (memfd included) and hugetlbfs. A poller would stop
//! while pages of a disk are read.

use std::io;
use std::os::fd::OwnedFd;

/// A range of a file that a front end sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Size in bytes.
    pub size: u64,
    /// Offset in the file.
    pub offset: u64,
}

/// Returns true if a file system (`f_type` of statfs(2)) keeps its pages in memory or swap: tmpfs, which includes
/// memfd, and hugetlbfs. Not ramfs: it has no size limit, and any user may mount one in a namespace of their own.
fn is_memory(kind: u32) -> bool {
    matches!(kind, 0x0102_1994 | 0x9584_58f6)
}

/// Checks that the pages of `file` are in memory. Touching a page of a file on a disk, on FUSE or on a network blocks a
/// poller until the page is read; a front end can make that take long.
///
/// # Errors
/// The file is in another file system, or the kernel cannot tell.
pub fn check(file: &OwnedFd) -> io::Result<()> {
    let kind = rustix::fs::fstatfs(file)?.f_type as u32;
    if is_memory(kind) {
        return Ok(());
    }
    let text = format!(
        "its file is of a file system ({kind:#x}) that does not keep it in memory: use memory-backend-memfd, or \
         memory-backend-file with a mem-path on tmpfs (/dev/shm) or hugetlbfs"
    );
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::fs::{MemfdFlags, memfd_create};

    use crate::guest::{DirtyLog, Region, RegionError};

    #[test]
    fn only_files_in_memory_are_taken() {
        let memfd = memfd_create("guest", MemfdFlags::CLOEXEC).expect("memory");
        assert!(super::check(&memfd).is_ok());
        let other = File::open("/proc/self/maps").expect("procfs").into();
        assert!(super::check(&other).is_err());
        let error = Region::map(&other, 0, 4096, 0, 0).expect_err("no memory");
        assert!(matches!(error, RegionError::Map(_)) && error.to_string().contains("tmpfs"), "{error}");
        assert!(DirtyLog::map(&other, 4096, 0).expect_err("no memory").to_string().contains("tmpfs"));
        // ext2 to ext4, XFS, btrfs, F2FS, overlayfs, FUSE, NFS, ramfs.
        for kind in [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x794c_7630, 0x6573_5546, 0x6969, 0x8584_58f6] {
            assert!(!super::is_memory(kind), "{kind:#x}");
        }
    }
}
