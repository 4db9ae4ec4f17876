//! Ctrl-C ends a run early, with what it has measured so far; a second Ctrl-C ends the program.

use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Becomes true when the user asks for the end (SIGINT or SIGTERM).
pub fn watch() -> &'static AtomicBool {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler does only what is allowed in one: an atomic store, and `signal` to restore the default.
        unsafe { libc::signal(signal, note as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    }
    &INTERRUPTED
}

extern "C" fn note(signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
    // SAFETY: `signal` is async-signal-safe, and the default action needs no handler.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}
