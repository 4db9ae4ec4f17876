//! The life of the process: load, fork, exec, and children that share its memory.

use std::ffi::c_int;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};

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
    own_tables();
    file::reset_locks();
    crate::wait::epoll::reset_locks();
}

/// Prepares for forks. Called before the process has its first netmap descriptor.
pub(crate) fn at_first_open() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        own_tables();
        // SAFETY: the function lives as long as the library, which is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// Runs when the library is loaded.
extern "C" fn load() {
    crate::real::look_up_all();
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
    for fd in numbers {
        if file::recognise(fd).is_some() {
            at_first_open();
        }
    }
}
