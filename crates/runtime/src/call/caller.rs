//! The calls of a thread: the mechanism, and the detection of calls that take too long.
//!
//! A call costs more the more waiters its client has registered. But a call also wakes a thread, and the kernel spins for as long as the
//! processor of that thread is taken away, by the hypervisor or by a thread of the real-time class; or the caller's own processor is taken
//! away. Both count as the caller's processor time. So a slow call is followed by others to the same eventfd, and by one to an eventfd of the
//! caller's own. All waiters are still there. A thread that was woken may sleep again before the second call, but not before each of several
//! calls, one right after the other: only if every one of them is slow beside the one to the caller's own, the client is the cause.
//!
//! Waiters that the kernel removes when it wakes them (poll by AIO or io_uring) make the first call slow and not the second, as does a
//! processor that is taken away. Nothing tells these two apart, so nobody loses a port for them. What the slow calls to a client cost, whoever
//! was the cause, is bounded instead ([`CallAccount`]).

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::SendFlags;
use rustix::time::{ClockId, clock_gettime};

use super::account::{CallAccount, nanoseconds_of};
use super::aio::AioSignaler;
use super::timed_write::TimedWriter;
use crate::clock;

/// Processor time that a call may take: enough for some thousand waiters.
const MOST_TIME: Duration = Duration::from_micros(200);
/// Processor time of a call that wakes a few threads on other processors. What is beyond it is excess ([`CallAccount`]).
const HARMLESS: Duration = Duration::from_micros(20);
/// Ticks of [`ticks`] from which on a call is suspicious: 13 to 65 us.
const SUSPICIOUS: u64 = 1 << 16;
/// A repeated call is slow if it takes this many times as long as a call to an eventfd of the caller's own...
const TIMES: u32 = 16;
/// ...and this much, which is the time of some hundred waiters.
const MOST_AGAIN: Duration = Duration::from_micros(20);
/// A call is repeated so many times, while each is slow...
const REPEATED: u32 = 4;
/// ...and as long as all together took less: no processor is taken away for so long in the middle of call after call.
const MOST_REPEATED: Duration = Duration::from_millis(10);
/// Measured calls that are slow, and slow again, from which on the client counts as the cause. A call that is slow and not slow again ends
/// the row, as does a while without a slow one.
const SLOW_CALLS: u8 = 3;

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
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) made: u64,
    pub(super) mechanism: Mechanism,
    /// Returns the processor time of the calling thread.
    pub(super) processor_time: fn() -> Duration,
    /// An eventfd without waiters, once it was needed.
    own: Option<OwnedFd>,
    /// Nanoseconds of calls that were slow because of their clients.
    pub(super) slow_nanoseconds: u64,
}

thread_local! {
    pub(super) static CALLER: RefCell<Caller> = const { RefCell::new(Caller::new(Mechanism::None, processor_time)) };
}

/// Adds one to the eventfd's counter, without waiting. `account`: that of the client. Any thread may call.
pub fn call(eventfd: BorrowedFd<'_>, account: &CallAccount) -> Called {
    CALLER.with(|caller| caller.borrow_mut().call(eventfd, account))
}

/// Prepares the mechanism of the calling thread before its first call. Returns false if the kernel has none now: each call asks again.
pub fn prepare() -> bool {
    CALLER.with(|caller| caller.borrow_mut().prepare())
}

/// Writes bytes to a socket that does not block, and adds one to `witness` in the same system call: a process that is killed has done both
/// or nothing. Without io_submit(2) these are two calls. The counter is increased, too, if the socket refuses the bytes.
///
/// # Errors
/// The socket refuses: `WouldBlock` if it is full.
pub fn send_counted(socket: BorrowedFd<'_>, bytes: &[u8], witness: BorrowedFd<'_>) -> io::Result<()> {
    let sent = CALLER.with(|caller| {
        let mut caller = caller.borrow_mut();
        caller.prepare();
        match &caller.mechanism {
            Mechanism::Aio(signaler) => signaler.write(socket, bytes, witness),
            _ => None,
        }
    });
    sent.unwrap_or_else(|| {
        let sent = rustix::net::send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        rustix::io::write(witness, &1u64.to_ne_bytes())?;
        match sent {
            Ok(count) if count < bytes.len() => Err(io::ErrorKind::WriteZero.into()),
            sent => Ok(sent.map(|_| ())?),
        }
    })
}

/// Returns the number of calls that the calling thread has made.
pub fn made() -> u64 {
    CALLER.with(|caller| caller.borrow().made)
}

/// Returns the nanoseconds of the calling thread's calls that were slow because of their clients.
pub fn slow_nanoseconds() -> u64 {
    CALLER.with(|caller| caller.borrow().slow_nanoseconds)
}

impl Caller {
    pub(super) const fn new(mechanism: Mechanism, processor_time: fn() -> Duration) -> Caller {
        Caller { made: 0, mechanism, processor_time, own: None, slow_nanoseconds: 0 }
    }

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

    pub(super) fn call(&mut self, eventfd: BorrowedFd<'_>, account: &CallAccount) -> Called {
        self.made = self.made.wrapping_add(1);
        if let Mechanism::None = self.mechanism {
            self.prepare();
        }
        if account.is_measured() {
            return self.measured(eventfd, account, clock::nanoseconds());
        }
        let before = ticks();
        let called = self.signal(eventfd);
        // The cause may be the client, or that this thread was not running. Measuring takes two system calls.
        if ticks().wrapping_sub(before) >= SUSPICIOUS {
            account.measure_from(clock::nanoseconds());
        }
        called
    }

    #[cold]
    pub(super) fn measured(&mut self, eventfd: BorrowedFd<'_>, account: &CallAccount, now: u64) -> Called {
        let (called, mut took) = self.timed(eventfd);
        if took <= HARMLESS {
            account.note_harmless(now);
            return called;
        }
        account.measure_from(now);
        let (mut excess, mut slow_calls) = (took - HARMLESS, 0);
        if took >= MOST_TIME {
            let is_slow = called != Called::Done || {
                let (is_slow, again) = self.is_slow_again(eventfd);
                took += again;
                excess += again.saturating_sub(HARMLESS);
                is_slow
            };
            if is_slow {
                self.slow_nanoseconds = self.slow_nanoseconds.saturating_add(nanoseconds_of(took));
            }
            slow_calls = account.note_slow(now, is_slow);
        }
        account.charge(now.saturating_add(nanoseconds_of(took)), excess);
        if slow_calls >= SLOW_CALLS { Called::Blocked } else { called }
    }

    /// Calls several times more. Returns true if each of these calls is slow, too, beside one that no client has to do with, and the time that
    /// they took together.
    fn is_slow_again(&mut self, eventfd: BorrowedFd<'_>) -> (bool, Duration) {
        let (_, mut again) = self.timed(eventfd);
        if again < MOST_AGAIN {
            return (false, again);
        }
        let own = self.own.take().or_else(eventfd_without_waiters);
        // Without a descriptor for comparison the client is not the cause.
        let usual = own.as_ref().map_or(Duration::MAX, |own| self.timed(own.as_fd()).1);
        self.own = own;
        let slow = MOST_AGAIN.max(usual.saturating_mul(TIMES));
        let mut is_slow = again >= slow;
        for _ in 1..REPEATED {
            if !is_slow || again >= MOST_REPEATED {
                break;
            }
            let (_, once_more) = self.timed(eventfd);
            is_slow = once_more >= slow;
            again += once_more;
        }
        (is_slow, again)
    }

    /// Calls, and measures the processor time.
    fn timed(&mut self, eventfd: BorrowedFd<'_>) -> (Called, Duration) {
        let before = (self.processor_time)();
        let called = self.signal(eventfd);
        (called, (self.processor_time)().saturating_sub(before))
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

fn eventfd_without_waiters() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()
}

/// Returns the processor time of the calling thread.
pub(super) fn processor_time() -> Duration {
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
