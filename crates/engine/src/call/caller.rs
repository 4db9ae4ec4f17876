//! The calls of a thread: by which mechanism, and which of them take too long.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::kernel::Kernel;
use super::watched::Watched;

/// Processor time that a call may take: that of some thousand waiters.
const MOST_TIME: Duration = Duration::from_micros(200);
/// Ticks of [`ticks`] from which on a call is suspicious: about 0.1 ms.
const SUSPICIOUS: u64 = 1 << 18;
/// Calls in a row to one eventfd that must each take more than [`MOST_TIME`] before the client is blamed and not the machine.
const STRIKES: u8 = 3;

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// The client wakes, or its counter is full and it has not read earlier calls yet.
    Done,
    /// The client delayed the call. It must not be called again.
    Blocked,
}

/// The mechanism of a thread's calls.
#[derive(Debug, Default)]
pub(super) enum Mechanism {
    /// The thread has not called yet.
    #[default]
    Unknown,
    Kernel(Kernel),
    Watched(Watched),
    /// The kernel offers neither: any call might wait.
    None,
}

/// The calls of one thread.
#[derive(Debug, Default)]
pub(super) struct Caller {
    pub(super) made: u64,
    pub(super) mechanism: Mechanism,
    /// By descriptor: 0, or one more than the measured calls in a row that took too much processor time. Only a descriptor to
    /// which a call was suspicious is measured, as measuring takes two system calls.
    pub(super) suspects: Vec<u8>,
}

thread_local! {
    pub(super) static CALLER: RefCell<Caller> =
        const { RefCell::new(Caller { made: 0, mechanism: Mechanism::Unknown, suspects: Vec::new() }) };
}

/// Adds one to the eventfd's counter, without waiting. Any thread may call.
pub fn call(eventfd: BorrowedFd<'_>) -> Called {
    CALLER.with(|caller| caller.borrow_mut().call(eventfd))
}

/// Prepares the mechanism of the calling thread, so that its first call need not.
pub(crate) fn prepare() {
    CALLER.with(|caller| caller.borrow_mut().prepare());
}

/// Returns the number of calls that the calling thread has made.
pub(crate) fn made() -> u64 {
    CALLER.with(|caller| caller.borrow().made)
}

impl Caller {
    #[cold]
    fn prepare(&mut self) {
        if !matches!(self.mechanism, Mechanism::Unknown) {
            return;
        }
        self.mechanism = match Kernel::new() {
            Some(kernel) => Mechanism::Kernel(kernel),
            None => Watched::new().map_or(Mechanism::None, Mechanism::Watched),
        };
    }

    pub(super) fn call(&mut self, eventfd: BorrowedFd<'_>) -> Called {
        self.made = self.made.wrapping_add(1);
        if let Mechanism::Unknown = self.mechanism {
            self.prepare();
        }
        if self.suspect(eventfd).is_some_and(|strikes| *strikes > 0) {
            return self.measured(eventfd);
        }
        let before = ticks();
        let called = self.signal(eventfd);
        // The client may be the reason, or that this thread did not run.
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
        let done = match &mut self.mechanism {
            Mechanism::Kernel(kernel) if kernel.signal(eventfd) => true,
            // Mostly the kernel had no memory. This one call is a write.
            Mechanism::Kernel(_) => Watched::new().is_some_and(|mut watched| watched.write(eventfd)),
            Mechanism::Watched(watched) => watched.write(eventfd),
            Mechanism::Unknown | Mechanism::None => false,
        };
        if done { Called::Done } else { Called::Blocked }
    }
}

/// Returns the processor time of the calling thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Reads the time-stamp counter, which counts at 1 to 5 GHz.
#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Reads the clock, in nanoseconds.
#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    crate::clock::nanoseconds()
}
