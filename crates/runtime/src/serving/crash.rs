//! The handler of signals that end the process by its own doing: it notes which thread it was, and lets the signal end the process at once.
//!
//! A fault is given to the handler that was there before, as the standard library's names the thread whose stack has overflown. Lost memory of clients
//! never comes here: its handler (`ringway_memory`) was installed later, and gives this one what it does not know. So does that of WebAssembly.
//!
//! A signal that another process has sent comes to any thread, which has not caused it: then the note names none.

use std::mem::{transmute, zeroed};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use libc::{c_int, c_void, siginfo_t};
use ringway_keeper::page::Cause;

use super::page::note_death;

const SIGNALS: [c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGTRAP, libc::SIGSYS];

/// What each of them did before.
static BEFORE: [OnceLock<libc::sigaction>; SIGNALS.len()] = [const { OnceLock::new() }; SIGNALS.len()];

/// Of a system call that the process may not make.
const SYS_SECCOMP: c_int = 1;

/// System calls that were refused, and the number of the last one.
static REFUSED: AtomicU64 = AtomicU64::new(0);
static LAST_REFUSED: AtomicI64 = AtomicI64::new(0);

/// How many system calls were refused to this process, and the number of the last one.
#[must_use]
pub fn refused_calls() -> (u64, i64) {
    (REFUSED.load(Ordering::Acquire), LAST_REFUSED.load(Ordering::Relaxed))
}

/// Has the refused call fail with EPERM. Returns false where it is not known how.
///
/// # Safety
/// `context` is that of the signal's handler.
unsafe fn refuse(context: *mut c_void) -> bool {
    let context = context.cast::<libc::ucontext_t>();
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel passes a valid context to an SA_SIGINFO handler. Its register has the call's number, and takes the result.
    let number = unsafe {
        let register = &mut (*context).uc_mcontext.gregs[libc::REG_RAX as usize];
        std::mem::replace(register, -i64::from(libc::EPERM))
    };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the same.
    let number = unsafe {
        let registers = &mut (*context).uc_mcontext.regs;
        registers[0] = (-i64::from(libc::EPERM)).cast_unsigned();
        registers[8].cast_signed()
    };
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let number = {
        let _ = context;
        return false;
    };
    LAST_REFUSED.store(number, Ordering::Relaxed);
    REFUSED.fetch_add(1, Ordering::Release);
    true
}

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
    // SAFETY: the kernel passes a valid siginfo and context to an SA_SIGINFO handler.
    if signal == libc::SIGSYS && unsafe { (*info).si_code == SYS_SECCOMP && refuse(context) } {
        return;
    }
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
