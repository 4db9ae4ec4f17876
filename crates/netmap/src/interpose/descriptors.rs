//! `close`, `dup` and their relatives.

use std::ffi::{c_int, c_uint, c_ulong};

use libc::{F_DUPFD, F_DUPFD_CLOEXEC};

use crate::descriptors::{closing, duplicated, is_other, make_room};
use crate::errno::{self, answer, kept};
use crate::real::call_real;

const CLOSE_RANGE_CLOEXEC: c_int = 4;

/// See close(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if !is_other(fd) && !kept(|| closing(fd)) {
        errno::set(libc::EBADF);
        return -1;
    }
    call_real!(CLOSE as fn(c_int) -> c_int, fd)
}

/// See close_range(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags & CLOSE_RANGE_CLOEXEC == 0 && has_ours(first) {
        return answer(crate::descriptors::close_range(first, last, flags).map(|()| 0));
    }
    call_real!(CLOSE_RANGE as fn(c_uint, c_uint, c_int) -> c_int, first, last, flags)
}

/// See closefrom(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn closefrom(first: c_int) {
    let from = c_uint::try_from(first).unwrap_or(0);
    if has_ours(from) && kept(|| crate::descriptors::close_range(from, c_uint::MAX, 0)).is_ok() {
        return;
    }
    call_real!(CLOSEFROM as fn(c_int) -> isize, first);
}

/// Returns true if one of the descriptors from `first` on may be ours.
fn has_ours(first: c_uint) -> bool {
    let mut any = false;
    crate::table::each(c_int::try_from(first).unwrap_or(c_int::MAX), c_int::MAX, |_, _| any = true);
    any
}

/// See dup(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup(old: c_int) -> c_int {
    let new = call_real!(DUP as fn(c_int) -> c_int, old);
    noted(old, new)
}

/// See dup2(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup2(old: c_int, new: c_int) -> c_int {
    if !is_other(new) {
        kept(|| make_room(new));
    }
    let new = call_real!(DUP2 as fn(c_int, c_int) -> c_int, old, new);
    noted(old, new)
}

/// See dup3(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    if !is_other(new) {
        kept(|| make_room(new));
    }
    let new = call_real!(DUP3 as fn(c_int, c_int, c_int) -> c_int, old, new, flags);
    noted(old, new)
}

/// Notes a duplicate, and returns it.
#[inline]
fn noted(old: c_int, new: c_int) -> c_int {
    if new >= 0 && !(is_other(old) && is_other(new)) {
        kept(|| duplicated(old, new));
    }
    new
}

macro_rules! fcntl_functions {
    ($($name:ident = $real:ident;)*) => {$(
        /// See fcntl(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
            let result = call_real!($real as fn(c_int, c_int, c_ulong) -> c_int, fd, command, argument);
            if command == F_DUPFD || command == F_DUPFD_CLOEXEC { noted(fd, result) } else { result }
        }
    )*};
}

fcntl_functions! {
    fcntl = FCNTL;
    fcntl64 = FCNTL64;
}
