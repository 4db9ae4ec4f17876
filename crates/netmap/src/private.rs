//! The library's own descriptors: eventfds and memory files.
//!
//! They have high numbers, so that the program finds the numbers free that it expects. The table knows them as private: a program that
//! closes "all descriptors" does not close them, and one that wants their number for `dup2` gets it after they have moved.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::io::{Errno, fcntl_dupfd_cloexec};

use crate::table::{self, Entry};

/// A descriptor of the library's own, or none.
#[derive(Debug)]
pub(crate) struct Private(AtomicI32);

impl Private {
    pub(crate) const fn none() -> Self {
        Self(AtomicI32::new(-1))
    }

    /// Keeps a descriptor, moved to a high number.
    pub(crate) fn put(&self, fd: OwnedFd) {
        let fd = moved(&fd).unwrap_or(fd).into_raw_fd();
        table::set(fd, Entry::Private);
        self.0.store(fd, Ordering::Release);
    }

    /// Returns the descriptor's number, or -1.
    pub(crate) fn raw(&self) -> c_int {
        self.0.load(Ordering::Acquire)
    }

    /// Returns the descriptor.
    pub(crate) fn get(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.raw();
        // SAFETY: only `take` closes the number, when its owner goes.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Closes the descriptor.
    pub(crate) fn close(&self) {
        let fd = self.0.swap(-1, Ordering::AcqRel);
        if fd >= 0 {
            table::set(fd, Entry::Other);
            // SAFETY: the number was ours, and nothing else has it now.
            unsafe { rustix::io::close(fd) };
        }
    }

    /// If the descriptor has the number `fd`, moves it to another one, and leaves `fd` open for the program to replace it.
    pub(crate) fn leave(&self, fd: c_int) {
        if self.raw() == fd
            && let Some(own) = self.get()
            && let Ok(other) = moved(&own).or_else(|_| fcntl_dupfd_cloexec(own, 0))
        {
            let other = other.into_raw_fd();
            table::set(other, Entry::Private);
            self.0.store(other, Ordering::Release);
            table::set(fd, Entry::Other);
        }
    }
}

/// Duplicates a descriptor to a high number that is not its own.
fn moved(fd: &impl std::os::fd::AsFd) -> Result<OwnedFd, Errno> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1024);
    // Leave the lower three quarters to the program, where few numbers are allowed. Higher numbers than select's would let the kernel read
    // and write more of the sets of a program that gives `select` the highest number that it could have.
    let from = c_int::try_from(limit.min(1024) / 4 * 3).unwrap_or(0);
    let fd = fd.as_fd();
    debug_assert!(fd.as_raw_fd() >= 0);
    fcntl_dupfd_cloexec(fd, from)
}
