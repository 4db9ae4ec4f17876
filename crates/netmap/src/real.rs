//! The functions behind the interposed ones: the next definitions in the order of the dynamic linker, normally libc's.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// One function, looked up by name once.
pub(crate) struct Real {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Real {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(null_mut()) }
    }

    /// Returns the function's address, or null if libc has no such function. Other libraries' constructors may call interposed functions
    /// before this library's own constructor has run, so that every call can be the first.
    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.look_up() } else { known }
    }

    #[cold]
    pub(crate) fn look_up(&self) -> *mut c_void {
        // SAFETY: the name ends with a NUL byte.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Declares the functions to look up. `look_up_all` finds them all, so that none is looked up in a signal handler.
macro_rules! functions {
    ($($constant:ident = $name:literal;)*) => {
        $(pub(crate) static $constant: Real = Real::new($name);)*

        /// Looks all functions up.
        pub(crate) fn look_up_all() {
            $($constant.look_up();)*
        }
    };
}

functions! {
    OPEN = c"open";
    OPEN64 = c"open64";
    OPENAT = c"openat";
    OPENAT64 = c"openat64";
    OPEN_2 = c"__open_2";
    OPEN64_2 = c"__open64_2";
    OPENAT_2 = c"__openat_2";
    OPENAT64_2 = c"__openat64_2";
    IOCTL = c"ioctl";
    MMAP = c"mmap";
    MMAP64 = c"mmap64";
    POLL = c"poll";
    PPOLL = c"ppoll";
    POLL_CHK = c"__poll_chk";
    PPOLL_CHK = c"__ppoll_chk";
    SELECT = c"select";
    PSELECT = c"pselect";
    EPOLL_CREATE = c"epoll_create";
    EPOLL_CREATE1 = c"epoll_create1";
    EPOLL_CTL = c"epoll_ctl";
    EPOLL_WAIT = c"epoll_wait";
    EPOLL_PWAIT = c"epoll_pwait";
    EPOLL_PWAIT2 = c"epoll_pwait2";
    CLOSE = c"close";
    CLOSE_RANGE = c"close_range";
    CLOSEFROM = c"closefrom";
    DUP = c"dup";
    DUP2 = c"dup2";
    DUP3 = c"dup3";
    FCNTL = c"fcntl";
    FCNTL64 = c"fcntl64";
    RECVMSG = c"recvmsg";
    RECVMMSG = c"recvmmsg";
}

/// Calls the function behind an interposed one, with its exact type; returns -1 with ENOSYS if libc has none.
macro_rules! call_real {
    ($real:ident as fn($($type:ty),*) -> $result:ty, $($argument:expr),*) => {{
        let address = crate::real::$real.address();
        if address.is_null() {
            crate::errno::set(libc::ENOSYS);
            (-1isize) as $result
        } else {
            // SAFETY: libc's function of this name has this type, but for arguments that C passes as variable ones, which the supported
            // ABIs pass in the same registers.
            let function: unsafe extern "C-unwind" fn($($type),*) -> $result = unsafe { std::mem::transmute(address) };
            // SAFETY: the arguments are the caller's own.
            unsafe { function($($argument),*) }
        }
    }};
}
pub(crate) use call_real;
