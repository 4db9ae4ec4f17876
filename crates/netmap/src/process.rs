//! The life of the process: load, open, fork, exec, and children that share its memory.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::file::{Pinned, State};
use crate::{daemon, file};

/// The process that the tables describe. The child of `vfork` shares its memory, but has descriptors of its own.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Returns false in the child of a `vfork`, before its exec: the tables are its parent's.
pub(crate) fn owns_tables() -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    // SAFETY: no arguments.
    owner == 0 || owner == unsafe { libc::getpid() }
}

fn own_tables() {
    // SAFETY: no arguments.
    OWNER.store(unsafe { libc::getpid() }, Ordering::Relaxed);
}

extern "C" fn in_child() {
    // Nothing was opened.
    if OWNER.load(Ordering::Relaxed) == 0 {
        return;
    }
    own_tables();
    crate::lock::begin_child();
    file::reset_locks();
    crate::control::reset_lock();
    crate::wait::set::reset_locks();
}

/// Prepares for forks.
fn watch_forks() {
    // No lock: the child of a fork would wait for a thread that it does not have. Threads that come here at the same time all do it, and a
    // child then does the same work twice.
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if !IS_DONE.load(Ordering::Acquire) {
        // SAFETY: the function lives as long as the library, which is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        IS_DONE.store(true, Ordering::Release);
    }
}

/// Called before the process has its first netmap descriptor, also by signal handlers.
fn at_first_open() {
    // Done already, but for a call by another library's constructor.
    watch_forks();
    if OWNER.load(Ordering::Relaxed) == 0 {
        own_tables();
        crate::lock::look_up_own();
    }
}

/// Opens `/dev/netmap`: returns the descriptor that the program gets.
///
/// # Errors
/// See [`daemon::open`], and EMFILE.
pub(crate) fn open(cloexec: bool, nonblocking: bool) -> Result<c_int, c_int> {
    at_first_open();
    let socket = daemon::open(cloexec, nonblocking)?;
    file::forget(socket.as_raw_fd());
    drop(file::make(socket.as_raw_fd(), State::Open)?);
    Ok(socket.into_raw_fd())
}

/// Finds the file of a descriptor that the table does not know, if it is a netmap descriptor that was inherited or passed.
pub(crate) fn recognise(fd: c_int) -> Option<Pinned> {
    if !file::is_unknown(fd) {
        return None;
    }
    at_first_open();
    file::make(fd, State::Unknown).ok()
}

/// Runs when the library is loaded.
extern "C" fn load() {
    crate::real::look_up_all();
    watch_forks();
    if daemon::is_relative() {
        recognise_inherited();
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

/// Recognises the netmap descriptors that an exec has left open.
fn recognise_inherited() {
    let Ok(folder) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers = folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<c_int>().ok());
    numbers.for_each(|fd| drop(recognise(fd)));
}
