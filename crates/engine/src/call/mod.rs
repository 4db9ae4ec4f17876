//! Calls: the switch wakes a client by the client's eventfd, and never waits for the client.
//!
//! A client shares its eventfd with the switch. The client may make it blocking and fill its counter at any time, so that
//! write(2) would wait for as long as the client likes; no check before the write helps. Therefore the kernel adds to the counter
//! itself ([`kernel`]), which never waits whatever the descriptor's flags and counter are. Where the kernel offers no way
//! to ask for that, the thread writes, and a timer of its own interrupts a write that lasts ([`watched`]).
//!
//! Adding to the counter wakes every waiter of the eventfd before it returns, and a client may register very many
//! (epoll). A call that costs too much processor time is reported like one that waits.

mod kernel;
mod watched;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Once;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use kernel::Kernel;
use watched::Watched;

/// Processor time that a call may take: some thousand waiters.
const MOST_TIME: Duration = Duration::from_micros(200);
/// Ticks of [`ticks`] after which a call is looked at: 0.1 ms or so.
const SUSPICIOUS: u64 = 1 << 18;
/// Calls in a row to one eventfd that must each take more than [`MOST_TIME`] before the client is blamed, not the machine.
const STRIKES: u8 = 3;

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// The client will wake (or its counter is full, in which case it has not looked at earlier calls yet).
    Done,
    /// The client made the call last. It must not be called again.
    Blocked,
}

/// How a thread calls.
#[derive(Debug, Default)]
enum Way {
    /// The thread has not called yet.
    #[default]
    Unknown,
    Kernel(Kernel),
    Watched(Watched),
    /// The kernel offers neither: nothing can be called without the risk of waiting.
    None,
}

/// A thread's calls.
#[derive(Debug, Default)]
struct Caller {
    made: u64,
    way: Way,
    /// By descriptor: 0, or one more than the calls in a row that were measured and took too much processor time. Only descriptors that
    /// a call took long to are measured, as measuring takes two system calls.
    suspects: Vec<u8>,
}

thread_local! {
    static CALLER: RefCell<Caller> = const { RefCell::new(Caller { made: 0, way: Way::Unknown, suspects: Vec::new() }) };
}

/// Adds one to the eventfd's counter, without waiting. Any thread may call.
pub fn call(eventfd: BorrowedFd<'_>) -> Called {
    CALLER.with(|caller| caller.borrow_mut().call(eventfd))
}

/// Gets ready what the calling thread needs for its calls, which its first call would do otherwise.
pub(crate) fn prepare() {
    CALLER.with(|caller| caller.borrow_mut().prepare());
}

/// How many calls the calling thread has made.
pub(crate) fn made() -> u64 {
    CALLER.with(|caller| caller.borrow().made)
}

impl Caller {
    #[cold]
    fn prepare(&mut self) {
        if !matches!(self.way, Way::Unknown) {
            return;
        }
        self.way = match Kernel::new() {
            Some(kernel) => Way::Kernel(kernel),
            None => Watched::new().map_or(Way::None, Way::Watched),
        };
    }

    fn call(&mut self, eventfd: BorrowedFd<'_>) -> Called {
        self.made = self.made.wrapping_add(1);
        if let Way::Unknown = self.way {
            self.prepare();
        }
        if self.suspect(eventfd).is_some_and(|strikes| *strikes > 0) {
            return self.measured(eventfd);
        }
        let before = ticks();
        let called = self.signal(eventfd);
        // Because of the client, or because this thread did not run?
        if ticks().wrapping_sub(before) >= SUSPICIOUS && called == Called::Done {
            self.begin_to_measure(eventfd);
        }
        called
    }

    fn suspect(&mut self, eventfd: BorrowedFd<'_>) -> Option<&mut u8> {
        self.suspects.get_mut(usize::try_from(eventfd.as_raw_fd()).ok()?)
    }

    #[cold]
    fn begin_to_measure(&mut self, eventfd: BorrowedFd<'_>) {
        let place = usize::try_from(eventfd.as_raw_fd()).unwrap_or(0);
        self.suspects.resize(self.suspects.len().max(place + 1), 0);
        self.suspects[place] = 1;
    }

    #[cold]
    fn measured(&mut self, eventfd: BorrowedFd<'_>) -> Called {
        let before = processor_time();
        let called = self.signal(eventfd);
        let slow = processor_time().saturating_sub(before) >= MOST_TIME;
        let Some(strikes) = self.suspect(eventfd) else { return called };
        *strikes = if slow { *strikes + 1 } else { 0 };
        if *strikes > STRIKES {
            *strikes = 0;
            return Called::Blocked;
        }
        called
    }

    fn signal(&mut self, eventfd: BorrowedFd<'_>) -> Called {
        match &mut self.way {
            Way::Kernel(kernel) if kernel.signal(eventfd) => Called::Done,
            // The kernel had no memory, mostly: this one call is written.
            Way::Kernel(_) => Watched::new().map_or(Called::Blocked, |mut watched| watched.write(eventfd)),
            Way::Watched(watched) => watched.write(eventfd),
            Way::Unknown | Way::None => Called::Blocked,
        }
    }
}

/// Of the calling thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Counts at 1 to 5 GHz.
#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Counts nanoseconds.
#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    crate::clock::nanoseconds()
}

/// Installs the (empty) handler of SIGURG, which makes a system call that waits return.
fn make_interruptible() {
    static INSTALLED: Once = Once::new();
    extern "C" fn nothing(_signal: libc::c_int) {}
    INSTALLED.call_once(|| {
        // SAFETY: the handler does nothing; the structure is valid when zeroed; without SA_RESTART a system call that waits returns.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(libc::SIGURG, &action, std::ptr::null_mut());
        }
    });
}

/// Makes a system call return in which `thread` waits, if it is one that a signal interrupts.
pub fn interrupt<T>(thread: &JoinHandle<T>) {
    use std::os::unix::thread::JoinHandleExt;
    make_interruptible();
    // SAFETY: the thread has been neither joined nor detached, so that its handle is valid.
    unsafe { libc::pthread_kill(thread.as_pthread_t(), libc::SIGURG) };
}
