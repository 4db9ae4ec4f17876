//! The calls of a thread: the mechanism, and the detection of calls that take too long.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::aio::AioSignaler;
use super::timed_write::TimedWriter;

/// Processor time that a call may take: enough for some thousand waiters.
const MOST_TIME: Duration = Duration::from_micros(200);
/// Ticks of [`ticks`] from which on a call is suspicious: about 0.1 ms.
const SUSPICIOUS: u64 = 1 << 18;
/// Consecutive calls to one eventfd that must each take more than [`MOST_TIME`] before the client counts as the cause.
const MAX_SLOW_CALLS: u8 = 3;

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// The client is notified, or its counter is full because it has not read earlier calls yet.
    Done,
    /// The client delayed the call. It must not be called again.
    Blocked,
    /// The kernel had nothing to call by: no memory, or no contexts and timers left. The client is not the cause.
    Failed,
}

/// The mechanism of a thread's calls.
#[derive(Debug, Default)]
pub(super) enum Mechanism {
    /// The thread has not called yet, or the kernel had neither of both: any call might block.
    #[default]
    None,
    Aio(AioSignaler),
    TimedWrite(TimedWriter),
}

/// The calls of one thread.
#[derive(Debug, Default)]
pub(super) struct Caller {
    pub(super) made: u64,
    pub(super) mechanism: Mechanism,
    /// By descriptor: 0, or one more than the measured calls in a row that took too much processor time. Only a descriptor to
    /// which a call was suspicious is measured, as measuring takes two system calls.
    pub(super) slow_calls: Vec<u8>,
}

thread_local! {
    pub(super) static CALLER: RefCell<Caller> =
        const { RefCell::new(Caller { made: 0, mechanism: Mechanism::None, slow_calls: Vec::new() }) };
}

/// Adds one to the eventfd's counter, without waiting. Any thread may call.
pub fn call(eventfd: BorrowedFd<'_>) -> Called {
    CALLER.with(|caller| caller.borrow_mut().call(eventfd))
}

/// Prepares the mechanism of the calling thread before its first call. Returns false if the kernel has none now: each call asks again.
pub fn prepare() -> bool {
    CALLER.with(|caller| caller.borrow_mut().prepare())
}

/// Returns the number of calls that the calling thread has made.
pub(crate) fn made() -> u64 {
    CALLER.with(|caller| caller.borrow().made)
}

impl Caller {
    #[cold]
    fn prepare(&mut self) -> bool {
        if let Mechanism::None = self.mechanism {
            self.mechanism = match AioSignaler::new() {
                Some(signaler) => Mechanism::Aio(signaler),
                None => TimedWriter::new().map_or(Mechanism::None, Mechanism::TimedWrite),
            };
        }
        !matches!(self.mechanism, Mechanism::None)
    }

    pub(super) fn call(&mut self, eventfd: BorrowedFd<'_>) -> Called {
        self.made = self.made.wrapping_add(1);
        if let Mechanism::None = self.mechanism {
            self.prepare();
        }
        if self.slow_calls_to(eventfd).is_some_and(|slow_calls| *slow_calls > 0) {
            return self.measured(eventfd);
        }
        let before = ticks();
        let called = self.signal(eventfd);
        // The cause may be the client, or that this thread was not running.
        if ticks().wrapping_sub(before) >= SUSPICIOUS && called == Called::Done {
            self.start_measuring(eventfd);
        }
        called
    }

    fn slow_calls_to(&mut self, eventfd: BorrowedFd<'_>) -> Option<&mut u8> {
        self.slow_calls.get_mut(usize::try_from(eventfd.as_raw_fd()).ok()?)
    }

    #[cold]
    fn start_measuring(&mut self, eventfd: BorrowedFd<'_>) {
        let place = usize::try_from(eventfd.as_raw_fd()).unwrap_or(0);
        self.slow_calls.resize(self.slow_calls.len().max(place + 1), 0);
        self.slow_calls[place] = 1;
    }

    #[cold]
    fn measured(&mut self, eventfd: BorrowedFd<'_>) -> Called {
        let before = processor_time();
        let called = self.signal(eventfd);
        let slow = processor_time().saturating_sub(before) >= MOST_TIME;
        let Some(slow_calls) = self.slow_calls_to(eventfd) else { return called };
        *slow_calls = if slow { *slow_calls + 1 } else { 0 };
        if *slow_calls > MAX_SLOW_CALLS {
            *slow_calls = 0;
            return Called::Blocked;
        }
        called
    }

    pub(super) fn signal(&mut self, eventfd: BorrowedFd<'_>) -> Called {
        let done = match &mut self.mechanism {
            Mechanism::Aio(signaler) if signaler.signal(eventfd) => Some(true),
            // The kernel usually had no memory. This call uses a write instead.
            Mechanism::Aio(_) => TimedWriter::new().and_then(|mut writer| writer.write(eventfd)),
            Mechanism::TimedWrite(writer) => writer.write(eventfd),
            Mechanism::None => None,
        };
        match done {
            Some(true) => Called::Done,
            Some(false) => Called::Blocked,
            None => Called::Failed,
        }
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
