//! The kind of a descriptor from a front end, checked before the descriptor is used.
//!
//! A poller must never wait for a front end: writing a pipe that nobody reads lasts as long as the front end likes.

use std::os::fd::{AsRawFd, OwnedFd};

/// Returns true if `file` is an eventfd, by the target of its link in `/proc/self/fd`. Only the kernel chooses the name
/// of an eventfd. The name of a file in a file system begins with a slash, and that of other files is a word and a
/// number in brackets (proc(5), "/proc/pid/fd/").
///
/// # Errors
/// `/proc` is not mounted or not accessible.
pub fn is_eventfd(file: &OwnedFd) -> std::io::Result<bool> {
    let name = rustix::fs::readlink(format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::with_capacity(64))?;
    Ok(name.as_bytes() == b"anon_inode:[eventfd]")
}
