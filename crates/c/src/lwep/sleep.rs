//! Waiting.

use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;

use ringway_link::Link;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::endpoint::Lwep;
use crate::error::{RINGWAY_E_ARGUMENT, RINGWAY_E_ENDED, RINGWAY_E_INTERRUPTED, RINGWAY_E_SYSTEM, copy_text};

const SECOND: u64 = 1_000_000_000;

/// Returns the time of CLOCK_MONOTONIC in nanoseconds.
#[unsafe(no_mangle)]
pub extern "C" fn ringway_lwep_now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // rustix looks for the vDSO by itself, which crashes under valgrind. This clock is always there.
    // SAFETY: the call fills in `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * SECOND + time.tv_nsec as u64
}

/// Sleeps until there is something to do, for at most `longest_ns` nanoseconds; without such a limit if it is negative. Returns 0: call
/// ringway_lwep_poll(), with the time after the sleep. Returns RINGWAY_E_INTERRUPTED after a signal that a handler has taken,
/// RINGWAY_E_ENDED when the link has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_sleep(lwep: *mut Lwep, now: u64, longest_ns: i64) -> c_int {
    // SAFETY: the caller's endpoint.
    let Some(lwep) = (unsafe { Lwep::of(lwep) }) else { return RINGWAY_E_ARGUMENT };
    let slept = if lwep.endpoint.prepare_sleep(now) { lwep.wait(now, longest_ns) } else { 0 };
    let awake = lwep.awake();
    if slept == 0 { awake } else { slept }
}

impl Lwep {
    /// Waits until the link's descriptor is readable, or until the next deadline.
    fn wait(&mut self, now: u64, longest_ns: i64) -> c_int {
        let until = self.endpoint.next_deadline().map(|at| at.saturating_sub(now));
        let longest = u64::try_from(longest_ns).ok();
        let timeout = until.into_iter().chain(longest).min();
        let timeout = timeout.map(|ns| Timespec { tv_sec: (ns / SECOND) as i64, tv_nsec: (ns % SECOND) as _ });
        let descriptor = self.endpoint.link().descriptor();
        match poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], timeout.as_ref()) {
            Ok(_) => 0,
            Err(Errno::INTR) => RINGWAY_E_INTERRUPTED,
            Err(_) => RINGWAY_E_SYSTEM,
        }
    }

    /// Ends a sleep. Looks for the end of the link only if no frame is there: that takes a system call.
    fn awake(&mut self) -> c_int {
        let link = self.endpoint.link();
        link.awake();
        if link.peek().is_none() && link.check().is_err() { RINGWAY_E_ENDED } else { 0 }
    }
}

/// Prepares for a sleep in the caller's own event loop: sends the acknowledgements that are owed, and asks the switch or the interface to
/// wake this side. Returns 1: wait until ringway_lwep_fd() is readable or ringway_lwep_next_deadline() has come, then call
/// ringway_lwep_awake(). Returns 0 if there is something to do at once: then call ringway_lwep_poll(). Returns RINGWAY_E_ENDED when the
/// link is known to have ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_prepare_sleep(lwep: *mut Lwep, now: u64) -> c_int {
    // SAFETY: the caller's endpoint.
    let Some(lwep) = (unsafe { Lwep::of(lwep) }) else { return RINGWAY_E_ARGUMENT };
    if lwep.endpoint.prepare_sleep(now) { 1 } else { lwep.awake() }
}

/// Ends a sleep: withdraws the request to be woken, and clears the descriptor of ringway_lwep_fd(). Returns 0, or RINGWAY_E_ENDED when the
/// link has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_awake(lwep: *mut Lwep) -> c_int {
    // SAFETY: the caller's endpoint.
    let Some(lwep) = (unsafe { Lwep::of(lwep) }) else { return RINGWAY_E_ARGUMENT };
    lwep.awake()
}

/// Returns the descriptor that is readable when the switch or the interface has woken this side, and when the link has ended. The endpoint
/// owns it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_fd(lwep: *mut Lwep) -> c_int {
    // SAFETY: the caller's endpoint.
    unsafe { Lwep::of(lwep) }.map_or(RINGWAY_E_ARGUMENT, |lwep| lwep.endpoint.link().descriptor().as_raw_fd())
}

/// Returns the time at which the caller has to call ringway_lwep_poll() although nothing has arrived, on the clock of the times that the
/// caller passes; UINT64_MAX if there is no such time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_next_deadline(lwep: *mut Lwep) -> u64 {
    // SAFETY: the caller's endpoint.
    unsafe { Lwep::of(lwep) }.and_then(|lwep| lwep.endpoint.next_deadline()).unwrap_or(u64::MAX)
}

/// Returns 1 if the link has ended, else 0. `text` gets the reason, cut to `text_size` bytes with the NUL. It may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_ended(lwep: *mut Lwep, text: *mut c_char, text_size: usize) -> c_int {
    // SAFETY: the caller's endpoint.
    let Some(lwep) = (unsafe { Lwep::of(lwep) }) else { return RINGWAY_E_ARGUMENT };
    let Err(reason) = lwep.endpoint.link().check() else { return 0 };
    // SAFETY: the caller's buffer.
    unsafe { copy_text(&reason.to_string(), text, text_size) };
    1
}
