//! What memory from a front end may be made of.

use std::io;
use std::os::fd::OwnedFd;

/// File systems whose pages the kernel has itself or reads from a disk (statfs(2)): memfd and tmpfs, hugetlbfs, ramfs,
/// ext2 to 4, XFS, btrfs, F2FS.
const FILE_SYSTEMS: [u32; 7] = [0x0102_1994, 0x9584_58f6, 0x8584_58f6, 0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];

/// Whether touching pages of `file` waits for nobody else. A file of FUSE, or of a network, would stop a poller for as long
/// as whoever serves it likes.
///
/// # Errors
/// It may, or the kernel cannot say.
pub fn check(file: &OwnedFd) -> io::Result<()> {
    let kind = rustix::fs::fstatfs(file)?.f_type as u32;
    if FILE_SYSTEMS.contains(&kind) {
        return Ok(());
    }
    let text =
        format!("it is of a file system ({kind:#x}) that somebody else may serve; a memfd, tmpfs or hugetlbfs will do");
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::fs::{MemfdFlags, memfd_create};

    use crate::guest::{DirtyLog, Region, RegionError};

    #[test]
    fn memory_that_somebody_else_serves_is_refused() {
        let memfd = memfd_create("guest", MemfdFlags::CLOEXEC).expect("memory");
        assert!(super::check(&memfd).is_ok());
        // Not of FUSE, but no more of those that wait for nobody.
        let other = File::open("/proc/self/maps").expect("procfs").into();
        assert!(super::check(&other).is_err());
        let error = Region::map(&other, 0, 4096, 0, 0).expect_err("no memory");
        assert!(matches!(error, RegionError::Map(_)) && error.to_string().contains("tmpfs"), "{error}");
        assert!(DirtyLog::map(&other, 4096, 0).expect_err("no memory").to_string().contains("tmpfs"));
    }
}
