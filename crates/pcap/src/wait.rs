//! The waits of a program's thread.
//!
//! A wait is a call of libc's `ppoll`, and no system call of our own: `pthread_cancel` ends a thread in it, as it ends a thread that
//! waits in libpcap. The thread then unwinds through this library into the program, which is why all functions between have the ABI
//! `C-unwind` or are Rust's.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use libc::{c_int, nfds_t, pollfd, sigset_t, time_t, timespec};

unsafe extern "C-unwind" {
    fn ppoll(descriptors: *mut pollfd, number: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
}

/// Waits until a descriptor is readable or has ended, for `longest` at most. Returns which ones are; none if the time is over.
///
/// # Errors
/// `Interrupted` after a signal; otherwise the kernel refuses.
pub fn readable<const N: usize>(descriptors: [BorrowedFd<'_>; N], longest: Option<Duration>) -> io::Result<[bool; N]> {
    let mut descriptors =
        descriptors.map(|descriptor| pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    let longest = longest.map(|longest| timespec {
        tv_sec: time_t::try_from(longest.as_secs()).unwrap_or(time_t::MAX),
        tv_nsec: longest.subsec_nanos().into(),
    });
    let longest = longest.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: N descriptors, and a time or null.
    match unsafe { ppoll(descriptors.as_mut_ptr(), N as nfds_t, longest, std::ptr::null()) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(descriptors.map(|descriptor| descriptor.revents != 0)),
    }
}
