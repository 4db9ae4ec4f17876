//! `poll`, `select`, `epoll` and their relatives.

use std::ffi::c_int;

use libc::{EPOLL_CTL_DEL, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use crate::descriptors::opened;
use crate::errno::{self, answer, kept};
use crate::real::call_real;
use crate::table::{self, Entry};
use crate::user;
use crate::wait::{self, Limit, Mask, Sets, epoll, set};

unsafe extern "C-unwind" {
    /// See pthread_testcancel(3).
    fn pthread_testcancel();
}

/// Ends the thread if it was cancelled: every wait is a cancellation point, also one that finds something at once.
fn test_cancel() {
    // SAFETY: the thread may be ended here as in libc's own wait: nothing has to be dropped.
    unsafe { pthread_testcancel() };
}

/// Returns the descriptors of a call if netmap's are among them.
///
/// # Safety
/// The caller of `poll` gives `number` descriptors.
#[inline]
unsafe fn with_netmap<'a>(fds: *mut pollfd, number: nfds_t) -> Option<&'a mut [pollfd]> {
    if number == 0 || table::is_empty() || !user::is_address(fds.cast()) {
        return None;
    }
    // SAFETY: as the caller says.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, number as usize) };
    fds.iter().any(|entry| table::entry(entry.fd) != Entry::Other).then_some(fds)
}

fn poll_netmap(fds: &mut [pollfd], limit: Limit, mask: *const sigset_t) -> c_int {
    test_cancel();
    let before = errno::get();
    let result = wait::poll(fds, limit, Mask(mask));
    errno::set(before);
    answer(result)
}

/// See poll(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, number: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: as the caller says.
    if let Some(fds) = unsafe { with_netmap(fds, number) } {
        return poll_netmap(fds, Limit::milliseconds(timeout), std::ptr::null());
    }
    call_real!(POLL as fn(*mut pollfd, nfds_t, c_int) -> c_int, fds, number, timeout)
}

/// `poll` with the size of its array, in programs that were built with `_FORTIFY_SOURCE`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __poll_chk(fds: *mut pollfd, number: nfds_t, timeout: c_int, bytes: size_t) -> c_int {
    // libc ends the program if the array is too short.
    if bytes / size_of::<pollfd>() >= number as usize {
        // SAFETY: as the caller says.
        if let Some(fds) = unsafe { with_netmap(fds, number) } {
            return poll_netmap(fds, Limit::milliseconds(timeout), std::ptr::null());
        }
    }
    call_real!(POLL_CHK as fn(*mut pollfd, nfds_t, c_int, size_t) -> c_int, fds, number, timeout, bytes)
}

fn ppoll_netmap(fds: &mut [pollfd], timeout: *const timespec, mask: *const sigset_t) -> c_int {
    // SAFETY: null or the caller's time.
    match Limit::time(unsafe { timeout.as_ref() }) {
        Some(limit) => poll_netmap(fds, limit, mask),
        None => answer(Err(libc::EINVAL)),
    }
}

/// See ppoll(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    number: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: as the caller says.
    if let Some(fds) = unsafe { with_netmap(fds, number) } {
        return ppoll_netmap(fds, timeout, mask);
    }
    call_real!(PPOLL as fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int, fds, number, timeout, mask)
}

/// `ppoll` with the size of its array.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    number: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    bytes: size_t,
) -> c_int {
    if bytes / size_of::<pollfd>() >= number as usize {
        // SAFETY: as the caller says.
        if let Some(fds) = unsafe { with_netmap(fds, number) } {
            return ppoll_netmap(fds, timeout, mask);
        }
    }
    call_real!(
        PPOLL_CHK as fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t, size_t) -> c_int,
        fds,
        number,
        timeout,
        mask,
        bytes
    )
}

/// Returns the sets of a call if netmap's descriptors are among theirs.
fn with_netmap_in(sets: Sets) -> Option<Sets> {
    if !sets.are_addresses() {
        return None;
    }
    let sets = sets.bounded();
    sets.concern_netmap().then_some(sets)
}

/// See select(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn select(
    number: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    if !table::is_empty()
        && let Some(sets) = with_netmap_in(Sets { number, read, write, except })
    {
        // SAFETY: null or the caller's time.
        return select_netmap(sets, unsafe { timeout.as_mut() });
    }
    call_real!(
        SELECT as fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int,
        number,
        read,
        write,
        except,
        timeout
    )
}

fn select_netmap(sets: Sets, timeout: Option<&mut timeval>) -> c_int {
    test_cancel();
    // Microseconds beyond a second are carried over.
    let time = timeout.as_ref().map(|time| timespec {
        tv_sec: time.tv_sec.saturating_add(time.tv_usec.div_euclid(1_000_000)),
        tv_nsec: time.tv_usec.rem_euclid(1_000_000) * 1000,
    });
    let is_negative = timeout.as_ref().is_some_and(|time| time.tv_sec < 0 || time.tv_usec < 0);
    let Some(mut limit) = Limit::time(time.as_ref()).filter(|_| !is_negative) else {
        return answer(Err(libc::EINVAL));
    };
    if timeout.is_some() {
        limit.begin();
    }
    let result = kept(|| wait::select(sets, limit, Mask(std::ptr::null())));
    // Linux writes the time that is left.
    if let (Some(time), Some(left)) = (timeout, limit.left()) {
        *time = timeval { tv_sec: left.tv_sec, tv_usec: left.tv_nsec / 1000 };
    }
    answer(result)
}

/// See pselect(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pselect(
    number: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    if !table::is_empty()
        && let Some(sets) = with_netmap_in(Sets { number, read, write, except })
    {
        test_cancel();
        // SAFETY: null or the caller's time.
        return match Limit::time(unsafe { timeout.as_ref() }) {
            Some(limit) => answer(kept(|| wait::select(sets, limit, Mask(mask)))),
            None => answer(Err(libc::EINVAL)),
        };
    }
    call_real!(
        PSELECT as fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *const timespec, *const sigset_t) -> c_int,
        number,
        read,
        write,
        except,
        timeout,
        mask
    )
}

/// See epoll_create(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    opened(call_real!(EPOLL_CREATE as fn(c_int) -> c_int, size))
}

/// See epoll_create1(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    opened(call_real!(EPOLL_CREATE1 as fn(c_int) -> c_int, flags))
}

/// See epoll_ctl(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    if matches!(table::entry(fd), Entry::File(_) | Entry::Set(_)) {
        // The kernel does not look at the event of a descriptor that is taken out.
        let event = match operation {
            EPOLL_CTL_DEL => Ok(epoll_event { events: 0, u64: 0 }),
            _ => user::read(event.addr() as u64),
        };
        return answer(kept(|| set::change(set, operation, fd, event?)).map(|()| 0));
    }
    call_real!(EPOLL_CTL as fn(c_int, c_int, c_int, *mut epoll_event) -> c_int, set, operation, fd, event)
}

/// Waits for a set that has netmap descriptors.
///
/// # Safety
/// The caller gives room for `most` events.
unsafe fn wait_netmap(set: c_int, events: *mut epoll_event, most: c_int, limit: Limit, mask: *const sigset_t) -> c_int {
    test_cancel();
    if most <= 0 || !user::is_address(events.cast()) {
        return answer(Err(if most <= 0 { libc::EINVAL } else { libc::EFAULT }));
    }
    // SAFETY: as the caller says.
    let events = unsafe { std::slice::from_raw_parts_mut(events, most as usize) };
    answer(kept(|| epoll::wait(set, events, limit, Mask(mask))))
}

#[inline]
fn is_set(fd: c_int) -> bool {
    matches!(table::entry(fd), Entry::Set(_))
}

/// A wait for a set: by `libc` unless the set has netmap descriptors. If the set gets its first one during the wait, the wait goes on here.
/// Another process that shares the set, or the set's other descriptor, may have given it netmap descriptors: then the wait goes on in libc.
///
/// # Safety
/// As the caller of epoll_pwait says.
unsafe fn wait_for(
    (set, events, most): (c_int, *mut epoll_event, c_int),
    mut limit: Limit,
    mask: *const sigset_t,
    libc: impl Fn(Limit) -> c_int,
) -> c_int {
    while !is_set(set) {
        limit.begin();
        let found = libc(limit);
        if found <= 0 {
            return found;
        }
        // SAFETY: the kernel has written so many events.
        let kept = epoll::without_tokens(unsafe { std::slice::from_raw_parts_mut(events, found as usize) });
        if kept > 0 {
            return kept as c_int;
        }
        if !is_set(set) {
            if limit.is_over() {
                return 0;
            }
            // The library's event stays in the kernel's set until the other process has taken it out.
            let pause = timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            let slept = call_real!(
                PPOLL as fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int,
                std::ptr::null_mut(),
                0,
                &raw const pause,
                mask
            );
            if slept < 0 {
                return slept;
            }
        }
    }
    // SAFETY: as the caller says.
    unsafe { wait_netmap(set, events, most, limit, mask) }
}

/// See epoll_wait(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_wait(set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int {
    let libc = |limit: Limit| {
        let timeout = limit.left_milliseconds();
        call_real!(EPOLL_WAIT as fn(c_int, *mut epoll_event, c_int, c_int) -> c_int, set, events, most, timeout)
    };
    // SAFETY: as the caller says.
    unsafe { wait_for((set, events, most), Limit::milliseconds(timeout), std::ptr::null(), libc) }
}

/// See epoll_pwait(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    let libc = |limit: Limit| {
        let timeout = limit.left_milliseconds();
        call_real!(
            EPOLL_PWAIT as fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int,
            set,
            events,
            most,
            timeout,
            mask
        )
    };
    // SAFETY: as the caller says.
    unsafe { wait_for((set, events, most), Limit::milliseconds(timeout), mask, libc) }
}

/// See epoll_pwait2(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let kernel = |timeout: *const timespec| {
        call_real!(
            EPOLL_PWAIT2 as fn(c_int, *mut epoll_event, c_int, *const timespec, *const sigset_t) -> c_int,
            set,
            events,
            most,
            timeout,
            mask
        )
    };
    if !is_set(set) && !timeout.is_null() && !user::is_address(timeout.cast()) {
        return kernel(timeout);
    }
    let libc = |limit: Limit| kernel(limit.left().as_ref().map_or(std::ptr::null(), std::ptr::from_ref));
    // SAFETY: null or the caller's time.
    match Limit::time(unsafe { timeout.as_ref() }) {
        // SAFETY: as the caller says.
        Some(limit) => unsafe { wait_for((set, events, most), limit, mask, libc) },
        None => answer(Err(libc::EINVAL)),
    }
}
