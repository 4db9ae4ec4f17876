//! The sleeps of a program's threads.
//!
//! The thread that receives and the thread that sends are woken by the same eventfd of their port. A read of it would take the other
//! thread's wake-up away, so nothing reads it: each thread has an epoll instance of its own, in which each write is an edge.
//!
//! A sleep is a call of libc's `epoll_wait`, and no system call of our own: `pthread_cancel` ends a thread in it, as it ends a thread
//! that waits in libpcap. The thread then unwinds through this library into the program, which is why all functions between have the
//! ABI `C-unwind` or are Rust's.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use libc::{c_int, epoll_event};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::breaker::Breaker;
use crate::source::Descriptors;

unsafe extern "C-unwind" {
    fn epoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, milliseconds: c_int) -> c_int;
}

const CALLED: u64 = 0;
const END: u64 = 1;
const ASKED: u64 = 2;

/// What ended a sleep; nothing if its time is over.
#[derive(Clone, Copy, Debug, Default)]
pub struct Events {
    /// A descriptor has been written or is readable.
    pub any: bool,
    /// [`Descriptors::end`] is readable.
    pub end: bool,
}

/// The sleeps of one thread at a time.
#[derive(Debug)]
pub struct Sleep {
    epoll: OwnedFd,
}

impl Sleep {
    /// Sleeps that these descriptors end, and requests to break.
    pub fn new(descriptors: &Descriptors<'_>, breaker: &Breaker) -> io::Result<Sleep> {
        let epoll = with(descriptors)?;
        if let Some(asked) = breaker.descriptor() {
            epoll::add(&epoll, asked, EventData::new_u64(ASKED), EventFlags::IN | EventFlags::ET)?;
        }
        Ok(Sleep { epoll })
    }

    /// Sleeps for `longest` at most. What came since the last sleep ends it at once.
    ///
    /// # Errors
    /// `Interrupted` after a signal; otherwise the kernel refuses.
    pub fn sleep(&self, longest: Option<Duration>) -> io::Result<Events> {
        // No sooner than asked for.
        let in_milliseconds =
            |longest: Duration| longest.as_nanos().div_ceil(1_000_000).try_into().unwrap_or(c_int::MAX);
        let mut events = [epoll_event { events: 0, u64: 0 }; 3];
        // SAFETY: room for three events.
        let number = unsafe {
            epoll_wait(
                self.epoll.as_raw_fd(),
                events.as_mut_ptr(),
                events.len() as c_int,
                longest.map_or(-1, in_milliseconds),
            )
        };
        let Ok(number) = usize::try_from(number) else { return Err(io::Error::last_os_error()) };
        let is = |wanted: u64| events[..number].iter().any(|event| { event.u64 } == wanted);
        Ok(Events { any: number > 0, end: is(END) })
    }
}

/// Makes an epoll instance of these descriptors.
pub fn with(descriptors: &Descriptors<'_>) -> io::Result<OwnedFd> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    if let Some(calls) = descriptors.calls {
        epoll::add(&epoll, calls, EventData::new_u64(CALLED), EventFlags::IN | EventFlags::ET)?;
    }
    epoll::add(&epoll, descriptors.end, EventData::new_u64(END), EventFlags::IN)?;
    Ok(epoll)
}
