//! `open` in all its forms.

use std::ffi::{c_char, c_int};

use libc::{O_CLOEXEC, O_CREAT, O_NONBLOCK, mode_t};

use crate::descriptors::opened;
use crate::errno::{self, answer};
use crate::real::call_real;
use crate::{process, user};

/// Returns true if the path is that of `/dev/netmap`.
///
/// # Safety
/// The path can be read up to its NUL byte.
#[inline]
unsafe fn is_netmap(path: *const c_char) -> bool {
    // SAFETY: as the caller says; the comparison ends at the first byte that differs.
    c"/dev/netmap".to_bytes_with_nul().iter().enumerate().all(|(at, &byte)| unsafe { *path.add(at) } as u8 == byte)
}

/// Opens `/dev/netmap` in place of what the kernel has opened of this name, if it has.
#[cold]
fn open_netmap(flags: c_int, opened: c_int) -> c_int {
    if opened >= 0 {
        call_real!(CLOSE as fn(c_int) -> c_int, opened);
    }
    answer(process::open(flags & O_CLOEXEC != 0, flags & O_NONBLOCK != 0))
}

/// Returns true if the kernel is asked first: it judges the pointer, and makes no file.
#[inline]
fn asks_first(flags: c_int) -> bool {
    flags & O_CREAT == 0
}

macro_rules! open_functions {
    ($($name:ident = $real:ident($($argument:ident: $type:ty),*), $path:ident, $flags:ident;)*) => {$(
        /// See open(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
            if !asks_first($flags) && user::is_address($path.cast()) {
                // SAFETY: the caller gives a path.
                if unsafe { is_netmap($path) } {
                    return open_netmap($flags, -1);
                }
            }
            let before = errno::get();
            let fd = opened(call_real!($real as fn($($type),*) -> c_int, $($argument),*));
            // SAFETY: the kernel has read the path.
            if asks_first($flags) && (fd >= 0 || errno::get() != libc::EFAULT) && unsafe { is_netmap($path) } {
                errno::set(before);
                return open_netmap($flags, fd);
            }
            fd
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
