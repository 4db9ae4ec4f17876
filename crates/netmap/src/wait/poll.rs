//! `poll` and `ppoll` with netmap descriptors among the descriptors.

use std::ffi::c_int;
use std::ptr::null;

use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLRDHUP, pollfd};

use super::epoll;
use super::mask::Mask;
use super::time::Limit;
use crate::table::{self, Entry};
use crate::{file, sync};

/// Descriptors for which no memory has to be made.
const ON_STACK: usize = 128;
const NONE: pollfd = pollfd { fd: -1, events: 0, revents: 0 };

/// Returns true if the descriptor is one that `poll` here has to look after.
#[inline]
pub(crate) fn concerns(fd: c_int) -> bool {
    matches!(table::entry(fd), Entry::File(_) | Entry::Set(_))
}

/// Waits for descriptors, some of which are netmap's. Fills in `revents`, and returns how many descriptors are ready.
///
/// # Errors
/// As `ppoll`.
pub(crate) fn poll(fds: &mut [pollfd], limit: Limit, mask: Mask) -> Result<c_int, c_int> {
    let ours = fds.iter().filter(|entry| concerns(entry.fd)).count();
    let wanted = fds.len() + ours;
    let (mut stack, mut heap);
    let sleepers = if wanted <= ON_STACK {
        stack = [NONE; ON_STACK];
        &mut stack[..wanted]
    } else {
        heap = vec![NONE; wanted];
        &mut heap[..]
    };
    wait(fds, sleepers, limit, mask)
}

fn wait(fds: &mut [pollfd], sleepers: &mut [pollfd], mut limit: Limit, mask: Mask) -> Result<c_int, c_int> {
    fds.iter_mut().for_each(|entry| entry.revents = 0);
    let has_others = fds.iter().any(|entry| entry.fd >= 0 && !concerns(entry.fd));
    loop {
        if look(fds) > 0 {
            if has_others {
                sleep(fds, sleepers, Some(Limit::Now), Mask(null()), false)?;
            }
            break;
        }
        if limit == Limit::Now {
            sleep(fds, sleepers, Some(Limit::Now), mask, true)?;
            break;
        }
        ask(fds);
        // A frame may have come before the switch could see the request.
        if look(fds) > 0 {
            withdraw(fds);
            if has_others {
                sleep(fds, sleepers, Some(Limit::Now), Mask(null()), false)?;
            }
            break;
        }
        limit.begin();
        let slept = sleep(fds, sleepers, Some(limit), mask, true);
        withdraw(fds);
        slept?;
        look(fds);
        if fds.iter().any(|entry| entry.revents != 0) || limit.is_over() {
            break;
        }
    }
    Ok(fds.iter().filter(|entry| entry.revents != 0).count() as c_int)
}

/// Synchronises all netmap descriptors, and sets their `revents`. Leaves the others' alone. Returns how many are ready.
fn look(fds: &mut [pollfd]) -> usize {
    let mut ready = 0;
    for entry in fds {
        entry.revents = match table::entry(entry.fd) {
            Entry::File(_) => match file::of(entry.fd) {
                Some(file) => sync::poll_once(&file, entry.fd, entry.events).events,
                None => POLLNVAL,
            },
            Entry::Set(set) => epoll::is_ready(set, entry.events),
            // The library's own descriptors are closed ones to the program.
            Entry::Private => POLLNVAL,
            Entry::Other => continue,
        };
        ready += usize::from(entry.revents != 0);
    }
    ready
}

fn ask(fds: &[pollfd]) {
    for entry in fds {
        match table::entry(entry.fd) {
            Entry::File(_) => drop(file::of(entry.fd).map(|file| sync::ask(&file, entry.events))),
            Entry::Set(set) => epoll::ask(set),
            _ => {}
        }
    }
}

fn withdraw(fds: &[pollfd]) {
    for entry in fds {
        match table::entry(entry.fd) {
            Entry::File(_) => drop(file::of(entry.fd).map(|file| sync::withdraw(&file, entry.events))),
            Entry::Set(set) => epoll::withdraw(set),
            _ => {}
        }
    }
}

/// Sleeps in the kernel: fills in the `revents` of descriptors that are not netmap's. With `for_ours`, a call for a netmap descriptor or the
/// end of its connection ends the sleep, too.
fn sleep(
    fds: &mut [pollfd],
    sleepers: &mut [pollfd],
    limit: Option<Limit>,
    mask: Mask,
    for_ours: bool,
) -> Result<(), c_int> {
    let mut used = fds.len();
    let waits = for_ours && limit != Some(Limit::Now);
    let (first, second) = sleepers.split_at_mut(fds.len());
    let mut connections = second.iter_mut();
    for (entry, sleeper) in fds.iter().zip(first) {
        *sleeper = match table::entry(entry.fd) {
            Entry::Private => NONE,
            Entry::File(_) => {
                if for_ours && let Some(connection) = connections.next() {
                    *connection = pollfd { fd: entry.fd, events: POLLRDHUP, revents: 0 };
                    used += 1;
                }
                match file::of(entry.fd).filter(|_| waits) {
                    Some(file) => pollfd { fd: file.begin_wait(), events: POLLIN, revents: 0 },
                    None => NONE,
                }
            }
            Entry::Set(_) if !for_ours => NONE,
            _ => pollfd { revents: 0, ..*entry },
        };
    }
    let left = limit.and_then(Limit::left);
    let time = left.as_ref().map_or(null(), std::ptr::from_ref);
    // SAFETY: `used` descriptors, a time or null, the caller's mask or null with the kernel's size of a mask.
    let ready = unsafe { libc::syscall(libc::SYS_ppoll, sleepers.as_mut_ptr(), used, time.cast_mut(), mask.0, 8usize) };
    let result = if ready < 0 { Err(crate::errno::get()) } else { Ok(()) };
    if waits {
        end_waits(fds, sleepers);
    }
    if ready > 0 {
        take(fds, &sleepers[..used]);
    }
    result
}

/// Gives back what the thread has slept for in place of netmap descriptors.
fn end_waits(fds: &[pollfd], sleepers: &[pollfd]) {
    for (entry, sleeper) in fds.iter().zip(sleepers) {
        if sleeper.fd >= 0
            && matches!(table::entry(entry.fd), Entry::File(_))
            && let Some(file) = file::of(entry.fd)
        {
            file.waiters.end(sleeper.fd, sleeper.revents != 0);
        }
    }
}

/// Takes over what the kernel found.
fn take(fds: &mut [pollfd], sleepers: &[pollfd]) {
    let (first, connections) = sleepers.split_at(fds.len());
    for (entry, sleeper) in fds.iter_mut().zip(first) {
        if table::entry(entry.fd) == Entry::Other {
            entry.revents = sleeper.revents;
        }
    }
    for connection in connections.iter().filter(|connection| connection.revents != 0) {
        let Some(file) = file::of(connection.fd) else { continue };
        if connection.revents & (POLLHUP | POLLERR) != 0 {
            file.end();
        }
        if file.look_for_end(connection.fd) {
            mark_ended(fds, connection.fd);
        }
    }
}

fn mark_ended(fds: &mut [pollfd], fd: c_int) {
    fds.iter_mut().filter(|entry| entry.fd == fd).for_each(|entry| entry.revents = POLLERR);
}
