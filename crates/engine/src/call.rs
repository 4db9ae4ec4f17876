//! Waking a client without being at its mercy.
//!
//! An eventfd is shared with the client, who can make it blocking and fill its counter; the next write would then hang
//! the poller. Each poller notes when it is inside such a write, and a watchdog interrupts a write that lasts; so do ports'
//! own threads that make calls.

use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// The client will wake (or its counter is full, in which case it has not looked at earlier calls yet).
    Done,
    /// The write did not return by itself: the client made the descriptor blocking and filled it.
    Blocked,
}

/// A poller's note that it is inside a write, for the watchdog.
#[derive(Debug, Default)]
pub(crate) struct CallWatch {
    /// Even: outside; odd: inside. Increases with every call.
    turn: AtomicU64,
    thread: AtomicI32,
}

/// Those of threads that are no pollers.
static OTHERS: Mutex<Vec<Weak<CallWatch>>> = Mutex::new(Vec::new());

thread_local! {
    static WATCH: RefCell<Option<Arc<CallWatch>>> = const { RefCell::new(None) };
}

impl CallWatch {
    /// Makes the calling thread the watched one.
    pub(crate) fn enter_thread(self: &Arc<Self>) {
        self.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
        WATCH.with(|watch| *watch.borrow_mut() = Some(Arc::clone(self)));
    }

    /// Changes with every call of the watched thread.
    pub(crate) fn turns(&self) -> u64 {
        self.turn.load(Ordering::Relaxed)
    }

    /// Interrupts the watched thread if it has been inside one write since `seen` was noted. Returns what to note now.
    pub(crate) fn check(&self, seen: u64) -> u64 {
        let turn = self.turn.load(Ordering::Acquire);
        if turn % 2 == 1 && turn == seen {
            interrupt(self.thread.load(Ordering::Relaxed));
        }
        turn
    }
}

/// Has the watchdog of whatever engine runs see to the calling thread's calls, until the thread ends.
pub fn watch_calls() {
    let watch = Arc::default();
    CallWatch::enter_thread(&watch);
    OTHERS.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&watch));
}

/// The threads that asked for it and still run.
pub(crate) fn others() -> Vec<Arc<CallWatch>> {
    let mut others = OTHERS.lock().unwrap_or_else(PoisonError::into_inner);
    others.retain(|watch| watch.strong_count() > 0);
    others.iter().filter_map(Weak::upgrade).collect()
}

/// Adds one to the eventfd's counter.
pub fn call(eventfd: BorrowedFd<'_>) -> Called {
    WATCH.with(|watch| {
        let watch = watch.borrow();
        if let Some(watch) = &*watch {
            watch.turn.fetch_add(1, Ordering::Relaxed);
        }
        let written = rustix::io::write(eventfd, &1u64.to_ne_bytes());
        if let Some(watch) = &*watch {
            watch.turn.fetch_add(1, Ordering::Relaxed);
        }
        if written == Err(rustix::io::Errno::INTR) { Called::Blocked } else { Called::Done }
    })
}

/// Installs the (empty) handler of the signal that interrupts a write.
pub(crate) fn install_interrupt() {
    extern "C" fn nothing(_signal: libc::c_int) {}
    // SAFETY: the handler does nothing; the structure is valid when zeroed; without SA_RESTART a blocked write returns.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(libc::SIGURG, &action, std::ptr::null_mut());
    }
}

fn interrupt(thread: i32) {
    let process = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: sends a signal whose handler does nothing to a thread of this process; a thread that ended is an error
    // that can be ignored.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGURG) };
}
