//! The kind of a descriptor from a front end, checked before the descriptor is used.
//!
//! A poller must never wait for a front end: writing a pipe that nobody reads lasts as long as the front end likes.

use std::os::fd::{AsRawFd, OwnedFd};

/// Whether it is an eventfd: the name of such a file is the kernel's own, and that of a file in a file system begins
/// with a slash or is a number in brackets behind another word (proc(5), "/proc/pid/fd/").
///
/// # Errors
/// There is no `/proc` to tell.
pub(crate) fn is_eventfd(file: &OwnedFd) -> std::io::Result<bool> {
    let name = rustix::fs::readlink(format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::with_capacity(64))?;
    Ok(name.as_bytes() == b"anon_inode:[eventfd]")
}
