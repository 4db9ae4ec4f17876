//! The caller's `errno`.

use std::ffi::c_int;

/// Returns `errno`.
pub(crate) fn get() -> c_int {
    // SAFETY: the address of the thread's errno is valid as long as the thread lives.
    unsafe { *libc::__errno_location() }
}

/// Sets `errno`.
pub(crate) fn set(value: c_int) {
    // SAFETY: see `get`.
    unsafe { *libc::__errno_location() = value };
}

/// Keeps `errno` over calls that may change it.
pub(crate) fn kept<T>(work: impl FnOnce() -> T) -> T {
    let before = get();
    let result = work();
    set(before);
    result
}

/// Returns what an interposed function returns for `result`: the value, or -1 with `errno` set.
pub(crate) fn answer(result: Result<c_int, c_int>) -> c_int {
    result.unwrap_or_else(|error| {
        set(error);
        -1
    })
}
