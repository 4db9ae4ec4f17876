//! The action for SIGBUS that the program had before the guard's handler took its place.
//!
//! The guard is part of libraries, too. A signal that does not belong to a guarded mapping has the effect that it would have
//! without the guard: the program's own handler runs, or the signal is ignored, or it ends the process. Two copies of the guard
//! in one process (two libraries) call each other in the same way. A handler that the program installs later replaces the
//! guard's.

use std::mem::{transmute, zeroed};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{c_int, c_void, siginfo_t};

/// Handler with SA_SIGINFO.
pub(crate) type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
/// Handler without SA_SIGINFO.
type PlainHandler = extern "C" fn(c_int);

static FORMER: OnceLock<libc::sigaction> = OnceLock::new();
/// The former action had SA_RESETHAND, and its handler has run.
static IS_SPENT: AtomicBool = AtomicBool::new(false);

/// Installs the guard's handler, and keeps the former action. Call once.
pub(crate) fn install(handler: Handler) {
    // SAFETY: zeroed structures are valid, and the kernel fills `former`. The handler uses only what a signal handler may use.
    unsafe {
        let mut former: libc::sigaction = zeroed();
        libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut former);
        // Kept before the guard's handler can run.
        let former = FORMER.get_or_init(|| former);
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = handler as *const () as usize;
        // The former handler runs inside the guard's, with the mask that its program has chosen.
        let kept = if has_handler(former) { former.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART) } else { 0 };
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | kept;
        action.sa_mask = former.sa_mask;
        libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
    }
}

fn has_handler(action: &libc::sigaction) -> bool {
    !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
}

/// Gives a signal to the former action. Async-signal-safe if the former handler is. It may leave by siglongjmp: no caller has
/// anything to drop.
///
/// # Safety
/// The arguments are those of a handler with SA_SIGINFO, which calls this last.
pub(crate) unsafe fn call(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo.
    let code = unsafe { (*info).si_code };
    // A process sent it (code 0 and below), or the kernel reports damaged memory that nobody touched.
    let is_fault = code > 0 && code != libc::BUS_MCEERR_AO;
    let former = FORMER.get().filter(|former| has_handler(former));
    let is_ignored = FORMER.get().is_some_and(|former| former.sa_sigaction == libc::SIG_IGN);
    match former {
        Some(former) if former.sa_flags & libc::SA_RESETHAND == 0 || !IS_SPENT.swap(true, Ordering::SeqCst) => {
            // SAFETY: the program has given this function for these arguments.
            unsafe {
                if former.sa_flags & libc::SA_SIGINFO == 0 {
                    transmute::<usize, PlainHandler>(former.sa_sigaction)(signal);
                } else {
                    transmute::<usize, Handler>(former.sa_sigaction)(signal, info, context);
                }
            }
            // The standard library's handler restores the default and returns, so that a fault repeats. A sent signal does not.
            if !is_fault && is_default() {
                end();
            }
        }
        // The kernel lets no program ignore a fault.
        None if is_ignored && !is_fault => {}
        _ => end(),
    }
}

/// Returns true if SIGBUS has its default effect now.
fn is_default() -> bool {
    // SAFETY: async-signal-safe. A zeroed structure is valid, and the kernel fills it.
    unsafe {
        let mut now: libc::sigaction = zeroed();
        libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut now);
        now.sa_sigaction == libc::SIG_DFL
    }
}

/// Lets SIGBUS end the process, at the latest when the handler returns.
fn end() {
    // SAFETY: both functions are async-signal-safe.
    unsafe {
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
        libc::raise(libc::SIGBUS);
    }
}
