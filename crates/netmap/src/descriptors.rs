//! `close`, `dup` and their relatives: which descriptors are netmap's after them.

use std::ffi::{c_int, c_uint};

use crate::table::{self, Entry};
use crate::wait::set;
use crate::{file, process};

/// `CLOSE_RANGE_UNSHARE`.
const UNSHARE: c_int = 2;

/// Returns true if the call changes nothing here: the descriptor is not ours.
#[inline]
pub(crate) fn is_other(fd: c_int) -> bool {
    table::entry(fd) == Entry::Other
}

/// Notes that a descriptor is about to be closed. Returns false if it must stay open: it is the library's own.
pub(crate) fn closing(fd: c_int) -> bool {
    let entry = table::entry(fd);
    if entry == Entry::Private {
        return false;
    }
    if process::owns_tables() {
        match entry {
            Entry::File(_) => {
                file::forget(fd);
                set::forget_watched(fd);
            }
            Entry::Set(set) => set::forget_set(set, fd),
            Entry::Other | Entry::Private => {}
        }
    }
    true
}

/// Notes that the kernel has opened a descriptor, and returns it. It is not ours, even if one of this number was closed behind this library's
/// back.
pub(crate) fn opened(fd: c_int) -> c_int {
    if fd >= 0 && !is_other(fd) {
        crate::errno::kept(|| closing(fd));
    }
    fd
}

/// Notes that `new` is a duplicate of `old`. What `new` was before is forgotten.
pub(crate) fn duplicated(old: c_int, new: c_int) {
    if old == new || !process::owns_tables() {
        return;
    }
    closing(new);
    match table::entry(old) {
        Entry::File(_) => {
            if let Some(file) = file::of(old) {
                file::duplicate(&file, new);
            }
        }
        Entry::Set(set) => set::duplicate(set, new),
        Entry::Other | Entry::Private => {}
    }
}

/// Makes room for a descriptor that the program wants at a number.
pub(crate) fn make_room(fd: c_int) {
    if table::entry(fd) == Entry::Private && process::owns_tables() {
        file::leave(fd);
        set::leave(fd);
    }
}

/// Closes the descriptors from `first` to `last`, but for the library's own.
///
/// # Errors
/// As `close_range`.
pub(crate) fn close_range(first: c_uint, last: c_uint, flags: c_int) -> Result<(), c_int> {
    // The kernel closes nothing then.
    if first > last || flags & !UNSHARE != 0 {
        return Err(libc::EINVAL);
    }
    let bound = |number: c_uint| c_int::try_from(number).unwrap_or(c_int::MAX);
    let (mut next, mut result) = (first, Ok(()));
    table::each(bound(first), bound(last), |fd, _| {
        if !closing(fd) {
            let fd = fd as c_uint;
            if next < fd {
                result = result.and(close_all(next, fd - 1, flags));
            }
            next = fd + 1;
        }
    });
    if next <= last {
        result = result.and(close_all(next, last, flags));
    }
    result
}

fn close_all(first: c_uint, last: c_uint, flags: c_int) -> Result<(), c_int> {
    // SAFETY: the program's own descriptors.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    if done < 0 { Err(crate::errno::get()) } else { Ok(()) }
}
