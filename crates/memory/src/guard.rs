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
    /// Odd while `start` and `end` change, so that the handler never pairs one mapping's start with another's end.
    turn: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
    lost: AtomicBool,
}

impl Place {
    fn set(&self, start: usize, end: usize) {
        self.turn.fetch_add(1, Ordering::SeqCst);
        self.start.store(start, Ordering::SeqCst);
        self.end.store(end, Ordering::SeqCst);
        self.turn.fetch_add(1, Ordering::SeqCst);
    }

    /// Start and length, if `address` is inside. The place of a mapping that is in use does not change.
    fn holding(&self, address: usize) -> Option<(usize, usize)> {
        let turn = self.turn.load(Ordering::SeqCst);
        let (start, end) = (self.start.load(Ordering::SeqCst), self.end.load(Ordering::SeqCst));
        let stable = turn.is_multiple_of(2) && self.turn.load(Ordering::SeqCst) == turn;
        (stable && (start..end).contains(&address)).then(|| (start, end - start))
    }
}

static TABLE: [Place; PLACES] = [const {
    Place {
        turn: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
    }
}; PLACES];

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
        TABLE[usize::from(self.place)].set(0, 0);
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
    place.set(start, start + bytes);
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
        if let Some((start, bytes)) = place.holding(address) {
            place.lost.store(true, Ordering::SeqCst);
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            // SAFETY: the range is a live mapping of this crate; replacing it in place keeps every view valid.
            let mapped = unsafe { libc::mmap(start as *mut libc::c_void, bytes, protection, flags, -1, 0) };
            if mapped != libc::MAP_FAILED {
                return;
            }
        }
    }
    // Not ours: it has its default effect as soon as the handler returns, also when somebody sent it.
    // SAFETY: both are async-signal-safe.
    unsafe {
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
        libc::raise(libc::SIGBUS);
    }
}
