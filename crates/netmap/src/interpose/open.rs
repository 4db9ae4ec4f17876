//! `open` in all its forms.

use std::ffi::{c_char, c_int};

use libc::{O_CLOEXEC, O_NONBLOCK, mode_t};

use crate::errno::{answer, kept};
use crate::real::call_real;
use crate::{descriptors, process};

/// Returns true if the program opens `/dev/netmap`.
#[inline]
fn is_netmap(path: *const c_char) -> bool {
    if path.is_null() {
        return false;
    }
    // SAFETY: a path ends with a NUL byte; the comparison ends at the first byte that differs.
    c"/dev/netmap".to_bytes_with_nul().iter().enumerate().all(|(at, &byte)| unsafe { *path.add(at) } as u8 == byte)
}

fn open_netmap(flags: c_int) -> c_int {
    answer(process::open(flags & O_CLOEXEC != 0, flags & O_NONBLOCK != 0))
}

/// A new descriptor is no netmap descriptor, even if one of this number was closed behind this library's back.
fn new(fd: c_int) -> c_int {
    if fd >= 0 && !descriptors::is_other(fd) {
        kept(|| descriptors::closing(fd));
    }
    fd
}

macro_rules! open_functions {
    ($($name:ident = $real:ident($($argument:ident: $type:ty),*), $path:ident, $flags:ident;)*) => {$(
        /// See open(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
            if is_netmap($path) {
                return open_netmap($flags);
            }
            new(call_real!($real as fn($($type),*) -> c_int, $($argument),*))
        }
    )*};
}

open_functions! {
    open = OPEN(path: *const c_char, flags: c_int, mode: mode_t), path, flags;
    open64 = OPEN64(path: *const c_char, flags: c_int, mode: mode_t), path, flags;
    __open_2 = OPEN_2(path: *const c_char, flags: c_int), path, flags;
    __open64_2 = OPEN64_2(path: *const c_char, flags: c_int), path, flags;
    openat = OPENAT(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t), path, flags;
    openat64 = OPENAT64(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t), path, flags;
    __openat_2 = OPENAT_2(folder: c_int, path: *const c_char, flags: c_int), path, flags;
    __openat64_2 = OPENAT64_2(folder: c_int, path: *const c_char, flags: c_int), path, flags;
}
