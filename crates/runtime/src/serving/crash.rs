//! The handler of signals that end the process by its own doing: it notes which thread it was, and lets the signal end the process at once.
//!
//! A fault is given to the handler that was there before, as the standard library's names the thread whose stack has overflown. Lost memory of clients
//! never comes here: its handler (`ringway_memory`) was installed later, and gives this one what it does not know. So does that of WebAssembly.
//!
//! A signal that another process has sent comes to any thread, which has not caused it: then the note names none.

use std::mem::{transmute, zeroed};
use std::ptr;
use std::sync::OnceLock;

use libc::{c_int, c_void, siginfo_t};
use ringway_keeper::page::Cause;

use super::page::note_death;

const SIGNALS: [c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGTRAP, libc::SIGSYS];

/// What each of them did before.
static BEFORE: [OnceLock<libc::sigaction>; SIGNALS.len()] = [const { OnceLock::new() }; SIGNALS.len()];

/// Installs the handler, once per process.
pub(super) fn install() {
    for (signal, before) in SIGNALS.into_iter().zip(&BEFORE) {
        // SAFETY: zeroed structures are valid, and the kernel fills `was`. The handler uses only what a signal handler may use.
        unsafe {
            let mut was: libc::sigaction = zeroed();
            libc::sigaction(signal, ptr::null(), &raw mut was);
            if was.sa_sigaction == on_crash as *const () as usize {
                continue;
            }
            // Kept before the handler can run.
            let _ = before.set(was);
            let mut action: libc::sigaction = zeroed();
            action.sa_sigaction = on_crash as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
    }
}

/// Async-signal-safe: uses only atomics and bare system calls, and the handler that was there before.
extern "C" fn on_crash(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler. It has a sender where the code says so.
    let (code, is_sent_by_us) = unsafe { ((*info).si_code, (*info).si_pid() == libc::getpid()) };
    let is_fault = code > 0;
    // abort(3) sends its signal to the calling thread. The kernel lets nobody else say that this process has.
    let is_own = is_fault || code == libc::SI_TKILL && is_sent_by_us;
    note_death(Cause::Signal(signal as u8), is_own);
    let place = SIGNALS.iter().position(|of| *of == signal);
    let before = place.and_then(|place| BEFORE[place].get());
    let has_handler = |action: &&libc::sigaction| {
        action.sa_flags & libc::SA_SIGINFO != 0 && !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
    };
    // SAFETY: the actions are those of this signal; all calls are async-signal-safe.
    unsafe {
        // When the handler returns, the signal is no longer blocked and ends the process. A fault would repeat.
        libc::signal(signal, libc::SIG_DFL);
        if let Some(before) = before.filter(|_| is_fault).filter(has_handler) {
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = transmute(before.sa_sigaction);
            handler(signal, info, context);
        }
        libc::raise(signal);
    }
}
