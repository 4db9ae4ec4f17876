//! `poll` and `ppoll` with netmap descriptors among the descriptors.

use std::ffi::{c_int, c_short};
use std::ptr::null;

use libc::{POLLNVAL, pollfd};

use super::mask::Mask;
use super::set;
use super::sleep::Sleep;
use super::time::Limit;
use crate::sync::Ready;
use crate::table::{self, Entry};
use crate::{file, sync};

/// Waits for descriptors, some of which are netmap's. Fills in `revents`, and returns how many descriptors are ready.
///
/// # Errors
/// As `ppoll`.
pub(crate) fn poll(fds: &mut [pollfd], mut limit: Limit, mask: Mask) -> Result<c_int, c_int> {
    loop {
        fds.iter_mut().for_each(|entry| entry.revents = 0);
        if look(fds).count > 0 {
            ask_kernel(fds, false, Mask(null()))?;
        } else if limit == Limit::Now {
            ask_kernel(fds, true, mask)?;
        } else {
            limit.begin();
            sleep(fds, limit, mask)?;
        }
        let ready = fds.iter().filter(|entry| entry.revents != 0).count();
        if ready > 0 || limit == Limit::Now || limit.is_over() {
            return Ok(ready as c_int);
        }
    }
}

/// What a look has found.
#[derive(Clone, Copy, Default)]
struct Found {
    /// Netmap descriptors that are ready.
    count: usize,
    /// As [`Ready::is_partial`].
    is_partial: bool,
}

/// Synchronises all netmap descriptors, and sets their `revents`. Leaves the others' alone.
fn look(fds: &mut [pollfd]) -> Found {
    let closed = Ready { events: POLLNVAL, ..Ready::default() };
    let mut found = Found::default();
    for entry in fds {
        let ready = match table::entry(entry.fd) {
            Entry::File(_) => file::of(entry.fd).map_or(closed, |file| sync::poll_once(&file, entry.fd, entry.events)),
            Entry::Set(_) => set::of(entry.fd).map_or(closed, |id| {
                let ready = set::look(id);
                Ready { events: ready.events & entry.events, ..ready }
            }),
            // The library's own descriptors are closed ones to the program.
            Entry::Private => closed,
            Entry::Other => continue,
        };
        entry.revents |= ready.events;
        found.count += usize::from(entry.revents != 0);
        found.is_partial |= ready.is_partial;
    }
    found
}

/// Adds the descriptors that are the kernel's, and the sets, in which the kernel has descriptors of the program.
fn add_others(sleep: &mut Sleep, fds: &[pollfd]) -> usize {
    let mut count = 0;
    for (place, entry) in fds.iter().enumerate() {
        match table::entry(entry.fd) {
            Entry::File(_) | Entry::Private => continue,
            Entry::Set(_) => {
                if let Some(id) = set::of(entry.fd) {
                    set::lose_token(id, entry.fd);
                }
            }
            Entry::Other if entry.fd < 0 => continue,
            Entry::Other => {}
        }
        sleep.add_program(place, entry.fd, entry.events);
        count += 1;
    }
    count
}

/// Asks the kernel what is ready at once, with the ends of the connections if that is wanted.
fn ask_kernel(fds: &mut [pollfd], with_ends: bool, mask: Mask) -> Result<(), c_int> {
    let mut sleep = Sleep::new();
    let others = add_others(&mut sleep, fds);
    if with_ends {
        for entry in fds.iter().filter(|entry| matches!(table::entry(entry.fd), Entry::File(_))) {
            sleep.add_connection(entry.fd);
        }
    }
    let asked = if others > 0 || with_ends { sleep.run(Limit::Now, mask) } else { Ok(()) };
    if asked.is_ok() {
        take(fds, &mut sleep);
    }
    sleep.end();
    asked
}

/// Sleeps until something may be ready.
fn sleep(fds: &mut [pollfd], limit: Limit, mask: Mask) -> Result<(), c_int> {
    let mut sleep = Sleep::new();
    add_others(&mut sleep, fds);
    for entry in &*fds {
        match table::entry(entry.fd) {
            Entry::File(_) => sleep.add_file(file::of(entry.fd), entry.fd, entry.events),
            Entry::Set(_) => {
                if let Some(id) = set::of(entry.fd) {
                    sleep.add_set(id);
                }
            }
            Entry::Other | Entry::Private => {}
        }
    }
    // A frame may have come before the switch could see the request.
    let found = look(fds);
    sleep.is_partial |= found.is_partial;
    let limit = if found.count > 0 { Limit::Now } else { limit };
    let mask = if limit == Limit::Now { Mask(null()) } else { mask };
    let slept = sleep.run(limit, mask);
    if slept.is_ok() {
        take(fds, &mut sleep);
    }
    sleep.end();
    slept
}

/// Takes over what the kernel found, and what it woke the thread up for.
fn take(fds: &mut [pollfd], sleep: &mut Sleep) {
    sleep.look_for_ends();
    look(fds);
    sleep.report(|place, found: c_short| fds[place].revents |= found);
}
