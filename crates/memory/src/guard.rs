//! What happens when a page of a mapping cannot be had.
//!
//! Touching a page past the end of a truncated file, or one the kernel has no memory for, raises SIGBUS, which would
//! end the process. The handler here finds the mapping, puts zeroed private memory in its place and notes it as lost;
//! the access is repeated and succeeds. The owner of the mapping sees the note and ends the port. Any other SIGBUS
//! keeps its usual meaning.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};

/// Mappings that can be guarded at once.
const PLACES: usize = 16_384;

struct Place {
    start: AtomicUsize,
    end: AtomicUsize,
    lost: AtomicBool,
}

static TABLE: [Place; PLACES] =
    [const { Place { start: AtomicUsize::new(0), end: AtomicUsize::new(0), lost: AtomicBool::new(false) } }; PLACES];

/// The places not in use, as a stack; filled on first use.
static FREE: Mutex<Vec<u16>> = Mutex::new(Vec::new());
static INSTALL: Once = Once::new();

/// A registered mapping.
#[derive(Debug)]
pub(crate) struct Guarded {
    place: u16,
}

impl Guarded {
    pub(crate) fn is_lost(&self) -> bool {
        TABLE[usize::from(self.place)].lost.load(Ordering::Relaxed)
    }

    pub(crate) fn unregister(&self) {
        let place = &TABLE[usize::from(self.place)];
        place.start.store(0, Ordering::SeqCst);
        place.end.store(0, Ordering::SeqCst);
        FREE.lock().unwrap_or_else(PoisonError::into_inner).push(self.place);
    }
}

/// Guards `bytes` at `start`.
///
/// # Errors
/// All places are taken.
pub(crate) fn register(start: usize, bytes: usize) -> io::Result<Guarded> {
    INSTALL.call_once(|| {
        FREE.lock().unwrap_or_else(PoisonError::into_inner).extend((0..PLACES as u16).rev());
        install();
    });
    let taken = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let Some(index) = taken else {
        return Err(io::Error::other(format!("{PLACES} memory mappings are in use, no more can be guarded")));
    };
    let place = &TABLE[usize::from(index)];
    place.lost.store(false, Ordering::SeqCst);
    place.end.store(start + bytes, Ordering::SeqCst);
    place.start.store(start, Ordering::SeqCst);
    Ok(Guarded { place: index })
}

fn install() {
    // SAFETY: the handler only touches atomics and calls mmap, which is async-signal-safe on Linux (a bare system call);
    // the structure is valid when zeroed.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigbus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
    }
}

extern "C" fn on_sigbus(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to a SA_SIGINFO handler.
    let address = unsafe { (*info).si_addr() } as usize;
    for place in &TABLE {
        let start = place.start.load(Ordering::SeqCst);
        if start != 0 && address >= start && address < place.end.load(Ordering::SeqCst) {
            place.lost.store(true, Ordering::SeqCst);
            let bytes = place.end.load(Ordering::SeqCst) - start;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            // SAFETY: the range is a live mapping of this crate; replacing it in place keeps every view valid.
            let mapped = unsafe { libc::mmap(start as *mut libc::c_void, bytes, protection, flags, -1, 0) };
            if mapped != libc::MAP_FAILED {
                return;
            }
        }
    }
    // Not ours: let it have its default effect when the access is repeated.
    // SAFETY: resetting a signal to its default is async-signal-safe.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
}
