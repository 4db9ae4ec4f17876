//! Waits for epoll sets that have netmap descriptors.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr::null;

use libc::{POLLIN, epoll_event};

use super::mask::Mask;
use super::set;
use super::sleep::Sleep;
use super::time::Limit;

/// Waits for the descriptors of a set that has netmap descriptors.
///
/// # Errors
/// As `epoll_pwait2`. EBADF: another thread has closed the descriptor, which ends the wait.
pub(crate) fn wait(set_fd: c_int, events: &mut [epoll_event], mut limit: Limit, mask: Mask) -> Result<c_int, c_int> {
    let id = set::of(set_fd).ok_or(libc::EBADF)?;
    if events.is_empty() {
        return Err(libc::EINVAL);
    }
    loop {
        let mut has_own = true;
        if limit == Limit::Now {
            set::recall(id);
        } else if set::look(id).events == 0 {
            limit.begin();
            has_own = sleep(id, set_fd, limit, mask)?;
        }
        // The number may be another descriptor's by now, even if the set has others.
        if set::of(set_fd) != Some(id) {
            return Err(libc::EBADF);
        }
        let mask = if limit == Limit::Now { mask } else { Mask(null()) };
        let saw_token = Cell::new(false);
        let fetch = |room: &mut [epoll_event]| match set::of(set_fd) {
            Some(same) if same == id => own(set_fd, room, mask, &saw_token),
            _ => Err(libc::EBADF),
        };
        let collected = set::collect(id, events, |room| if has_own { fetch(room) } else { Ok(0) });
        if saw_token.get() {
            set::see_token(id, set_fd);
        }
        let count = collected?;
        // A program that never sleeps learns of the daemon's end by a look now and then.
        let is_found_ended = limit == Limit::Now && count == 0 && set::is_found_ended(id);
        if count > 0 || limit.is_over() && !is_found_ended {
            return Ok(count as c_int);
        }
    }
}

/// Sleeps until the set may have something to report. Returns true if the kernel's set has.
fn sleep(id: set::Id, set_fd: c_int, limit: Limit, mask: Mask) -> Result<bool, c_int> {
    let mut sleep = Sleep::new();
    sleep.add_program(0, set_fd, POLLIN);
    sleep.add_set(id);
    // A frame may have come before the switch could see the request.
    let found = set::look(id);
    let is_ready = found.events != 0;
    sleep.is_partial |= found.is_partial;
    let slept = if is_ready { Ok(()) } else { sleep.run(limit, mask) };
    let mut has_own = is_ready;
    if slept.is_ok() {
        sleep.look_for_ends();
        sleep.report(|_, _| has_own = true);
    }
    sleep.end();
    slept.map(|()| has_own)
}

/// Fetches the events of the program's other descriptors from the kernel's set. Notes whether the library's own was among them.
fn own(set_fd: c_int, events: &mut [epoll_event], mask: Mask, saw_token: &Cell<bool>) -> Result<usize, c_int> {
    let most = events.len() as c_int;
    // SAFETY: `most` events; the caller's mask or null with the kernel's size of a mask.
    let found = unsafe { libc::syscall(libc::SYS_epoll_pwait, set_fd, events.as_mut_ptr(), most, 0, mask.0, 8usize) };
    let found = usize::try_from(found).map_err(|_| crate::errno::get())?;
    let kept = set::without_tokens(&mut events[..found]);
    saw_token.set(kept < found);
    Ok(kept)
}

/// Takes the library's own events out of what libc's `epoll_wait` has returned for a set that had no netmap descriptor before.
/// Returns how many remain.
pub(crate) fn without_tokens(events: &mut [epoll_event]) -> usize {
    set::without_tokens(events)
}
