//! A thread that the kernel keeps, as it does in a page fault: in the state `D`, until a test lets it go.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use ringway_memory::Mapping;

/// A stay in the kernel that ends when the other end of the pipe is closed.
#[derive(Debug)]
pub struct Stay(OwnedFd);

/// Lets the thread go when it is dropped.
#[derive(Debug)]
pub struct Keeper {
    _end: OwnedFd,
}

/// A stay, and what ends it.
pub fn stay() -> (Stay, Keeper) {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
    (Stay(read), Keeper { _end: write })
}

/// The longest stay, in milliseconds: a test that fails leaves no process behind.
const LONGEST: libc::c_int = 60_000;

/// Waits for the end of the pipe, and ends. Runs in the memory of the thread that waits for it, so that it calls the kernel only.
extern "C" fn wait(pipe: *mut c_void) -> libc::c_int {
    let mut poll = libc::pollfd { fd: pipe as usize as libc::c_int, events: libc::POLLIN, revents: 0 };
    // SAFETY: the arguments are valid for these calls.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::poll(&raw mut poll, 1, LONGEST);
    }
    0
}

impl Stay {
    /// Stays. The kernel keeps a thread whose child has its memory until the child ends, as vfork(2) says.
    pub fn stay(&self) {
        // It sleeps in a page fault as far as anybody can see.
        assert!(Mapping::private(4096).expect("memory").whole().write(&[1; 64]));
        let mut stack = vec![0u128; 4096];
        let top = stack.as_mut_ptr_range().end;
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | libc::SIGCHLD;
        // SAFETY: the child runs on a stack of its own, which lives until it has ended, and touches no other memory. The descriptor lives as
        // long.
        let child = unsafe { libc::clone(wait, top.cast(), flags, self.0.as_raw_fd() as usize as *mut c_void) };
        assert!(child > 0, "clone: {}", std::io::Error::last_os_error());
        // SAFETY: the status is not wanted.
        unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
    }
}
